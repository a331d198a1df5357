package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// stream is what a command reads or prints.
type stream struct {
	text  string
	known bool
	path  bool // where it is not known, it is one name of a file
	file  Word // what it reads is this file, which is looked at only when somebody needs it
}

// add is what is printed by one after the other.
func (s stream) add(t stream) stream {
	if s.known && s.text == "" {
		return t
	}
	if !s.known || !t.known || len(s.text)+len(t.text) > maxValue {
		return stream{}
	}
	return stream{text: s.text + t.text, known: true}
}

// runAll reads statements that run one after the other.
func (r *reader) runAll(stmts []*syntax.Stmt, in stream) stream {
	out := stream{known: true}
	for _, s := range stmts {
		out = out.add(r.run(s, in))
	}
	return out
}

// run reads a statement, and says what it would print.
func (r *reader) run(s *syntax.Stmt, in stream) stream {
	if s == nil || !r.step(0) {
		return stream{}
	}
	if s.Background || s.Coprocess || s.Disown {
		return r.inSubshell(func() stream { return r.runRedirected(s, in) })
	}
	return r.runRedirected(s, in)
}

func (r *reader) runRedirected(s *syntax.Stmt, in stream) stream {
	var at place
	at.in = in
	var printsTo []fileWrite
	silent := false
	for _, d := range s.Redirs {
		descriptor := ""
		if d.N != nil {
			descriptor = d.N.Value
		}
		switch d.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			if doc := r.readDocument(d); descriptor == "" || descriptor == "0" {
				at.in = doc
			}
		case syntax.WordHdoc:
			w := r.readWord(d.Word)
			if descriptor == "" || descriptor == "0" {
				at.in = stream{text: w.Text + "\n", known: w.Known}
			}
		case syntax.RdrIn, syntax.RdrInOut:
			w := r.readWord(d.Word)
			if descriptor == "" || descriptor == "0" {
				at.in = stream{file: w}
			}
			if d.Op == syntax.RdrInOut {
				at.writes = append(at.writes, w)
			}
		case syntax.DplIn:
			r.readWord(d.Word)
			at.in = stream{}
		case syntax.DplOut:
			w := r.readWord(d.Word)
			if !isDescriptor(w.Text) { // >& file
				at.writes = append(at.writes, w)
				printsTo = append(printsTo, fileWrite{w, false})
			}
			if descriptor == "" || descriptor == "1" {
				silent = true
			}
		default:
			w := r.readWord(d.Word)
			at.writes = append(at.writes, w)
			appends := d.Op == syntax.AppOut || d.Op == syntax.AppAll
			if descriptor == "" || descriptor == "1" {
				printsTo = append(printsTo, fileWrite{w, appends})
				silent = true
			} else {
				r.writeFile(w, stream{}, appends)
			}
		}
	}
	call, simple := s.Cmd.(*syntax.CallExpr)
	if len(at.writes) > 0 && (!simple || len(call.Args) == 0) {
		r.emit([]Word{{Text: ":", Known: true}}, place{writes: at.writes}, "")
	}
	out := r.runCommand(s.Cmd, at)
	for _, w := range printsTo {
		r.writeFile(w.file, out, w.appends)
	}
	if simple {
		r.runAfterAmpersand(s.Redirs, call, at)
	}
	if silent {
		return stream{known: len(printsTo) > 0}
	}
	return out
}

// runAfterAmpersand reads the words after &> as a command of their own, which they are to a plain sh.
func (r *reader) runAfterAmpersand(redirs []*syntax.Redirect, call *syntax.CallExpr, at place) {
	for _, d := range redirs {
		if d.Op != syntax.RdrAll && d.Op != syntax.AppAll {
			continue
		}
		for i, arg := range call.Args {
			if arg.Pos().After(d.Pos()) {
				r.inBranch(func() stream { return r.runWords(r.readWords(call.Args[i:]), at) })
				return
			}
		}
	}
}

type fileWrite struct {
	file    Word
	appends bool
}

func isDescriptor(s string) bool {
	return s == "-" || s != "" && strings.Trim(s, "0123456789-") == ""
}

// place is where a command runs: what it reads, and the files that redirections write.
type place struct {
	in       stream
	writes   []Word
	external bool // another program runs it: functions of the shell do not count
}

