package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// runCall reads a simple command.
func (r *reader) runCall(c *syntax.CallExpr, at place) stream {
	if len(c.Args) == 0 {
		for _, a := range c.Assigns {
			r.assign(a, false)
		}
		return stream{known: true}
	}
	if text, ok := r.expandAlias(c); ok {
		k := key{kindAlias, c.Args[0].Lit()}
		alias := r.names[k]
		r.set(k, nil) // it does not expand in itself
		out := r.readText(text, at.in)
		r.set(k, alias)
		r.emit(r.readWords(c.Args), at, "") // where aliases are not expanded
		return out
	}
	words := r.readWords(c.Args)
	if len(c.Assigns) == 0 {
		return r.runWords(words, at)
	}
	set := r.mark()
	for _, a := range c.Assigns {
		r.assign(a, true)
	}
	names := make([]key, 0, len(c.Assigns))
	for _, ch := range r.journal[set:] {
		names = append(names, ch.key)
	}
	old := make([]*value, len(names))
	for i, ch := range r.journal[set:] {
		old[i] = ch.old
	}
	out := r.runWords(words, at)
	for i := len(names) - 1; i >= 0; i-- { // the assignments end with the command, what it set does not
		r.set(names[i], old[i])
	}
	return out
}

// expandAlias is the text of a call whose program is an alias of the text.
func (r *reader) expandAlias(c *syntax.CallExpr) (string, bool) {
	name := c.Args[0].Lit()
	v := r.names[key{kindAlias, name}]
	if name == "" || v == nil || v.array {
		return "", false
	}
	first, last := c.Args[0].End().Offset(), c.End().Offset()
	if first > last || last > uint(len(r.source)) {
		return "", false
	}
	return v.text + " " + r.source[first:last], true
}

// assign reads an assignment.
func (r *reader) assign(a *syntax.Assign, exported bool) {
	if a.Name == nil {
		r.readWord(a.Value)
		return
	}
	k := key{kindVariable, a.Name.Value}
	old := r.names[k]
	v := &value{exported: exported || old != nil && old.exported}
	switch {
	case a.Naked && a.Index == nil:
		if exported && old != nil {
			v := *old
			v.exported = true
			r.set(k, &v)
			r.checkVariable(a.Name.Value, Word{Text: v.text, Known: !v.array})
		}
		return
	case a.Index != nil:
		r.readSubscripts(a.Index)
		w := r.readWord(a.Value)
		if a.Name.Value == "BASH_ALIASES" || a.Name.Value == "BASH_CMDS" {
			r.unknown("%s gives a program another name", a.Name.Value)
		}
		r.checkSubscript(w.Text)
		r.set(k, nil)
		return
	case a.Array != nil:
		v.array = true
		for _, e := range a.Array.Elems {
			if e.Index != nil {
				r.readSubscripts(e.Index)
				v = nil
			}
			if e.Value == nil {
				continue
			}
			words := r.splitWord(e.Value)
			if v != nil {
				v.list = append(v.list, words...)
			}
		}
		if v != nil && (a.Append || len(v.list) > maxUnroll) {
			v = nil
		}
		r.set(k, v)
		return
	}
	w := r.readWord(a.Value)
	if a.Append {
		if old == nil || old.array {
			w.Known = false
		} else {
			w.Text = old.text + w.Text
		}
	}
	r.checkSubscript(w.Text)
	r.checkVariable(a.Name.Value, w)
	if !w.Known || len(w.Text) > maxValue {
		r.set(k, nil)
		return
	}
	v.text = w.Text
	r.set(k, v)
}

// commandVariables hold a command that another program runs.
var commandVariables = makeSet("EDITOR VISUAL PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_PAGER GIT_SSH_COMMAND GIT_SSH " +
	"GIT_EXTERNAL_DIFF GIT_ASKPASS SSH_ASKPASS GIT_PROXY_COMMAND GIT_CONFIG_VALUE_0 GIT_CONFIG_VALUE_1 GIT_CONFIG_VALUE_2 " +
	"PROMPT_COMMAND MANPAGER LESSOPEN LESSCLOSE BROWSER RSYNC_RSH CVS_RSH FZF_DEFAULT_COMMAND TAR_OPTIONS MAKEFLAGS")

