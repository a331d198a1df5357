package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// execContext is the context of a command.
type execContext struct {
	at            int
	document      Word // a here-document or here-string that is the command's entire standard input
	writes, reads []Word
	repository    Word
}

// readAll reads statements that run one after another.
func (r *reader) readAll(stmts []*syntax.Stmt) {
	for _, s := range stmts {
		r.readStatement(s)
		r.rejoin()
	}
}

func (r *reader) readStatement(s *syntax.Stmt) {
	if s == nil || !r.step(0) {
		return
	}
	if s.Background || s.Coprocess || s.Disown {
		defer r.keepFolders()()
	}
	p := execContext{at: int(s.Pos().Offset())}
	for _, d := range s.Redirs {
		r.readRedirection(d, &p)
	}
	if call, ok := s.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 {
		p.at = int(call.Args[0].Pos().Offset())
		r.readCall(call, p)
	} else {
		if len(p.writes)+len(p.reads) > 0 {
			r.emit([]Word{{Text: ":", Known: true}}, p, true)
		}
		r.capture(len(p.writes) > 0, func() { r.readCommand(s.Cmd) })
	}
	if s.Negated { // the command after && runs if this one failed
		r.rejoin()
	}
}

// readRedirection adds a redirection to the place.
func (r *reader) readRedirection(d *syntax.Redirect, p *execContext) {
	w := r.readWord(d.Word)
	switch d.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		if d.Op != syntax.WordHdoc {
			w = r.readDocument(d)
		}
		r.recordPassed(w.Text)
		p.document = w
		if d.N != nil && d.N.Value != "0" { // not the standard input
			p.document = Word{}
		}
	case syntax.RdrIn:
		p.reads = append(p.reads, w)
	case syntax.RdrInOut:
		p.reads, p.writes = append(p.reads, w), append(p.writes, w)
	case syntax.DplIn, syntax.DplOut:
		if strings.Trim(w.Text, "0123456789-") != "" || !w.Known { // >& file
			p.writes = append(p.writes, w)
		}
	default:
		p.writes = append(p.writes, w)
	}
}

// readDocument returns the text of a here-document.
func (r *reader) readDocument(d *syntax.Redirect) Word {
	if d.Hdoc == nil {
		return Word{Known: true}
	}
	quoted := slices.ContainsFunc(d.Word.Parts, func(p syntax.WordPart) bool {
		lit, ok := p.(*syntax.Lit)
		return !ok || strings.Contains(lit.Value, `\`)
	})
	f := &field{known: true}
	for _, p := range d.Hdoc.Parts {
		if lit, ok := p.(*syntax.Lit); ok && quoted {
			f.text.WriteString(lit.Value)
		} else {
			r.readQuoted(f, p, "$`\\")
		}
	}
	w := f.word()
	if d.Op == syntax.DashHdoc {
		rows := strings.Split(w.Text, "\n")
		for i := range rows {
			rows[i] = strings.TrimLeft(rows[i], "\t")
		}
		w.Text = strings.Join(rows, "\n")
	}
	r.step(len(w.Text))
	return w
}

// readCommand reads any command that is not a simple one.
func (r *reader) readCommand(cmd syntax.Command) {
	switch c := cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		for _, a := range c.Assigns {
			r.assign(a, nil)
		}
	case *syntax.BinaryCmd:
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			r.readPipe(c)
		} else {
			r.readList(c)
		}
	case *syntax.Block:
		r.readAll(c.Stmts)
	case *syntax.Subshell:
		defer r.keepFolders()()
		r.readAll(c.Stmts)
	case *syntax.IfClause:
		for ; c != nil; c = c.Else {
			r.readBranch(c.Cond, false)
			r.readBranch(c.Then, false)
		}
	case *syntax.WhileClause:
		r.readBranch(slices.Concat(c.Cond, c.Do), true)
	case *syntax.ForClause:
		if words, ok := c.Loop.(*syntax.WordIter); ok {
			for _, w := range r.readWords(words.Items) {
				r.recordPassed(w.Text)
			}
		} else {
			r.walk(c.Loop)
		}
		r.readBranch(c.Do, true)
	case *syntax.CaseClause:
		r.walk(c.Word)
		for _, item := range c.Items {
			for _, p := range item.Patterns {
				r.walk(p)
			}
			r.readBranch(item.Stmts, false)
		}
	case *syntax.FuncDecl:
		r.hasDeferred = true
		for _, name := range append(c.Names, c.Name) {
			if name != nil {
				r.functions[name.Value] = true
			}
		}
		r.capture(true, func() { r.readBranch([]*syntax.Stmt{c.Body}, false) }) // its output goes to the function's callers
	case *syntax.DeclClause:
		for _, a := range c.Args {
			r.assign(a, nil)
		}
	case *syntax.TimeClause:
		r.readStatement(c.Stmt)
	case *syntax.CoprocClause:
		defer r.keepFolders()()
		r.capture(true, func() { r.readStatement(c.Stmt) })
	case *syntax.TestClause, *syntax.ArithmCmd, *syntax.LetClause:
		r.walk(c)
	default:
		r.unknown(int(cmd.Pos().Offset()), "", "gavel does not know this kind of command; write it in another way")
	}
}

