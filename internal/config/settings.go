package config

import (
	"slices"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Form is the syntax of a Setting's value.
type Form string

// The forms.
const (
	Text   Form = "text"
	Switch Form = "true or false"
	Whole  Form = "whole number"
	Number Form = "number"
	Span   Form = "duration" // a string such as 30s or 24h
	List   Form = "list"     // of strings; a single string is allowed too
)

// Setting is a key of the file whose value could also be given by a flag.
type Setting struct {
	// Section is the section that contains Key; "" is the top level.
	Section, Key string
	Form         Form
	// Choices are the allowed values of a Text; nil allows any.
	Choices []string
}

// Name returns the section and the key: "serve.listen".
func (s Setting) Name() string {
	if s.Section == "" {
		return s.Key
	}
	return s.Section + "." + s.Key
}

// Value is the value of a Setting in the file.
type Value struct {
	Text string   // as a flag would have it; "" for a List
	List []string // set, and not nil, only for a List
	Line int      // 1-based
}

// Values returns the values of all settings by name. It parses strictly: in their sections, other keys are errors,
// and so are values of the wrong form. It reports all mistakes with their lines as document.Errors, and still returns
// the valid values. A nil File has no values.
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

// Line returns the line of a key in a section, or 0 if it is absent. Section "" is the top level.
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
			o.Fail(n, "%q must be a duration, such as 500ms, 30s or 24h", s.Key)
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
