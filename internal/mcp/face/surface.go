package face

import (
	"slices"

	"github.com/gavel-mcp/gavel/internal/operation"
)

// Toolset selects the tools that are offered. Other tools cannot be called.
type Toolset string

// The toolsets. Seed has the tools of the Generic DFA server; Core has what is needed to follow an existing workflow.
const (
	AllTools  Toolset = "all"
	SeedTools Toolset = "seed"
	CoreTools Toolset = "core"
)

var toolsets = map[Toolset][]*operation.Operation{
	SeedTools: {
		operation.Define.Operation, operation.List.Operation, operation.Start.Operation, operation.Advance.Operation, operation.Status.Operation,
		operation.Checkpoint.Operation, operation.Rollback.Operation, operation.ListCheckpoints.Operation,
		operation.Validate.Operation, operation.ConfigureJudge.Operation, operation.History.Operation,
	},
	CoreTools: {
		operation.List.Operation, operation.Describe.Operation, operation.Start.Operation, operation.Advance.Operation, operation.Status.Operation,
		operation.Validate.Operation,
	},
}

func (t Toolset) isKnown() bool { return t == AllTools || toolsets[t] != nil }

func (t Toolset) has(op *operation.Operation) bool {
	return t == AllTools || slices.Contains(toolsets[t], op)
}
