package gate

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/shell"
)

// Match is a gate that a use belongs to.
type Match struct {
	Gate Gate
	// Why is one sentence where that cannot be seen from the use itself, "" elsewhere: a
	// line of shell that cannot be read to the end may run anything.
	Why string
}

// Match returns the gates that a use of a builtin tool belongs to, in their order. What cannot be
// known counts as matching.
func (c Config) Match(u Use) (out []Match) {
	for _, g := range c.Gates {
		if g.Builtin == "" {
			continue
		}
		if matched, why := g.match(u); matched {
			out = append(out, Match{g, why})
		}
	}
	return out
}

// HasBuiltin reports whether a gate is on a builtin tool.
func (c Config) HasBuiltin() bool {
	return slices.ContainsFunc(c.Gates, func(g Gate) bool { return g.Builtin != "" })
}

// match reports whether a use belongs to the gate.
func (g Gate) match(u Use) (matched bool, why string) {
	if u.Tool == BuiltinShell {
		return g.matchScript(u)
	}
	if g.Builtin != u.Tool {
		return false, ""
	}
	if len(g.When) == 0 {
		return true, ""
	}
	for _, w := range g.When {
		switch u.Tool {
		case BuiltinFetch:
			matched = matchURL(u.URL, w.Hosts)
		case BuiltinEdit:
			matched = u.anyPath(u.Paths, w.Paths, true)
		case BuiltinRead:
			matched = u.anyPath(u.Paths, w.Paths, false)
		}
		if matched {
			return true, ""
		}
	}
	return false, ""
}

// anyPath reports whether a pattern covers one of some paths or, with below, what may be in it.
func (u Use) anyPath(paths []Path, patterns []string, below bool) bool {
	return slices.ContainsFunc(paths, func(p Path) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool { return u.covers(pattern, p, below) })
	})
}

// matchScript reports whether a line of shell belongs to the gate, on whatever tool it is.
func (g Gate) matchScript(u Use) (matched bool, why string) {
	entries := g.When
	if len(entries) == 0 {
		switch g.Builtin {
		case BuiltinShell:
			return true, ""
		case BuiltinRead: // nearly every word may be the name of a file
			return false, ""
		default:
			entries = []When{{Paths: []string{"/**"}, Hosts: []string{"*"}}}
		}
	}
	if g.Builtin == BuiltinEdit && slices.ContainsFunc(entries, func(w When) bool { return u.anyPath(u.Paths, w.Paths, true) }) {
		return true, "" // a patch that the line applies
	}
	for _, command := range u.Script.Commands {
		for _, w := range entries {
			switch g.Builtin {
			case BuiltinShell:
				matched, why = u.matchCommand(command, w)
			case BuiltinEdit:
				matched, why = u.matchWrites(command, w)
			case BuiltinRead:
				matched = u.matchReads(command, w)
			case BuiltinFetch:
				matched, why = matchHosts(command, w.Hosts)
			}
			if matched {
				return true, why
			}
		}
	}
	if g.Builtin != BuiltinShell {
		return false, ""
	}
	for _, unknown := range u.Script.Unknown {
		if unknown.Program || slices.ContainsFunc(entries, func(w When) bool { return len(w.Programs) == 0 || mentionsAny(unknown.Text, w.Programs) }) {
			return true, "It cannot be seen what the line runs: " + unknown.Reason
		}
	}
	return false, ""
}

// matchCommand reports whether a command matches an entry of a gate on the shell.
func (u Use) matchCommand(c shell.Command, w When) (bool, string) {
	if !c.Plain && len(w.Programs) > 0 && !u.matchProgram(c, w.Programs) {
		if slices.ContainsFunc(textsOf(c), func(text string) bool { return mentionsAny(text, w.Programs) }) {
			return true, fmt.Sprintf("The words that it gives to %s mention the program.", programOf(c))
		}
	}
	if len(w.Programs) > 0 && !u.matchProgram(c, w.Programs) || len(w.Args) > 0 && !matchArgs(c, w.Args) {
		return false, ""
	}
	if len(w.Hosts) > 0 {
		if ok, _ := matchHosts(c, w.Hosts); !ok {
			return false, ""
		}
	}
	if len(w.Paths) > 0 {
		return u.matchWords(FileWords(c), w.Paths)
	}
	return true, ""
}

