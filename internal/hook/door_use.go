package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

// before decides about a use of a tool.
func (c *decision) before(ctx context.Context) (Answer, error) {
	if !c.rules.Gates.HasBuiltin() {
		return Answer{}, nil
	}
	if c.Unknown {
		return c.answerUnknown(), nil
	}
	matches := c.match()
	if len(matches) == 0 {
		return Answer{}, nil
	}
	recording := slices.DeleteFunc(slices.Clone(matches), func(m gate.Match) bool { return m.Gate.IsPlain() })
	if len(recording) > 1 {
		return Refuse(c.Event, fmt.Sprintf("This use of %s does several things that have gates of their own: %s.%s Do one at a time.", c.Tool, c.listTools(recording), explainWhy(recording))), nil
	}
	if err := c.open(ctx); err != nil {
		return Answer{}, err
	}
	for _, m := range slices.DeleteFunc(slices.Clone(matches), func(m gate.Match) bool { return !m.Gate.IsPlain() }) {
		if reason, err := c.pass(ctx, m); err != nil || reason != "" {
			return Refuse(c.Event, reason), err
		}
	}
	for _, m := range recording {
		if reason, err := c.beginCall(ctx, m); err != nil || reason != "" {
			return Refuse(c.Event, reason), err
		}
	}
	return Answer{}, nil
}

// answerUnknown decides about a tool that no version of the adapter knows: it may be a shell.
func (c *decision) answerUnknown() Answer {
	reason := fmt.Sprintf("gavel does not know the tool %.80q of %s, so it cannot say what gates it belongs to. Use another tool; a newer gavel may know it, or hooks.unknownTools decides.", c.Tool, c.Client)
	switch c.rules.Hooks.UnknownTools {
	case gate.UnknownNeutral:
		return Answer{}
	case gate.UnknownDeny:
		return Answer{Verdict: Deny, Reason: reason}
	default:
		return Answer{Verdict: Ask, Reason: reason}
	}
}

// match finds the gates that the use belongs to.
func (c *decision) match() []gate.Match {
	if c.Builtin == "" || c.Unknown {
		return nil
	}
	var script shell.Script
	if c.Builtin == gate.BuiltinShell {
		script = shell.Read(c.Command)
	}
	return c.rules.Gates.Match(NewUse(c.Event, script))
}

func (c *decision) listTools(matches []gate.Match) string {
	names := make([]string, len(matches))
	for i, m := range matches {
		names[i] = c.rules.Gates.Describe(m.Gate.Tool)
	}
	return strings.Join(names, "; ")
}

// explainWhy says why a use belongs to gates where that cannot be seen, after a space.
func explainWhy(matches []gate.Match) string {
	for _, m := range matches {
		if m.Why != "" {
			return " " + m.Why
		}
	}
	return ""
}

// pass decides about a use that a gate records only where it refuses it. The reason is why it may
// not be, "" where it may.
func (c *decision) pass(ctx context.Context, m gate.Match) (reason string, err error) {
	at, reason, err := c.enter(ctx, m)
	if err != nil || reason != "" || m.Gate.Allows(at.Position) {
		return reason, err
	}
	reason, err = c.record(ctx, m, at)
	if err == nil && reason == "" { // it moved meanwhile
		c.undo(ctx)
		reason = fmt.Sprintf("The workflow %s (%s) moved meanwhile. Do the same again.", at.Workflow, at.ID)
	}
	return reason, err
}

// beginCall has a use judged and recorded before it happens.
func (c *decision) beginCall(ctx context.Context, m gate.Match) (reason string, err error) {
	at, reason, err := c.enter(ctx, m)
	if err != nil || reason != "" {
		return reason, err
	}
	return c.record(ctx, m, at)
}

// entry is a place that a gate may be asked about.
type entry struct {
	place
	// wait is what a use is told that has the id of the open one, and is another; "" where none is open.
	wait string
}

