package shell

import (
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// readWords returns what words become.
func (r *reader) readWords(words []*syntax.Word) (out []Word) {
	for _, w := range words {
		if !r.step(0) {
			return append(out, Word{split: true})
		}
		open := countOpen(w)
		if open == 0 {
			out = append(out, r.readWord(w))
			continue
		}
		if open <= maxOpen {
			syntax.SplitBraces(w)
		}
		if n := countBraces(w); n == 0 || open > maxOpen {
			w := r.readWord(w)
			w.Known, w.Pattern, w.split, w.lead = false, false, true, 0
			out = append(out, w)
			continue
		}
		for one, err := range expand.BracesSeq(nil, w) {
			if err != nil || !r.step(0) {
				return append(out, Word{split: true})
			}
			out = append(out, r.readWord(one))
		}
	}
	return out
}

// maxOpen is how many braces are looked at: the parser takes long for more.
const maxOpen = 16

// countOpen returns how many braces a word opens outside of quotes.
func countOpen(w *syntax.Word) (n int) {
	for _, p := range w.Parts {
		if lit, ok := p.(*syntax.Lit); ok {
			n += strings.Count(lit.Value, "{")
		}
	}
	return n
}

// countBraces returns how many words the braces of a word make, 0 where they are not a list or too many.
func countBraces(w *syntax.Word) int {
	n := 1
	for _, p := range w.Parts {
		b, ok := p.(*syntax.BraceExp)
		if !ok {
			continue
		}
		sum := 0
		for _, e := range b.Elems {
			one := countBraces(e)
			if one == 0 || b.Sequence {
				return 0
			}
			sum += one
		}
		if n *= sum; n > maxBraces {
			return 0
		}
	}
	return n
}

// field builds a word.
type field struct {
	text    strings.Builder
	known   bool
	pattern bool
	split   bool
	home    bool // it begins with $HOME
	lead    int
}

// expansion adds a part that is not known.
func (f *field) expansion(split bool) {
	if f.known {
		f.lead = f.text.Len()
	}
	f.known = false
	f.split = f.split || split
}

func (f *field) word() Word {
	w := Word{Text: f.text.String(), Known: f.known && !f.pattern, Pattern: f.known && f.pattern, split: f.split, lead: f.lead}
	if f.home && !isAbsolute(w.Text) {
		w = Word{Text: strings.TrimPrefix(w.Text, "~")}
	}
	if w.Known {
		w.lead = len(w.Text)
	}
	return w
}

// readWord returns a word that is neither split nor expanded by braces.
func (r *reader) readWord(w *syntax.Word) Word {
	f := &field{known: true}
	if w == nil {
		return f.word()
	}
	for i, p := range w.Parts {
		if !r.step(0) {
			return Word{}
		}
		switch p := p.(type) {
		case *syntax.Lit:
			f.literal(p.Value, i == 0)
		case *syntax.SglQuoted:
			text, ok := readSingle(p)
			f.text.WriteString(text)
			if !ok {
				f.expansion(false)
			}
		case *syntax.DblQuoted:
			for _, q := range p.Parts {
				r.readQuoted(f, q, "$`\"\\")
			}
		case *syntax.ExtGlob:
			f.expansion(true)
			f.text.WriteString(p.Pattern.Value)
			r.unknown(int(p.Pos().Offset()), p.Op.String()+p.Pattern.Value+")", "the pattern %s%s) may run a command in zsh; write the names", p.Op, p.Pattern.Value)
		case *syntax.BraceExp:
			f.expansion(true)
			for _, e := range p.Elems {
				r.give(r.readWord(e).Text)
			}
		default:
			if !f.startsAtHome(p) {
				r.walk(p)
				_, arithmetic := p.(*syntax.ArithmExp)
				f.expansion(!arithmetic)
			}
		}
	}
	out := f.word()
	r.step(len(out.Text))
	if strings.Contains(out.Text, "[") && subscript.MatchString(out.Text) {
		at := 0
		if w.Pos().IsValid() {
			at = int(w.Pos().Offset())
		}
		r.unknown(at, out.Text, "an index of an array may run the command in it: %.60q", out.Text)
	}
	return out
}

// startsAtHome reads $HOME at the beginning of a word as ~.
func (f *field) startsAtHome(p syntax.WordPart) bool {
	e, ok := p.(*syntax.ParamExp)
	if !ok || f.text.Len() > 0 || !f.known || e.Param == nil || e.Param.Value != "HOME" || !isPlainParameter(e) {
		return false
	}
	f.text.WriteByte('~')
	f.home = true
	return true
}

func isPlainParameter(e *syntax.ParamExp) bool {
	return e.Flags == nil && !e.Excl && !e.Length && !e.Width && !e.IsSet && e.NestedParam == nil && e.Index == nil &&
		e.Slice == nil && e.Repl == nil && e.Names == 0 && e.Exp == nil && len(e.Modifiers) == 0
}

// literal adds what stands without quotes.
func (f *field) literal(s string, first bool) {
	if name, _, _ := strings.Cut(s, "/"); first && strings.HasPrefix(s, "~") && name != "~" {
		f.expansion(false)
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			if i++; i < len(s) && s[i] != '\n' {
				f.text.WriteByte(s[i])
			}
			continue
		case '*', '?':
			f.pattern = true
		case '[':
			f.pattern = f.pattern || strings.Contains(s[i:], "]")
		}
		f.text.WriteByte(s[i])
	}
}

