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

// Allows reports whether the state of an instance is one in which the tool may be called.
func (g Gate) Allows(at engine.Position) bool {
	return at.Status == record.Running && slices.Contains(g.States, at.State)
}

// ListsChange reports whether a move of a workflow changes which tools are listed: the state that an
// instance left ("" at its start), and the one in which it is, running or not.
func (c Config) ListsChange(workflow, from, to string, running bool) bool {
	return slices.ContainsFunc(c.Gates, func(g Gate) bool {
		return g.Workflow == workflow && g.List == ListLegal && slices.Contains(g.States, from) != (running && slices.Contains(g.States, to))
	})
}

// Refusal says why a tool may not be called, to a model that has to go on.
type Refusal struct {
	// Message is where the workflow stands, Hint what to do first; one sentence each.
	Message, Hint string
	// Tools and Actions are what is possible now.
	Tools, Actions []string
	// Judged says that the call was judged and refused, where the workflow would have allowed it.
	Judged bool
}

// Refuse says why a gate's tool may not be called where an instance stands, and what to do
// first. d is the definition that the instance is pinned to; may says of another server's tool
// whether the caller may use it at all.
func (c Config) Refuse(g Gate, d *workflow.Definition, at engine.Position, role engine.Role, may func(tool string) bool) Refusal {
	r := Refusal{Message: fmt.Sprintf("%s needs the state %s; the workflow %s (%s) ", g.wording().begin(), quoteList(g.States), at.Workflow, at.ID)}
	held := g.Subject != nil || g.Builtin != "" // another one begins when this one is released
	if at.Status != record.Running {
		r.Message += fmt.Sprintf("has ended in %q.", at.State)
		r.Hint = "Begin another one with workflow.start."
		if held {
			r.Hint = "Ask an operator to release it, if it has to be done again."
		}
		return r
	}
	r.Message += fmt.Sprintf("is in %q.", at.State)
	r.Tools, r.Actions = c.ListPossible(at, d.NextActions(at.State, string(role)), may)
	r.Hint, _ = c.describeWay(g.States, d, at, role, may)
	if r.Hint == "" {
		r.Hint = noWay
		if !held && len(r.Tools)+len(r.Actions) > 0 {
			r.Hint = "From here no action leads there: cancel it and begin another one, or ask an operator."
		}
	}
	return r
}

// NextStep is the first step from where an instance stands to one of some states, as a sentence to
// an agent; own reports that the caller can take it. It is "" where the instance is in one or has
// ended. d, role and may are as for Refuse.
func (c Config) NextStep(states []string, d *workflow.Definition, at engine.Position, role engine.Role, may func(tool string) bool) (text string, own bool) {
	if at.Status != record.Running || slices.Contains(states, at.State) {
		return "", false
	}
	text, own = c.describeWay(states, d, at, role, may)
	return cmp.Or(text, noWay), own
}

const noWay = "From here no action leads there: ask an operator."

// describeWay says how to begin the way to one of some states, "" where none leads there. own
// reports that the caller can take that step.
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
		w := c.Of(first.tool).wording()
		if own {
			return fmt.Sprintf("Next: %s %s.", w.do, w.what), true
		}
		return fmt.Sprintf("Next: somebody else has to %s %s.", w.do, w.what), false
	}
	if own {
		return fmt.Sprintf("Next: perform the action %s.", first.action), true
	}
	return fmt.Sprintf("Next: ask for the action %s (role %s).", first.action, strings.Join(d.States[at.State].Transitions[first.action].Roles, " or ")), false
}

// mayUse reports whether a caller may use a tool at all: another server's where may says so, and an
// agent its own ones.
func (c Config) mayUse(tool string, may func(tool string) bool) bool {
	g := c.Of(tool)
	return g != nil && g.Builtin != "" || may(tool)
}

// ListPossible returns what is possible where an instance stands: the tools that may be called, and
// those of its next actions that no gate performs.
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

// step is the first thing on a way through a workflow: an action, or a call of a tool.
type step struct{ action, tool string }

// findFirst is the first step on a shortest way from a state to one of some others, of steps that
// can be taken. Nobody plans to fail, so the actions after a failed call are no steps.
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

// listSteps are the ways that lead out of a state.
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

// findTargets returns the states to which an action leads from some.
func findTargets(d *workflow.Definition, states []string, action string) (out []string) {
	for _, name := range states {
		if s := d.States[name]; s != nil && s.Transitions[action] != nil {
			out = append(out, s.Transitions[action].Targets()...)
		}
	}
	return out
}

// Describe is what the description of the gate's tool says of the gate.
func (g Gate) Describe() string {
	text := fmt.Sprintf("Can be called in the %s %s of the workflow %s.", choosePlural(g.States, "state", "states"), quoteList(g.States), g.Workflow)
	switch {
	case g.Subject == nil:
		return text + fmt.Sprintf(" %s says which one: the id that workflow.start returned.", Handle)
	case g.Start:
		return text + fmt.Sprintf(" Which one follows from %s; the first call begins it.", g.Subject.names())
	default:
		return text + fmt.Sprintf(" Which one follows from %s; workflow.start begins it.", g.Subject.names())
	}
}

// DescribeHandle is what the schema of the tool says of the handle.
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