// checkVariable reads the value of a variable that makes another program run something.
func (r *reader) checkVariable(name string, w Word) {
	switch {
	case commandVariables[name]:
		r.readCommandText(w, "the variable "+name)
	case name == "BASH_ENV" || name == "ENV":
		r.runFile(w, nil, "the variable "+name)
	case name == "PS0" || name == "PS1" || name == "PS4":
		if !w.Known || strings.Contains(w.Text, "$(") || strings.Contains(w.Text, "`") {
			r.unknown("the prompt %s may run a command", name)
		}
	case name == "LD_PRELOAD" || name == "LD_AUDIT" || name == "GIT_CONFIG_PARAMETERS" || name == "GIT_EXEC_PATH" || strings.HasPrefix(name, "BASH_FUNC_"):
		r.unknown("the variable %s puts code into other programs", name)
	}
}

// readCommandText reads a text that a program gives to a shell of its own.
func (r *reader) readCommandText(w Word, by string) stream {
	if !w.Known {
		r.unknown("%s runs text that is not known before it runs", by)
		return stream{}
	}
	return r.readInner(w.Text, nil, stream{})
}

// runDeclaration reads declare, local, export, readonly, typeset and nameref.
func (r *reader) runDeclaration(c *syntax.DeclClause) {
	exported := c.Variant.Value == "export"
	reference, unsteady := c.Variant.Value == "nameref", c.Variant.Value == "readonly"
	for _, a := range c.Args {
		if a.Naked && a.Name == nil {
			switch w := r.readWord(a.Value); {
			case strings.HasPrefix(w.Text, "-") && w.Known:
				exported = exported || strings.Contains(w.Text, "x")
				reference = reference || strings.Contains(w.Text, "n")
				unsteady = unsteady || strings.ContainsAny(w.Text, "ruliAc")
			case !w.Known:
				r.forgetVariables(false) // export "$x" sets what $x names
			default:
				r.assignText(w.Text, exported)
			}
			continue
		}
		r.assign(a, exported)
		switch {
		case a.Name == nil:
		case reference: // another name for any of them
			r.unsteady["*"] = true
			r.forgetVariables(false)
		case unsteady:
			r.unsteady[a.Name.Value] = true
			if c.Variant.Value != "readonly" {
				r.set(key{kindVariable, a.Name.Value}, nil)
			}
		}
	}
}

// assignText is an assignment that is a word: export "$x", env A=b.
func (r *reader) assignText(text string, exported bool) {
	name, v, ok := strings.Cut(text, "=")
	name = strings.TrimSuffix(name, "+")
	r.checkSubscript(text)
	if i := strings.IndexByte(name, '['); i >= 0 {
		name, ok = name[:i], false
	}
	r.checkVariable(name, Word{Text: v, Known: true})
	k := key{kindVariable, name}
	if !ok || strings.Contains(text, "+=") {
		r.set(k, nil)
		return
	}
	r.set(k, &value{text: v, exported: exported})
}

func makeSet(words string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}

// emit adds a command.
func (r *reader) emit(words []Word, at place, code string) {
	if !r.step(0) {
		return
	}
	words = append([]Word(nil), words...)
	for i := range words {
		if strings.HasPrefix(words[i].Text, substitutionFile) {
			words[i] = Word{}
		}
	}
	for _, f := range r.folders() {
		r.script.Commands = append(r.script.Commands, Command{Words: words, Writes: at.writes, Code: code, Folder: f})
	}
}

// runWords reads a command by its words: prefixes, builtins, shells, scripts, other interpreters, git.
func (r *reader) runWords(words []Word, at place) stream {
	if len(words) == 0 {
		return stream{known: true}
	}
	if !r.step(len(words)) || !r.enter() {
		return stream{}
	}
	defer r.leave()
	program := words[0]
	if !program.Known {
		if !program.base || program.split {
			r.emit(words, at, "")
			r.unknown("which program runs is not known before it runs: %s", sayWords(words))
			return stream{}
		}
		name := path.Base(program.Text)
		if strings.HasSuffix(name, ".sh") {
			r.unknown("the script %s is not known before it runs", name)
		}
		words = append([]Word{{Text: name, Known: true}}, words[1:]...)
		return r.runProgram(name, words, at)
	}
	name := path.Base(program.Text)
	if f := r.names[key{kindFunction, program.Text}]; f != nil && !at.external {
		r.emit(words, at, "")
		return r.callFunction(f.function, words, at)
	}
	if strings.Contains(program.Text, "/") {
		if out, ok := r.runScript(words, at); ok {
			return out
		}
	} else if v := r.names[key{kindAlias, program.Text}]; v != nil && v.array { // of hash -p
		return r.runWords(append([]Word{{Text: v.text, Known: true}}, words[1:]...), at)
	} else if v != nil && r.aliasesNext {
		r.unknown("the alias %s may be expanded: %s", program.Text, sayWords(words))
	} else if r.wroteProgram(name) {
		r.unknown("the text writes a file %s, which may be the program of that name", name)
	}
	return r.runProgram(strings.TrimPrefix(name, "="), words, at)
}

