package shell

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// readCall reads a simple command with at least one word.
func (r *reader) readCall(c *syntax.CallExpr, p place) {
	given := r.given
	var own strings.Builder
	r.given = &own
	for _, a := range c.Assigns {
		r.assign(a, &p)
	}
	words := r.readWords(c.Args)
	r.given = given
	p.input = r.join(r.join(r.input, p.input), own.String())
	if c == r.whole {
		r.script.Whole = len(r.script.Commands)
	}
	r.runWords(words, p)
}

// emit adds a command, once for each folder that it may act in. Its arguments and its input may be
// what it prints; those of a wrapper are not, as the command that it runs follows.
func (r *reader) emit(words []Word, p place, wraps bool) {
	if !r.step(len(words)) {
		return
	}
	c := Command{Words: words, Writes: p.writes, Reads: p.reads, Input: p.input, Plain: wraps || isPlain(words), At: p.at}
	if r.inner >= 0 {
		c.At = r.inner
	}
	for _, c.Folder = range r.folders {
		c.Repository = c.Resolve(p.repository)
		r.script.Commands = append(r.script.Commands, c)
	}
	if wraps {
		return
	}
	var b strings.Builder
	for _, w := range words[1:] {
		b.WriteString(w.Text)
		b.WriteByte(' ')
	}
	prints := r.join(strings.TrimSuffix(b.String(), " "), p.input)
	if r.out != nil && r.step(len(prints)) {
		r.out.WriteString(prints)
		r.out.WriteByte('\n')
	}
	written := c.WritesTo()
	for _, w := range written {
		r.changesGit = r.changesGit || !w.Known && !w.Pattern || strings.Contains(w.Text, ".git") || strings.Contains(w.Text, "hook") || strings.Contains(w.Text, ".husky")
	}
	if len(written) > 0 || r.captured || r.redirected || setsVariables(words) {
		for _, w := range c.Writes {
			prints = r.join(prints, w.Text)
		}
		r.hold(prints)
	}
}

// setsVariables reports whether a builtin puts its words or its input into variables.
func setsVariables(words []Word) bool {
	switch words[0].Text {
	case "read", "mapfile", "readarray", "getopts":
		return true
	case "set":
		return slices.ContainsFunc(words[1:], func(w Word) bool { return w.Text == "--" || !strings.HasPrefix(w.Text, "-") && w.Text != "pipefail" })
	case "printf":
		return len(words) > 1 && (!words[1].Known || strings.HasPrefix(words[1].Text, "-v"))
	case "exec":
		return true
	}
	return false
}

// runWords reads a command by its words: builtins, wrappers, shells, git.
func (r *reader) runWords(words []Word, p place) {
	if len(words) == 0 || !r.step(len(words)) {
		return
	}
	if r.nesting >= maxNesting {
		r.unknown(p.at, "", "wrappers nest more than %d deep; run the inner command itself", maxNesting)
		return
	}
	r.nesting++
	defer func() { r.nesting-- }()
	if !words[0].Known {
		r.emit(words, p, false)
		r.unknown(p.at, "", "the program of `%s` is not a literal word, so any program may run; write its name", quoteWords(words))
		return
	}
	words[0].Text = strings.TrimPrefix(words[0].Text, "=") // zsh: =git is the path of git
	name := path.Base(words[0].Text)
	if strings.HasPrefix(name, "git-") && gitCommands[name[4:]] {
		words = append([]Word{{Text: "git", Known: true}, {Text: name[4:], Known: true}}, words[1:]...)
		name = "git"
	}
	switch name {
	case "git":
		r.runGit(words, p)
		return
	case "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash":
		r.runShell(name, words, p)
		return
	case "find":
		r.runFind(words, p)
		return
	}
	if w, ok := wrappers[name]; ok {
		r.runWrapper(name, w, words, p)
		return
	}
	if needs, ok := scriptReaders[name]; ok {
		r.checkScriptReader(name, needs, words, p)
	}
	if r.runBuiltin(name, words, p) {
		return
	}
	r.emit(words, p, false)
}

// quoteWords shows words in a message.
func quoteWords(words []Word) string {
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
		if !w.Known && !w.Pattern {
			b.WriteString("$...")
		}
	}
	return b.String()
}

