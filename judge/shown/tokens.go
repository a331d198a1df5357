package shown

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Models also quote several members as one piece, as the JSON appears in the prompt: "count": 12, "ok":
// true. Such a quote is not a whole document, so document and quote are both converted to tokens. Each
// scalar is enclosed in two of these control characters, which cannot occur in collapsed text. A key then
// cannot be mistaken for a value, nor white space between tokens for white space within them.
const (
	keyOpen, keyClose   = "\x01", "\x02"
	textOpen, textClose = "\x03", "\x04"
	wordOpen, wordClose = "\x05", "\x06" // a number, true, false, null
	unseen              = "\x07"         // a note or a mask: no quote contains it
)

func writeTokens(w *strings.Builder, v document.JSON) {
	switch v.Kind() {
	case document.String:
		text, isCut := splitNote(v.Text())
		switch {
		case v.Is(Masked) || isCut && text == "":
			w.WriteString(unseen)
		case isCut:
			w.WriteString(textOpen + collapseSpace(text) + unseen)
		default:
			w.WriteString(textOpen + collapseSpace(text) + textClose)
		}
	case document.Array:
		w.WriteByte('[')
		for i, item := range v.Elements() {
			if i > 0 {
				w.WriteByte(',')
			}
			writeTokens(w, item)
		}
		w.WriteByte(']')
	case document.Object:
		w.WriteByte('{')
		separator := ""
		for name, value := range v.Members() {
			w.WriteString(separator + keyOpen + collapseSpace(name.Text()) + keyClose + ":")
			separator = ","
			writeTokens(w, value)
		}
		w.WriteByte('}')
	default:
		w.WriteString(wordOpen + string(v.Raw()) + wordClose)
	}
}

// containJSON reports whether a quote is a piece of the shown JSON with more than one token and at least
// one value. The quote may begin and end within a string.
func (ds Documents) containJSON(quote string) bool {
	if !strings.ContainsAny(quote, `"[{`) {
		return false
	}
	forms := append(quoteForms(quote, false), quoteForms(`"`+quote, true)...)
	if len(forms) == 0 {
		return false
	}
	for _, d := range ds {
		var text strings.Builder
		writeTokens(&text, d.root)
		for _, form := range forms {
			if strings.Contains(text.String(), form) {
				return true
			}
		}
	}
	return false
}

// quoteForms converts a quote to tokens. It returns no form if the quote is not JSON or has no value that
// counts as evidence, and two forms if its last string can be a key or a value. within means that the
// beginning of its first string is missing.
func quoteForms(quote string, within bool) []string {
	tokens, ok := splitTokens(quote)
	if !ok || len(tokens) < 2 {
		return nil
	}
	var form strings.Builder
	hasValue := false
	for i, t := range tokens {
		last, head := i == len(tokens)-1, within && i == 0
		switch {
		case t.kind == 'w':
			form.WriteString(wordOpen + t.text + wordClose)
			hasValue = hasValue || t.text != "null"
		case t.kind != '"':
			form.WriteByte(t.kind)
		case !last && tokens[i+1].kind == ':':
			form.WriteString(t.enclose(keyOpen, keyClose, head))
		case last && tokens[i-1].kind != ':':
			asKey, asText := form.String()+t.enclose(keyOpen, keyClose, head), form.String()+t.enclose(textOpen, textClose, head)
			switch {
			case hasValue:
				return []string{asKey, asText}
			case t.isEvidence(head):
				return []string{asText}
			}
			return nil
		default:
			form.WriteString(t.enclose(textOpen, textClose, head))
			hasValue = hasValue || t.isEvidence(head)
		}
	}
	if !hasValue {
		return nil
	}
	return []string{form.String()}
}

// token is one token of a JSON text: punctuation as itself, '"' for a string, 'w' for a word.
type token struct {
	kind byte
	text string
	open bool // a string without an end
}

// enclose puts a string between its delimiters, without a delimiter that the quote cut off.
func (t token) enclose(from, to string, head bool) string {
	if head {
		from = ""
	}
	if t.open {
		to = ""
	}
	return from + t.text + to
}

// isEvidence reports whether a string is a whole value, or a long enough part of one.
func (t token) isEvidence(head bool) bool {
	return HasWord(t.text) && (!head && !t.open || len([]rune(t.text)) >= minQuote)
}

var nextToken = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^ *(?:([{}\[\]:,])|"((?:[^"\\]|\\.)*)("?)|([^ ,:\[\]{}"]+)) *`)
})

// splitTokens splits JSON text; its last string may be incomplete. ok is false if the text is
// anything else. The order of the tokens is not checked.
func splitTokens(s string) (tokens []token, ok bool) {
	for s != "" {
		m := nextToken().FindStringSubmatch(s)
		if m == nil {
			return nil, false
		}
		s = s[len(m[0]):]
		switch {
		case m[1] != "":
			tokens = append(tokens, token{kind: m[1][0]})
		case m[4] != "":
			if !json.Valid([]byte(m[4])) {
				return nil, false
			}
			tokens = append(tokens, token{kind: 'w', text: m[4]})
		default:
			var text string
			if json.Unmarshal([]byte(`"`+m[2]+`"`), &text) != nil {
				return nil, false
			}
			tokens = append(tokens, token{kind: '"', text: collapseSpace(text), open: m[3] == ""})
		}
	}
	return tokens, true
}
