package expose

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// inputSchema is the schema of the start context, or else that of the initial state, as a tool
// has it.
func inputSchema(d *workflow.Definition) json.RawMessage {
	of := document.Known(d.InputSchema)
	if len(d.InputSchema) == 0 {
		of = document.Known(d.StateValidators[d.InitialState].Schema)
	}
	return toolSchema(of, topLevelFields(d.StartFields(), of.Get("required")), nounWorkflow)
}

// chainSchema is the schema of a chain's input as a tool has it.
func chainSchema(input json.RawMessage) json.RawMessage {
	of := document.Known(input)
	var required []string
	for _, name := range of.Get("required").Elements() {
		required = append(required, name.Text())
	}
	return toolSchema(of, required, nounChain)
}

// toolSchema makes a schema one of type "object" in which every required field is one of the
// properties: some providers of models refuse others.
func toolSchema(of document.JSON, required []string, noun string) json.RawMessage {
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

// topLevelFields leaves paths out: "required" of a schema holds names of properties.
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
			b.Copy(document.Known([]byte(`{"description":"Required by the ` + noun + `."}`)))
		}
	}
	b.End()
}

func quoteText(s string) document.JSON { return document.Known(document.AppendQuote(nil, s)) }
