package expose

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// inputSchema returns the schema of the start context, or else of the initial state, in the form for tools,
// and whether it is wrapped.
func inputSchema(d *workflow.Definition) (schema json.RawMessage, wrapped bool) {
	of := document.ReadTrusted(d.InputSchema)
	if len(d.InputSchema) == 0 {
		of = document.ReadTrusted(d.StateValidators[d.InitialState].Schema)
	}
	return toolSchema(of, topLevelFields(d.StartFields(), of.Get("required")), nounWorkflow)
}

// chainSchema returns the schema of a chain's input in the form for tools, and whether it is wrapped.
func chainSchema(input json.RawMessage) (schema json.RawMessage, wrapped bool) {
	of := document.ReadTrusted(input)
	var required []string
	for _, name := range of.Get("required").Elements() {
		required = append(required, name.Text())
	}
	return toolSchema(of, required, nounChain)
}

// WrapKey is the argument that holds the whole input if strict clients would not accept its schema.
const WrapKey = "input"

// toolSchema converts a schema to a form that strict clients accept: type "object", no anyOf, oneOf or
// allOf at the top, and every required field among the properties. A schema that cannot be converted is
// wrapped in the property WrapKey.
func toolSchema(of document.JSON, required []string, noun string) (schema json.RawMessage, wrapped bool) {
	inner := of.Raw()
	if takesObject(of) {
		inner = objectSchema(of, required, noun)
		if !slices.ContainsFunc([]string{"anyOf", "oneOf", "allOf"}, func(key string) bool { return of.Get(key).Kind() != 0 }) {
			return inner, false
		}
	}
	b := document.NewBuilder(document.ReadTrusted(inner))
	b.Begin(document.Object)
	b.Name(quoteText("type"))
	b.String("object")
	b.Name(quoteText("properties"))
	b.Begin(document.Object)
	b.Name(quoteText(WrapKey))
	b.Begin(document.Object)
	for name, value := range document.ReadTrusted(inner).Members() {
		if !isShared(name) {
			b.Name(name)
			b.Copy(value)
		}
	}
	b.End()
	b.End()
	for name, value := range of.Members() {
		if isShared(name) { // references address them from the top
			b.Name(name)
			b.Copy(value)
		}
	}
	b.Name(quoteText("required"))
	b.Begin(document.Array)
	b.String(WrapKey)
	b.End()
	b.Name(quoteText("additionalProperties"))
	b.Copy(document.ReadTrusted([]byte("false")))
	b.End()
	return b.JSON().Raw(), true
}

// takesObject reports whether the type of a schema is absent or includes objects.
func takesObject(of document.JSON) bool {
	kind := of.Get("type")
	for _, one := range kind.Elements() {
		if one.Is("object") {
			return true
		}
	}
	return kind.Kind() == 0 || kind.Is("object")
}

func isShared(name document.JSON) bool { return name.Is("$defs") || name.Is("definitions") }

// objectSchema converts a schema to type "object", with every required field among the properties: some
// model providers reject others.
func objectSchema(of document.JSON, required []string, noun string) json.RawMessage {
	b := document.NewBuilder(of)
	b.Begin(document.Object)
	b.Name(quoteText("type"))
	b.String("object")
	b.Name(quoteText("properties"))
	writeProperties(b, of.Get("properties"), required, noun)
	for name, value := range of.Members() {
		if !name.Is("type") && !name.Is("properties") && !name.Is("required") {
			b.Name(name)
			b.Copy(value)
		}
	}
	if len(required) > 0 {
		b.Name(quoteText("required"))
		b.Begin(document.Array)
		for _, field := range required {
			b.String(field)
		}
		b.End()
	}
	b.End()
	return b.JSON().Raw()
}

// topLevelFields removes paths, because "required" in a schema holds property names.
func topLevelFields(fields []string, ofSchema document.JSON) []string {
	return slices.DeleteFunc(slices.Clone(fields), func(field string) bool {
		for _, name := range ofSchema.Elements() {
			if name.Is(field) {
				return false
			}
		}
		return strings.ContainsAny(field, "./")
	})
}

func writeProperties(b *document.Builder, declared document.JSON, required []string, noun string) {
	b.Begin(document.Object)
	for name, value := range declared.Members() {
		b.Name(name)
		b.Copy(value)
	}
	for _, field := range required {
		if declared.Get(field).Kind() == 0 {
			b.Name(quoteText(field))
			b.Copy(document.ReadTrusted([]byte(`{"description":"Required by the ` + noun + `."}`)))
		}
	}
	b.End()
}

func quoteText(s string) document.JSON { return document.ReadTrusted(document.AppendQuote(nil, s)) }