// runBuiltin reads the builtins that run something or change how the line goes on, and reports whether
// it has emitted the command.
func (r *reader) runBuiltin(name string, words []Word, p place) bool {
	switch args := words[1:]; name {
	case "cd", "pushd":
		r.emit(words, p, false)
		for len(args) > 0 && (args[0].Text == "--" || args[0].Text == "-P" || args[0].Text == "-L" || args[0].Text == "-e") {
			args = args[1:]
		}
		switch {
		case len(args) == 0 && name == "cd":
			r.changeFolder(Word{Text: "~", Known: true})
		case len(args) != 1 || strings.HasPrefix(args[0].Text, "-") || strings.HasPrefix(args[0].Text, "+"):
			r.changeFolder(Word{})
		default:
			r.changeFolder(args[0])
		}
		return true
	case "popd":
		r.changeFolder(Word{})
	case "eval":
		r.emit(words, p, true)
		r.runText(name, joinWords(args), p)
		return true
	case "trap":
		for len(args) > 0 && strings.HasPrefix(args[0].Text, "-") && args[0].Text != "-" {
			args = args[1:]
		}
		r.emit(words, p, true)
		if len(args) > 1 || len(args) == 1 && !args[0].Known {
			r.later = true
			keep := r.keepFolders()
			p.writes = append(p.writes, Word{}) // what it prints may go anywhere
			r.runText(name, args[0], p)
			keep()
		}
		return true
	case "source", ".":
		if len(args) > 0 && !isFile(args[0]) {
			r.unknown(p.at, "", "%s runs a script that is not named by a literal word: `%s`; write its name", name, quoteWords(words))
		}
	case "alias", "hash", "enable":
		r.renames = r.renames || len(args) > 0
	case "export", "declare", "typeset", "readonly", "local": // behind command or builtin
		for _, w := range args {
			r.assignText(w, &p)
		}
	}
	return false
}

// isFile reports whether a word names a script that is there already: not what another command prints.
func isFile(w Word) bool {
	name := path.Clean(w.Text)
	return w.Known && !strings.HasPrefix(name, "/dev/") && !strings.HasPrefix(name, "/proc/") && name != "-"
}

func joinWords(words []Word) Word {
	out := Word{Known: true}
	for i, w := range words {
		if i > 0 {
			out.Text += " "
		}
		out.Text += w.Text
		out.Known = out.Known && w.Known
	}
	return out
}

// runText reads a text that a shell is given as a word.
func (r *reader) runText(by string, text Word, p place) {
	if !text.Known {
		r.unknown(p.at, "", "%s runs a text that is not a literal word: `%s`; write the commands themselves", by, quoteWords([]Word{text}))
		return
	}
	if strings.TrimLeft(text.Text, "-") == "" {
		return
	}
	if by == "sh" || by == "dash" || by == "ash" {
		for _, s := range []string{"&>", "[[", "(("} { // words to a plain sh
			if strings.Contains(text.Text, s) {
				r.unknown(p.at, text.Text, "%s may read %s in another way than bash; use bash -c", by, s)
				break
			}
		}
	}
	inner, input := r.inner, r.input
	if r.inner < 0 {
		r.inner = p.at
	}
	r.input = p.input
	release := r.capture(len(p.writes) > 0)
	r.readText(text.Text, false)
	release()
	r.inner, r.input = inner, input
}

// runShell reads sh and its like: -c and a text, a file, or what comes by the standard input.
func (r *reader) runShell(name string, words []Word, p place) {
	rest := words[1:]
	text, input, startup := false, false, false
	for len(rest) > 0 && len(rest[0].Text) > 0 && strings.ContainsAny(rest[0].Text[:1], "-+") && rest[0].Known {
		o := rest[0].Text
		rest = rest[1:]
		if o == "-" || o == "--" {
			break
		}
		if strings.HasPrefix(o, "--") {
			if (o == "--rcfile" || o == "--init-file") && len(rest) > 0 {
				startup = true
				if !isFile(rest[0]) {
					r.unknown(p.at, "", "%s %s runs a script that is not named by a literal word", name, o)
				}
				rest = rest[1:]
			}
			continue
		}
		text = text || o[0] == '-' && strings.Contains(o, "c")
		input = input || o[0] == '-' && strings.Contains(o, "s")
		if strings.ContainsAny(o, "oO") && len(rest) > 0 {
			rest = rest[1:]
		}
	}
	switch {
	case len(rest) > 0 && text:
		r.emit(words, p, !startup)
		r.hold(joinWords(rest[1:]).Text)
		defer r.keepFolders()()
		r.runText(name, rest[0], p)
	case len(rest) > 0 && !input:
		r.emit(words, p, false)
		if !isFile(rest[0]) {
			r.unknown(p.at, "", "%s runs a script that is not named by a literal word: `%s`; write its name", name, quoteWords(words))
		}
	case p.isDocument:
		r.emit(words, p, false)
		defer r.keepFolders()()
		r.runText(name, Word{Text: p.document, Known: true}, p)
	default:
		r.emit(words, p, false)
		r.unknown(p.at, "", "%s runs the commands that it reads from its standard input; write them into the line", name)
	}
}

