package judge

import (
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Call is the call of another server's tool that an action stands for.
type Call struct {
	// Tool is its public name.
	Tool string
	// Arguments is exactly what will be sent, an object. Masked is the same with every sensitive
	// value replaced; it equals Arguments when nothing is sensitive.
	Arguments, Masked document.JSON
}

// write is the call as one document, nil without one. Numbers keep their literals.
func (c *Call) write(plain bool) json.RawMessage {
	if c == nil {
		return nil
	}
	arguments := c.Masked
	if plain {
		arguments = c.Arguments
	}
	return slices.Concat(json.RawMessage(`{"tool":`), rawOf(c.Tool), json.RawMessage(`,"arguments":`), arguments.Raw(), json.RawMessage("}"))
}

// showCall is the call as the model sees it: without what is sensitive in it, or is sensitive
// elsewhere and turns up in it.
func (c Case) showCall() json.RawMessage {
	out := c.Call.write(false)
	if out == nil || c.Scrub == nil {
		return out
	}
	return rewriteStrings(out, c.Scrub)
}
