package operation

import (
	"context"
	"encoding/json"

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
}

// Procedures list those that a principal may run, by name.
type Procedures interface {
	ListProcedures(context.Context, engine.Principal) ([]Procedure, error)
}
