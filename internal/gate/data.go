package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// DataOf returns the data for the gate's action. Without a template, it describes the call: the tool, the bound
// arguments, and a digest of all arguments.
func (g Gate) DataOf(v Values) json.RawMessage {
	if g.Action == "" {
		return nil
	}
	if g.Data != nil {
		return g.Data.Fill(v)
	}
	sum := sha256.Sum256(v.Arguments.Raw())
	b := append([]byte(`{"call":{"tool":`), document.AppendQuote(nil, g.Tool)...)
	b = append(append(b, `,"digest":"sha256:`...), hex.EncodeToString(sum[:])...)
	b = append(b, '"')
	opening := `,"bound":{`
	for _, bound := range g.Bind {
		if value := v.Arguments.At(tokensOf(bound.Argument)...); value.Kind() != 0 { // the engine rejects a call without it
			b = append(b, opening...)
			b = append(append(document.AppendQuote(b, bound.Argument), ':'), value.Raw()...)
			opening = ","
		}
	}
	if opening == "," {
		b = append(b, '}')
	}
	return append(b, `}}`...)
}

// EndAction returns the action that follows a call with the given outcome, or "".
func (g Gate) EndAction(outcome engine.CallOutcome) string {
	switch outcome {
	case engine.CallOK:
		return g.Success
	case engine.CallError, engine.CallNotSent:
		return g.Error
	default:
		return ""
	}
}

// ResultOf returns the data for the action after a call, or nil without a template.
func (g Gate) ResultOf(v Values) json.RawMessage {
	if g.Result == nil {
		return nil
	}
	return g.Result.Fill(v)
}

// PrincipalValue returns a principal as templates see it.
func PrincipalValue(p engine.Principal) document.JSON {
	b := document.AppendQuote([]byte(`{"id":`), p.ID)
	b = document.AppendQuote(append(b, `,"role":`...), string(p.Role))
	return document.ReadTrusted(append(b, '}'))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
