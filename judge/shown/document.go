// Package shown renders JSON documents for a model and finds its quotes in them.
//
// It promises:
//
//   - A rendered document is one bounded line that cannot imitate a marker or hide text from a reader.
//   - The same document always renders the same way.
//   - Only text that the model really saw counts as a quote: not a key, a mask or a truncation note.
//
// It is pure and takes time linear in the size of its input.
package shown

import (
	"bytes"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The names of the documents a model sees.
const (
	Context  = "context"
	Evidence = "evidence"
	Call     = "call"
	Data     = "data"
)

// Masked replaces a confidential value (engine/workflow writes it).
const Masked = "[masked]"

// Document is one JSON document as a model sees it.
type Document struct {
	Name string
	// Text is the document on one line of JSON.
	Text string
	root document.JSON // parsed from Text
}

// Render starts with mostItems and mostDepth. It halves the limits on strings and containers until the text
// fits, and gives up below fewestRunes and fewestItems.
const (
	maxItems     = 400
	maxDepth     = 32
	minItems     = 4
	minRunes     = 16
	cutNoteRunes = 32 // approximate length of a truncation note
)

// Render writes a document for a model: keys sorted, number literals kept, long strings and containers
// truncated with a note. It escapes every character that hides or reorders text or could imitate a marker.
// size limits the text in bytes: Render shortens everything until the text fits.
func Render(name string, doc document.JSON, runes, size int) (Document, error) {
	if doc.Kind() == 0 {
		return Document{}, fmt.Errorf("judge: the %s cannot be shown: it is not JSON", name)
	}
	for w := (renderer{runes: runes, items: maxItems}); ; w.runes, w.items = w.runes/2, w.items/2 {
		w.Builder = &strings.Builder{}
		w.write(doc, 0)
		text := w.String()
		if len(text) <= size {
			return Document{Name: name, Text: text, root: document.ReadTrusted([]byte(text))}, nil
		}
		if w.runes < minRunes && w.items < minItems {
			return Document{Name: name, Text: `{"` + name + `":"` + formatCutNote(len(text), "chars") + `"}`, root: document.ReadTrusted([]byte("{}"))}, nil
		}
	}
}

// Without returns the document without the members for which leaveOut is true, so that they cannot be
// quoted. Its Text is unchanged.
func (d Document) Without(leaveOut func(name string) bool) Document {
	var rest bytes.Buffer
	for name, value := range d.root.Members() {
		if !leaveOut(name.Text()) {
			fmt.Fprintf(&rest, ",%s:%s", name.Raw(), value.Raw())
		}
	}
	d.root = document.ReadTrusted([]byte("{" + strings.TrimPrefix(rest.String(), ",") + "}"))
	return d
}

// Quotable returns the part of the document that quotes may come from, as JSON.
func (d Document) Quotable() string { return string(d.root.Raw()) }

// renderer writes a document within the limits of its strings and containers.
type renderer struct {
	*strings.Builder
	runes, items int
}

func (r renderer) write(v document.JSON, depth int) {
	switch kind := v.Kind(); {
	case depth > maxDepth:
		r.writeString(formatCutNote(1, "value that is nested too deep"))
	case kind == document.String:
		r.writeString(r.shorten(v.Text()))
	case kind == document.Number && len(v.Raw()) > r.runes+cutNoteRunes:
		r.writeString(formatCutNote(len(v.Raw()), "digits"))
	case kind == document.Array:
		r.WriteByte('[')
		for i, item := range v.Elements() {
			if i > 0 {
				r.WriteByte(',')
			}
			if i == r.items {
				r.writeString(formatCutNote(v.Len()-i, "items"))
				break
			}
			r.write(item, depth+1)
		}
		r.WriteByte(']')
	case kind == document.Object:
		r.WriteByte('{')
		i := 0
		for name, value := range v.Sorted() {
			if i > 0 {
				r.WriteByte(',')
			}
			if i == r.items {
				r.writeString(formatCutNote(v.Len()-i, "members"))
				r.WriteString(":null")
				break
			}
			r.writeString(r.shorten(name))
			r.WriteByte(':')
			r.write(value, depth+1)
			i++
		}
		r.WriteByte('}')
	default:
		r.Write(v.Raw())
	}
}

// shorten shortens a long text and adds a note with the number of removed characters.
func (r renderer) shorten(s string) string {
	n := utf8.RuneCountInString(s)
	if n <= r.runes+cutNoteRunes {
		return s
	}
	return string([]rune(s)[:r.runes]) + formatCutNote(n-r.runes, "chars")
}

// writeString writes a JSON string. In addition to what JSON requires, it escapes < and >, which
// markers consist of, and every invisible character.
func (r renderer) writeString(s string) {
	r.WriteByte('"')
	for _, char := range s {
		switch {
		case char == '"' || char == '\\':
			r.WriteByte('\\')
			r.WriteRune(char)
		case char == '\n':
			r.WriteString(`\n`)
		case char == '\t':
			r.WriteString(`\t`)
		case char == '\r':
			r.WriteString(`\r`)
		case char < ' ' || char == '<' || char == '>' || prompts.Hidden(char):
			if a, b := utf16.EncodeRune(char); a != utf8.RuneError {
				fmt.Fprintf(r, `\u%04x\u%04x`, a, b)
			} else {
				fmt.Fprintf(r, `\u%04x`, char)
			}
		default:
			r.WriteRune(char)
		}
	}
	r.WriteByte('"')
}

// formatCutNote returns the note that replaces the removed part.
func formatCutNote(n int, unit string) string { return fmt.Sprintf("[truncated %d %s]", n, unit) }

var cutNote = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\[truncated [0-9]{1,10} (?:chars|digits|items|members|value that is nested too deep)\]$`)
})

// splitNote returns the text before a truncation note. If the document's own text ends in such a note, the
// note does not count as evidence either.
func splitNote(s string) (text string, isCut bool) {
	if at := cutNote().FindStringIndex(s); at != nil {
		return s[:at[0]], true
	}
	return s, false
}

// Leaf is the name of a member or a scalar value.
type Leaf struct {
	// Path is a JSON pointer; very long names in it are shortened.
	Path string
	// Kind is the kind of the value, document.String for a name.
	Kind document.Kind
	// Text is the decoded text of a name or a string, or the literal of another value.
	Text string
	// Name is true for the name of a member.
	Name bool
	// Cut is true if Text is only the beginning of the value. Text is then "" if none of the value
	// was shown.
	Cut bool
}

// Leaves lists the names and scalar values of the document in the order of its text.
func (d Document) Leaves() iter.Seq[Leaf] {
	return func(yield func(Leaf) bool) { yieldLeaves(d.root, "", yield) }
}

func yieldLeaves(v document.JSON, path string, yield func(Leaf) bool) bool {
	switch v.Kind() {
	case document.Array:
		for i, item := range v.Elements() {
			if !yieldLeaves(item, fmt.Sprintf("%s/%d", path, i), yield) {
				return false
			}
		}
	case document.Object:
		for name, value := range v.Members() {
			text, isCut := splitNote(name.Text())
			at := path + pathOf(name.Text())
			if !yield(Leaf{at, document.String, text, true, isCut}) || !yieldLeaves(value, at, yield) {
				return false
			}
		}
	case document.String:
		text, isCut := splitNote(v.Text())
		return yield(Leaf{path, document.String, text, false, isCut})
	default:
		return yield(Leaf{path, v.Kind(), string(v.Raw()), false, false})
	}
	return true
}

// pathOf returns the JSON pointer of a member, with a long name shortened.
func pathOf(name string) string {
	if r := []rune(name); len(r) > 60 {
		name = string(r[:60]) + "…"
	}
	return string(document.PointerOf(name))
}

// HasWord reports whether a string contains a letter or a digit.
func HasWord(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}
