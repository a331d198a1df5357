package rest

import (
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// object is a JSON object of the document.
type object = map[string]any

// schemas collects the schemas of named types.
type schemas struct {
	words      *words
	components object
	types      map[string]reflect.Type
}

// of returns the schema of a type as encoding/json encodes it. For a named type, it is a reference to a component.
func (s *schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return freeObject()
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[document.Milliseconds]():
		return object{"type": "number"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Struct:
		return s.component(t)
	case reflect.String:
		if t.PkgPath() != "" {
			return s.component(t)
		}
		return object{"type": "string"}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	}
	panic(fmt.Sprintf("no schema for %s", t))
}

// freeObject returns the schema of an object with arbitrary members. additionalProperties is explicit, because
// generators otherwise assume an object without members.
func freeObject() object { return object{"type": "object", "additionalProperties": true} }

// component returns a reference to the schema of a named type.
func (s *schemas) component(t reflect.Type) object {
	name := t.Name()
	if known, ok := s.types[name]; ok && known != t { // the second one gets its package as a prefix
		pkg := path.Base(t.PkgPath())
		name = strings.ToUpper(pkg[:1]) + pkg[1:] + name
	}
	if known, ok := s.types[name]; ok && known != t {
		panic(fmt.Sprintf("%s and %s have the same name", known, t))
	}
	if _, ok := s.types[name]; !ok {
		s.types[name] = t
		made := object{}
		s.components[name] = made
		if t.Kind() == reflect.String {
			made["type"] = "string"
		} else {
			properties, required := object{}, []string{}
			s.fields(t, properties, &required)
			if t == reflect.TypeFor[engine.StartResult]() { // one that was refused is nowhere
				required = slices.DeleteFunc(required, func(name string) bool {
					return slices.Contains([]string{"id", "status", "revision", "seq"}, name)
				})
			}
			made["type"], made["properties"] = "object", properties
			if len(required) > 0 {
				slices.Sort(required)
				made["required"] = required
			}
		}
		made["description"] = s.describe(name, t)
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// describe returns the description of a type. It lists the known values of a string type as text, because more may be
// added and clients must not fail then.
func (s *schemas) describe(name string, t reflect.Type) string {
	text := s.words.find(name)
	if t.Kind() != reflect.String || t == reflect.TypeFor[engine.Code]() {
		return text // the reference documents the codes
	}
	if values := s.words.valuesOf(t); len(values) > 0 {
		text += " Known values: " + strings.Join(values, ", ") + "."
	}
	return text
}

func (s *schemas) fields(t reflect.Type, properties object, required *[]string) {
	for f := range t.Fields() {
		if f.Anonymous && f.Tag.Get("json") == "" {
			s.fields(f.Type, properties, required) // embedded fields first, so that outer ones override them
		}
	}
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if tag == "-" || !f.IsExported() || (f.Anonymous && tag == "") {
			continue
		}
		if name == "" {
			panic(fmt.Sprintf("%s.%s has no name in JSON", t, f.Name))
		}
		properties[name] = described(s.freed(t, f, s.of(f.Type)), s.words.find(t.Name()+"."+name, name))
		*required = slices.DeleteFunc(*required, func(further string) bool { return further == name })
		answers := []string{reflect.TypeFor[engine.Position]().PkgPath(), reflect.TypeFor[judge.Verdict]().PkgPath()}
		forTools := slices.Contains(answers, t.PkgPath()) && f.Type.Kind() != reflect.Struct // only tools leave it out
		if !strings.Contains(options, "omitempty") && (forTools || !strings.Contains(options, "omitzero")) {
			*required = append(*required, name)
		}
	}
}

// freed returns the schema of a field whose JSON may be of any type.
func (s *schemas) freed(t reflect.Type, f reflect.StructField, schema object) object {
	if t.Name() == "Evidence" && f.Name == "Content" {
		return object{} // depends on the source
	}
	return schema
}

// described adds a description. OpenAPI 3.1 allows it next to a reference.
func described(schema object, text string) object {
	schema["description"] = text
	return schema
}

func str(v any) string {
	s, _ := v.(string)
	return s
}
