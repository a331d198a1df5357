package shell

import (
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"runtime"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"
)

// Limits for reading one line. A line that exceeds them is unknown.
const (
	maxText     = 64 << 10
	maxTime     = 20 * time.Millisecond
	maxSteps    = 20_000  // words, commands, and units of 64 characters; less than maxTime on an idle machine
	clockEvery  = 4096    // steps between checks of the clock; short lines never reach it
	clockAfter  = 8 << 10 // bytes of text before the clock is checked
	maxNesting  = 8       // texts within texts, wrappers within wrappers
	maxFrames   = 600     // stack depth while a text is parsed, which limits nesting
	maxCommands = 1000
	maxUnknown  = 32
	maxFolders  = 4
)

// Read returns the commands that a line of shell runs.
func Read(line string) (s Script) {
	r := &reader{script: Script{Whole: -1}, inner: -1, folders: []Word{{Known: true}}, functions: map[string]bool{}, start: time.Now()}
	if at, reason := checkText(line); reason != "" {
		r.refuse(at, "%s", reason)
		return r.script
	}
	defer func() { // a panic caused by hostile text must make the line unknown
		if p := recover(); p != nil {
			r.refuse(0, "internal error while reading the line: %v", p)
		}
		s = r.script
	}()
	r.readText(line, true)
	r.finish(line)
	return r.script
}

// checkText returns where and why a line is rejected before parsing. The reason is "" for an acceptable line.
func checkText(line string) (at int, reason string) {
	if len(line) > maxText {
		return maxText, fmt.Sprintf("the line has %d bytes, and at most %d are read; put the text into a file", len(line), maxText)
	}
	for _, c := range []struct{ text, of, reason string }{
		{"\x00", line, "the line has a NUL; remove it"},
		{"\r", line, "the line has a carriage return, which shells read in different ways; remove it"},
		{"\x00", strings.ToValidUTF8(line, "\x00"), "the line is not UTF-8; write it in UTF-8"},
	} {
		if at := strings.Index(c.of, c.text); at >= 0 {
			return at, c.reason
		}
	}
	return 0, ""
}

// reader reads a line in the order in which a shell would run it.
type reader struct {
	script    Script
	inner     int // offset in the line of the command that runs the current text; -1 in the line itself
	start     time.Time
	steps     int
	nesting   int
	exhausted bool
	whole     *syntax.CallExpr // the command that is the whole line, or nil

	folders       []Word // folders in which the next command may run
	failed        []Word // folders in which it may run if an earlier cd failed
	changesFolder bool   // some command of the line changes the folder
	hasDeferred   bool   // the line has commands that run later: functions, traps

	passed      strings.Builder // builds Script.Passed
	captured    bool            // output of the current command is passed on
	redirected  bool            // output is redirected for the rest of the line
	functions   map[string]bool
	renames     bool      // names may run other programs: an alias, another PATH, git hooks
	writesFiles bool      // the line writes files
	evaluates   bool      // text in variables and files may be run
	gitSettings []Unknown // assignments that matter only if git runs
	runsGit     bool
}

// refuse marks the whole line as unreadable, so that any program may run.
func (r *reader) refuse(at int, format string, args ...any) {
	r.exhausted = true
	r.script.Commands = nil
	r.script.Unknown = []Unknown{{Reason: sentence(format, args...), At: at, Program: true}}
}

// unknown records a part that cannot be read. text is searched for program names; if it is "", any program may run.
func (r *reader) unknown(at int, text, format string, args ...any) {
	if r.exhausted {
		return
	}
	if len(r.script.Unknown) == maxUnknown {
		r.refuse(at, "the line has more than %d parts that cannot be read; run them one by one", maxUnknown)
		return
	}
	if r.inner >= 0 {
		at = r.inner
	}
	r.script.Unknown = append(r.script.Unknown, Unknown{Reason: sentence(format, args...), At: at, Program: text == "", Text: text})
}