// FileWords are the words of a command that may name files, resolved: its arguments, what stands in
// them after an option, what it writes, and names in code.
func FileWords(c shell.Command) (out []shell.Word) {
	for _, word := range argsOf(c) {
		out = append(out, c.Resolve(word))
		if _, value, ok := strings.Cut(word.Text, "="); ok {
			out = append(out, c.Resolve(shell.Word{Text: value, Known: word.Known, Pattern: word.Pattern && strings.ContainsAny(value, "*?[")}))
		}
		if rest := strings.TrimLeft(word.Text, "-@"); len(rest) < len(word.Text) && len(rest) > 1 { // -ofile, @file
			if word.Text[0] == '-' {
				rest = rest[1:]
			}
			out = append(out, c.Resolve(shell.Word{Text: rest, Known: word.Known, Pattern: word.Pattern && strings.ContainsAny(rest, "*?[")}))
		}
	}
	return foldersOf(slices.Concat(out, c.WritesTo(), mentionsOf(c)))
}

// foldersOf replaces patterns of files with the folders that the files are in.
func foldersOf(words []shell.Word) []shell.Word {
	for i, w := range words {
		if w.Pattern {
			before := w.Text[:strings.IndexAny(w.Text, "*?[")]
			words[i] = shell.Word{Text: cmp.Or(before[:strings.LastIndexByte(before, '/')+1], "."), Known: true}
		}
	}
	return words
}

// matchWords reports whether a word names a file that a pattern covers, or may.
func (u Use) matchWords(words []shell.Word, patterns []string) (bool, string) {
	for _, word := range words {
		if !word.Known {
			return true, "It cannot be seen which file one of its words names; write the name itself."
		}
		if u.anyPath(u.Named[word.Text], patterns, true) {
			return true, ""
		}
	}
	return false, ""
}

// matchWrites reports whether a command writes a file that an entry covers, or may.
func (u Use) matchWrites(c shell.Command, w When) (bool, string) {
	return u.matchWords(foldersOf(slices.Concat(c.WritesTo(), mentionsOf(c))), w.Paths)
}

// matchReads reports whether a command names a file that an entry covers.
func (u Use) matchReads(c shell.Command, w When) bool {
	return slices.ContainsFunc(FileWords(c), func(word shell.Word) bool {
		return word.Known && u.anyPath(u.Named[word.Text], w.Paths, false)
	})
}

func argsOf(c shell.Command) []shell.Word {
	if len(c.Words) == 0 {
		return nil
	}
	return c.Words[1:]
}

