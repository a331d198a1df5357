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

// What one line may cost. Beyond it the line is unknown.
const (
	maxText     = 64 << 10
	maxTime     = 20 * time.Millisecond
	maxSteps    = 20_000  // words, commands, and characters by the 64: less than maxTime on an idle machine
	clockEvery  = 4096    // steps between looks at the clock, which short lines never reach
	clockAfter  = 8 << 10 // bytes of a text before the clock counts
	maxNesting  = 8       // texts in texts, wrappers in wrappers
	maxFrames   = 600     // of the stack while a text is parsed: how deep it nests
	maxCommands = 1000
	maxUnknown  = 32
	maxFolders  = 4
)

// Read reads a line of shell.
func Read(line string) (s Script) {
	r := &reader{script: Script{Whole: -1}, inner: -1, folders: []Word{{Known: true}}, functions: map[string]bool{}, began: time.Now()}
	if at, reason := checkText(line); reason != "" {
		r.refuse(at, "%s", reason)
		return r.script
	}
	defer func() { // a fault in reading hostile text is no reason to say nothing
		if p := recover(); p != nil {
			r.refuse(0, "a fault of the reader: %v", p)
		}
		s = r.script
	}()
	r.readText(line, true)
	r.finish(line)
	return r.script
}

// checkText returns where and why a line is not read at all.
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

// reader goes through a line in the order in which a shell would.
type reader struct {
	script    Script
	inner     int // where the command that runs this text is in the line; -1 in the line itself
	began     time.Time
	steps     int
	nesting   int
	exhausted bool
	whole     *syntax.CallExpr // the command that is the whole line, nil for none

	folders []Word // where the next command may act
	failed  []Word // where it may act if the cd before it failed
	moved   bool   // the line changes its folder anywhere
	later   bool   // it has commands that run at another place: functions, traps

	passed      strings.Builder // text that the line passes on: Script.Passed
	captured    bool            // what is printed now is passed on
	redirected  bool            // so for the rest of the line
	functions   map[string]bool
	renames     bool      // programs may not be what their names say: an alias, another PATH, hooks of git
	saved       bool      // the line writes files
	evaluates   bool      // texts in variables and files may be run
	gitSettings []Unknown // assignments that matter to git, if it runs
	runsGit     bool
}

// refuse gives up on the line: any program may run.
func (r *reader) refuse(at int, format string, args ...any) {
	r.exhausted = true
	r.script.Commands = nil
	r.script.Unknown = []Unknown{{Reason: sentence(format, args...), At: at, Program: true}}
}

// unknown notes a part that cannot be read. text is what programs may be mentioned in; any program may
// run where it is "".
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

// step counts what the line costs, and reports whether reading may go on.
func (r *reader) step(length int) bool {
	if r.exhausted {
		return false
	}
	before := r.steps
	r.steps += 1 + length/64
	tooLong := r.steps/clockEvery > before/clockEvery && time.Since(r.began) > maxTime
	if tooLong || r.steps > maxSteps || len(r.script.Commands) > maxCommands {
		r.refuse(0, "the line runs more than can be followed; run its parts one by one")
	}
	return !r.exhausted
}

// readText reads a text that the shell runs. first reports that it is the line itself.
func (r *reader) readText(text string, first bool) {
	if r.nesting >= maxNesting {
		r.unknown(0, "", "texts that run texts nest more than %d deep; run the inner text itself", maxNesting)
		return
	}
	if !r.step(len(text)) {
		return
	}
	file, err := parseText(text, r.began)
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

// parseText parses a text of a line whose reading began at a time.
func parseText(text string, began time.Time) (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.KeepComments(true)).Parse(&shallow{text: text, began: began}, "")
	if err != nil || !strings.Contains(text, "\\\n") {
		return file, err
	}
	// The parser takes a backslash at the end of a comment for a continuation; shells do not, and run
	// the next row.
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

// shallow gives a text to the parser in pieces, and ends it where the parser's own recursion, which
// has no bound, has gone too deep, or takes too long.
type shallow struct {
	text  string
	began time.Time
	read  int
}

var (
	errDeep = errors.New("it nests too deep; run its parts one by one")
	errSlow = errors.New("it takes too long; run its parts one by one")
)

func (s *shallow) Read(p []byte) (int, error) {
	if s.text == "" {
		return 0, io.EOF
	}
	var frame [1]uintptr
	if runtime.Callers(maxFrames, frame[:]) > 0 {
		return 0, errDeep
	}
	n := copy(p[:min(len(p), 128)], s.text)
	s.text = s.text[n:]
	if s.read += n; s.read >= clockAfter && time.Since(s.began) > maxTime {
		return 0, errSlow
	}
	return n, nil
}

// subscript matches an index of an array with a substitution: arithmetic, test -v and printf -v run it
// even where it is quoted.
var subscript = regexp.MustCompile("(?s)\\w\\[.*?(\\$\\(|`|\\$\\{[ |])")

// Variables that a shell looks at itself, which a line may set in many ways: those that name programs, those whose
// text is run, and those that hold the line.
var (
	namesPrograms = regexp.MustCompile(`(^|[^$\w])(PATH|BASH_CMDS|BASH_ALIASES)\b|\b(path|commands|functions|[gs]?aliases)(\[|\+?=)`)
	runsVariable  = regexp.MustCompile(`(^|[^$\w])(PS[0124]|PROMPT_COMMAND|GIT_\w+|\w*EDITOR|\w*PAGER|VISUAL|BROWSER|KUBECONFIG|ZDOTDIR)([^=\w]|$)`)
	holdsLine     = regexp.MustCompile(`BASH_COMMAND|BASH_EXECUTION_STRING|\bfc\b`)
)

// finish notes what only the whole line shows.
func (r *reader) finish(line string) {
	if holdsLine.MatchString(line) {
		r.pass(line)
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
		if r.later && r.moved {
			c.Folder = Word{}
		}
		c.Plain = c.Plain && !r.renames && !r.functions[c.Words[0].Text]
		r.evaluates = r.evaluates || r.saved && hasWord("go npm kubectl", path.Base(c.Words[0].Text)) // they run what is in files
	}
	if w := r.script.Whole; w >= 0 && (len(r.script.Unknown) > 0 || !allKnown(r.script.Commands[w].Words)) {
		r.script.Whole = -1
	}
	if r.runsGit {
		r.script.Unknown = append(r.script.Unknown, r.gitSettings...)
	}
	isIndex := strings.Contains(r.script.Passed, "[") && strings.ContainsAny(r.script.Passed, "$`") // arithmetic runs an index of an array
	if (r.evaluates || isIndex) && r.script.Passed != "" {
		r.unknown(0, r.script.Passed, "a text that the line puts into a variable or a file may be run")
	}
}

// findWhole finds the command that is the whole line.
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
		syntax.Walk(pipe[len(pipe)-1].stmt, func(n syntax.Node) bool { // in zsh it runs in the shell itself
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

// literalWords returns words without quotes and expansions, nil if there are others.
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