func sentence(format string, args ...any) string {
	s := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "..."
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// step adds to the cost of the line, and reports whether reading may continue.
func (r *reader) step(length int) bool {
	if r.exhausted {
		return false
	}
	before := r.steps
	r.steps += 1 + length/64
	tooLong := r.steps/clockEvery > before/clockEvery && time.Since(r.start) > maxTime
	if tooLong || r.steps > maxSteps || len(r.script.Commands) > maxCommands {
		r.refuse(0, "the line runs more commands than gavel follows; run its parts one by one")
	}
	return !r.exhausted
}

// readText reads a text that the shell runs. first reports whether it is the line itself.
func (r *reader) readText(text string, first bool) {
	if r.nesting >= maxNesting {
		r.unknown(0, "", "texts that run texts nest more than %d deep; run the inner text itself", maxNesting)
		return
	}
	if !r.step(len(text)) {
		return
	}
	file, err := parseText(text, r.start)
	if err != nil {
		at := 0
		var parse syntax.ParseError
		if errors.As(err, &parse) {
			at = int(parse.Pos.Offset())
			err = errors.New(parse.Text)
		}
		if r.inner >= 0 {
			at = r.inner
		}
		r.refuse(at, "the line cannot be read: %v", err)
		return
	}
	if first {
		r.whole = findWhole(file)
	}
	r.nesting++
	r.readAll(file.Stmts)
	r.nesting--
}

// parseText parses a text. began is when reading of the line started.
func parseText(text string, began time.Time) (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.KeepComments(true)).Parse(&limitedReader{text: text, began: began}, "")
	if err != nil || !strings.Contains(text, "\\\n") {
		return file, err
	}
	// The parser treats a backslash at the end of a comment as a continuation. Shells do not, and run the next line.
	syntax.Walk(file, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.Comment); ok {
			from := int(c.Hash.Offset())
			if end := strings.IndexByte(text[from:], '\n'); end > 0 && text[from+end-1] == '\\' {
				err = syntax.ParseError{Pos: c.Hash, Text: "a comment ends in a backslash"}
			}
		}
		return err == nil
	})
	return file, err
}

// limitedReader feeds a text to the parser in pieces. It fails if parsing takes too long, or if the parser's recursion,
// which is otherwise unlimited, goes too deep.
type limitedReader struct {
	text  string
	began time.Time
	read  int
}

var (
	errTooDeep = errors.New("it nests too deeply; run its parts one by one")
	errSlow    = errors.New("it takes too long; run its parts one by one")
)

func (s *limitedReader) Read(p []byte) (int, error) {
	if s.text == "" {
		return 0, io.EOF
	}
	var frame [1]uintptr
	if runtime.Callers(maxFrames, frame[:]) > 0 {
		return 0, errTooDeep
	}
	n := copy(p[:min(len(p), 128)], s.text)
	s.text = s.text[n:]
	if s.read += n; s.read >= clockAfter && time.Since(s.began) > maxTime {
		return 0, errSlow
	}
	return n, nil
}

// subscript matches an array index that contains a substitution. Arithmetic, test -v and printf -v run the
// substitution even if it is quoted.
var subscript = regexp.MustCompile("(?s)\\w\\[.*?(\\$\\(|`|\\$\\{[ |])")

// Special variables of shells, which a line can set in many ways: variables that name programs, variables whose text
// is run, and variables that hold the line.
var (
	namesPrograms = regexp.MustCompile(`(^|[^$\w])(PATH|BASH_CMDS|BASH_ALIASES)\b|\b(path|commands|functions|[gs]?aliases)(\[|\+?=)`)
	runsVariable  = regexp.MustCompile(`(^|[^$\w])(PS[0124]|PROMPT_COMMAND|GIT_\w+|\w*EDITOR|\w*PAGER|VISUAL|BROWSER|KUBECONFIG|ZDOTDIR)([^=\w]|$)`)
	holdsLine     = regexp.MustCompile(`BASH_COMMAND|BASH_EXECUTION_STRING|\bfc\b`)
)