// programOf is the name of a command's program without its folder, "" where it is not known.
func programOf(c shell.Command) string {
	if len(c.Words) == 0 || !c.Words[0].Known {
		return ""
	}
	name := strings.ToLower(path.Base(strings.ReplaceAll(c.Words[0].Text, `\`, "/")))
	return strings.TrimSuffix(name, ".exe")
}

// matchProgram reports whether a command's program matches, by its own name or by that of the file
// that a link leads to.
func (u Use) matchProgram(c shell.Command, patterns []string) bool {
	if len(c.Words) == 0 {
		return false
	}
	return !c.Words[0].Known || matchAny(patterns, programOf(c)) ||
		slices.ContainsFunc(u.Named[c.Resolve(c.Words[0]).Text], func(p Path) bool { return matchAny(patterns, path.Base(p.Name)) })
}

// matchArgs reports whether all patterns match a word each, in their order, or may: a word that is
// not known may be any number of any words.
func matchArgs(c shell.Command, patterns []string) bool {
	if len(c.Words) > 0 && !c.Words[0].Known {
		return true
	}
	words := argsOf(c)
	if sub := findSubcommand(c); sub != nil && !strings.HasPrefix(patterns[0], "-") {
		if !engine.MatchName(patterns[0], sub[0].Text) {
			return false
		}
		words, patterns = sub[1:], patterns[1:]
	}
	for _, word := range words {
		if len(patterns) == 0 || !word.Known {
			return true
		}
		if engine.MatchName(patterns[0], word.Text) {
			patterns = patterns[1:]
		}
	}
	return len(patterns) == 0
}

// matchAny reports whether a pattern matches a name, whatever its case.
func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return engine.MatchName(strings.ToLower(p), strings.ToLower(name)) })
}

// textsOf returns the words and the input of a command that may run what they say.
func textsOf(c shell.Command) (texts []string) {
	if c.Plain {
		return nil
	}
	for _, word := range argsOf(c) {
		texts = append(texts, word.Text)
	}
	return append(texts, c.Input)
}

// mentionsOf returns the names in the code that a command gets, as words.
func mentionsOf(c shell.Command) (out []shell.Word) {
	for _, text := range textsOf(c) {
		if strings.ContainsAny(text, "\"'(") {
			for _, name := range splitCode(text) {
				out = append(out, c.Resolve(shell.Word{Text: name, Known: true}))
			}
		}
	}
	return out
}

// splitCode returns the names in the code of another interpreter that may be programs, files or
// hosts.
func splitCode(code string) []string {
	return strings.FieldsFunc(code, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`()[]{}<>,;=|&$#!?\\", r) })
}

// mentionsAny reports whether a text mentions one of some programs.
func mentionsAny(text string, programs []string) bool {
	return slices.ContainsFunc(programs, func(name string) bool { return shell.MentionsProgram(text, name) })
}

// fetchers are programs that take a host without a scheme.
var fetchers = []string{"curl", "wget", "aria2c", "http", "https", "xh", "nc", "ncat", "telnet", "ssh", "scp", "sftp", "rsync"}

// matchHosts reports whether a word of a command is an address of a host, or may be.
func matchHosts(c shell.Command, hosts []string) (bool, string) {
	fetches := slices.Contains(fetchers, programOf(c))
	words := argsOf(c)
	for _, text := range textsOf(c) {
		for _, name := range splitCode(text) {
			words = append(words[:len(words):len(words)], shell.Word{Text: name, Known: true})
		}
	}
	for _, word := range words {
		_, address, isURL := strings.Cut(word.Text, "://")
		switch {
		case !word.Known && (fetches || isURL):
			return true, "It cannot be seen which host one of its words names; write the address itself."
		case isURL && matchURL("any://"+address, hosts):
			return true, ""
		case !isURL && matchBareHost(word.Text, hosts, fetches):
			return true, ""
		}
	}
	return false, ""
}

// matchBareHost reports whether a word without a scheme is an address of a host: example.com/x,
// git@example.com:x.
func matchBareHost(word string, hosts []string, fetches bool) bool {
	if _, value, ok := strings.Cut(word, "="); ok {
		word = value
	}
	_, after, hasUser := strings.Cut(word, "@")
	if hasUser {
		word = after
		hasUser = strings.Contains(word, ":")
	}
	if i := strings.IndexAny(word, "/:?#"); i >= 0 {
		word = word[:i]
	}
	if word == "" || strings.HasPrefix(word, "-") {
		return false
	}
	return slices.ContainsFunc(hosts, func(h string) bool {
		return (fetches || hasUser || strings.Trim(h, "*.") != "") && engine.MatchName(h, cleanHost(word))
	})
}

// matchURL reports whether an address is one of a host's. One that cannot be read, or has a host
// with letters that are written in more than one way, may be.
func matchURL(address string, hosts []string) bool {
	at, err := url.Parse(address)
	if err != nil || at.Hostname() == "" || !isASCII(at.Hostname()) {
		return true
	}
	return slices.ContainsFunc(hosts, func(h string) bool { return engine.MatchName(h, cleanHost(at.Hostname())) })
}

func cleanHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }
