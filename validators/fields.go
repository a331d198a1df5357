package validators

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// CodeRequiredField is the code of a Finding for a field that is absent, null or a blank
// string.
const CodeRequiredField = "required_field"

// field is one required field. A name that begins with a slash is a JSON pointer;
// any other is a dotted path, in which a key that literally holds the dots wins
// over the path that they would spell.
type field struct {
	name string // as written
	// tokens of a pointer, decoded; nil for a dotted path.
	tokens []string
}

func parseField(name string) (field, error) {
	switch {
	case name == "":
		return field{}, errors.New("a required field has an empty name")
	case name[0] != '/':
		return field{name: name}, nil
	}
	tokens := strings.Split(name[1:], "/")
	for i, t := range tokens {
		for j := 0; j < len(t); j++ {
			if t[j] == '~' && (j+1 == len(t) || t[j+1] != '0' && t[j+1] != '1') {
				return field{}, fmt.Errorf("%q is not a JSON pointer: ~ stands only in ~0 and ~1", name)
			}
		}
		tokens[i] = unescapePointer.Replace(t)
	}
	return field{name: name, tokens: tokens}, nil
}

var (
	unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
	escapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
)

func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		_, _ = escapePointer.WriteString(&b, t)
	}
	return b.String()
}

// Fields returns a finding per required field that doc (a JSON object) does not
// have, or has as null or as a blank string, in the order of the definition.
func (s *Set) Fields(doc json.RawMessage) []Finding {
	if len(s.fields) == 0 {
		return nil
	}
	var buffer [32]member
	top, ok := membersOf(doc, buffer[:0])
	if !ok {
		return []Finding{{Code: CodeRequiredField, Message: "a JSON object is required"}}
	}
	var out []Finding
	for _, f := range s.fields {
		if found, missing := f.check(top); missing {
			out = append(out, found)
		}
	}
	return out
}

// check looks a field up. top are the members of the document.
func (f field) check(top []member) (Finding, bool) {
	w := walk{members: top, isObject: true}
	found := w.find(f)
	blank := found && isBlank(w.value)
	if found && !blank && string(w.value) != "null" {
		return Finding{}, false
	}
	w = walk{members: top, isObject: true, traced: true} // again, to say where
	w.find(f)
	out := Finding{Code: CodeRequiredField, Path: w.path(f), Message: fmt.Sprintf("%q is required", f.name)}
	switch {
	case blank:
		out.Message += " and is blank"
		out.Hint = "Give it a text that can be seen."
	case found:
		out.Message += " and is null"
	case w.near != "":
		out.Hint = fmt.Sprintf("Rename %q to %q.", w.near, w.missed)
	}
	return out, true
}

// walk goes from the document down to a field.
type walk struct {
	// The place reached: its members, if it is an object whose members are known
	// already, else its text.
	members  []member
	isObject bool
	value    []byte
	traced   bool // keep what follows
	// taken are the tokens that led here.
	taken []string
	// near is a key that differs from the missed one only in case, "_" and "-".
	missed, near string
}

// find goes to a field and says whether there is something.
func (w *walk) find(f field) bool {
	if f.tokens == nil {
		return w.dotted(f.name)
	}
	for _, t := range f.tokens {
		if !w.step(t) {
			return false
		}
	}
	return true
}

// step goes one token further and says whether there is something.
func (w *walk) step(token string) bool {
	if !w.isObject && len(w.value) > 0 {
		switch w.value[0] {
		case '{':
			w.members, w.isObject = membersOf(w.value, nil)
		case '[':
			value, ok := elementOf(w.value, token)
			if ok {
				w.enter(token, value)
			}
			return ok
		}
	}
	if !w.isObject {
		return false
	}
	for _, m := range w.members {
		if m.is(token) {
			w.enter(token, m.value)
			return true
		}
	}
	if w.traced {
		w.missed, w.near = token, nearest(w.members, token)
	}
	return false
}

func (w *walk) enter(token string, value []byte) {
	w.value, w.members, w.isObject = value, nil, false
	if w.traced {
		w.taken = append(w.taken, token)
		w.near = ""
	}
}

// dotted goes along a dotted path. At each level the longest key wins.
func (w *walk) dotted(rest string) bool {
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

// path is the JSON pointer of the field: where it is, or where it should be.
func (w *walk) path(f field) string {
	if f.tokens != nil {
		return pointer(f.tokens)
	}
	left := f.name
	for _, t := range w.taken {
		left = strings.TrimPrefix(strings.TrimPrefix(left, t), ".")
	}
	if left == "" {
		return pointer(w.taken)
	}
	return pointer(append(w.taken[:len(w.taken):len(w.taken)], strings.Split(left, ".")...))
}

// nearest is a key that was probably meant, "" when there is none.
func nearest(members []member, name string) string {
	folded := foldName(name)
	for _, m := range members {
		if key := m.name(); strings.EqualFold(foldName(key), folded) {
			return key
		}
	}
	return ""
}

var nameFolder = strings.NewReplacer("_", "", "-", "", " ", "")

func foldName(name string) string { return nameFolder.Replace(name) }
