package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Allows reports whether the tool may be called in an instance's state.
func (g Gate) Allows(at engine.Position) bool {
	return at.Status == record.Running && slices.Contains(g.States, at.State)
}

// ListsChange reports whether a move of a workflow changes which tools are listed. from is the state that the
// instance left, "" at its start. to is its current state, and running reports whether it still runs.
func (c Config) ListsChange(workflow, from, to string, running bool) bool {
	return slices.ContainsFunc(c.Gates, func(g Gate) bool {
		return g.Workflow == workflow && g.List == ListLegal && slices.Contains(g.States, from) != (running && slices.Contains(g.States, to))
	})
}

// Refusal explains to a model why a tool may not be called, and how to continue.
type Refusal struct {
	// Message describes the workflow's state, Hint the first step to take; one sentence each.
	Message, Hint string
	// Tools and Actions are possible now.
	Tools, Actions []string
	// Judged reports that the state allowed the call, but the judgement refused it.
	Judged bool
}

// Refuse explains why a gate's tool may not be called in an instance's state, and what to do first. d is the
// definition that the instance is pinned to. may reports whether the caller may use another server's tool at all.
func (c Config) Refuse(g Gate, d *workflow.Definition, at engine.Position, role engine.Role, may func(tool string) bool) Refusal {
	r := Refusal{Message: fmt.Sprintf("%s needs the state %s; the workflow %s (%s) ", g.wording().sentenceStart(), quoteList(g.States), at.Workflow, at.ID)}
	held := g.Subject != nil || g.Builtin != "" // a subject gets a new workflow only once this one is released
	if at.Status != record.Running {
		r.Message += fmt.Sprintf("has ended in %q.", at.State)
		r.Hint = "Start another one with workflow.start."
		if held {
			r.Hint = "If it has to be done again, ask an operator to release it."
		}
		return r
	}
	r.Message += fmt.Sprintf("is in %q.", at.State)
	r.Tools, r.Actions = c.ListPossible(at, d.NextActions(at.State, string(role)), may)
	r.Hint, _ = c.describeWay(g.States, d, at, role, may)
	if r.Hint == "" {
		r.Hint = noNextStep
		if !held && len(r.Tools)+len(r.Actions) > 0 {
			r.Hint = "No action leads there from here: cancel it and start another one, or ask an operator."
		}
	}
	return r
}

// NextStep returns, as a sentence to an agent, the first step from an instance's state to one of the given states.
// own reports whether the caller can take it. The text is "" if the instance is in one of the states or has ended. d,
// role and may are as for Refuse.
func (c Config) NextStep(states []string, d *workflow.Definition, at engine.Position, role engine.Role, may func(tool string) bool) (text string, own bool) {
	if at.Status != record.Running || slices.Contains(states, at.State) {
		return "", false
	}
	text, own = c.describeWay(states, d, at, role, may)
	return cmp.Or(text, noNextStep), own
}

const noNextStep = "No action leads there from here: ask an operator."

// describeWay returns the first step on the way to one of the given states, or "" if none leads there. own reports
// whether the caller can take it.
func (c Config) describeWay(states []string, d *workflow.Definition, at engine.Position, role engine.Role, may func(tool string) bool) (text string, own bool) {
	can := func(state string, s step) bool {
		return s.tool != "" && c.mayUse(s.tool, may) || slices.Contains(d.NextActions(state, string(role)), s.action)
	}
	first, ok := c.findFirst(at.Workflow, states, d, at.State, can)
	if !ok {
		first, ok = c.findFirst(at.Workflow, states, d, at.State, func(string, step) bool { return true })
	}
	own = ok && can(at.State, first)
	if !ok {
		return "", false
	}
	if first.tool != "" {
		w := c.GateOf(first.tool).wording()
		if own {
			return fmt.Sprintf("Next: %s %s.", w.do, w.subject), true
		}
		return fmt.Sprintf("Next: someone else must %s %s.", w.do, w.subject), false
	}
	if own {
		return fmt.Sprintf("Next: perform the action %s.", first.action), true
	}
	return fmt.Sprintf("Next: ask for the action %s (role %s).", first.action, strings.Join(d.States[at.State].Transitions[first.action].Roles, " or ")), false
}

