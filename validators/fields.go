package validators

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/gavel-mcp/gavel/validators/document"
)

// CodeRequiredField is the code of a Finding for a field that is absent, null or a blank string.
const CodeRequiredField = "required_field"

// field is a required field. A name that begins with a slash is a JSON pointer; any other is a dotted path.
// A key that itself contains dots takes precedence over the path that the dots would spell.
type field struct {
	name string // as written
	// tokens are the decoded tokens of a pointer; nil for a dotted path.
	tokens []string
}

func parseField(name string) (field, error) {
	switch {
	case name == "":
		return field{}, errors.New("a required field has an empty name")
	case name[0] != '/':
		return field{name: name}, nil
	}
	p := document.Pointer(name)
	if !p.IsValid() {
		return field{}, fmt.Errorf("%q is not a JSON pointer: ~ may appear only as ~0 or ~1", name)
	}
	return field{name: name, tokens: slices.Collect(p.Tokens())}, nil
}

func joinPointer(tokens []string) string { return string(document.PointerOf(tokens...)) }

// CheckFields returns a finding for each required field that is absent, null or a blank string in doc.
// Findings are in the order of the definition. If doc is not a JSON object, there is one finding.
func (s *Set) CheckFields(doc document.JSON) []Finding {
	if len(s.fields) == 0 {
		return nil
	}
	if doc.Kind() != document.Object {
		return []Finding{{Code: CodeRequiredField, Message: "a JSON object is required"}}
	}
	var out []Finding
	for _, f := range s.fields {
		if found, missing := f.check(doc); missing {
			out = append(out, found)
		}
	}
	return out
}

// HasField reports whether doc has the field, by the rules of CheckFields. It is false for an invalid name.
func HasField(doc document.JSON, name string) bool {
	f, err := parseField(name)
	if err != nil || doc.Kind() != document.Object {
		return false
	}
	w := fieldWalker{value: doc}
	return w.find(f) && w.value.Kind() != document.Null && !isBlank(w.value)
}

func (f field) check(doc document.JSON) (Finding, bool) {
	w := fieldWalker{value: doc}
	found := w.find(f)
	blank := found && isBlank(w.value)
	if found && !blank && w.value.Kind() != document.Null {
		return Finding{}, false
	}
	w = fieldWalker{value: doc, traced: true} // walk again, recording the path
	w.find(f)
	out := Finding{Code: CodeRequiredField, Path: w.locate(f), Message: fmt.Sprintf("%q is required", f.name)}
	switch {
	case blank:
		out.Message += " and is blank"
		out.Hint = "Give it visible text."
	case found:
		out.Message += " and is null"
	case w.near != "":
		out.Hint = fmt.Sprintf("Rename %q to %q.", w.near, w.missed)
	}
	return out, true
}

// fieldWalker walks from the document down to a field.
type fieldWalker struct {
	value  document.JSON // the value reached so far
	traced bool          // record taken, missed and near
	// taken holds the tokens of the path to value.
	taken []string
	// missed is the absent token. near is a key that differs from it only in case, "_", "-" and spaces.
	missed, near string
}

// find walks to a field and reports whether it is present.
func (w *fieldWalker) find(f field) bool {
	if f.tokens == nil {
		return w.followDotted(f.name)
	}
	for _, t := range f.tokens {
		if !w.step(t) {
			return false
		}
	}
	return true
}

// step descends by one token and reports whether the key or index is present.
func (w *fieldWalker) step(token string) bool {
	next := w.value.At(token)
	switch {
	case next.Kind() != 0:
		w.value = next
		if w.traced {
			w.taken = append(w.taken, token)
			w.near = ""
		}
		return true
	case w.traced && w.value.Kind() == document.Object:
		w.missed, w.near = token, findNearest(w.value, token)
	}
	return false
}

// followDotted follows a dotted path. At each level the longest matching key wins.
func (w *fieldWalker) followDotted(rest string) bool {
	for {
		head := rest
		for !w.step(head) {
			dot := strings.LastIndexByte(head, '.')
			if dot < 0 {
				return false
			}
			head = head[:dot]
		}
		if len(head) == len(rest) {
			return true
		}
		rest = rest[len(head)+1:]
	}
}

// locate returns the JSON pointer at which the field is or should be.
func (w *fieldWalker) locate(f field) string {
	if f.tokens != nil {
		return joinPointer(f.tokens)
	}
	left := f.name
	for _, t := range w.taken {
		left = strings.TrimPrefix(strings.TrimPrefix(left, t), ".")
	}
	if left == "" {
		return joinPointer(w.taken)
	}
	return joinPointer(append(w.taken[:len(w.taken):len(w.taken)], strings.Split(left, ".")...))
}

// findNearest returns a key that differs from name only in case, "_", "-" and spaces, or "".
func findNearest(object document.JSON, name string) string {
	folded := foldName(name)
	for key := range object.Members() {
		if strings.EqualFold(foldName(key.Text()), folded) {
			return key.Text()
		}
	}
	return ""
}

var nameFolder = strings.NewReplacer("_", "", "-", "", " ", "")

func foldName(name string) string { return nameFolder.Replace(name) }

// isBlank reports whether a JSON value is a string without a visible character.
func isBlank(value document.JSON) bool {
	if value.Kind() != document.String {
		return false
	}
	if c := value.Raw()[1]; c > ' ' && c < 0x7f && c != '\\' && c != '"' {
		return false // fast path for most values
	}
	for _, r := range value.Text() {
		if isVisible(r) {
			return false
		}
	}
	return true
}

// isVisible reports whether a character is visible on its own. These are not:
//
//   - White space, control and format characters (Cc, Cf: zero-width spaces and joiners, U+FEFF, directions, tags).
//   - Characters that Unicode lets programs ignore (Default_Ignorable_Code_Point: Hangul fillers such as U+3164,
//     variation selectors, U+034F), and noncharacters.
//   - Characters with an empty glyph.
//   - Marks, which are visible only on another character.
func isVisible(r rune) bool {
	switch {
	case r == '\u2800', r == '\U0001D159': // blank braille pattern; musical symbol null notehead
		return false
	case unicode.IsSpace(r), unicode.IsControl(r), unicode.IsMark(r):
		return false
	}
	return !unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Noncharacter_Code_Point)
}
