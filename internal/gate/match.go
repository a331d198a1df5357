package gate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/shell"
)

// Match is a gate that a use belongs to, or may belong to.
type Match struct {
	Gate Gate
	// Unknown explains to the agent why it is uncertain whether the use belongs to the gate. It is "" if the use does
	// belong to it.
	Unknown string
	// Commands are the commands of a shell line that belong to the gate, as indexes into Script.Commands. It is empty
	// for other tools.
	Commands []int
	// Anchored are the files matched by patterns that are relative to a project's folder. The files' own repositories
	// then determine the workflow.
	Anchored []Path
}

// fit is how a part of a use relates to a gate: yes, no, or unknown with a reason.
type fit struct {
	yes      bool
	unknown  string
	anchored []Path // as Match.Anchored
}

var fits = fit{yes: true}

func unknownBecause(format string, args ...any) fit {
	return fit{unknown: fmt.Sprintf(format, args...)}
}

func (f fit) no() bool { return !f.yes && f.unknown == "" }

// and combines two conditions that must both hold.
func (f fit) and(other fit) fit {
	switch {
	case f.no() || other.no():
		return fit{}
	case f.unknown != "":
		return f
	case other.unknown != "":
		return other
	}
	return fit{yes: true, anchored: slices.Concat(f.anchored, other.anchored)}
}

// or combines two conditions of which at least one must hold.
func (f fit) or(other fit) fit {
	if f.no() || other.yes && !f.yes {
		return other
	}
	if f.yes && other.yes {
		f.anchored = slices.Concat(f.anchored, other.anchored)
	}
	return f
}

// Match returns the gates that a use of a builtin tool belongs or may belong to, in configuration order.
func (c Config) Match(u Use) (out []Match) {
	for _, g := range c.Gates {
		if g.Builtin == "" {
			continue
		}
		if m, ok := g.match(u); ok {
			out = append(out, m)
		}
	}
	return out
}

// HasBuiltin reports whether any gate is on a builtin tool.
func (c Config) HasBuiltin() bool {
	return slices.ContainsFunc(c.Gates, func(g Gate) bool { return g.Builtin != "" })
}

// match returns the gate's Match, and false if the use does not belong to the gate.
func (g Gate) match(u Use) (Match, bool) {
	m := Match{Gate: g}
	if u.Tool == BuiltinShell {
		return g.matchScript(u)
	}
	if g.Builtin != u.Tool {
		return m, false
	}
	f := fit{yes: len(g.When) == 0}
	for _, w := range g.When {
		switch u.Tool {
		case BuiltinFetch:
			f = f.or(fit{yes: matchURL(u.URL, w.Hosts)})
		case BuiltinEdit:
			f = f.or(u.anyPath(u.Paths, w.Paths, true))
		case BuiltinRead:
			f = f.or(u.anyPath(u.Paths, w.Paths, false))
		}
	}
	m.Anchored = f.anchored
	return m, f.yes
}

// anyPath reports whether a pattern covers one of the paths or, if below is set, something that may be inside it.
func (u Use) anyPath(paths []Path, patterns []string, below bool) (f fit) {
	for _, p := range paths {
		for _, pattern := range patterns {
			if !u.covers(pattern, p, below) {
				continue
			}
			hit := fits
			if !isAbsolute(pattern) && !strings.HasPrefix(pattern, "~") {
				hit.anchored = []Path{p}
			}
			f = f.or(hit)
		}
	}
	return f
}

// matchScript is like match, for a shell line and a gate on any builtin tool.
func (g Gate) matchScript(u Use) (Match, bool) {
	m, entries := Match{Gate: g}, g.When
	if len(entries) == 0 {
		switch g.Builtin {
		case BuiltinShell:
			for i := range u.Script.Commands {
				m.Commands = append(m.Commands, i)
			}
			return m, true
		case BuiltinRead: // nearly every word may be a file name
			return m, false
		default:
			entries = []When{{Paths: []string{"/**"}, Hosts: []string{"*"}}}
		}
	}
	var all fit
	for i, command := range u.Script.Commands {
		var f fit
		for _, w := range entries {
			f = f.or(g.fitCommand(u, command, w))
		}
		if f.yes {
			m.Commands = append(m.Commands, i)
		}
		all = all.or(f)
	}
	for _, w := range entries {
		if g.Builtin == BuiltinEdit { // patches in the line name these paths
			all = all.or(u.anyPath(u.Paths, w.Paths, true))
		}
	}
	if !all.yes {
		all = all.or(g.fitUnknown(u.Script, entries))
	}
	m.Unknown, m.Anchored = all.unknown, all.anchored
	return m, !all.no()
}

