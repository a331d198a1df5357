// Package mcpgate gates the tools of a server that is built with mcp-go: a tool can be called
// in the states of a workflow that its gate names, and its success performs an action there.
//
// It promises that a gated handler does not run unless the caller's instance is in such a state
// now, that what could not be found out counts as no, and that a result whose action was refused
// says so. It must never move an instance before the handler has run. Any program may import it.
//
// Two calls that begin at the same time both find the state that they need. A tool that must
// run once at most has to see to that itself.
package mcpgate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
)

// Gate binds a tool to the states in which it may be called.
type Gate struct {
	Tool   string
	States []string // any of them
	// Action is performed once the tool has succeeded; "" performs none.
	Action string
	// Data is what the action is judged by; nil is the arguments of the call.
	Data func(mcp.CallToolRequest, *mcp.CallToolResult) (json.RawMessage, error)
}

// Engine is what is asked: an *engine.Engine.
type Engine interface {
	Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error)
	Advance(ctx context.Context, p engine.Principal, r engine.AdvanceRequest) (engine.AdvanceResult, error)
}

// Caller says on whose behalf a request is made, and which instance it belongs to.
type Caller func(context.Context) (p engine.Principal, instance string, err error)

// Gates are those of one server.
type Gates struct {
	engine Engine
	caller Caller
	of     map[string]Gate
}

// New returns gates for some tools of a server; the others are not gated. A tool has one gate.
func New(e Engine, caller Caller, gates ...Gate) (*Gates, error) {
	g := &Gates{engine: e, caller: caller, of: map[string]Gate{}}
	for _, gate := range gates {
		if _, twice := g.of[gate.Tool]; twice || gate.Tool == "" || len(gate.States) == 0 {
			return nil, fmt.Errorf("mcpgate: the gate of the tool %q needs a tool without another gate, and a state", gate.Tool)
		}
		g.of[gate.Tool] = gate
	}
	return g, nil
}

// Filter leaves out the tools whose gates are closed: a server.ToolFilterFunc. mcp-go then knows
// none of that name when it is called; without the filter such a call is answered with what to do
// first.
func (g *Gates) Filter(ctx context.Context, tools []mcp.Tool) []mcp.Tool {
	at, _ := g.position(ctx) // no gate is open at none
	return slices.DeleteFunc(slices.Clone(tools), func(t mcp.Tool) bool {
		gate, gated := g.of[t.Name]
		return gated && !gate.isOpen(at)
	})
}

// Guard runs a handler if its gate is open, and performs the gate's action after it succeeded: a
// server.ToolHandlerMiddleware.
func (g *Gates) Guard(next server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		gate, gated := g.of[req.Params.Name]
		if !gated {
			return next(ctx, req)
		}
		at, err := g.position(ctx)
		switch {
		case err != nil:
			return mcp.NewToolResultError(fmt.Sprintf("UNDECIDED: whether %s may be called could not be found out: %v", gate.Tool, err)), nil
		case !gate.isOpen(at):
			return mcp.NewToolResultError(fmt.Sprintf("REFUSED: %s can be called in %s. %s Possible actions: %s.",
				gate.Tool, describeStates(gate.States), at.Progress, strings.Join(at.NextActions, ", "))), nil
		}
		result, err := next(ctx, req)
		if err != nil || result == nil || result.IsError || gate.Action == "" {
			return result, err
		}
		if note := g.perform(ctx, gate, at, req, result); note != "" {
			result.Content = append(result.Content, mcp.NewTextContent(note))
		}
		return result, nil
	}
}

// perform returns "" where the action was approved, else what became of it.
func (g *Gates) perform(ctx context.Context, gate Gate, at engine.Position, req mcp.CallToolRequest, result *mcp.CallToolResult) string {
	const done = "%s was carried out, but the action %s was not: %s. The instance is in state %s. Do not call the tool again for it."
	ctx = context.WithoutCancel(ctx) // the tool has run: what follows is owed
	p, _, err := g.caller(ctx)
	if err != nil {
		return fmt.Sprintf(done, gate.Tool, gate.Action, err, at.State)
	}
	data, err := gate.data(req, result)
	if err != nil {
		return fmt.Sprintf(done, gate.Tool, gate.Action, err, at.State)
	}
	r, err := g.engine.Advance(ctx, p, engine.AdvanceRequest{ID: at.ID, Action: gate.Action, Data: data})
	switch {
	case err != nil:
		return fmt.Sprintf(done, gate.Tool, gate.Action, err, at.State)
	case !r.Decision.Applied:
		return fmt.Sprintf(done, gate.Tool, gate.Action, string(r.Decision.Outcome)+" "+strings.Join(r.Decision.Violations, " "), r.State)
	}
	return ""
}

func (g Gate) data(req mcp.CallToolRequest, result *mcp.CallToolResult) (json.RawMessage, error) {
	if g.Data != nil {
		return g.Data(req, result)
	}
	return json.Marshal(req.GetArguments())
}

func (g Gate) isOpen(at engine.Position) bool { return slices.Contains(g.States, at.State) }

func (g *Gates) position(ctx context.Context) (engine.Position, error) {
	p, id, err := g.caller(ctx)
	if err != nil {
		return engine.Position{}, err
	}
	status, err := g.engine.Status(ctx, p, id)
	if err != nil {
		return engine.Position{}, err
	}
	return status.Position, nil
}

func describeStates(states []string) string {
	if len(states) == 1 {
		return "the state " + states[0]
	}
	return "the states " + strings.Join(states, ", ")
}
