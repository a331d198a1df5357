package shell

import (
	"regexp"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

const maxBraces = 256 // words that braces make of one

// readWords is what words become.
func (r *reader) readWords(words []*syntax.Word) []Word {
	var out []Word
	for _, w := range words {
		out = append(out, r.splitWord(w)...)
	}
	return out
}

// splitWord is what a word becomes: none, one or several.
func (r *reader) splitWord(w *syntax.Word) []Word {
	if !r.step(0) {
		return []Word{{}}
	}
	if !mayExpandBraces(w) {
		return r.expandWord(w)
	}
	syntax.SplitBraces(w)
	var out []Word
	n := 0
	for one, err := range expand.BracesSeq(nil, w) {
		if n++; err != nil || n > maxBraces || !r.step(0) {
			r.readSubscripts(w)
			return []Word{{split: true}}
		}
		out = append(out, r.expandWord(one)...)
	}
	return out
}

func mayExpandBraces(w *syntax.Word) bool {
	n := 0
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			n += strings.Count(p.Value, "{")
		case *syntax.BraceExp:
			return true
		}
	}
	return n > 0 && n <= 16
}

// fields builds the words that one word becomes.
type fields struct {
	done   []Word
	text   strings.Builder
	known  bool
	begun  bool // there is a word, though it may be empty
	split  bool
	suffix bool // what was added since the last / is known
	opaque bool // there is more that is not known than wildcards
}

func (f *fields) add(text string, known bool) {
	f.begun = true
	f.text.WriteString(text)
	if !known {
		f.known, f.suffix, f.opaque = false, false, true
	}
}

// addPattern adds a text in which wildcards count.
func (f *fields) addPattern(text string, isPattern bool) {
	opaque := f.opaque
	f.add(text, !isPattern)
	f.opaque = opaque
}

func (f *fields) end() {
	if f.begun {
		f.done = append(f.done, Word{Text: f.text.String(), Known: f.known, split: f.split, base: f.suffix, pattern: !f.known && !f.opaque})
	}
	f.text.Reset()
	f.known, f.begun, f.split, f.suffix, f.opaque = true, false, false, true, false
}

// expandWord is what a word without braces becomes.
func (r *reader) expandWord(w *syntax.Word) []Word {
	f := &fields{known: true, suffix: true}
	for i, p := range w.Parts {
		if !r.step(0) {
			f.add("", false)
			break
		}
		switch p := p.(type) {
		case *syntax.Lit:
			r.addLiteral(f, p.Value, i == 0)
		case *syntax.SglQuoted:
			text, known := readSingle(p)
			f.add(text, known)
		case *syntax.DblQuoted:
			r.addQuoted(f, p)
		case *syntax.ParamExp:
			list, known, _ := r.readParameter(p)
			r.addSplit(f, list, known, r.isOneWord(p))
		case *syntax.CmdSubst:
			out := r.substitute(p)
			r.addSplit(f, []Word{{Text: out.text, Known: out.known}}, out.known, out.path)
		case *syntax.ProcSubst:
			f.add(r.substituteProcess(p), true)
		case *syntax.ArithmExp:
			r.readSubscripts(p.X)
			f.add("", false)
		case *syntax.ExtGlob:
			f.add(p.Op.String()+p.Pattern.Value+")", false)
		default:
			r.readSubscripts(p)
			f.add("", false)
		}
	}
	f.end()
	return f.done
}

// addLiteral adds what stands without quotes.
func (r *reader) addLiteral(f *fields, s string, first bool) {
	known, pattern := true, false
	if first && strings.HasPrefix(s, "~") {
		name, rest, _ := strings.Cut(s, "/")
		if name == "~" && r.options.Home != "" {
			s = strings.TrimSuffix(r.options.Home+"/"+rest, "/")
		} else {
			known = false
		}
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
			continue
		case '*', '?', '[':
			if c != '[' || strings.Contains(s[i:], "]") {
				pattern = true
			}
		}
		b.WriteByte(s[i])
	}
	f.addPattern(b.String(), pattern)
	if !known {
		f.add("", false)
	}
	if i := strings.LastIndexByte(s, '/'); i >= 0 && !strings.ContainsAny(s[i:], "*?[") {
		f.suffix = true
	}
}

func readSingle(p *syntax.SglQuoted) (string, bool) {
	if !p.Dollar {
		return p.Value, true
	}
	text, _, err := expand.Format(nil, p.Value, nil)
	text, _, _ = strings.Cut(text, "\x00")
	return text, err == nil && !strings.Contains(p.Value, `\c`)
}

// addQuoted adds what stands in double quotes: one word, but for "$@".
func (r *reader) addQuoted(f *fields, p *syntax.DblQuoted) {
	if len(p.Parts) == 1 {
		if e, ok := p.Parts[0].(*syntax.ParamExp); ok {
			list, known, each := r.readParameter(e)
			switch {
			case each && !known:
				f.add("", false)
				f.split = true
				return
			case each:
				for i, w := range list {
					if i > 0 {
						f.end()
					}
					f.add(w.Text, w.Known)
				}
				return
			}
			f.add(joinWords(list), known)
			return
		}
	}
	w := r.readQuoted(p.Parts, "$`\"\\")
	f.add(w.Text, w.Known)
	if i := strings.LastIndexByte(w.Text, '/'); i >= 0 && !w.Known {
		last, ok := p.Parts[len(p.Parts)-1].(*syntax.Lit)
		f.suffix = ok && strings.Contains(last.Value, "/")
	}
}

