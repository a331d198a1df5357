package operation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/token"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Field is one thing that a request says.
type Field struct {
	// Name is the argument of the tool and the member of a body.
	Name string
	// Help says what it is. HTTPHelp does over HTTP, where the words of Help do not fit.
	Help, HTTPHelp string
	Required       bool
	// Kind is that of the request's field when empty.
	Kind Kind
	// Enum are the values that it can have; nil is any.
	Enum []string
	// Range bounds a number.
	Range *Range
	// Go is the request's field, at any depth; Name in any case of letters when empty.
	Go string
	// Header is the header that it is in over HTTP. Other fields are in the path, in the
	// query of a GET, or in the body.
	Header string
	// HTTPName is its name over HTTP; Name when empty.
	HTTPName string
	// HTTPOnly keeps it from the tool.
	HTTPOnly bool
	// Open says that it is an object whose members are the caller's: an unknown name beside
	// it probably belongs inside.
	Open bool

	// Complete returns the values that begin with what a person typed, at most a few more than so many; none for a
	// value that is whole. nil: values are not completed.
	Complete func(ctx context.Context, at Caller, typed string, most int) ([]Completion, error)

	index []int
}

// Completion is a value of a field, with a few words about it.
type Completion struct{ Value, About string }

// Range is the least and the greatest value of a number; a Most of 0 is none.
type Range struct{ Least, Most float64 }

func (r Range) String() string {
	if r.Most == 0 {
		return formatNumber(r.Least) + " or more"
	}
	return "from " + formatNumber(r.Least) + " to " + formatNumber(r.Most)
}

func (r Range) holds(n float64) bool { return n >= r.Least && (r.Most == 0 || n <= r.Most) }

// Kind is the type of a value.
type Kind string

// The kinds.
const (
	String  Kind = "a string"
	Time    Kind = "a time" // a string, as RFC 3339 says
	Object  Kind = "an object"
	Integer Kind = "an integer"
	Number  Kind = "a number"
	Boolean Kind = "true or false"
	Strings Kind = "a list of strings"
	Any     Kind = "any JSON"
)

// Place is where in an HTTP request a field is.
type Place string

// The places.
const (
	InPath   Place = "path"
	InQuery  Place = "query"
	InHeader Place = "header"
	InBody   Place = "body"
)

// Fields are the fields at a place.
func (r *Route) Fields(at Place) []*Field { return r.fields[at] }

// Has reports whether the route takes a field of this name at a place.
func (r *Route) Has(at Place, name string) bool {
	return slices.ContainsFunc(r.fields[at], func(f *Field) bool { return f.HTTP() == name })
}

// Reads reports whether the route changes nothing.
func (r *Route) Reads() bool { return r.Method == http.MethodGet }

// HTTP is what the field is called over HTTP.
func (f *Field) HTTP() string {
	switch {
	case f.Header != "":
		return f.Header
	case f.HTTPName != "":
		return f.HTTPName
	default:
		return f.Name
	}
}

// About says what the field is over HTTP.
func (f *Field) About() string { return cmp.Or(f.HTTPHelp, f.Help) }

// Schema is the JSON Schema of the field.
func (f *Field) Schema() map[string]any {
	s := map[string]any{}
	switch f.Kind {
	case String:
		s["type"] = "string"
	case Time:
		s["type"], s["format"] = "string", "date-time"
	case Object:
		s["type"] = "object"
	case Integer:
		s["type"] = "integer"
	case Number:
		s["type"] = "number"
	case Boolean:
		s["type"] = "boolean"
	case Any:
	case Strings:
		s["type"], s["items"] = "array", map[string]any{"type": "string"}
	}
	if len(f.Enum) > 0 {
		s["enum"] = f.Enum
	}
	if f.Range != nil {
		s["minimum"] = f.Range.Least
		if f.Range.Most != 0 {
			s["maximum"] = f.Range.Most
		}
	}
	return s
}

// In is the field's value in a request, given as a pointer.
func (f *Field) In(req any) reflect.Value { return reflect.ValueOf(req).Elem().FieldByIndex(f.index) }

func namesOf(fields []*Field, noun Noun) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.nameAs(noun)
	}
	return names
}

// resolve finds the fields in the request, and gives routes what they left out.
func (o *Operation) resolve() {
	o.Fields = slices.Clone(o.Fields) // some are shared
	for i := range o.Fields {
		f := &o.Fields[i]
		if !f.HTTPOnly {
			o.arguments = append(o.arguments, f)
		}
		found, ok := findField(o.Request, cmp.Or(f.Go, f.Name))
		switch {
		case !ok && o.Document:
			continue // a part of the document
		case !ok:
			panic(fmt.Sprintf("operation %s: %s has no field for %q", o.ID, o.Request, f.Name))
		}
		f.index = found.Index
		if f.Kind == "" {
			f.Kind = kindOf(found.Type)
		}
	}
	for i := range o.Routes {
		r := &o.Routes[i]
		r.Method, r.Path, _ = strings.Cut(r.At, " ")
	}
	for i := range o.Routes {
		r := &o.Routes[i]
		r.ID, r.Title = cmp.Or(r.ID, o.ID), cmp.Or(r.Title, o.Title)
		r.Description = strings.TrimSpace(cmp.Or(r.Description, o.Description) + " " + r.Note)
		r.fields = map[Place][]*Field{}
		for j := range o.Fields {
			if at := o.place(r, &o.Fields[j]); at != "" {
				r.fields[at] = append(r.fields[at], &o.Fields[j])
			}
		}
	}
}

// place is where a route takes a field, "" when it does not. What another route has in
// its path is not asked for in a second way.
func (o *Operation) place(r *Route, f *Field) Place {
	in := func(r Route) bool { return strings.Contains(r.Path, "{"+f.HTTP()+"}") }
	switch {
	case in(*r):
		return InPath
	case f.index == nil || slices.Contains(r.Without, f.Name) || slices.ContainsFunc(o.Routes, in):
		return ""
	case f.Header != "":
		return InHeader
	case r.Reads():
		return InQuery
	default:
		return InBody
	}
}

// findField finds a field by its name in any case of letters: among the type's own and
// promoted ones first, then in those that are structs.
func findField(t reflect.Type, name string) (reflect.StructField, bool) {
	match := func(s string) bool { return token.IsExported(s) && strings.EqualFold(s, name) }
	if f, ok := t.FieldByNameFunc(match); ok {
		return f, true
	}
	for outer := range t.Fields() {
		if outer.Type.Kind() != reflect.Struct || outer.Type == reflect.TypeFor[time.Time]() {
			continue
		}
		if f, ok := outer.Type.FieldByNameFunc(match); ok {
			f.Index = append(slices.Clone(outer.Index), f.Index...)
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func kindOf(t reflect.Type) Kind {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return Time
	case t == reflect.TypeFor[json.RawMessage](), t == reflect.TypeFor[[]byte](), t == reflect.TypeFor[document.JSON]():
		return Object
	case t.Kind() == reflect.String:
		return String
	case t.Kind() == reflect.Bool:
		return Boolean
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return Integer
	case t.Kind() == reflect.Float64:
		return Number
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return Strings
	default:
		panic(fmt.Sprintf("operation: no request says a %s", t))
	}
}
