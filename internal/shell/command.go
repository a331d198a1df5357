package shell

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// readCall reads a simple command with at least one word.
func (r *reader) readCall(c *syntax.CallExpr, p execContext) {
	for _, a := range c.Assigns {
		r.assign(a, &p)
	}
	words := r.readWords(c.Args)
	if c == r.whole {
		r.script.Whole = len(r.script.Commands)
	}
	r.runWords(words, p)
}

// emit adds a command, once for each folder in which it may run. A command that prints its arguments may pass them
// on, so their text is recorded. The arguments of a wrapper are not: the wrapped command follows.
func (r *reader) emit(words []Word, p execContext, wraps bool) {
	if !r.step(len(words)) {
		return
	}
	c := Command{Words: words, Writes: p.writes, Reads: p.reads, Plain: wraps || isPlain(words), At: p.at}
	if r.inner >= 0 {
		c.At = r.inner
	}
	for _, c.Folder = range r.folders {
		c.Repository = c.Resolve(p.repository)
		r.script.Commands = append(r.script.Commands, c)
	}
	written := c.WritesTo()
	sets := setsVariables(words)
	r.renames = r.renames || sets && !allKnown(words)
	names := hooks.MatchString(joinWords(words[1:]).Text)
	r.evaluates = r.evaluates || names
	if !names && (wraps || !r.captured && !r.redirected && !sets && len(written) == 0) {
		return
	}
	r.recordPassed(joinWords(words[1:]).Text)
	for _, w := range written {
		r.writesFiles = r.writesFiles || w.Text != "/dev/null"
		r.evaluates = r.evaluates || startsPrograms.MatchString(w.Text) || !w.Known && !w.Pattern && !hasWord("rm rmdir", words[0].Text)
	}
}

// startsPrograms matches files that make other programs run something: git hooks and settings, shell startup files.
// hooks matches such files anywhere in a command's words.
var (
	startsPrograms = regexp.MustCompile(`\.git|hook|husky|config|(^|/)\.(bash|z|profile|login)|(^|/)(\.|h)[^/]*[*?[]`)
	hooks          = regexp.MustCompile(`\.git/|\.husky/|hooks(/|$)`)
)

// setsVariables reports whether a builtin stores its words, or its input, in variables.
func setsVariables(words []Word) bool {
	switch words[0].Text {
	case "read", "mapfile", "readarray", "getopts", "set", "exec":
		return true
	case "printf":
		return len(words) > 1 && (!words[1].Known || strings.HasPrefix(words[1].Text, "-v"))
	}
	return false
}

// runWords reads a command by its words, with special handling of builtins, wrappers, shells and git.
func (r *reader) runWords(words []Word, p execContext) {
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
	words[0].Text = strings.TrimPrefix(words[0].Text, "=") // zsh: =git expands to the path of git
	// On macOS and Windows, GIT also runs git.
	name := strings.TrimSuffix(strings.ToLower(path.Base(words[0].Text)), ".exe")
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
	if interpreters[name] || runners[name] {
		r.checkInterpreter(name, words, p)
	}
	if r.runBuiltin(name, words, p) {
		return
	}
	r.emit(words, p, false)
}

// quoteWords formats words for a message.
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

// runBuiltin handles builtins that run something or affect the rest of the line. It reports whether it has already
// emitted the command.
func (r *reader) runBuiltin(name string, words []Word, p execContext) bool {
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
			r.hasDeferred = true
			keep := r.keepFolders()
			p.writes = append(p.writes, Word{}) // the trap's output may go anywhere
			r.runText(name, args[0], p)
			keep()
		}
		return true
	case "source", ".":
		if len(args) > 0 {
			r.checkScript(name, args[0], words, p)
		}
	case "alias", "hash", "enable":
		r.renames = r.renames || len(args) > 0
	case "export", "declare", "typeset", "readonly", "local": // reached if command or builtin precedes them
		for _, w := range args {
			r.assignText(w, p.at, &p)
		}
	}
	return false
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

// runText reads program text that a shell receives as a word.
func (r *reader) runText(by string, text Word, p execContext) {
	if !text.Known {
		r.unknown(p.at, "", "%s runs a text that is not a literal word: `%s`; write the commands themselves", by, quoteWords([]Word{text}))
		return
	}
	if strings.TrimLeft(text.Text, "-") == "" {
		return
	}
	if by == "sh" || by == "dash" || by == "ash" {
		for _, s := range []string{"&>", "[[", "(("} { // plain sh treats these as ordinary words
			if strings.Contains(text.Text, s) {
				r.unknown(p.at, text.Text, "%s may read %s in another way than bash; use bash -c", by, s)
				break
			}
		}
	}
	inner := r.inner
	if r.inner < 0 {
		r.inner = p.at
	}
	r.capture(len(p.writes) > 0, func() { r.readText(text.Text, false) })
	r.inner = inner
}

