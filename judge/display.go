package judge

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
)

// shownDocument is one JSON document as a model is shown it.
type shownDocument struct {
	name string
	// text is the whole on one line; nothing in it can be taken for a marker.
	text string
	// root is the value that was shown: what was cut away is not in it.
	root any
}

// The bounds of containers, before and after everything has been tightened.
const (
	mostItems    = 400
	mostDepth    = 32
	fewestItems  = 4
	fewestRunes  = 16
	cutNoteRunes = 32 // about what a note takes
)

// bounds are how much of a document is shown.
type bounds struct{ runes, items int }

// showDocument writes a document in the form that a model is shown: keys sorted, number
// literals kept, long strings and containers cut with a note, and every character
// that hides, reorders or could imitate a marker escaped. size bounds the text in
// bytes: until it fits, everything is cut shorter.
func showDocument(name string, doc document.JSON, runes, size int) (shownDocument, error) {
	if doc.Kind() == 0 {
		return shownDocument{}, fmt.Errorf("judge: the %s cannot be shown: it is no JSON", name)
	}
	for b := (bounds{runes, mostItems}); ; b.runes, b.items = b.runes/2, b.items/2 {
		cut := b.truncate(doc, 0)
		var text strings.Builder
		writeJSON(&text, cut)
		if text.Len() <= size {
			return shownDocument{name: name, text: text.String(), root: cut}, nil
		}
		if b.runes < fewestRunes && b.items < fewestItems {
			note := truncated{n: text.Len(), unit: "chars"}
			return shownDocument{name: name, text: `{"` + name + `":"` + note.String() + `"}`, root: map[string]any{}}, nil
		}
	}
}

// clipped is a string of which only the beginning is shown.
type clipped struct {
	text string
	rest truncated
}

// truncated stands where something was cut away.
type truncated struct {
	n    int
	unit string
}

func (t truncated) String() string { return fmt.Sprintf("[truncated %d %s]", t.n, t.unit) }

// pair is one member of an object.
type pair struct {
	key   string
	value any
}

// object is a JSON object in the order in which it is shown.
type object struct {
	pairs []pair
	rest  truncated // n 0: nothing was cut away
}

// array is a JSON array.
type array struct {
	items []any
	rest  truncated
}

// truncate returns what is shown of a value: object, array, string, clipped, truncated,
// json.Number, bool or nil.
func (b bounds) truncate(v document.JSON, depth int) any {
	if depth > mostDepth {
		return truncated{n: 1, unit: "value that is nested too deep"}
	}
	switch v.Kind() {
	case document.String:
		text := v.Text()
		if utf8.RuneCountInString(text) <= b.runes+cutNoteRunes {
			return text
		}
		head := []rune(text)
		return clipped{text: string(head[:b.runes]), rest: truncated{n: len(head) - b.runes, unit: "chars"}}
	case document.Number:
		if n := len(v.Raw()); n > b.runes+cutNoteRunes {
			return truncated{n: n, unit: "digits"}
		}
		return json.Number(v.Raw())
	case document.Array:
		a := array{}
		for i, item := range v.Elements() {
			if i == b.items {
				a.rest = truncated{n: v.Len() - i, unit: "items"}
				break
			}
			a.items = append(a.items, b.truncate(item, depth+1))
		}
		return a
	case document.Object:
		o := object{}
		for name, value := range v.Sorted() {
			if i := len(o.pairs); i == b.items {
				o.rest = truncated{n: v.Len() - i, unit: "members"}
				break
			}
			o.pairs = append(o.pairs, pair{key: b.truncateKey(name), value: b.truncate(value, depth+1)})
		}
		return o
	case document.Null:
		return nil
	}
	return v.Kind() == document.True
}

// truncateKey is what is shown of a member's name.
func (b bounds) truncateKey(s string) string {
	if utf8.RuneCountInString(s) <= b.runes+cutNoteRunes {
		return s
	}
	head := []rune(s)
	return string(head[:b.runes]) + truncated{n: len(head) - b.runes, unit: "chars"}.String()
}

func writeJSON(w *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		writeString(w, v)
	case clipped:
		writeString(w, v.text+v.rest.String())
	case truncated:
		writeString(w, v.String())
	case json.Number:
		w.WriteString(v.String())
	case bool:
		fmt.Fprint(w, v)
	case array:
		w.WriteByte('[')
		for i, item := range v.items {
			if i > 0 {
				w.WriteByte(',')
			}
			writeJSON(w, item)
		}
		writeRest(w, v.rest, len(v.items) > 0)
		w.WriteByte(']')
	case object:
		w.WriteByte('{')
		for i, p := range v.pairs {
			if i > 0 {
				w.WriteByte(',')
			}
			writeString(w, p.key)
			w.WriteByte(':')
			writeJSON(w, p.value)
		}
		if v.rest.n > 0 {
			writeRest(w, v.rest, len(v.pairs) > 0)
			w.WriteString(":null")
		}
		w.WriteByte('}')
	default:
		w.WriteString("null")
	}
}

func writeRest(w *strings.Builder, t truncated, comma bool) {
	if t.n == 0 {
		return
	}
	if comma {
		w.WriteByte(',')
	}
	writeString(w, t.String())
}

// writeString writes a JSON string. Beside what JSON demands it escapes < and >,
// of which markers are made, and every character that one cannot see.
func writeString(w *strings.Builder, s string) {
	w.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.WriteByte('\\')
			w.WriteRune(r)
		case r == '\n':
			w.WriteString(`\n`)
		case r == '\t':
			w.WriteString(`\t`)
		case r == '\r':
			w.WriteString(`\r`)
		case r < ' ' || r == '<' || r == '>' || prompts.Hidden(r):
			if a, b := utf16.EncodeRune(r); a != utf8.RuneError {
				fmt.Fprintf(w, `\u%04x\u%04x`, a, b)
			} else {
				fmt.Fprintf(w, `\u%04x`, r)
			}
		default:
			w.WriteRune(r)
		}
	}
	w.WriteByte('"')
}
