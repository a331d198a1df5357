package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// place is what surrounds a command.
type place struct {
	at            int
	input         string // from redirections and expansions
	document      string // a here-document or here-string that is its whole standard input
	isDocument    bool
	writes, reads []Word
	repository    Word
}

// readAll reads statements that run one after the other.
func (r *reader) readAll(stmts []*syntax.Stmt) {
	for _, s := range stmts {
		r.readStatement(s)
		r.setFolders(append(r.folders, r.failed...), nil) // cd may have failed
	}
}

func (r *reader) readStatement(s *syntax.Stmt) {
	if s == nil || !r.step(0) {
		return
	}
	if s.Background || s.Coprocess || s.Disown {
		defer r.keepFolders()()
	}
	p := place{at: int(s.Pos().Offset())}
	call, simple := s.Cmd.(*syntax.CallExpr)
	if simple && len(call.Args) > 0 {
		p.at = int(call.Args[0].Pos().Offset())
	}
	given := r.given
	var own strings.Builder
	r.given = &own
	for _, d := range s.Redirs {
		r.readRedirection(d, &p)
	}
	r.given = given
	p.input = joinTexts(p.input, own.String())
	if simple && len(call.Args) > 0 {
		r.readCall(call, p)
		return
	}
	if len(p.writes)+len(p.reads) > 0 {
		r.emit([]Word{{Text: ":", Known: true}}, p, true)
	}
	input, out := r.input, r.out
	r.input = r.join(r.input, p.input)
	if len(p.writes) > 0 {
		r.out = &strings.Builder{}
	}
	r.readCommand(s.Cmd)
	if len(p.writes) > 0 {
		r.hold(r.out.String())
	}
	r.input, r.out = input, out
}

// readRedirection reads a redirection into the place.
func (r *reader) readRedirection(d *syntax.Redirect, p *place) {
	w := r.readWord(d.Word)
	switch d.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		doc := r.readDocument(d)
		p.input, p.document, p.isDocument = r.join(p.input, doc.Text), doc.Text, doc.Known
	case syntax.WordHdoc:
		p.input, p.document, p.isDocument = r.join(p.input, w.Text), w.Text, w.Known
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
	if d.N != nil && d.N.Value != "0" { // it is not the standard input
		p.isDocument = false
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

// readCommand reads everything but simple commands.
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
				r.hold(w.Text)
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
		r.later = true
		for _, name := range append(c.Names, c.Name) {
			if name != nil {
				r.functions[name.Value] = true
			}
		}
		defer r.capture(true)() // what it prints goes to whoever calls it
		r.readBranch([]*syntax.Stmt{c.Body}, false)
	case *syntax.DeclClause:
		r.readDeclaration(c)
	case *syntax.TimeClause:
		r.readStatement(c.Stmt)
	case *syntax.CoprocClause:
		defer r.keepFolders()()
		defer r.capture(true)()
		r.readStatement(c.Stmt)
	case *syntax.TestClause, *syntax.ArithmCmd, *syntax.LetClause:
		r.walk(c)
	default:
		r.unknown(int(cmd.Pos().Offset()), "", "a kind of command that is not known")
	}
}

// readPipe reads a pipeline: each part runs in a shell of its own, and may get what those before print.
func (r *reader) readPipe(c *syntax.BinaryCmd) {
	input, out := r.input, r.out
	parts := flatten(&syntax.Stmt{Cmd: c}, true)
	for i, part := range parts {
		keep := r.keepFolders()
		r.out = &strings.Builder{}
		if i == len(parts)-1 {
			r.out = out
		}
		r.readStatement(part.stmt)
		if i < len(parts)-1 {
			r.input = r.out.String()
		}
		keep()
	}
	r.input, r.out = input, out
}