// readQuoted reads parts in double quotes or of a here-document, where a backslash means something
// before some characters only.
func (r *reader) readQuoted(parts []syntax.WordPart, escaped string) Word {
	out := Word{Known: true}
	var b strings.Builder
	for _, p := range parts {
		if !r.step(0) {
			return Word{}
		}
		switch p := p.(type) {
		case *syntax.Lit:
			for i := 0; i < len(p.Value); i++ {
				if p.Value[i] == '\\' && i+1 < len(p.Value) && strings.IndexByte(escaped, p.Value[i+1]) >= 0 {
					i++
				}
				b.WriteByte(p.Value[i])
			}
		case *syntax.ParamExp:
			list, known, each := r.readParameter(p)
			b.WriteString(joinWords(list))
			out.Known = out.Known && known && (!each || len(list) == 1)
		case *syntax.CmdSubst:
			s := r.substitute(p)
			b.WriteString(s.text)
			out.Known = out.Known && s.known
		default:
			r.readSubscripts(p)
			out.Known = false
		}
	}
	out.Text = b.String()
	r.step(len(out.Text))
	return out
}

// readWord is a word that is not split: the value of a variable, a file behind a redirection.
func (r *reader) readWord(w *syntax.Word) Word {
	if w == nil {
		return Word{Known: true}
	}
	words := r.expandWord(w)
	if len(words) == 0 {
		return Word{Known: true}
	}
	return r.joined(words)
}

func (r *reader) joined(words []Word) Word {
	out := words[0]
	for _, w := range words[1:] {
		out.Text += " " + w.Text
		out.Known = out.Known && w.Known
	}
	if len(out.Text) > maxText {
		return Word{}
	}
	r.step(len(out.Text))
	return out
}

func joinWords(words []Word) string {
	if len(words) == 1 {
		return words[0].Text
	}
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = w.Text
	}
	return strings.Join(texts, " ")
}

// addSplit adds an expansion that is not quoted: it is split where white space or $IFS says, and its
// wildcards count. oneWord says that it is no more than one where it is not known.
func (r *reader) addSplit(f *fields, list []Word, known, oneWord bool) {
	separators := " \t\n"
	if r.assigned["IFS"] {
		ifs := r.names[key{kindVariable, "IFS"}]
		if ifs == nil {
			known, oneWord = false, false
		} else {
			separators = ifs.text
		}
	}
	if !known {
		f.add(joinWords(list), false)
		f.split = f.split || !oneWord
		return
	}
	for i, w := range list {
		if i > 0 {
			f.end()
		}
		text := w.Text
		for separators != "" {
			at := strings.IndexAny(text, separators)
			if at < 0 {
				break
			}
			if at > 0 {
				f.addPattern(text[:at], strings.ContainsAny(text[:at], "*?["))
			}
			f.end()
			text = text[at+1:]
			if !r.step(0) {
				return
			}
		}
		if text != "" {
			f.addPattern(text, strings.ContainsAny(text, "*?["))
		}
	}
}

// holdsFolder matches the names of variables that are taken for one word where the text does not set
// them: they name a folder.
var holdsFolder = regexp.MustCompile("^[A-Z_]*(HOME|DIR|ROOT|PATH|BIN|PREFIX|PWD|ENV)$")

// isOneWord reports whether an unknown parameter is taken for one word.
func (r *reader) isOneWord(e *syntax.ParamExp) bool {
	if e.Param == nil || e.Exp != nil || e.Repl != nil || r.assigned[e.Param.Value] {
		return false
	}
	return holdsFolder.MatchString(e.Param.Value) || strings.Contains("?$!#", e.Param.Value)
}

// substitute is what a command substitution prints.
func (r *reader) substitute(c *syntax.CmdSubst) stream {
	out := r.inSubshell(func() stream { return r.runAll(c.Stmts, stream{known: true}) })
	if len(c.Stmts) == 1 { // $(< file)
		s := c.Stmts[0]
		if s.Cmd == nil && len(s.Redirs) == 1 && s.Redirs[0].Op == syntax.RdrIn {
			out = r.contents(stream{file: r.readWord(s.Redirs[0].Word)})
		}
	}
	out.text = strings.TrimRight(out.text, "\n")
	return out
}

// substitutionFile begins the names that process substitutions get.
const substitutionFile = "/dev/fd/substitution"

// substituteProcess makes up the name of the file that a process substitution becomes.
func (r *reader) substituteProcess(p *syntax.ProcSubst) string {
	in := stream{}
	out := r.inSubshell(func() stream { return r.runAll(p.Stmts, in) })
	name := substitutionFile + strconv.Itoa(len(r.streams))
	if p.Op == syntax.CmdOut {
		out = stream{}
	}
	r.streams[name] = out
	return name
}

// readSubscripts reads the substitutions that stand anywhere in a node.
func (r *reader) readSubscripts(n syntax.Node) {
	if n == nil {
		return
	}
	syntax.Walk(n, func(n syntax.Node) bool {
		if n == nil || !r.step(0) {
			return false
		}
		switch n := n.(type) {
		case *syntax.CmdSubst:
			r.substitute(n)
			return false
		case *syntax.ProcSubst:
			r.substituteProcess(n)
			return false
		case *syntax.SglQuoted:
			r.checkSubscript(n.Value)
		case *syntax.Lit:
			r.checkSubscript(n.Value)
		}
		return true
	})
}