// readDocument is a here-document's text.
func (r *reader) readDocument(d *syntax.Redirect) stream {
	if d.Hdoc == nil {
		return stream{known: true}
	}
	quoted := false
	for _, p := range d.Word.Parts {
		if lit, ok := p.(*syntax.Lit); !ok || strings.Contains(lit.Value, `\`) {
			quoted = true
		}
	}
	var out stream
	if quoted {
		out = stream{known: true}
		for _, p := range d.Hdoc.Parts {
			if lit, ok := p.(*syntax.Lit); ok {
				out.text += lit.Value
			}
		}
	} else {
		w := r.readQuoted(d.Hdoc.Parts, "$`\\")
		out = stream{text: w.Text, known: w.Known}
	}
	if d.Op == syntax.DashHdoc {
		lines := strings.SplitAfter(out.text, "\n")
		for i, l := range lines {
			lines[i] = strings.TrimLeft(l, "\t")
		}
		out.text = strings.Join(lines, "")
	}
	return out
}

func (r *reader) runCommand(cmd syntax.Command, at place) stream {
	switch c := cmd.(type) {
	case nil:
		return stream{known: true}
	case *syntax.CallExpr:
		return r.runCall(c, at)
	case *syntax.BinaryCmd:
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			return r.runPipe(c, at.in)
		}
		return r.runList(c, at.in)
	case *syntax.Block:
		return r.runAll(c.Stmts, at.in)
	case *syntax.Subshell:
		return r.inSubshell(func() stream { return r.runAll(c.Stmts, at.in) })
	case *syntax.IfClause:
		r.runAll(c.Cond, at.in)
		for c := c; c != nil; c = c.Else {
			r.inBranch(func() stream { return r.runAll(c.Then, at.in) })
			if c.Else != nil {
				r.inBranch(func() stream { return r.runAll(c.Else.Cond, at.in) })
			}
		}
	case *syntax.WhileClause:
		r.runLoop(c, func() {
			r.runAll(c.Cond, stream{})
			r.runAll(c.Do, stream{})
		})
	case *syntax.ForClause:
		r.runFor(c, at.in)
	case *syntax.CaseClause:
		r.readWord(c.Word)
		for _, item := range c.Items {
			r.inBranch(func() stream {
				for _, p := range item.Patterns {
					r.readWord(p)
				}
				return r.runAll(item.Stmts, at.in)
			})
		}
	case *syntax.FuncDecl:
		r.declareFunction(c)
		return stream{known: true}
	case *syntax.DeclClause:
		r.runDeclaration(c)
		return stream{known: true}
	case *syntax.TimeClause:
		return r.run(c.Stmt, at.in)
	case *syntax.CoprocClause:
		r.inSubshell(func() stream { return r.run(c.Stmt, stream{}) })
	case *syntax.TestClause:
		if _, ok := c.X.(*syntax.BinaryTest); ok && r.plain {
			r.unknown("sh has no [[, and may run what stands in it")
		}
		r.readSubscripts(c)
		return stream{known: true}
	case *syntax.ArithmCmd, *syntax.LetClause:
		r.readSubscripts(c)
		r.forgetSet(c)
		return stream{known: true}
	default:
		r.unknown("a kind of command that is not known")
	}
	return stream{}
}

// runPipe reads a pipeline: each part runs in a subshell, but for the last one in some shells.
func (r *reader) runPipe(c *syntax.BinaryCmd, in stream) stream {
	parts := flattenList(c, true)
	out := in
	for i, part := range parts {
		read := func() stream { return r.run(part.stmt, out) }
		if i == len(parts)-1 {
			out = r.inBranch(read)
		} else {
			out = r.inSubshell(read)
		}
	}
	return out
}

// runList reads a && b || c: what comes after && runs when all before it did.
func (r *reader) runList(c *syntax.BinaryCmd, in stream) stream {
	parts := flattenList(c, false)
	out := r.run(parts[0].stmt, in)
	mark := r.mark()
	for i, part := range parts[1:] {
		if part.op == syntax.OrStmt {
			r.merge(mark)
			if i == 0 && isExit(part.stmt) {
				r.inSubshell(func() stream { return r.run(part.stmt, in) })
				r.succeed(parts[0].stmt)
			} else {
				r.inBranch(func() stream { return r.run(part.stmt, in) })
			}
			mark = r.mark()
			out = stream{}
			continue
		}
		r.succeed(parts[i].stmt)
		out = out.add(r.run(part.stmt, in))
	}
	r.merge(mark)
	return out
}

type part struct {
	op   syntax.BinCmdOperator
	stmt *syntax.Stmt
}

