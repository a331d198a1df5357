// Package mcpgate gates the tools of a server built with mcp-go. A gated tool can be called only in the
// workflow states that its gate names, and only with the arguments that were checked. The engine records
// each call, with the moves before and after it.
//
// It promises:
//
//   - A gated handler runs only after the engine has begun its call, and once for each begun call.
//   - A call is rejected if the check of whether it is allowed fails.
//   - Every begun call is settled, that is, its outcome is recorded. Without a result of the handler, the
//     outcome is unknown.
//
// Any program may import it.
package mcpgate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
)

// Gate binds a tool to the states in which it may be called.
type Gate struct {
	Tool   string
	States []string // a call is allowed in each of these
	// Steps are actions that the handler performs itself with Gates.Perform, one after the other. They
	// replace Success. If the handler fails, Error is performed as usual.
	Steps []string
	// Action is performed before the handler runs, with the arguments as data; if it is refused, the handler
	// does not run. Success or Error is performed after the handler. "" means no action.
	// Set engine.Config.Gated to keep callers from performing these actions without the tool.
	Action, Success, Error string
	// Data returns the data of Success and Error; nil uses the arguments of the call.
	Data func(mcp.CallToolRequest, *mcp.CallToolResult) (json.RawMessage, error)
	// Bound are arguments that must equal frozen fields of the context.
	Bound []engine.Binding
	// MaxCalls limits the calls per visit to the state; 0 means no limit.
	MaxCalls int
	// Repeatable reports that the handler is idempotent: running it again with the same CallID has no
	// further effect.
	Repeatable bool
	// Timeout is how long a call may stay open. After that, its outcome counts as unknown until the handler
	// or a person reports it. 0 means DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout is the Timeout of a gate without one.
const DefaultTimeout = 5 * time.Minute

// metaKey is the member of a call's _meta that holds an idempotency key.
const metaKey = "gavel/idempotencyKey"

// Engine is the part of *engine.Engine that gates use.
type Engine interface {
	Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error)
	BeginCall(ctx context.Context, p engine.Principal, r engine.CallRequest) (engine.CallResult, error)
	SettleCall(ctx context.Context, p engine.Principal, r engine.SettleRequest) (engine.SettleResult, error)
}

// Caller returns the principal of a request and the instance that it belongs to.
type Caller func(context.Context) (p engine.Principal, instance string, err error)

// Gates are the gates of one server.
type Gates struct {
	engine Engine
	caller Caller
	of     map[string]Gate
}

// New returns gates for some tools of a server; other tools are not gated. A tool has at most one gate.
func New(e Engine, caller Caller, gates ...Gate) (*Gates, error) {
	g := &Gates{engine: e, caller: caller, of: map[string]Gate{}}
	for _, gate := range gates {
		if _, twice := g.of[gate.Tool]; twice || gate.Tool == "" || len(gate.States) == 0 {
			return nil, fmt.Errorf("mcpgate: the gate of the tool %q needs a state and a tool that has no other gate", gate.Tool)
		}
		if len(gate.Steps) > 0 && gate.Success != "" {
			return nil, fmt.Errorf("mcpgate: the gate of the tool %q has Steps, so Success must be empty: its handler performs %q as the last step", gate.Tool, gate.Success)
		}
		if gate.Timeout <= 0 {
			gate.Timeout = DefaultTimeout
		}
		g.of[gate.Tool] = gate
	}
	return g, nil
}

// Filter is a server.ToolFilterFunc. It removes the gated tools that may not be called in the current
// state. If such a tool is called anyway, mcp-go reports it as unknown. Without the filter, Guard answers
// such a call with the actions to perform first.
func (g *Gates) Filter(ctx context.Context, tools []mcp.Tool) []mcp.Tool {
	at, _ := g.position(ctx) // on error the state is empty, so every gated tool is removed
	return slices.DeleteFunc(slices.Clone(tools), func(t mcp.Tool) bool {
		gate, gated := g.of[t.Name]
		return gated && !slices.Contains(gate.States, at.State)
	})
}

func (g *Gates) position(ctx context.Context) (engine.Position, error) {
	p, id, err := g.caller(ctx)
	if err != nil {
		return engine.Position{}, err
	}
	status, err := g.engine.Status(ctx, p, id)
	return status.Position, err
}

type callIDKey struct{}

// CallID returns the id of the call that a handler runs for, "" outside a call.
func CallID(ctx context.Context) string {
	id, _ := ctx.Value(callIDKey{}).(string)
	return id
}