// enter finds the instance of a gate, and keeps everybody out of one with an open call: its state is
// that of a use that has not ended.
func (c *decision) enter(ctx context.Context, m gate.Match) (at entry, reason string, err error) {
	if at.place, err = c.findFor(ctx, m.Gate); err != nil {
		return at, "", err
	}
	if at.refusal != nil {
		return at, c.explain(*at.refusal, at.Position) + explainWhy([]gate.Match{m}), nil
	}
	open, err := c.findOpen(ctx, &at.place)
	if err != nil || open == nil {
		return at, "", err
	}
	wait := fmt.Sprintf("You began to %s, and how that ended has not been reported: nothing else of the workflow %s (%s) may happen before. Wait for its end. Unreported, it counts as unknown at %s, and a person has to say what happened.",
		c.rules.Gates.Describe(open.Tool), at.Workflow, at.ID, open.Deadline.UTC().Format(time.RFC3339))
	if key := c.key(); key != "" && !m.Gate.IsPlain() {
		call, err := c.engine.FindCall(ctx, c.principal, at.ID, key)
		if err == nil && call == open.CallID {
			at.wait = wait
			return at, "", nil
		}
		if err != nil && engine.CodeOf(err) != engine.CodeUnknownCall {
			return at, "", err
		}
	}
	return at, wait, nil
}

// findOpen is the call of an instance that is open, nil for none. One whose time is over is settled.
func (c *decision) findOpen(ctx context.Context, at *place) (*engine.CallSummary, error) {
	for try := 0; ; try++ {
		status, err := c.engine.Status(ctx, c.principal, at.ID)
		if err != nil {
			return nil, err
		}
		at.Position = status.Position
		i := slices.IndexFunc(status.Calls, func(call engine.CallSummary) bool { return !call.Unknown })
		if i < 0 {
			return nil, nil //nolint:nilnil // no open call: a valid, common answer
		}
		if try > 0 || time.Now().Before(status.Calls[i].Deadline) {
			return &status.Calls[i], nil
		}
		if _, err := c.engine.SettleOverdue(ctx); err != nil {
			return nil, err
		}
	}
}

// record asks the engine. The reason is why it refuses, "" where the use may happen: then undo takes
// it back.
func (c *decision) record(ctx context.Context, m gate.Match, at entry) (reason string, err error) {
	g := m.Gate
	values := c.values()
	r, err := c.engine.BeginCall(ctx, c.principal, engine.CallRequest{
		ID: at.ID, Gate: g.Tool, Upstream: c.Client, Tool: c.Tool, Arguments: values.Arguments.Raw(),
		States: g.States, Action: g.Action, Data: g.DataOf(values), Success: g.Success, Error: g.Error,
		Bound: g.Bind, MaxCalls: g.MaxCalls, MaxArguments: g.MaxArguments, Repeatable: g.Repeatable, Timeout: callTimeout, Key: c.key(),
	})
	switch {
	case at.wait != "" && engine.CodeOf(err) == engine.CodeKeyReused:
		return at.wait, nil
	case err != nil:
		return "", err
	case at.wait != "" && r.Answer == engine.CallKnown && r.Outcome == "": // this very use
		return "", nil
	}
	var refusal gate.Refusal
	switch r.Answer {
	case engine.CallGo:
		c.undo = func(ctx context.Context) {
			if _, err := c.engine.SettleCall(ctx, c.principal, engine.SettleRequest{ID: at.ID, CallID: r.CallID, Outcome: engine.CallNotSent}); err != nil {
				c.door.Logger.ErrorContext(ctx, "a use that was denied stays recorded as open; after its deadline it counts as unknown", "call", r.CallID, "error", err)
			}
		}
		return "", nil
	case engine.CallParked:
		refusal = g.RefuseParked()
		if r.Review != nil {
			refusal.Hint = fmt.Sprintf("They see it with gavel review show %s. Do the same again once it is approved.", r.Review.ID)
		}
	case engine.CallKnown:
		refusal = g.RefuseKnown(r.Outcome)
	default:
		_, d, err := c.engine.LoadDefinition(ctx, ruleReader, engine.RightRead, r.Workflow, r.Version)
		if err != nil {
			return "", err
		}
		refusal = c.rules.Gates.RefuseCall(g, d, r, c.principal.Role, mayUse)
	}
	return c.explain(refusal, r.Position) + explainWhy([]gate.Match{m}), nil
}

