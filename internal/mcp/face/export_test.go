package face

import (
	"encoding/json"

	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

// OutputSchemas returns the declared output schemas by canonical tool name.
func OutputSchemas() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	services := map[string]any{}
	for _, op := range operation.All() {
		services[op.Service] = true
	}
	for _, op := range newCatalog(Config{Reviews: true, Toolset: AllTools, Services: services}).tools {
		out[op.Tool.Name] = outputSchema(op.Tool.Without, op.Shown()...)
	}
	return out
}

// Approves reports whether an answer to a form is an approval by a person.
func Approves(reply []byte) bool {
	word, err := readForm(reply)
	return err == nil && word.decision == judge.Approve
}
