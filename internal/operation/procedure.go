package operation

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Procedure is a procedure that an operator defined and that a module runs for callers, by its name.
type Procedure struct {
	Name, Description string
	// Tags let operators select procedures.
	Tags map[string]string
	// Hash changes with the procedure.
	Hash        string
	InputSchema json.RawMessage
	// Start is the operation that runs the procedure. Answers is a value of the type that its own tool answers with.
	Start   *Operation
	Answers any
	// Usage returns the end of the sentence that begins "A call runs it with the arguments as its input, ". Unless
	// wait is 0, a call waits for the end of the run.
	Usage func(wait time.Duration) string
	// Run performs such a call.
	Run func(ctx context.Context, call ExtraCall, wait time.Duration) (answer any, refused bool, err error)
}

// Procedures lists the procedures that a principal may run, by name.
type Procedures interface {
	ListProcedures(context.Context, engine.Principal) ([]Procedure, error)
}