// fitCommand compares a command with an entry.
func (g Gate) fitCommand(u Use, c shell.Command, w When) fit {
	switch g.Builtin {
	case BuiltinEdit:
		return u.fitWords(c.WritesTo(), w.Paths, isRecursive(c)).or(u.fitCode(c, w.Paths))
	case BuiltinRead:
		return u.fitReads(c, w.Paths).or(u.fitCode(c, w.Paths))
	case BuiltinFetch:
		return fitHosts(c, w.Hosts)
	}
	f := fits
	if len(w.Programs) > 0 {
		f = u.fitProgram(c, w.Programs)
	}
	if len(w.Args) > 0 {
		f = f.and(fitArgs(c, w.Args))
	}
	if len(w.Hosts) > 0 {
		f = f.and(fitHosts(c, w.Hosts))
	}
	if len(w.Paths) > 0 {
		f = f.and(u.fitWords(fileWords(c), w.Paths, isRecursive(c)))
	}
	return f
}

// fitUnknown checks the unreadable parts of a line. It returns an unknown fit if the gate's program may run in one,
// or may be run by a program that receives its name.
func (g Gate) fitUnknown(s shell.Script, entries []When) fit {
	var programs []string
	for _, w := range entries {
		programs = append(programs, w.Programs...)
	}
	for _, u := range s.Unknown {
		_, mentioned := findMention(u.Text, programs)
		if u.Program || mentioned || g.Builtin == BuiltinFetch && redirectsRequests(u.Text) {
			return fit{unknown: u.Reason}
		}
	}
	passed, isPassed := findMention(s.Passed, programs)
	for _, c := range s.Commands { // for example, gi? may expand to git
		for _, word := range listArguments(c) {
			glob := path.Base(word.Text)
			i := slices.IndexFunc(programs, func(name string) bool { ok, _ := path.Match(glob, name); return ok })
			if i >= 0 && word.Pattern && strings.Trim(glob, "*?") != "" && (!c.Plain || len(c.WritesTo()) > 0) {
				passed, isPassed = programs[i], true
			}
		}
	}
	for _, c := range s.Commands {
		if c.Plain {
			continue
		}
		name, mentioned := passed, isPassed
		for _, word := range listArguments(c) {
			if !mentioned {
				name, mentioned = findMention(word.Text, programs)
			}
		}
		if mentioned {
			return unknownBecause("`%s` may run `%s`, which is among its words or in a text of the line. Write that command itself, on its own line.", programName(c), name)
		}
	}
	return fit{}
}

// fileWords returns the words of a command that may name files, resolved: arguments, values of options within them,
// and the targets of redirections.
func fileWords(c shell.Command) (out []shell.Word) {
	for _, word := range listArguments(c) {
		out = append(out, c.Resolve(word))
		part := func(text string) {
			w := word
			w.Text = text
			out = append(out, c.Resolve(w))
		}
		if _, value, ok := strings.Cut(word.Text, "="); ok {
			part(value)
		}
		if rest := strings.TrimLeft(word.Text, "-@"); len(rest) < len(word.Text) && len(rest) > 1 { // -ofile, @file
			if word.Text[0] == '-' {
				rest = rest[1:]
			}
			part(rest)
		}
	}
	for _, word := range slices.Concat(c.Writes, c.Reads) {
		out = append(out, c.Resolve(word))
	}
	return slices.Concat(out, c.WritesTo(), c.ReadsFrom())
}

// FileWords returns the words of a command that may name files, resolved. They include its program.
func FileWords(c shell.Command) []shell.Word {
	words := fileWords(c)
	for _, name := range codeNames(c) {
		words = append(words, c.Resolve(shell.Word{Text: name, Known: true}))
	}
	if len(c.Words) > 0 {
		words = append(words, c.Resolve(c.Words[0]))
	}
	return words
}

// fitWords compares the files that words name with patterns. If below is set, a folder that may contain matching
// files makes the result unknown.
func (u Use) fitWords(words []shell.Word, patterns []string, below bool) (f fit) {
	for _, word := range words {
		f = f.or(u.fitWord(word, patterns, below))
	}
	return f
}

func (u Use) fitWord(word shell.Word, patterns []string, below bool) (f fit) {
	switch {
	case word.Pattern:
		for _, pattern := range patterns {
			f = f.or(u.fitGlob(word.Text, pattern, below))
		}
		return f
	case !word.Known:
		return unknownBecause("The file that %s names is not known. Write its name.", describeWord(word))
	}
	for _, p := range u.PathsOf(word.Text) {
		f = f.or(u.anyPath([]Path{p}, patterns, false))
		if below && p.Below && f.no() && u.anyPath([]Path{p}, patterns, true).yes {
			f = unknownBecause("The folder `%s` may contain files that the gate covers. Name the files.", word.Text)
		}
	}
	return f
}

