package operation

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Procedure is something of the operator's that a module runs for callers, by its name.
type Procedure struct {
	Name, Description string
	// Tags are for who selects procedures.
	Tags map[string]string
	// Hash changes with the procedure.
	Hash        string
	InputSchema json.RawMessage
	// Start is the operation that runs it, and Answers a value of the type that a call of it as a tool of its own answers with.
	Start   *Operation
	Answers any
	// Usage ends the sentence that begins "A call runs it with the arguments as its input, ". A call waits for the
	// end, unless wait is 0.
	Usage func(wait time.Duration) string
	// Run is such a call.
	Run func(ctx context.Context, call ExtraCall, wait time.Duration) (answer any, refused bool, err error)
}

// Procedures list those that a principal may run, by name.
type Procedures interface {
	ListProcedures(context.Context, engine.Principal) ([]Procedure, error)
}
