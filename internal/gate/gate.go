// Package gate holds the rules of gates: what binds a tool of another MCP server, or a use of a
// coding agent's own, to the states of a workflow.
//
// It promises that everything here but FindInstance is a pure function of its arguments: what an operator wrote
// is read strictly and compared with the definition that it is about; what is judged, which
// workflow a call belongs to and whether the arguments are the approved ones follow from the
// arguments alone; and who is refused is told where the workflow stands, what to do first and
// what is possible now.
//
// It must never call a tool, read a store, or decide what the judge decides.
package gate

import (
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Handle is the argument with which a call says which workflow it belongs to. No server sees it.
const Handle = "workflowId"

// List says when a tool with a gate is listed.
type List string

// The ways of listing.
const (
	ListAlways List = "always" // and refused at the call
	ListLegal  List = "legal"  // while it may be called
)

// Gate binds a tool to the states of a workflow in which it may be called.
type Gate struct {
	// Tool is the name that clients know it by; of a builtin tool it is that, and the gate's name
	// where it has one: "builtin:shell push".
	Tool string
	// Builtin is the coding agent's own tool, "" for one of another server. When are the uses that
	// the gate is about; nil is every one.
	Builtin string
	When    []When
	// Unknown is the answer to a shell line of which it cannot be seen whether it belongs to the gate.
	Unknown  UnknownLine
	Workflow string
	States   []string
	// Action is performed before the call, Success or Error after it; "" performs none.
	Action, Success, Error string
	// Data is what Action is performed with, Result what Success and Error are; nil is the
	// usual.
	Data, Result *Template
	// Bind are the arguments that must equal fields that were frozen.
	Bind []engine.Binding
	// MaxCalls is how many calls one stay in a state is worth; 0 is any number.
	MaxCalls int
	// MaxArguments is how many bytes the arguments may have; 0 is what the engine takes.
	MaxArguments int
	// Subject is what the call is about, by which its workflow is found; nil takes Handle.
	Subject *Template
	// Start begins a workflow for a subject that has none.
	Start bool
	// Repeatable lets the tool be called again after a call of which nobody knows how it ended.
	Repeatable bool
	List       List

	shown string         // what sentences call the use, "" for what the gate is on
	node  *document.Node // where it was read from
}

// Config is the section gates. The zero value has none.
type Config struct{ Gates []Gate }

// Of is the gate of a tool, nil where it has none.
func (c Config) Of(tool string) *Gate {
	if i := slices.IndexFunc(c.Gates, func(g Gate) bool { return g.Tool == tool }); i >= 0 {
		return &c.Gates[i]
	}
	return nil
}

// PerformedBy is the tool whose gate performs an action of a workflow, "" where none does.
func (c Config) PerformedBy(workflow, action string) string {
	for _, g := range c.Gates {
		if g.Workflow == workflow && action != "" && slices.Contains([]string{g.Action, g.Success, g.Error}, action) {
			return g.Tool
		}
	}
	return ""
}

// IsPlain reports whether nothing is recorded of a use that the gate lets happen: only the state
// decides.
func (g Gate) IsPlain() bool {
	return g.IsPlainBefore() && g.Success == "" && g.Error == ""
}

// IsPlainBefore reports whether nothing has to be recorded before a use that the state allows: only
// its end counts.
func (g Gate) IsPlainBefore() bool { return g.Action == "" && g.MaxCalls == 0 && len(g.Bind) == 0 }

// Upstream is the server of the gate's tool, "" of a builtin one: no server's name has an underscore.
func (g Gate) Upstream() string {
	if g.Builtin != "" {
		return ""
	}
	server, _, _ := strings.Cut(g.Tool, "__")
	return server
}
