package config

import (
	"slices"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Form is how the value of a Setting is written.
type Form string

// The forms.
const (
	Text   Form = "text"
	Switch Form = "true or false"
	Whole  Form = "whole number"
	Number Form = "number"
	Span   Form = "duration" // a text such as 30s or 24h
	List   Form = "list"     // of texts; a single one may stand alone
)

// Setting is a key of the file whose value is one that a flag could have.
type Setting struct {
	// Section is the section that Key stands in, "" for the top of the file.
	Section, Key string
	Form         Form
	// Choices are the values that a Text may have; nil for any.
	Choices []string
}

// Name is the section and the key, "serve.listen".
func (s Setting) Name() string {
	if s.Section == "" {
		return s.Key
	}
	return s.Section + "." + s.Key
}

// Value is what the file says of a Setting.
type Value struct {
	Text string   // as a flag would have it; "" for a List
	List []string // of a List, not nil then
	Line int      // 1-based
}

// Values reads all settings by their names, strictly: in the sections that they stand in, a
// key that is none of them is an error, as is a value in another form. Every mistake is
// reported at once, with its line, as document.Errors, next to the values that have none. A
// nil File says nothing.
func (f *File) Values(all []Setting) (map[string]Value, error) {
	found := map[string]Value{}
	if f == nil {
		return found, nil
	}
	top := document.NewObject(f.root)
	top.Unknown(sectionNames()...)
	_ = top.String(KeySchema)
	sections := map[string]*document.ObjectReader{"": top}
	for _, s := range all {
		o, seen := sections[s.Section]
		if !seen {
			o = top.Object(s.Section)
			sections[s.Section] = o
		}
		n := o.Value(s.Key)
		if n == nil {
			continue
		}
		before := o.Err()
		v := valueOf(o, n, s)
		v.Line = f.Line(s.Section, s.Key)
		if o.Err() == nil || before != nil && before.Error() == o.Err().Error() {
			found[s.Name()] = v
		}
	}
	for name, o := range sections {
		if name != "" {
			o.Unknown()
		}
	}
	return found, top.Err()
}

// Line is where a key of a section stands, or of the top of the file when that is ""; 0 when
// it does not.
func (f *File) Line(section, key string) int {
	if f == nil {
		return 0
	}
	n := f.root
	if section != "" {
		n = n.Get(section)
	}
	if n.Get(key) == nil {
		return 0
	}
	return n.Members[slices.Index(n.Keys(), key)].Line
}

func valueOf(o *document.ObjectReader, n *document.Node, s Setting) Value {
	switch s.Form {
	case Switch:
		return Value{Text: strconv.FormatBool(o.Bool(s.Key))}
	case Whole:
		if i := o.IntPtr(s.Key); i != nil {
			return Value{Text: strconv.Itoa(*i)}
		}
	case Number:
		if o.FloatPtr(s.Key) != nil {
			return Value{Text: n.Text}
		}
	case Span:
		text := o.StringPtr(s.Key)
		if text == nil {
			break
		}
		if _, err := time.ParseDuration(*text); err != nil {
			o.Fail(n, "%q is a duration, such as 500ms, 30s or 24h", s.Key)
		}
		return Value{Text: *text}
	case List:
		return Value{List: append([]string{}, o.OneOrMore(s.Key)...)}
	case Text:
		if s.Choices != nil {
			return Value{Text: o.Enum(s.Key, s.Choices...)}
		}
		return Value{Text: o.String(s.Key)}
	}
	return Value{}
}
