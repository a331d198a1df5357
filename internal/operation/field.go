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

// Field is one field of a request.
type Field struct {
	// Name is the name of the tool's argument and of the body's member.
	Name string
	// Help describes the field. HTTPHelp replaces it over HTTP if Help does not fit there.
	Help, HTTPHelp string
	Required       bool
	// Kind defaults to the kind of the request's struct field.
	Kind Kind
	// Enum lists the allowed values; nil allows any.
	Enum []string
	// Range limits a number.
	Range *Range
	// Go names the request's struct field, at any depth; the default is Name, ignoring case.
	Go string
	// Header is the HTTP header with the field. Fields without a header are in the path, in the query of a GET, or in
	// the body.
	Header string
	// HTTPName is the name over HTTP; the default is Name.
	HTTPName string
	// HTTPOnly omits the field from the tool.
	HTTPOnly bool
	// Open reports an object with arbitrary members: an unknown name next to it probably belongs inside.
	Open bool

	// Complete returns values that begin with the typed text: at most a few more than most, none if the typed value
	// is already complete. nil disables completion.
	Complete func(ctx context.Context, at Caller, typed string, most int) ([]Completion, error)

	index []int
}

// Completion is a value of a field, with a short description.
type Completion struct{ Value, About string }

// Range is the minimum and maximum of a number; a Most of 0 sets no maximum.
type Range struct{ Min, Max float64 }

func (r Range) String() string {
	if r.Max == 0 {
		return formatNumber(r.Min) + " or more"
	}
	return "from " + formatNumber(r.Min) + " to " + formatNumber(r.Max)
}

func (r Range) contains(n float64) bool { return n >= r.Min && (r.Max == 0 || n <= r.Max) }

// Kind is the type of a value.
type Kind string

// The kinds.
const (
	String  Kind = "a string"
	Time    Kind = "a time" // an RFC 3339 string
	Object  Kind = "an object"
	Integer Kind = "an integer"
	Number  Kind = "a number"
	Boolean Kind = "true or false"
	Strings Kind = "a list of strings"
	Any     Kind = "any JSON"
)

// ParameterLocation is the part of an HTTP request that contains a field.
type ParameterLocation string

// The places.
const (
	InPath   ParameterLocation = "path"
	InQuery  ParameterLocation = "query"
	InHeader ParameterLocation = "header"
	InBody   ParameterLocation = "body"
)

// Fields returns the fields at a place.
func (r *Route) Fields(at ParameterLocation) []*Field { return r.fields[at] }

// Has reports whether the route takes a field of this name at a place.
func (r *Route) Has(at ParameterLocation, name string) bool {
	return slices.ContainsFunc(r.fields[at], func(f *Field) bool { return f.HTTP() == name })
}

// Reads reports whether the route changes nothing.
func (r *Route) Reads() bool { return r.Method == http.MethodGet }

// HTTP returns the name of the field over HTTP.
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

// About returns the description of the field over HTTP.
func (f *Field) About() string { return cmp.Or(f.HTTPHelp, f.Help) }

// Schema returns the JSON Schema of the field.
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
		s["minimum"] = f.Range.Min
		if f.Range.Max != 0 {
			s["maximum"] = f.Range.Max
		}
	}
	return s
}

// In returns the field's value in a request, which must be a pointer.
func (f *Field) In(req any) reflect.Value { return reflect.ValueOf(req).Elem().FieldByIndex(f.index) }

func namesOf(fields []*Field, noun Noun) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.nameAs(noun)
	}
	return names
}

// resolve finds the struct fields of the request, and sets the defaults of the routes.
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
		r.fields = map[ParameterLocation][]*Field{}
		for j := range o.Fields {
			if at := o.locate(r, &o.Fields[j]); at != "" {
				r.fields[at] = append(r.fields[at], &o.Fields[j])
			}
		}
	}
}

// locate returns where a route takes a field, "" if it does not. A field in the path of any route of the operation is
// taken only from a path.
func (o *Operation) locate(r *Route, f *Field) ParameterLocation {
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

// findField finds a field by name, ignoring case. It looks first among the type's own and promoted fields, then
// inside fields that are structs.
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
		panic(fmt.Sprintf("operation: no kind for the type %s", t))
	}
}