// describeWord returns how a message refers to a word whose value is not known.
func describeWord(w shell.Word) string {
	if strings.TrimSpace(w.Text) == "" {
		return "one of its words"
	}
	return "`" + w.Text + "`"
}

// PathsOf returns the names of a file: those that were looked up, or else the name as written, made absolute.
func (u Use) PathsOf(name string) []Path {
	if paths, ok := u.Named[name]; ok {
		return paths
	}
	if rest, ok := strings.CutPrefix(name+"/", "~/"); ok && u.Home != "" {
		name = u.Home + "/" + rest
	}
	if !isAbsolute(name) {
		name = u.Working + "/" + name
	}
	return []Path{{Name: path.Clean(name)}}
}

// fitCode compares the names in program text for another interpreter (python -c) with patterns.
func (u Use) fitCode(c shell.Command, patterns []string) fit {
	for _, name := range codeNames(c) {
		if u.anyPath(u.PathsOf(c.Resolve(shell.Word{Text: name, Known: true}).Text), patterns, false).yes {
			return unknownBecause("The text for `%s` names `%s`, and its effect is unknown.", programName(c), name)
		}
	}
	return fit{}
}

// codeNames returns the possible names in those words of a command that are program text.
func codeNames(c shell.Command) (names []string) {
	if c.Plain || findSubcommand(c) != nil {
		return nil
	}
	for _, word := range listArguments(c) {
		if strings.ContainsAny(word.Text, " '\"();\n") {
			names = append(names, splitCode(word.Text)...)
		}
	}
	return names
}

// readers are programs that show or copy the files among their words.
var readers = strings.Fields("cat less more head tail bat nl tac cut sort uniq grep egrep fgrep rg ag sed awk jq yq cp mv tar zip gzip base64 xxd od hexdump strings source . diff cmp paste column dd rsync scp")

// fitReads compares the files that a command may read with patterns.
func (u Use) fitReads(c shell.Command, patterns []string) (f fit) {
	reads := slices.Contains(readers, programName(c))
	for _, word := range slices.Concat(fileWords(c), c.ReadsFrom()) {
		if word.Known || word.Pattern || reads {
			f = f.or(u.fitWord(word, patterns, false))
		}
	}
	return f
}

func listArguments(c shell.Command) []shell.Word {
	if len(c.Words) == 0 {
		return nil
	}
	return c.Words[1:]
}

// programName returns the name of a command's program without its folder, or "" if it is not known.
func programName(c shell.Command) string {
	if len(c.Words) == 0 || !c.Words[0].Known {
		return ""
	}
	name := strings.ToLower(path.Base(strings.ReplaceAll(c.Words[0].Text, `\`, "/")))
	return strings.TrimSuffix(name, ".exe")
}

// fitProgram compares a command's program with patterns, by its own name and by the target of a link. A program that
// is not known is reported as an unknown part of the line instead.
func (u Use) fitProgram(c shell.Command, patterns []string) fit {
	if len(c.Words) == 0 || !c.Words[0].Known {
		return fit{}
	}
	return fit{yes: matchAny(patterns, programName(c)) ||
		slices.ContainsFunc(u.Named[c.Resolve(c.Words[0]).Text], func(p Path) bool { return matchAny(patterns, path.Base(p.Name)) })}
}

// fitArgs reports whether each pattern matches a word, in order. A word that is not known may expand to any number of
// words.
func fitArgs(c shell.Command, patterns []string) fit {
	words := listArguments(c)
	if sub := findSubcommand(c); sub != nil && !strings.HasPrefix(patterns[0], "-") {
		if !engine.MatchName(patterns[0], sub[0].Text) {
			return fit{}
		}
		words, patterns = sub[1:], patterns[1:]
	}
	open := ""
	for _, word := range words {
		switch {
		case len(patterns) == 0:
			return fits
		case !word.Known && open == "":
			open = describeWord(word)
		case word.Known && engine.MatchName(patterns[0], word.Text):
			patterns = patterns[1:]
		}
	}
	switch {
	case len(patterns) == 0:
		return fits
	case open != "":
		return unknownBecause("The value of %s, an argument of `%s`, is not known. Write it out.", open, programName(c))
	}
	return fit{}
}

// matchAny reports whether any pattern matches a name, ignoring case.
func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return engine.MatchName(strings.ToLower(p), strings.ToLower(name)) })
}

// splitCode returns the parts of program text that may name programs, files or hosts.
func splitCode(code string) []string {
	return strings.FieldsFunc(code, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`()[]{}<>,;=|&$#!?\\", r) })
}

// findMention returns the first of the programs that a text mentions.
func findMention(text string, programs []string) (name string, ok bool) {
	i := slices.IndexFunc(programs, func(name string) bool { return shell.MentionsProgram(text, name) })
	if i < 0 {
		return "", false
	}
	return programs[i], true
}
