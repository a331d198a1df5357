package shell

import (
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// key names something that a shell knows.
type key struct {
	kind kind
	name string
}

type kind byte

const (
	kindVariable kind = iota
	kindFunction
	kindAlias
	kindGitAlias
	kindFile       // what the text wrote, by its resolved name
	kindFolder     // the working folder
	kindParameters // $0 $1 ...
)

func (k key) isOnDisk() bool { return k.kind == kindFile || k.kind == kindGitAlias }

// value is what is known of a name.
type value struct {
	text     string
	list     []Word // of an array and of the parameters; of the folder, others where the shell may be
	failures int    // of the folder: how many of these hold if cd failed
	array    bool
	exported bool
	opaque   bool // of a file: it was written, and its content is not known
	function *function
}

func (v *value) equal(w *value) bool {
	if v == nil || w == nil {
		return v == w
	}
	if len(v.list) != len(w.list) {
		return false
	}
	for i := range v.list {
		if v.list[i] != w.list[i] {
			return false
		}
	}
	return v.text == w.text && v.array == w.array && v.opaque == w.opaque && v.function == w.function
}

// function is one that the text declares.
type function struct {
	body   *syntax.Stmt
	source string
	called bool     // with what is known at the call
	lost   bool     // it may be called where that was not seen
	calls  [][]Word // the words of the calls that are being read
}

// change is what a name held before it was set.
type change struct {
	key key
	old *value
}

// set keeps a value; nil forgets.
func (r *reader) set(k key, v *value) {
	old := r.names[k]
	if k.kind == kindVariable {
		r.assigned[k.name] = true
		if r.unsteady[k.name] || r.unsteady["*"] || changesAlone[k.name] {
			v = nil
		}
	}
	if old == nil && v == nil {
		return
	}
	r.journal = append(r.journal, change{k, old})
	if v == nil {
		delete(r.names, k)
	} else {
		r.names[k] = v
	}
}

// changesAlone are variables that the shell sets.
var changesAlone = makeSet("_ RANDOM SRANDOM SECONDS EPOCHSECONDS EPOCHREALTIME LINENO BASHPID BASH_COMMAND BASH_REMATCH BASH_ARGV FUNCNAME " +
	"PIPESTATUS REPLY MAPFILE OPTARG OPTIND OLDPWD COPROC DIRSTACK COMP_LINE READLINE_LINE")

// mark begins a scope, which undo or merge ends.
func (r *reader) mark() int { return len(r.journal) }

// undo leaves a subshell: nothing that was set in it remains but what it wrote.
func (r *reader) undo(mark int) {
	for i := len(r.journal) - 1; i >= mark; i-- {
		c := r.journal[i]
		switch {
		case c.key.isOnDisk():
		case c.old == nil:
			delete(r.names, c.key)
		default:
			r.names[c.key] = c.old
		}
	}
	r.journal = append(r.journal[:mark], slices.DeleteFunc(slices.Clone(r.journal[mark:]), func(c change) bool { return !c.key.isOnDisk() })...)
}

// merge leaves what may have run, wholly, in part or not at all: what was set in it is known only
// where it never differed.
func (r *reader) merge(mark int) {
	for _, c := range r.journal[mark:] {
		now := r.names[c.key]
		if now.equal(c.old) {
			continue
		}
		if c.key.kind == kindFolder {
			r.mergeFolders(c.old)
			continue
		}
		for _, v := range []*value{now, c.old} {
			if v != nil && v.function != nil {
				v.function.lost = true
			}
		}
		if c.key.kind == kindFile {
			r.set(c.key, &value{opaque: true})
		} else {
			r.set(c.key, nil)
		}
	}
}

// inBranch reads what may or may not run.
func (r *reader) inBranch(read func() stream) stream {
	mark := r.mark()
	out := read()
	r.merge(mark)
	return out
}

// inSubshell reads what a subshell runs.
func (r *reader) inSubshell(read func() stream) stream {
	mark := r.mark()
	defer r.undo(mark)
	return read()
}

// forgetVariables is for what may run before or after what sets any of them; all forgets the folder
// and what was written, too.
func (r *reader) forgetVariables(all bool) {
	r.step(64 * len(r.names))
	for k, v := range r.names {
		switch k.kind {
		case kindVariable, kindParameters:
			r.set(k, nil)
		case kindFolder:
			if all {
				r.set(k, nil)
			}
		case kindFile:
			if all && !v.opaque {
				r.set(k, &value{opaque: true})
			}
		case kindFunction, kindAlias, kindGitAlias:
		}
	}
}