// finish adds results that depend on the whole line.
func (r *reader) finish(line string) {
	if holdsLine.MatchString(line) {
		r.recordPassed(line)
	}
	if r.exhausted {
		r.script.Whole = -1
		return
	}
	r.script.Passed = r.passed.String()
	line += "\n" + r.script.Passed
	r.renames = r.renames || namesPrograms.MatchString(line)
	r.evaluates = r.evaluates || runsVariable.MatchString(line)
	for i := range r.script.Commands {
		c := &r.script.Commands[i]
		if r.hasDeferred && r.changesFolder {
			c.Folder = Word{}
		}
		c.Plain = c.Plain && !r.renames && !r.functions[c.Words[0].Text]
		r.evaluates = r.evaluates || r.writesFiles && hasWord("go npm kubectl", path.Base(c.Words[0].Text)) // they run commands from files
	}
	if w := r.script.Whole; w >= 0 && (len(r.script.Unknown) > 0 || !allKnown(r.script.Commands[w].Words)) {
		r.script.Whole = -1
	}
	if r.runsGit {
		r.script.Unknown = append(r.script.Unknown, r.gitSettings...)
	}
	isIndex := strings.Contains(r.script.Passed, "[") && strings.ContainsAny(r.script.Passed, "$`") // arithmetic runs the substitutions in an array index
	if (r.evaluates || isIndex) && r.script.Passed != "" {
		r.unknown(0, r.script.Passed, "a text that the line puts into a variable or a file may be run")
	}
}

// findWhole returns the command that is the whole line, or nil.
func findWhole(file *syntax.File) *syntax.CallExpr {
	pipefail, set, moved := false, false, false
	prepares := func(s *syntax.Stmt) bool { // set -o pipefail, cd DIR
		c, ok := s.Cmd.(*syntax.CallExpr)
		if !ok || !isSimple(s) || len(s.Redirs) > 0 || len(c.Assigns) > 0 {
			return false
		}
		switch words := literalWords(c.Args); {
		case len(words) > 1 && words[0] == "set" && !set:
			set = true
			for i := 1; i < len(words); i++ {
				flags, ok := strings.CutPrefix(words[i], "-")
				option := strings.HasSuffix(flags, "o")
				if !ok || flags == "" || strings.Trim(flags, "euxo") != "" || option && (i+1 == len(words) || words[i+1] != "pipefail") {
					return false
				}
				if option {
					pipefail = true
					i++
				}
			}
			return true
		case len(words) == 2 && words[0] == "cd" && !moved:
			moved = true
			return true
		}
		return false
	}
	stmts := file.Stmts
	if len(stmts) == 2 && prepares(stmts[0]) && !moved {
		stmts = stmts[1:]
	}
	if len(stmts) != 1 || !isSimple(stmts[0]) {
		return nil
	}
	parts := flatten(stmts[0], false)
	for ; len(parts) > 1; parts = parts[1:] {
		if parts[1].op != syntax.AndStmt || !prepares(parts[0].stmt) {
			return nil
		}
	}
	s := parts[0].stmt
	if t, ok := s.Cmd.(*syntax.TimeClause); ok && isSimple(s) && t.Stmt != nil {
		s = t.Stmt
	}
	if pipe := flatten(s, true); len(pipe) > 1 {
		if !pipefail || !isSimple(s) || len(s.Redirs) > 0 {
			return nil
		}
		syntax.Walk(pipe[len(pipe)-1].stmt, func(n syntax.Node) bool { // in zsh, the last command of a pipe runs in the shell itself
			c, ok := n.(*syntax.CallExpr)
			pipefail = pipefail && !(ok && len(c.Args) > 0 && (c.Args[0].Lit() == "" || hasWord("exit return set setopt unsetopt emulate exec trap eval source . builtin command", c.Args[0].Lit())))
			return pipefail
		})
		if !pipefail {
			return nil
		}
		s = pipe[0].stmt
	}
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || !isSimple(s) || len(c.Assigns) > 0 || len(c.Args) == 0 {
		return nil
	}
	return c
}

func isSimple(s *syntax.Stmt) bool { return !s.Negated && !s.Background && !s.Coprocess && !s.Disown }

// literalWords returns the text of words without quotes and expansions. It returns nil if any word has them.
func literalWords(words []*syntax.Word) (texts []string) {
	for _, w := range words {
		text := w.Lit()
		if text == "" || strings.ContainsAny(text, "\\*?[{~") && text[0] != '~' {
			return nil
		}
		texts = append(texts, text)
	}
	return texts
}

func allKnown(words []Word) bool {
	for _, w := range words {
		if !w.Known {
			return false
		}
	}
	return true
}