// flattenList turns the parser's tree, which leans to the left and is as deep as the text is long, into
// its parts.
func flattenList(c *syntax.BinaryCmd, pipe bool) []part {
	var parts []part
	for {
		parts = append(parts, part{c.Op, c.Y})
		left, ok := c.X.Cmd.(*syntax.BinaryCmd)
		if !ok || len(c.X.Redirs) > 0 || c.X.Background || (left.Op == syntax.Pipe || left.Op == syntax.PipeAll) != pipe {
			break
		}
		c = left
	}
	parts = append(parts, part{stmt: c.X})
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return parts
}

// runFor reads a loop: once for each word where all are known, else once for any.
func (r *reader) runFor(c *syntax.ForClause, in stream) {
	words, ok := c.Loop.(*syntax.WordIter)
	if !ok {
		r.readSubscripts(c.Loop)
		r.runLoop(c, func() { r.runAll(c.Do, in) })
		return
	}
	name := key{kindVariable, words.Name.Value}
	items := r.readWords(words.Items)
	if !words.InPos.IsValid() {
		items = r.parameters()
	}
	known := len(items) <= maxUnroll && !c.Select
	for _, w := range items {
		known = known && w.Known
	}
	if !known {
		r.runLoop(c, func() { r.set(name, nil); r.runAll(c.Do, in) })
		return
	}
	mark := r.mark()
	defer func() { r.merge(mark) }()
	for _, w := range items {
		start := r.mark()
		r.set(name, &value{text: w.Text})
		r.runAll(c.Do, in)
		r.merge(start)
	}
}

// runLoop reads what runs any number of times, and again where it writes files that it may run.
func (r *reader) runLoop(loop syntax.Node, read func()) {
	mark := r.mark()
	r.forgetSet(loop)
	read()
	writes := slices.ContainsFunc(r.journal[mark:], func(c change) bool { return c.key.isOnDisk() })
	r.merge(mark)
	if writes && !r.inLoop {
		r.inLoop = true
		mark := r.mark()
		read()
		r.merge(mark)
		r.inLoop = false
	}
}

// forgetSet forgets what a node may set, for what runs more than once or out of order.
func (r *reader) forgetSet(n syntax.Node) {
	all, moves := false, false
	syntax.Walk(n, func(n syntax.Node) bool {
		if moves || !r.step(0) {
			return false
		}
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil {
				r.set(key{kindVariable, n.Name.Value}, nil)
			}
		case *syntax.WordIter:
			r.set(key{kindVariable, n.Name.Value}, nil)
		case *syntax.UnaryArithm, *syntax.BinaryArithm:
			all = all || setsInArithmetic(n)
		case *syntax.ParamExp:
			if n.Exp != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) && n.Param != nil {
				r.set(key{kindVariable, n.Param.Value}, nil)
			}
		case *syntax.CallExpr:
			v, m := r.setsNames(n.Args)
			all, moves = all || v, moves || m
		}
		return true
	})
	if all || moves {
		r.forgetVariables(moves)
	}
}

func setsInArithmetic(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.UnaryArithm:
		return n.Op == syntax.Inc || n.Op == syntax.Dec
	case *syntax.BinaryArithm:
		return n.Op == syntax.Assgn || n.Op >= syntax.AddAssgn && n.Op <= syntax.PowAssgn
	}
	return false
}

// setsNames reports whether a call, by its words as they stand, may set variables, and whether it may
// do anything, as another text and a function may.
func (r *reader) setsNames(args []*syntax.Word) (variables, anything bool) {
	if len(args) == 0 {
		return false, false
	}
	program := args[0].Lit()
	switch program {
	case "read", "mapfile", "readarray", "getopts", "unset", "set", "shift", "wait", "let":
		return true, false
	case "printf":
		return len(args) > 1 && strings.HasPrefix(args[1].Lit(), "-v"), false
	case "command", "builtin":
		return r.setsNames(args[1:])
	case "", "eval", "source", ".", "cd", "pushd", "popd", "alias":
		return true, true
	}
	return false, r.names[key{kindFunction, program}] != nil || r.names[key{kindAlias, program}] != nil
}

func (r *reader) declareFunction(c *syntax.FuncDecl) {
	names := c.Names
	if c.Name != nil {
		names = append(names, c.Name)
	}
	f := &function{body: c.Body, source: r.source}
	r.functions = append(r.functions, f)
	for _, n := range names {
		r.set(key{kindFunction, n.Value}, &value{function: f})
	}
}