func sayWords(words []Word) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		if i == 6 || b.Len() > 80 {
			b.WriteString("...")
			break
		}
		b.WriteString(w.Text)
		if !w.Known {
			b.WriteString("$?")
		}
	}
	return b.String()
}

// runProgram reads a command whose program is known.
func (r *reader) runProgram(name string, words []Word, at place) stream {
	if p, ok := prefixes[name]; ok {
		return r.runPrefix(name, p, words, at)
	}
	if run := programOf(name); run != nil {
		return run(r, words, at)
	}
	switch {
	case strings.HasPrefix(name, "git-"):
		git := append([]Word{{Text: "git", Known: true}, {Text: strings.TrimPrefix(name, "git-"), Known: true}}, words[1:]...)
		return runGit(r, git, at)
	case strings.HasPrefix(name, "ld-linux") || strings.HasPrefix(name, "ld-musl"):
		return r.runPrefix(name, prefix{values: "--library-path --preload --audit --argv0"}, words, at)
	}
	if i, ok := interpreterOf(name); ok {
		return r.runInterpreter(i, words, at)
	}
	r.emit(words, at, "")
	r.checkOptions(name, words)
	return stream{path: printsPath(words)}
}

// printsPath reports whether a command prints one name of a file.
func printsPath(words []Word) bool {
	second := ""
	if len(words) > 1 {
		second = words[1].Text
	}
	switch words[0].Text + " " + second {
	case "go env", "git rev-parse", "git --exec-path", "npm root", "npm bin", "npm prefix", "brew --prefix", "xcrun --find":
		return true
	}
	switch words[0].Text {
	case "dirname", "mktemp", "realpath", "readlink", "nproc", "id", "uname", "whoami", "hostname":
		return true
	}
	return false
}

// callFunction reads a function's body with the words of the call.
func (r *reader) callFunction(f *function, words []Word, at place) stream {
	for _, other := range f.calls {
		if slices.Equal(other, words) { // it is being read
			return stream{}
		}
	}
	if len(f.calls) >= 3 {
		f.lost = true // with other words it may do something else
		return stream{}
	}
	f.called = true
	f.calls = append(f.calls, words)
	source := r.source
	r.source = f.source
	before := r.names[key{kindParameters, ""}]
	r.set(key{kindParameters, ""}, &value{list: words})
	out := r.inBranch(func() stream { return r.run(f.body, at.in) })
	r.set(key{kindParameters, ""}, before)
	r.source = source
	f.calls = f.calls[:len(f.calls)-1]
	return out
}

// formatPrintf is what printf prints, where its format is of a simple kind.
func formatPrintf(words []Word) stream {
	if len(words) == 0 || !allKnown(words) {
		return stream{}
	}
	var args []string
	for _, w := range words[1:] {
		if strings.Contains(w.Text, `\`) {
			return stream{}
		}
		args = append(args, w.Text)
	}
	layout := words[0].Text
	verbs := strings.Count(layout, "%s") + strings.Count(layout, "%b")
	if strings.Count(layout, "%") != verbs || strings.Contains(layout, `\c`) {
		return stream{}
	}
	if args == nil {
		args = []string{}
	}
	out := stream{known: true}
	for {
		text, n, err := expand.Format(nil, layout, args)
		if err != nil {
			return stream{}
		}
		out = out.add(stream{text: text, known: true})
		if args = args[n:]; n == 0 || len(args) == 0 || !out.known {
			return out
		}
	}
}

// formatEcho is what echo prints, in shells that do and do not know its options.
func formatEcho(words []Word) stream {
	newline := "\n"
	for len(words) > 0 && len(words[0].Text) > 1 && words[0].Text[0] == '-' && strings.Trim(words[0].Text[1:], "neE") == "" {
		if strings.Contains(words[0].Text, "n") {
			newline = ""
		}
		words = words[1:]
	}
	text := joinWords(words)
	if !allKnown(words) || strings.Contains(text, `\`) || len(text) > maxValue {
		return stream{}
	}
	return stream{text: text + newline, known: true}
}
