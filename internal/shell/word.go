package shell

import (
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// readWords returns the words after expansion, as far as they are known.
func (r *reader) readWords(words []*syntax.Word) (out []Word) {
	for _, w := range words {
		out = append(out, r.readWord(w))
	}
	return out
}

// field builds a Word.
type field struct {
	text    strings.Builder
	known   bool
	pattern bool
	split   bool
	home    bool // it starts with $HOME
	lead    int
}

// expansion adds a part whose value is not known.
func (f *field) expansion(split bool) {
	if f.known {
		f.lead = f.text.Len()
	}
	f.known = false
	f.split = f.split || split
}

func (f *field) word() Word {
	w := Word{Text: f.text.String(), Known: f.known && !f.pattern, Pattern: f.known && f.pattern, split: f.split, lead: f.lead}
	if f.home && !isAbsolute(w.Text) { // $HOMEx
		w = Word{Text: strings.TrimPrefix(w.Text, "~")}
	}
	if w.Known {
		w.lead = len(w.Text)
	}
	return w
}

// readWord returns a word after expansion, as far as it is known.
func (r *reader) readWord(w *syntax.Word) Word {
	f, braces := &field{known: true}, false
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
			braces = braces || makesWords(p.Value, len(w.Parts) > 1)
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
		default:
			_, arithmetic := p.(*syntax.ArithmExp)
			r.expand(f, p, !arithmetic)
		}
	}
	out := f.word()
	r.step(len(out.Text))
	if braces {
		r.recordPassed(out.Text)
		out = out.withBraces()
	}
	if strings.Contains(out.Text, "[") && subscript.MatchString(out.Text) {
		at := 0
		if w.Pos().IsValid() {
			at = int(w.Pos().Offset())
		}
		r.unknown(at, out.Text, "an index of an array may run the command in it: %.60q", out.Text)
	}
	return out
}

// expand adds a part whose value is not known. $HOME at the beginning is known: it becomes ~.
func (r *reader) expand(f *field, p syntax.WordPart, split bool) {
	if e, ok := p.(*syntax.ParamExp); ok && f.known && f.text.Len() == 0 && e.Param != nil && e.Param.Value == "HOME" && isPlainParameter(e) {
		f.text.WriteByte('~')
		f.home = true
		return
	}
	r.walk(p)
	f.expansion(split)
}

func isPlainParameter(e *syntax.ParamExp) bool {
	return e.Flags == nil && !e.Excl && !e.Length && !e.Width && !e.IsSet && e.NestedParam == nil && e.Index == nil &&
		e.Slice == nil && e.Repl == nil && e.Names == 0 && e.Exp == nil && len(e.Modifiers) == 0
}

// makesWords reports whether unquoted braces may make several words: {a,b}, {1..9}. Their contents may be in other
// parts of the word.
func makesWords(text string, isPart bool) bool {
	at := strings.IndexByte(text, '{')
	return at >= 0 && (isPart || strings.Contains(text[at:], ",") || strings.Contains(text[at:], ".."))
}

// withBraces returns what a word with braces may expand to: any files in the folder before the braces if that is
// known, otherwise any words.
func (w Word) withBraces() Word {
	at := strings.IndexByte(w.Text, '{')
	folder := w.Text[:strings.LastIndexByte(w.Text[:at], '/')+1]
	if w.lead < len(folder) || strings.Contains(w.Text, "..") || folder == "" && strings.ContainsAny(w.Text, "/~") {
		return Word{Text: w.Text, split: true}
	}
	return Word{Text: folder + "**", Pattern: true, split: true}
}

// literal adds unquoted text.
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

// readSingle returns the text in single quotes, with the escapes of $'...' decoded. It returns false if the text is
// uncertain.
func readSingle(p *syntax.SglQuoted) (string, bool) {
	if !p.Dollar {
		return p.Value, true
	}
	text, _, err := expand.Format(nil, p.Value, nil)
	text, _, _ = strings.Cut(text, "\x00")
	return text, err == nil && !strings.Contains(p.Value, `\c`) && !strings.Contains(p.Value, "%")
}

// readQuoted adds a part of a double-quoted string or a here-document. A backslash there escapes only the characters
// in escaped.
func (r *reader) readQuoted(f *field, p syntax.WordPart, escaped string) {
	lit, ok := p.(*syntax.Lit)
	if !ok {
		e, ok := p.(*syntax.ParamExp)
		r.expand(f, p, ok && (e.Param == nil || e.Param.Value == "@" || e.Index != nil || e.Names != 0)) // "$@" expands to any number of words
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

// walk reads the words and substitutions in a node, and records their text as passed on.
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
			r.evaluates = r.evaluates || n.Exp != nil && n.Exp.Op == syntax.OtherParamOps
			if last := len(r.script.Commands) - 1; last >= 0 && n.Param != nil && n.Param.Value == "_" { // $_ is the last word of the previous command
				r.recordPassed(joinWords(r.script.Commands[last].Words).Text)
			}
		case *syntax.Word:
			r.recordPassed(r.readWord(n).Text)
			return false
		}
		return true
	})
}

// substitute reads the commands of a substitution.
func (r *reader) substitute(stmts []*syntax.Stmt) {
	defer r.keepFolders()()
	r.capture(true, func() { r.readAll(stmts) })
}
