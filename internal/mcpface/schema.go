package mcpface

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// inputSchema is the JSON Schema of a tool's arguments, in their order: one flat
// object without combinators, which some providers refuse a whole list of tools
// for.
func inputSchema(fields []*operation.Field) json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"type":"object","properties":{`)
	required := []string{}
	for i, f := range fields {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(encodeJSON(f.Name))
		b.WriteByte(':')
		b.Write(encodeJSON(argumentSchema(f)))
		if f.Required {
			required = append(required, f.Name)
		}
	}
	b.WriteString(`},"required":`)
	b.Write(encodeJSON(required))
	b.WriteString(`,"additionalProperties":false}`)
	return b.Bytes()
}

func argumentSchema(f *operation.Field) map[string]any {
	s := f.Schema()
	delete(s, "format") // some providers refuse it
	s["description"] = f.Help
	return s
}

//go:embed help.txt
var helpText string

// fieldHelp is what the fields of answers mean, by name, as help.txt says: the same name
// means the same everywhere.
var fieldHelp = sync.OnceValue(func() map[string]string {
	help := map[string]string{}
	for line := range strings.Lines(helpText) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		help[name] = text
	}
	return help
})

// outputSchema is the JSON Schema of what a tool answers, from the Go types. No
// field is required and "error" is always admitted: a refused or failed call
// answers with less.
func outputSchema(op *operation.Operation) json.RawMessage {
	properties := map[string]any{}
	for _, shown := range op.Shown() {
		addFields(properties, reflect.TypeOf(shown))
	}
	properties["error"] = errorSchema(op.Document)
	return encodeJSON(map[string]any{"type": "object", "properties": properties})
}

// errorSchema is part of every tool, so it says in words what other fields of the
// answer say in full. Only a definition has issues.
func errorSchema(issues bool) map[string]any {
	s := objectSchema(reflect.TypeFor[errorAnswer]())
	s["description"] = fieldHelp()["error"]
	fields := s["properties"].(map[string]any)
	fields["current"] = map[string]any{"type": "object", "description": "Where the instance is now: id, state, nextActions, progress, complete, status, revision, seq."}
	if !issues {
		delete(fields, "issues")
	}
	return s
}

// objectSchema describes a struct as encoding/json writes it.
func objectSchema(t reflect.Type) map[string]any {
	properties := map[string]any{}
	addFields(properties, t)
	return map[string]any{"type": "object", "properties": properties}
}

func addFields(properties map[string]any, t reflect.Type) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-", !field.IsExported() && !field.Anonymous:
		case field.Anonymous && name == "":
			addFields(properties, field.Type)
		default:
			name = cmp.Or(name, field.Name)
			s := typeSchema(field.Type)
			if name == "content" { // of evidence: whatever the source says
				delete(s, "type")
			}
			s["description"] = fieldHelp()[name]
			properties[name] = s
		}
	}
}

// freeForm are the Go types whose JSON is any object.
var freeForm = reflect.TypeFor[json.RawMessage]()

func typeSchema(t reflect.Type) map[string]any {
	switch {
	case t == freeForm:
		return map[string]any{"type": "object"}
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeSchema(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": typeSchema(t.Elem())}
	case reflect.Struct:
		return objectSchema(t)
	default:
		panic(fmt.Sprintf("mcpface: no schema for %s", t)) // a mistake of this program, met by its first test
	}
}

func encodeJSON(v any) json.RawMessage {
	doc, err := document.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("mcpface: %v", err)) // only channels and functions fail, and there are none
	}
	return doc
}