// Guard is a server.ToolHandlerMiddleware. It begins a call, runs the handler only if the engine allows the
// call, and then settles the call.
func (g *Gates) Guard(next server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		gate, gated := g.of[req.Params.Name]
		if !gated {
			return next(ctx, req)
		}
		p, id, begun, err := g.begin(ctx, gate, req)
		switch {
		case err != nil:
			return mcp.NewToolResultError(fmt.Sprintf("UNDECIDED: %s was not called, because gavel could not check whether it may be called: %v", gate.Tool, err)), nil
		case begun.Answer != engine.CallGo:
			return mcp.NewToolResultError(gate.explainRefusal(begun)), nil
		}
		call := &activeCall{gates: g, gate: gate, principal: p, instance: id, id: begun.CallID, state: begun.State}
		return call.run(context.WithValue(context.WithValue(ctx, callIDKey{}, begun.CallID), callKey{}, call), req, next)
	}
}

// CanExecute reports whether the caller's instance is in one of the states and not cancelled.
func (g *Gates) CanExecute(ctx context.Context, states ...string) (bool, error) {
	at, err := g.position(ctx)
	return err == nil && slices.Contains(states, at.State) && at.Status != record.Cancelled, err
}

type callKey struct{}

// Perform performs one of the Steps of the gate from within its handler; data must encode to a JSON
// object. It first settles the open call as successful, and then begins the call of the step. So after a
// crash, only the work since the last step is unknown. If Perform returns an error, the step was not
// performed, and the state is unchanged.
func (g *Gates) Perform(ctx context.Context, action string, data any) error {
	c, ok := ctx.Value(callKey{}).(*activeCall)
	if !ok || c.gates != g || !slices.Contains(c.gate.Steps, action) {
		return fmt.Errorf("mcpgate: %q is no step of a call of these gates", action)
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("mcpgate: the data of %s: %w", action, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id != "" {
		settled, err := g.engine.SettleCall(ctx, c.principal, engine.SettleRequest{ID: c.instance, CallID: c.id, Outcome: engine.CallOK})
		if err != nil {
			return err
		}
		c.id, c.state = "", settled.State
	}
	begun, err := c.begin(ctx, action, raw)
	if err == nil && begun.Answer != engine.CallGo {
		gate := c.gate
		gate.States = []string{c.state} // so that explain gives the violations, not the states of the gate
		err = errors.New(gate.explainRefusal(begun))
	}
	if err != nil { // the handler continues, and its further work needs an open call too
		_, again := c.begin(ctx, "", nil)
		return errors.Join(err, again)
	}
	return nil
}

// begin begins the call of a step, or a call without a step if action is "". The caller must hold c.mu.
func (c *activeCall) begin(ctx context.Context, action string, data json.RawMessage) (engine.CallResult, error) {
	begun, err := c.gates.engine.BeginCall(ctx, c.principal, engine.CallRequest{
		ID: c.instance, Gate: c.gate.Tool, Tool: c.gate.Tool, Arguments: json.RawMessage("{}"), States: []string{c.state},
		Action: action, Data: data, Error: c.gate.Error, Timeout: c.gate.Timeout,
	})
	if err == nil && begun.Answer == engine.CallGo {
		c.id, c.state = begun.CallID, begun.State
	}
	return begun, err
}

func (g *Gates) begin(ctx context.Context, gate Gate, req mcp.CallToolRequest) (p engine.Principal, id string, begun engine.CallResult, err error) {
	if p, id, err = g.caller(ctx); err != nil {
		return p, id, begun, err
	}
	arguments, err := encodeArguments(req)
	if err != nil {
		return p, id, begun, err
	}
	r := engine.CallRequest{
		ID: id, Gate: gate.Tool, Tool: gate.Tool, Arguments: arguments, States: gate.States, Action: gate.Action, Success: gate.Success, Error: gate.Error,
		Bound: gate.Bound, MaxCalls: gate.MaxCalls, Repeatable: gate.Repeatable, Timeout: gate.Timeout,
	}
	if gate.Action != "" {
		r.Data = arguments
	}
	if meta := req.Params.Meta; meta != nil {
		r.Key, _ = meta.AdditionalFields[metaKey].(string)
	}
	begun, err = g.engine.BeginCall(ctx, p, r)
	return p, id, begun, err
}

func encodeArguments(req mcp.CallToolRequest) (json.RawMessage, error) {
	arguments := req.GetArguments()
	if arguments == nil {
		arguments = map[string]any{}
	}
	return json.Marshal(arguments)
}

// explainRefusal returns why a handler did not run, and what to do.
func (g Gate) explainRefusal(r engine.CallResult) string {
	switch r.Answer {
	case engine.CallParked:
		return fmt.Sprintf("PARKED: %s was not called: a person must decide it first%s. Make the same call again once it is approved.", g.Tool, describeReview(r.Review))
	case engine.CallKnown:
		switch r.Outcome {
		case "":
			return fmt.Sprintf("REPEATED: %s was not called again: the same call has no result yet.", g.Tool)
		case engine.CallUnknown:
			return fmt.Sprintf("REPEATED: %s was not called again: it is unknown whether the same call happened, and a person has to decide that%s.", g.Tool, describeReview(r.Review))
		default:
			return fmt.Sprintf("REPEATED: %s was not called again: the same call was made, and its outcome was %q.", g.Tool, r.Outcome)
		}
	case engine.CallRefused, engine.CallGo: // a refusal is explained below; CallGo never gets here
	}
	why := fmt.Sprintf("%s can be called in %s.", g.Tool, describeStates(g.States))
	if slices.Contains(g.States, r.State) {
		why = fmt.Sprintf("%s was not called: %s", g.Tool, strings.Join(r.Decision.Violations, " "))
	}
	return fmt.Sprintf("REFUSED: %s %s Possible actions: %s.", why, r.Progress, strings.Join(r.NextActions, ", "))
}

func describeReview(r *engine.ReviewSummary) string {
	if r == nil {
		return ""
	}
	return " (review " + r.ID + ")"
}

func describeStates(states []string) string {
	if len(states) == 1 {
		return "the state " + states[0]
	}
	return "the states " + strings.Join(states, ", ")
}

// activeCall is a call that must be settled.
type activeCall struct {
	gates     *Gates
	gate      Gate
	principal engine.Principal
	instance  string

	mu        sync.Mutex
	id, state string // id is "" while no call is open
}

// run runs the handler and settles the call. The outcome is unknown if the handler panics, or fails after
// ctx has ended.
func (c *activeCall) run(ctx context.Context, req mcp.CallToolRequest, next server.ToolHandlerFunc) (result *mcp.CallToolResult, err error) {
	outcome := engine.CallUnknown
	defer func() {
		note := c.settle(ctx, outcome, req, result)
		if note != "" && result != nil {
			result.Content = append(result.Content, mcp.NewTextContent(note))
		}
	}()
	result, err = next(ctx, req)
	switch {
	case err != nil && ctx.Err() != nil:
	case err != nil || result == nil || result.IsError:
		outcome = engine.CallError
	default:
		outcome = engine.CallOK
	}
	return result, err
}

// settle settles the call. It returns the text that the caller needs in addition to the result, "" for
// none.
func (c *activeCall) settle(ctx context.Context, outcome engine.CallOutcome, req mcp.CallToolRequest, result *mcp.CallToolResult) string {
	const end = " Do not call the tool again for it."
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == "" {
		return fmt.Sprintf("Some steps of %s were not recorded."+end, c.gate.Tool)
	}
	ctx = context.WithoutCancel(ctx) // the handler has run, so the call must be settled
	r := engine.SettleRequest{ID: c.instance, CallID: c.id, Outcome: outcome}
	var dataErr error
	if r.Data, dataErr = c.data(req, result); dataErr != nil {
		r.Data = json.RawMessage("null") // the engine refuses null, so no action is performed
	}
	if result != nil {
		r.Result, _ = json.Marshal(result) // only its digest is recorded
	}
	settled, err := c.gates.engine.SettleCall(ctx, c.principal, r)
	switch {
	case err != nil:
		return fmt.Sprintf("%s ran, but its outcome was not recorded: %v."+end, c.gate.Tool, err)
	case settled.Action == "" || settled.Moved:
		return ""
	case dataErr != nil:
		return fmt.Sprintf("%s was carried out, but the action %s was not: %v. The instance is in state %s."+end, c.gate.Tool, settled.Action, dataErr, settled.State)
	}
	return fmt.Sprintf("%s was carried out, but the action %s was not: %s %s The instance is in state %s."+end, c.gate.Tool, settled.Action,
		settled.Decision.Outcome, strings.Join(settled.Decision.Violations, " "), settled.State)
}

func (c *activeCall) data(req mcp.CallToolRequest, result *mcp.CallToolResult) (json.RawMessage, error) {
	if c.gate.Data != nil && result != nil {
		return c.gate.Data(req, result)
	}
	return encodeArguments(req)
}