// readSingle returns what stands in single quotes, with the escapes of $'...' decoded.
func readSingle(p *syntax.SglQuoted) (string, bool) {
	if !p.Dollar {
		return p.Value, true
	}
	text, _, err := expand.Format(nil, p.Value, nil)
	text, _, _ = strings.Cut(text, "\x00")
	return text, err == nil && !strings.Contains(p.Value, `\c`) && !strings.Contains(p.Value, "%")
}

// readQuoted adds a part of double quotes or of a here-document, where a backslash counts before some
// characters only.
func (r *reader) readQuoted(f *field, p syntax.WordPart, escaped string) {
	lit, ok := p.(*syntax.Lit)
	if !ok {
		if !f.startsAtHome(p) {
			e, ok := p.(*syntax.ParamExp)
			each := ok && (e.Param == nil || e.Param.Value == "@" || e.Index != nil || e.Names != 0) // "$@" is any number of words
			r.walk(p)
			f.expansion(each)
		}
		return
	}
	for i := 0; i < len(lit.Value); i++ {
		if lit.Value[i] == '\\' && i+1 < len(lit.Value) {
			if lit.Value[i+1] == '\n' {
				i++
				continue
			}
			if strings.IndexByte(escaped, lit.Value[i+1]) >= 0 {
				i++
			}
		}
		f.text.WriteByte(lit.Value[i])
	}
}

// walk reads the words and substitutions in a node, and gives their text to the command that they are for.
func (r *reader) walk(n syntax.Node) {
	syntax.Walk(n, func(n syntax.Node) bool {
		if n == nil || !r.step(0) {
			return false
		}
		switch n := n.(type) {
		case *syntax.CmdSubst:
			r.substitute(n.Stmts)
			return false
		case *syntax.ProcSubst:
			r.substitute(n.Stmts)
			return false
		case *syntax.ParamExp:
			if n.Exp != nil {
				r.evaluates = r.evaluates || n.Exp.Op == syntax.OtherParamOps
				if n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull {
					r.hold(r.readWord(n.Exp.Word).Text)
				}
			}
			if last := len(r.script.Commands) - 1; last >= 0 && n.Param != nil && n.Param.Value == "_" { // the last word before
				r.hold(joinWords(r.script.Commands[last].Words).Text)
			}
		case *syntax.Word:
			r.give(r.readWord(n).Text)
			return false
		}
		return true
	})
}

func (r *reader) give(text string) {
	r.given.WriteString(text)
	r.given.WriteByte('\n')
	r.step(len(text))
}

// substitute reads what a substitution runs, and gives what it may print.
func (r *reader) substitute(stmts []*syntax.Stmt) {
	defer r.keepFolders()()
	out := r.out
	r.out = &strings.Builder{}
	r.readAll(stmts)
	r.give(r.out.String())
	r.out = out
}