// readPipe reads a pipeline. Each part runs in its own shell.
func (r *reader) readPipe(c *syntax.BinaryCmd) {
	parts := flatten(&syntax.Stmt{Cmd: c}, true)
	for i, part := range parts {
		keep := r.keepFolders()
		r.capture(i < len(parts)-1, func() { r.readStatement(part.stmt) })
		keep()
	}
}

// readList reads a && b || c.
func (r *reader) readList(c *syntax.BinaryCmd) {
	for _, part := range flatten(&syntax.Stmt{Cmd: c}, false) {
		if part.op == syntax.OrStmt {
			r.rejoin()
		}
		r.readStatement(part.stmt)
		if part.op == syntax.OrStmt { // this part may not have run
			r.rejoin()
		}
	}
}

// readBranch reads statements that may or may not run. loops reports whether they may run again, in the folder where
// they ended.
func (r *reader) readBranch(stmts []*syntax.Stmt, loops bool) {
	before, from := slices.Clone(r.folders), len(r.script.Commands)
	r.readAll(stmts)
	if loops && !slices.Equal(r.folders, before) {
		r.setFolders([]Word{{}})
		for i := from; i < len(r.script.Commands); i++ {
			r.script.Commands[i].Folder = Word{}
		}
		return
	}
	r.setFolders(append(before, r.folders...))
}

// keepFolders returns a function that restores the current folders.
func (r *reader) keepFolders() func() {
	folders, failed := r.folders, r.failed
	return func() { r.folders, r.failed = folders, failed }
}

// rejoin adds the folders in which the shell may still be if an earlier cd failed.
func (r *reader) rejoin() {
	r.setFolders(slices.Concat(r.folders, r.failed))
	r.failed = nil
}

// setFolders sets the folders in which the next command may run.
func (r *reader) setFolders(folders []Word) {
	r.folders = nil
	for _, f := range folders {
		if !slices.Contains(r.folders, f) {
			r.folders = append(r.folders, f)
		}
	}
	if len(r.folders) > maxFolders || slices.ContainsFunc(r.folders, func(w Word) bool { return !w.Known }) {
		r.folders = []Word{{}}
	}
}

// changeFolder records a change of the working folder.
func (r *reader) changeFolder(to Word) {
	r.changesFolder = true
	before := r.folders
	next := make([]Word, len(before))
	for i, f := range before {
		if to.Known && (f.Known || isAbsolute(to.Text)) {
			next[i] = Word{Text: joinPath(f.Text, to.Text), Known: true}
		}
	}
	r.setFolders(next)
	r.failed = slices.Concat(r.failed, before)
}

func joinPath(folder, name string) string {
	if isAbsolute(name) {
		return path.Clean(name)
	}
	if at := path.Join(folder, name); at != "." {
		return at
	}
	return ""
}

type part struct {
	op   syntax.BinCmdOperator // operator before the statement
	stmt *syntax.Stmt
}

// flatten returns the parts of a list or a pipe. The parser's tree leans to one side, and is as deep as the text is
// long. A statement of another kind is a single part.
func flatten(s *syntax.Stmt, pipe bool) (parts []part) {
	for {
		c, ok := s.Cmd.(*syntax.BinaryCmd)
		isPipe := ok && (c.Op == syntax.Pipe || c.Op == syntax.PipeAll)
		if !ok || isPipe != pipe || len(parts) > 0 && (len(s.Redirs) > 0 || !isSimple(s)) {
			break
		}
		parts = append(parts, part{c.Op, c.Y})
		s = c.X
	}
	parts = append(parts, part{stmt: s})
	slices.Reverse(parts)
	return parts
}

// capture calls read. If isCaptured is set, output printed during the call counts as passed on to a pipe, file or
// word.
func (r *reader) capture(isCaptured bool, read func()) {
	before := r.captured
	r.captured = before || isCaptured
	read()
	r.captured = before
}

// recordPassed records text that the line passes on.
func (r *reader) recordPassed(text string) {
	if text = strings.TrimSpace(text); text != "" && r.step(len(text)) {
		r.passed.WriteString(text)
		r.passed.WriteByte('\n')
	}
}