// values are what templates of gates see of the use. A line of shell is all that the tool is about;
// what else an agent writes there differs each time it asks for the same.
func (c *decision) values() gate.Values {
	arguments := struct {
		Tool    string          `json:"tool"`
		Command string          `json:"command,omitempty"`
		Paths   []string        `json:"paths,omitempty"`
		URL     string          `json:"url,omitempty"`
		Folder  string          `json:"folder,omitempty"`
		Input   json.RawMessage `json:"input,omitempty"`
	}{c.Tool, c.Command, c.Paths, c.URL, c.Folder, nil}
	if c.Builtin != gate.BuiltinShell {
		arguments.Input = c.Input.Raw()
	}
	raw, err := document.Marshal(arguments)
	if err != nil {
		panic(err) // texts, and JSON that was read
	}
	return gate.Values{Arguments: document.Known(raw), Principal: gate.PrincipalValue(c.principal), Result: c.Result}
}

// after records how a use ended.
func (c *decision) after(ctx context.Context) (Answer, error) {
	gates := c.listEnded()
	if len(gates) == 0 {
		return Answer{}, nil
	}
	if err := c.open(ctx); err != nil {
		return Answer{}, err
	}
	g, at, call, err := c.findBegun(ctx, gates)
	if err != nil || call == "" {
		return Answer{}, err
	}
	req := engine.SettleRequest{ID: at.ID, CallID: call, Outcome: outcomes[c.Ended], Result: c.Result.Raw()}
	if req.Outcome == "" {
		req.Outcome = engine.CallUnknown
	}
	if g.EndAction(req.Outcome) != "" {
		req.Data = g.ResultOf(c.values())
	}
	r, err := c.engine.SettleCall(ctx, c.principal, req)
	if err != nil || r.Replayed {
		return Answer{}, err
	}
	return Answer{Context: strings.TrimSpace(gate.DescribeAfter(r) + " " + c.describe(ctx, r.Position))}, nil
}

var outcomes = map[Ended]engine.CallOutcome{EndedOK: engine.CallOK, EndedFailed: engine.CallError, EndedNotRun: engine.CallNotSent}

// listEnded lists the gates of which the use may have begun a call.
func (c *decision) listEnded() (gates []gate.Gate) {
	for _, m := range c.match() {
		gates = append(gates, m.Gate)
	}
	gates = slices.DeleteFunc(gates, func(g gate.Gate) bool { return g.Builtin == "" || g.IsPlain() })
	if len(gates) > 1 { // several were denied
		return nil
	}
	return gates
}

// findBegun finds the call that the use began at one of some gates; its id is "" for none. Where the
// client has no id for a use, it is the one that is open.
func (c *decision) findBegun(ctx context.Context, gates []gate.Gate) (g gate.Gate, at engine.Position, call string, err error) {
	for _, g := range gates {
		at, refusal, err := c.find(ctx, g.Workflow, g.Tool, false)
		if err != nil {
			return g, at, "", err
		}
		if refusal != nil {
			continue
		}
		status, err := c.engine.Status(ctx, c.principal, at.ID)
		if err != nil {
			return g, at, "", err
		}
		begun := ""
		if key := c.key(); key != "" {
			if begun, err = c.engine.FindCall(ctx, c.principal, at.ID, key); err != nil && engine.CodeOf(err) != engine.CodeUnknownCall {
				return g, at, "", err
			}
		}
		for _, call := range status.Calls {
			if call.Tool == g.Tool && (call.CallID == begun || c.CallID == "" && !call.Unknown) {
				return g, at, call.CallID, nil
			}
		}
	}
	return g, at, "", nil
}
