package judge

import (
	"encoding/json"
	"slices"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Call is the call to another server's tool that an action represents.
type Call struct {
	// Tool is the public name of the tool.
	Tool string
	// Arguments is exactly the object that will be sent. Masked is a copy with every sensitive value
	// replaced; it equals Arguments if nothing is sensitive.
	Arguments, Masked document.JSON
}

// write returns the call as one document, nil if there is none. Numbers keep their literals.
func (c *Call) write(plain bool) json.RawMessage {
	if c == nil {
		return nil
	}
	arguments := c.Masked
	if plain {
		arguments = c.Arguments
	}
	return slices.Concat(json.RawMessage(`{"tool":`), marshalRaw(c.Tool), json.RawMessage(`,"arguments":`), arguments.Raw(), json.RawMessage("}"))
}

// showCall returns the call as the model sees it, without its own sensitive values and without sensitive
// values from elsewhere that appear in it.
func (c Case) showCall() json.RawMessage {
	out := c.Call.write(false)
	if out == nil || c.Scrub == nil {
		return out
	}
	return rewriteStrings(out, c.Scrub)
}
