package judge

import (
	"encoding/json"
	"strings"
)

// Models also quote several members at once, as the JSON stands in the prompt:
// "count": 12, "ok": true. To look such a quote up, document and quote are written
// in a form in which a key cannot be taken for a value, nor white space between
// tokens for white space within: every scalar stands between two of these, which
// occur in no text whose control characters have been collapsed.
const (
	keyOpen, keyClose   = "\x01", "\x02"
	textOpen, textClose = "\x03", "\x04"
	wordOpen, wordClose = "\x05", "\x06" // a number, true, false, null
	unseen              = "\x07"         // a note or a mask: no quote contains it
)

// writeTokens writes what was shown in the form in which JSON quotes are looked up.
func writeTokens(w *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		if v == masked {
			w.WriteString(unseen)
			return
		}
		w.WriteString(textOpen + collapseSpace(v) + textClose)
	case clipped:
		w.WriteString(textOpen + collapseSpace(v.text) + unseen)
	case truncated:
		w.WriteString(unseen)
	case array:
		w.WriteByte('[')
		for i, item := range v.items {
			if i > 0 {
				w.WriteByte(',')
			}
			writeTokens(w, item)
		}
		tokensOfRest(w, v.rest)
		w.WriteByte(']')
	case object:
		w.WriteByte('{')
		for i, p := range v.pairs {
			if i > 0 {
				w.WriteByte(',')
			}
			w.WriteString(keyOpen + collapseSpace(p.key) + keyClose + ":")
			writeTokens(w, p.value)
		}
		tokensOfRest(w, v.rest)
		w.WriteByte('}')
	default:
		w.WriteString(wordOpen)
		writeJSON(w, v)
		w.WriteString(wordClose)
	}
}

func tokensOfRest(w *strings.Builder, t truncated) {
	if t.n > 0 {
		w.WriteString("," + unseen)
	}
}

// inJSON reports whether a quote is a piece of the JSON that was shown, of more than
// one token, with a value in it. It may begin and end within a string.
func (s shown) inJSON(quote string) bool {
	if !strings.ContainsAny(quote, `"[{`) {
		return false
	}
	needles := append(quoteTokens(quote, false), quoteTokens(quote, true)...)
	if len(needles) == 0 {
		return false
	}
	for _, d := range s.documents {
		var text strings.Builder
		writeTokens(&text, d.root)
		for _, n := range needles {
			if strings.Contains(text.String(), n) {
				return true
			}
		}
	}
	return false
}

// quoteTokens is a quote in the form of tokens, none when it is no JSON or has no value
// that counts as evidence; two forms when its last string can be a key or a value.
// within says that it begins in the middle of a string.
func quoteTokens(quote string, within bool) []string {
	if within {
		quote = `"` + quote
	}
	lexed, ok := splitTokens(quote)
	if !ok || len(lexed) < 2 {
		return nil
	}
	var form strings.Builder
	counts := false
	for i, t := range lexed {
		last, head := i == len(lexed)-1, within && i == 0
		switch {
		case t.kind != '"':
			form.WriteString(t.form())
			counts = counts || t.kind == 'w' && t.text != "null"
		case !last && lexed[i+1].kind == ':':
			form.WriteString(t.between(keyOpen, keyClose, head))
		case last && lexed[i-1].kind != ':':
			asKey, asText := form.String()+t.between(keyOpen, keyClose, head), form.String()+t.between(textOpen, textClose, head)
			switch {
			case counts:
				return []string{asKey, asText}
			case t.says(head):
				return []string{asText}
			}
			return nil
		default:
			form.WriteString(t.between(textOpen, textClose, head))
			counts = counts || t.says(head)
		}
	}
	if !counts {
		return nil
	}
	return []string{form.String()}
}

// token is one of a JSON text: punctuation by itself, '"' a string, 'w' a word.
type token struct {
	kind byte
	text string
	open bool // a string that does not end
}

func (t token) form() string {
	if t.kind == 'w' {
		return wordOpen + t.text + wordClose
	}
	return string(t.kind)
}

// between is a string between its signs, without those where the quote cut it.
func (t token) between(from, to string, head bool) string {
	if head {
		from = ""
	}
	if t.open {
		to = ""
	}
	return from + t.text + to
}

// says reports whether a value is evidence: a whole one, or enough of it.
func (t token) says(head bool) bool {
	return strings.ContainsFunc(t.text, letterOrDigit) && (!head && !t.open || len([]rune(t.text)) >= minQuote)
}

// splitTokens takes JSON text apart, of which the last string need not end. It reports
// whether it is any; the order of the tokens is not its business.
func splitTokens(s string) ([]token, bool) {
	var out []token
	for s != "" {
		switch c := s[0]; c {
		case ' ':
			s = s[1:]
		case '{', '}', '[', ']', ':', ',':
			out, s = append(out, token{kind: c}), s[1:]
		case '"':
			inner, rest, closed := untilQuote(s[1:])
			var text string
			if json.Unmarshal([]byte(`"`+inner+`"`), &text) != nil {
				return nil, false
			}
			out, s = append(out, token{kind: '"', text: collapseSpace(text), open: !closed}), rest
		default:
			end := strings.IndexAny(s, ` ,:[]{}"`)
			if end < 0 {
				end = len(s)
			}
			if !json.Valid([]byte(s[:end])) {
				return nil, false
			}
			out, s = append(out, token{kind: 'w', text: s[:end]}), s[end:]
		}
	}
	return out, true
}

// untilQuote cuts s at the first quotation mark that is not escaped.
func untilQuote(s string) (inner, rest string, found bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}