// runShell reads a call of sh or a similar shell: with -c and a text, with a file, or with standard input.
func (r *reader) runShell(name string, words []Word, p execContext) {
	options, rest, ok := parseOptions(words[1:], "-c -e -u -x -l -i -s -v -n -p -f -a -b -m -h -B -E -H -P -T -r --login --posix --norc --noprofile --verbose --interactive", "-o -O")
	has := func(name string) bool {
		return slices.ContainsFunc(options, func(o option) bool { return o.name == name })
	}
	isText := ok && len(rest) > 0 && has("-c")
	r.emit(words, p, isText)
	defer r.keepFolders()()
	switch {
	case !ok:
		r.unknown(p.at, "", "the options of %s are not known: `%s`; run the commands without it", name, quoteWords(words))
	case isText:
		r.recordPassed(joinWords(rest[1:]).Text)
		r.runText(name, rest[0], p)
	case len(rest) > 0 && !has("-s"):
		r.checkScript(name, rest[0], words, p)
	case p.document.Known && p.document.Text != "":
		r.runText(name, p.document, p)
	default:
		r.unknown(p.at, "", "%s runs the commands that it reads from its standard input; write them into the line", name)
	}
}

// checkScript reports a script that is not named by a literal word, or that comes from a device or standard input.
func (r *reader) checkScript(name string, w Word, words []Word, p execContext) {
	file := path.Clean(w.Text)
	if !w.Known || strings.HasPrefix(file, "/dev/") || strings.HasPrefix(file, "/proc/") || file == "-" {
		r.unknown(p.at, "", "%s runs a script that is not named by a literal word: `%s`; write its name", name, quoteWords(words))
	}
}

// interpreters run their input if no word names a script; runners run commands in their words.
var (
	interpreters = makeSet("python python3 perl ruby node php lua tmux screen script")
	runners      = makeSet(`fish csh tcsh pwsh powershell nu elvish xonsh su watch flock ssh-agent script unshare setpriv nsenter chroot taskset chrt setarch
		prlimit choom start-stop-daemon runuser pkexec sg strace ltrace parallel tmux screen at batch doas alias compgen complete mapfile readarray`)
)

// checkInterpreter reports a program that may run text from outside the line.
func (r *reader) checkInterpreter(name string, words []Word, p execContext) {
	names := func(w Word) bool { return !strings.HasPrefix(w.Text, "-") || strings.ContainsAny(w.Text, "cemprEvVhS") }
	switch {
	case runners[name] && slices.ContainsFunc(words, func(w Word) bool { return !w.Known && (!w.Pattern || w.split) }), !p.document.Known && !slices.ContainsFunc(words[1:], names):
		r.unknown(p.at, "", "%s runs a text that is not in the line: `%s`; write the commands themselves", name, quoteWords(words))
	}
}

func hasWord(list, word string) bool { return strings.Contains(" "+list+" ", " "+word+" ") }

// assign reads an assignment or an argument of declare. p is the command that it applies to, or nil for the rest of
// the line.
func (r *reader) assign(a *syntax.Assign, p *execContext) {
	if a.Name == nil {
		w := r.readWord(a.Value)
		r.evaluates, r.renames = r.evaluates || !w.Known, r.renames || !w.Known // the word may name any variable
		r.assignText(w, int(a.Pos().Offset()), p)
		return
	}
	if a.Index != nil {
		r.walk(a.Index)
	}
	if a.Array != nil {
		r.walk(a.Array)
	}
	if a.Value != nil {
		w := r.readWord(a.Value)
		r.recordPassed(w.Text)
		r.checkVariable(int(a.Pos().Offset()), a.Name.Value, w, p)
	}
}

// assignText reads an assignment in a word: env A=b.
func (r *reader) assignText(w Word, at int, p *execContext) {
	r.recordPassed(w.Text)
	if name, value, ok := strings.Cut(w.Text, "="); ok && len(name) < w.lead {
		r.checkVariable(at, strings.TrimSuffix(name, "+"), Word{Text: value, Known: w.Known}, p)
	}
}

// runsValue matches variables whose value is run as a command.
var runsValue = regexp.MustCompile("(EDITOR|VISUAL|PAGER|BROWSER|ASKPASS|_RSH|LESSOPEN|LESSCLOSE|TAR_OPTIONS|^CC|^CXX|^GOFLAGS|^npm_config_.*|^LESS|^MANOPT)$")

// checkVariable handles an assignment, because the variable may make programs run something.
func (r *reader) checkVariable(at int, name string, w Word, p *execContext) {
	if r.inner >= 0 {
		at = r.inner
	}
	upper := strings.ToUpper(name)
	switch {
	case name == "PATH":
		r.renames = true
	case name == "CDPATH":
		r.hasDeferred, r.changesFolder = true, true
	case name == "GIT_DIR" || name == "GIT_WORK_TREE":
		if p == nil || !w.Known {
			break
		}
		if name == "GIT_DIR" || p.repository.Text == "" {
			p.repository = w
		}
		return
	case hasWord("PS0 PS1 PS2 PS4 PROMPT_COMMAND KUBECONFIG ZDOTDIR", name) || name == "ENV" && w.Known:
		r.evaluates = true
	case runsValue.MatchString(name) && !isGitVariable(upper):
		switch {
		case !w.Known:
			r.unknown(at, "", "programs run the value of the variable %s, which is not literal", name)
		case w.Text != "":
			r.unknown(at, name+"="+w.Text, "programs run the value of the variable %s", name)
		}
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
