package face

import (
	"bytes"
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

// inputSchema returns the JSON Schema of a tool's arguments, in their order. It is one flat object without
// combinators: some providers reject a whole list of tools because of them.
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
	delete(s, "format") // some providers reject it
	s["description"] = f.Help
	return s
}

//go:embed help.txt
var helpText string

// fieldHelp maps the names of answer fields to their descriptions in help.txt. A name means the same in every answer.
var fieldHelp = sync.OnceValue(func() map[string]string {
	help := map[string]string{}
	for line := range strings.Lines(helpText) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		help[name] = text
	}
	return help
})

// outputSchema returns the JSON Schema of a tool's answers, derived from their Go types: only the top-level fields.
// No field is required, and "error" is always allowed, because a refused or failed call answers with less.
func outputSchema(without []string, answers ...any) json.RawMessage {
	properties := map[string]any{}
	for _, shown := range answers {
		addFields(properties, reflect.TypeOf(shown))
	}
	for _, name := range without {
		delete(properties, name)
	}
	properties["error"] = map[string]any{"type": "object", "description": fieldHelp()["error"]}
	return encodeJSON(map[string]any{"type": "object", "properties": properties})
}

// addFields adds the fields of a struct as encoding/json encodes them.
func addFields(properties map[string]any, t reflect.Type) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-", !field.IsExported() && !field.Anonymous:
		case field.Anonymous && name == "":
			addFields(properties, field.Type)
		default:
			properties[name] = map[string]any{"type": jsonType(field.Type), "description": fieldHelp()[name]}
		}
	}
}

func jsonType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[json.RawMessage](): // any object
		return "object"
	case t == reflect.TypeFor[time.Time]():
		return "string"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "array"
	case reflect.Struct:
		return "object"
	default:
		panic(fmt.Sprintf("mcp: no schema for %s", t)) // a programming error, found by the first test of the type
	}
}

func encodeJSON(v any) json.RawMessage {
	doc, err := document.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("mcp: %v", err)) // only channels and functions fail, and there are none
	}
	return doc
}