// scriptReaders are programs that run what they read; the value is the options that give them a text to
// run instead.
var scriptReaders = map[string]string{
	"fish": "-c --command", "csh": "-c", "tcsh": "-c", "pwsh": "-c -Command -File -f", "powershell": "-c -Command -File", "nu": "-c", "elvish": "-c", "xonsh": "-c",
	"python": "", "python3": "", "perl": "", "ruby": "", "node": "", "php": "", "lua": "", "su": "-c --command", "tmux": "", "screen": "", "script": "-c",
}

// checkScriptReader notes a program that runs what comes by its standard input.
func (r *reader) checkScriptReader(name, texts string, words []Word, p place) {
	takesText := false
	for i, w := range words[1:] {
		if texts != "" && hasWord(texts, w.Text) && i+2 < len(words) {
			takesText = true
			if !words[i+2].Known {
				r.unknown(p.at, "", "%s %s runs a text that is not a literal word; write the commands themselves", name, w.Text)
			}
		}
		option := strings.HasPrefix(w.Text, "-")
		takesText = takesText || !option || strings.HasPrefix(w.Text, "--") || strings.ContainsAny(w.Text, "cemprEvVhS")
	}
	if !takesText && !p.isDocument {
		r.unknown(p.at, "", "%s runs what it reads from its standard input; write it into the line", name)
	}
}

func hasWord(list, word string) bool { return strings.Contains(" "+list+" ", " "+word+" ") }

// readDeclaration reads declare, local, export, readonly, typeset and nameref.
func (r *reader) readDeclaration(c *syntax.DeclClause) {
	for _, a := range c.Args {
		if a.Naked && a.Name == nil {
			w := r.readWord(a.Value)
			if !w.Known { // it may name any variable
				r.evaluates = true
			}
			r.assignText(w, nil)
			continue
		}
		r.assign(a, nil)
	}
}

// assign reads an assignment; p is the command that it is for, nil for the rest of the line.
func (r *reader) assign(a *syntax.Assign, p *place) {
	at := int(a.Pos().Offset())
	if a.Index != nil {
		r.walk(a.Index)
	}
	if a.Array != nil {
		for _, e := range a.Array.Elems {
			if e.Index != nil {
				r.walk(e.Index)
			}
			if e.Value != nil {
				r.hold(r.readWord(e.Value).Text)
			}
		}
	}
	if a.Value == nil || a.Name == nil {
		return
	}
	given := r.given
	r.given = &r.held
	w := r.readWord(a.Value)
	r.given = given
	r.hold(w.Text)
	r.checkVariable(at, a.Name.Value, w, p)
}

// assignText reads an assignment that is a word: env A=b.
func (r *reader) assignText(w Word, p *place) {
	name, value, ok := strings.Cut(w.Text, "=")
	at := 0
	if p != nil {
		at = p.at
	}
	if ok && len(name) < w.lead {
		r.hold(value)
		r.checkVariable(at, strings.TrimSuffix(name, "+"), Word{Text: value, Known: w.Known}, p)
	} else if !w.Known {
		r.hold(w.Text)
	}
}

// runsValue matches variables that hold a command.
var runsValue = regexp.MustCompile("(EDITOR|VISUAL|PAGER|BROWSER|ASKPASS|_RSH|LESSOPEN|LESSCLOSE|TAR_OPTIONS)$")

// checkVariable reads an assignment to a variable that makes programs run something.
func (r *reader) checkVariable(at int, name string, w Word, p *place) {
	if r.inner >= 0 {
		at = r.inner
	}
	upper := strings.ToUpper(name)
	switch {
	case name == "PATH":
		r.renames = true
	case name == "CDPATH":
		r.later, r.moved = true, true
	case name == "GIT_DIR" || name == "GIT_WORK_TREE":
		if p == nil || !w.Known {
			break
		}
		if name == "GIT_DIR" || p.repository.Text == "" {
			p.repository = w
		}
		return
	case hasWord("PS0 PS1 PS2 PS4 PROMPT_COMMAND", name):
		r.evaluates = true
	case runsValue.MatchString(name) && !isGitVariable(upper):
		if w.Text != "" {
			r.unknown(at, name+"="+w.Text, "programs run what the variable %s says", name)
		}
	case name == "ENV" && w.Known:
	case hasWord("BASH_ENV ENV SHELLOPTS BASHOPTS GCONV_PATH RIPGREP_CONFIG_PATH", name) ||
		strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") || strings.HasPrefix(name, "BASH_FUNC"):
		r.unknown(at, "", "the variable %s puts code into other programs; leave it out", name)
	}
	if isGitVariable(upper) && !isHarmlessForGit(name, w) {
		r.gitSettings = append(r.gitSettings, Unknown{
			Reason: sentence("the variable %s decides what git does; leave it out, or use an option of git", name), At: at, Text: "git " + name + "=" + w.Text,
		})
	}
}