// mayUse reports whether a caller may use a tool at all. may decides for tools of other servers; an agent may use all
// its own tools.
func (c Config) mayUse(tool string, may func(tool string) bool) bool {
	g := c.GateOf(tool)
	return g != nil && g.Builtin != "" || may(tool)
}

// ListPossible returns what is possible in an instance's state: the tools that may be called, and those of the next
// actions that no gate performs.
func (c Config) ListPossible(at engine.Position, next []string, may func(tool string) bool) (tools, actions []string) {
	for _, g := range c.Gates {
		if g.Workflow == at.Workflow && g.Allows(at) && c.mayUse(g.Tool, may) {
			tools = append(tools, g.Tool)
		}
	}
	for _, action := range next {
		if c.PerformedBy(at.Workflow, action) == "" {
			actions = append(actions, action)
		}
	}
	return tools, actions
}

// step is one step through a workflow: an action or a tool call.
type step struct{ action, tool string }

// findFirst returns the first step on a shortest path from a state to one of the given states, using only steps that
// can allows. Actions after a failed call are not considered.
func (c Config) findFirst(name string, states []string, d *workflow.Definition, from string, can func(state string, s step) bool) (first step, ok bool) {
	seen := map[string]bool{from: true}
	type place struct {
		state string
		first step
	}
	for next := []place{{state: from}}; len(next) > 0; next = next[1:] {
		at := next[0]
		if at.state != from && slices.Contains(states, at.state) {
			return at.first, true
		}
		for _, way := range c.listSteps(name, d, at.state) {
			for _, state := range way.targets {
				if seen[state] || !can(at.state, way.step) {
					continue
				}
				seen[state] = true
				p := place{state, at.first}
				if at.state == from {
					p.first = way.step
				}
				next = append(next, p)
			}
		}
	}
	return step{}, false
}

type way struct {
	step
	targets []string
}

// listSteps returns the steps that lead out of a state.
func (c Config) listSteps(name string, d *workflow.Definition, state string) (out []way) {
	for _, action := range d.NextActions(state, "") {
		if c.PerformedBy(name, action) == "" {
			out = append(out, way{step{action: action}, d.States[state].Transitions[action].Targets()})
		}
	}
	for _, g := range c.Gates {
		if g.Workflow != name || !slices.Contains(g.States, state) {
			continue
		}
		states := []string{state}
		for _, action := range []string{g.Action, g.Success} {
			if action != "" {
				states = findTargets(d, states, action)
			}
		}
		out = append(out, way{step{tool: g.Tool}, states})
	}
	return out
}

// findTargets returns the states that an action can reach from the given states.
func findTargets(d *workflow.Definition, states []string, action string) (out []string) {
	for _, name := range states {
		if s := d.States[name]; s != nil && s.Transitions[action] != nil {
			out = append(out, s.Transitions[action].Targets()...)
		}
	}
	return out
}

// Describe returns the text about the gate for its tool's description.
func (g Gate) Describe() string {
	text := fmt.Sprintf("Can be called in the %s %s of the workflow %s.", choosePlural(g.States, "state", "states"), quoteList(g.States), g.Workflow)
	switch {
	case g.Subject == nil:
		return text + fmt.Sprintf(" %s selects the instance: the id that workflow.start returned.", Handle)
	case g.Start:
		return text + fmt.Sprintf(" Which one follows from %s; the first call begins it.", g.Subject.listReferences())
	default:
		return text + fmt.Sprintf(" Which one follows from %s; workflow.start begins it.", g.Subject.listReferences())
	}
}

// DescribeHandle returns the description of Handle for the tool's schema.
func (g Gate) DescribeHandle() string {
	return fmt.Sprintf("The id of the workflow %s that the call belongs to, as workflow.start returned it.", g.Workflow)
}

func choosePlural(list []string, one, many string) string {
	if len(list) == 1 {
		return one
	}
	return many
}

func quoteList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, " or ")
}
