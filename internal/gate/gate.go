// Package gate implements the rules of gates. A gate binds a tool of another MCP server, or a use of a coding agent's
// own tool, to the states of a workflow.
//
// Guarantees:
//   - Everything here except FindInstance is a pure function of its arguments.
//   - Configuration is parsed strictly and compared with the definition that it concerns.
//   - The data to judge, the workflow of a call, and whether its arguments are the approved ones follow from the
//     arguments alone.
//   - A refused caller learns the workflow's state, what to do first, and what is possible now.
//
// It must never call a tool, read a store, or make the judge's decisions.
package gate

import (
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Handle is the argument that names a call's workflow. It is removed before a server sees the call.
const Handle = "workflowId"

// List determines when a gated tool is listed.
type List string

// The listing modes.
const (
	ListAlways List = "always" // always listed; a call may be refused
	ListLegal  List = "legal"  // only while it may be called
)

// Gate binds a tool to the states of a workflow in which it may be called.
type Gate struct {
	// Tool is the name that clients use. For a builtin tool it is Builtin, followed by the gate's own name if it has
	// one: "builtin:shell push".
	Tool string
	// Builtin is the coding agent's own tool, or "" for a tool of another server. When selects the uses that the gate
	// covers; nil selects all.
	Builtin string
	When    []When
	// Unknown is the answer to a shell line that may or may not belong to the gate.
	Unknown  UnknownLine
	Workflow string
	States   []string
	// Action is performed before the call, and Success or Error after it. "" performs none.
	Action, Success, Error string
	// Data is the data for Action, and Result the data for Success and Error. Nil selects the default.
	Data, Result *Template
	// Bind lists the arguments that must equal frozen fields.
	Bind []engine.Binding
	// MaxCalls limits the calls during one stay in a state; 0 means no limit.
	MaxCalls int
	// MaxArguments limits the arguments, in bytes; 0 means the engine's limit.
	MaxArguments int
	// Subject yields the subject by which a call's workflow is found; nil uses Handle.
	Subject *Template
	// Start starts a workflow for a subject that has none.
	Start bool
	// Repeatable allows further calls after a call whose outcome is unknown.
	Repeatable bool
	List       List

	shown string         // names the use in messages; "" for the gate's own description
	node  *document.Node // source node, for the positions of issues
}

// Config is the section "gates". The zero value has no gates.
type Config struct{ Gates []Gate }

// GateOf returns the gate of a tool, or nil.
func (c Config) GateOf(tool string) *Gate {
	if i := slices.IndexFunc(c.Gates, func(g Gate) bool { return g.Tool == tool }); i >= 0 {
		return &c.Gates[i]
	}
	return nil
}

// PerformedBy returns the tool whose gate performs an action of a workflow, or "".
func (c Config) PerformedBy(workflow, action string) string {
	for _, g := range c.Gates {
		if g.Workflow == workflow && action != "" && slices.Contains([]string{g.Action, g.Success, g.Error}, action) {
			return g.Tool
		}
	}
	return ""
}

// IsCheckOnly reports whether the gate only checks the state, so that an allowed use is not recorded.
func (g Gate) IsCheckOnly() bool {
	return g.IsCheckOnlyBefore() && g.Success == "" && g.Error == ""
}

// IsCheckOnlyBefore reports whether nothing must be recorded before a use that the state allows. Its end may still be
// recorded.
func (g Gate) IsCheckOnlyBefore() bool { return g.Action == "" && g.MaxCalls == 0 && len(g.Bind) == 0 }

// Upstream returns the server of the gate's tool, or "" for a builtin tool. Server names contain no underscore.
func (g Gate) Upstream() string {
	if g.Builtin != "" {
		return ""
	}
	server, _, _ := strings.Cut(g.Tool, "__")
	return server
}