// readList reads a && b || c.
func (r *reader) readList(c *syntax.BinaryCmd) {
	before, beforeFailed := r.folders, r.failed
	parts := flatten(&syntax.Stmt{Cmd: c}, false)
	r.readStatement(parts[0].stmt)
	succeeded := r.folders
	var failed []Word
	for _, part := range parts[1:] {
		if part.op == syntax.AndStmt {
			failed = slices.Concat(failed, r.failed)
			r.failed = nil
			r.readStatement(part.stmt)
			succeeded = r.folders
			continue
		}
		r.setFolders(slices.Concat(r.folders, before, r.failed, failed), nil)
		if isExit(part.stmt) {
			keep := r.keepFolders()
			r.readStatement(part.stmt)
			keep()
			r.setFolders(succeeded, nil)
			failed = nil
			continue
		}
		r.readStatement(part.stmt)
		r.setFolders(slices.Concat(r.folders, r.failed), nil)
		succeeded = r.folders
	}
	if !slices.Equal(r.folders, before) && !(len(parts) == 2 && isExit(parts[1].stmt)) {
		failed = slices.Concat(failed, before)
	}
	r.setFolders(r.folders, slices.Concat(r.failed, beforeFailed, failed))
}

// isExit reports whether a statement ends what is running.
func isExit(s *syntax.Stmt) bool {
	if block, ok := s.Cmd.(*syntax.Block); ok && len(block.Stmts) > 0 {
		s = block.Stmts[len(block.Stmts)-1]
	}
	call, ok := s.Cmd.(*syntax.CallExpr)
	return ok && isSimple(s) && len(call.Args) > 0 && (call.Args[0].Lit() == "exit" || call.Args[0].Lit() == "return")
}

// readBranch reads what may run or not; loops reports that it may run again, from where it ended.
func (r *reader) readBranch(stmts []*syntax.Stmt, loops bool) {
	before, from := slices.Clone(r.folders), len(r.script.Commands)
	r.readAll(stmts)
	if loops && !slices.Equal(r.folders, before) {
		r.setFolders([]Word{{}}, nil)
		for i := from; i < len(r.script.Commands); i++ {
			r.script.Commands[i].Folder = Word{}
		}
		return
	}
	r.setFolders(append(before, r.folders...), nil)
}

// keepFolders returns a function that goes back to where the shell is now.
func (r *reader) keepFolders() func() {
	folders, failed := r.folders, r.failed
	return func() { r.folders, r.failed = folders, failed }
}

// setFolders notes where the next command may act, and where if the last cd failed.
func (r *reader) setFolders(folders, failed []Word) {
	r.folders = slices.Clone(folders)
	r.failed = failed
	for i := 0; i < len(r.folders); i++ {
		if slices.Contains(r.folders[:i], r.folders[i]) {
			r.folders = slices.Delete(r.folders, i, i+1)
			i--
		}
	}
	if len(r.folders) > maxFolders || slices.ContainsFunc(r.folders, func(w Word) bool { return !w.Known }) {
		r.folders = []Word{{}}
	}
}

// changeFolder goes to another folder.
func (r *reader) changeFolder(to Word) {
	r.moved = true
	before := r.folders
	next := make([]Word, len(before))
	for i, f := range before {
		if to.Known && (f.Known || isAbsolute(to.Text)) {
			next[i] = Word{Text: joinPath(f.Text, to.Text), Known: true}
		}
	}
	r.setFolders(next, before)
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
	op   syntax.BinCmdOperator // before it
	stmt *syntax.Stmt
}

// flatten turns the parser's tree of a list or a pipe, which leans to one side and is as deep as the
// text is long, into its parts; a statement of another kind is one part.
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

// join puts texts one after the other.
func (r *reader) join(a, b string) string {
	if a != "" && b != "" {
		r.step(len(a) + len(b))
	}
	return joinTexts(a, b)
}

func joinTexts(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

// capture holds what is printed until the function that it returns is called, if it is for a file.
func (r *reader) capture(isForFile bool) func() {
	before := r.captured
	r.captured = before || isForFile
	return func() { r.captured = before }
}

// hold notes a text that the line puts into a file or a variable.
func (r *reader) hold(text string) {
	if text = strings.TrimSpace(text); text != "" && r.step(len(text)) {
		r.held.WriteString(text)
		r.held.WriteByte('\n')
	}
}
