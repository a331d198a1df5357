package gate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Check compares the gates with the workflow definitions that they name. definitions must hold, by name, the newest
// version that an operator defined. If all is false, some may be missing, and gates on a missing workflow are not
// reported. The error is document.Errors.
func (c Config) Check(definitions map[string]*workflow.Definition, all bool) error {
	var faults document.Errors
	for _, g := range c.Gates {
		d := definitions[g.Workflow]
		if d == nil {
			if all {
				faults = append(faults, g.issue("workflow", "no operator has defined the workflow %q%s", g.Workflow, suggestName(g.Workflow, sortedKeys(definitions))))
			}
			continue
		}
		faults = append(faults, g.check(d)...)
		if g.Start && !slices.Contains(g.States, d.InitialState) {
			faults = append(faults, g.issue("start", "the workflow %s begins in %q, in which %s cannot be called; set start on the gate of a tool that can be called there", d.Name, d.InitialState, g.Tool))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return faults
}

// CheckDefinition runs Check for the gates of one workflow.
func (c Config) CheckDefinition(d *workflow.Definition) error {
	return c.Check(map[string]*workflow.Definition{d.Name: d}, false)
}

// CheckIn runs Check with the definitions of an engine.
func (c Config) CheckIn(ctx context.Context, e Definitions, operator engine.Principal) error {
	named := make([]string, len(c.Gates))
	for i, g := range c.Gates {
		named[i] = g.Workflow
	}
	definitions, err := listDefinitions(ctx, e, operator, named...)
	if err != nil {
		return err
	}
	return c.Check(definitions, true)
}

// Definitions reads workflow definitions. *engine.Engine implements it.
type Definitions interface {
	List(ctx context.Context, p engine.Principal) ([]engine.DefinitionSummary, error)
	LoadDefinition(ctx context.Context, p engine.Principal, right engine.Right, name string, version int) (store.Definition, *workflow.Definition, error)
}

// listDefinitions returns the workflows that operators defined, by name: with the newest definition if the name is in
// named, and with nil otherwise.
func listDefinitions(ctx context.Context, e Definitions, operator engine.Principal, named ...string) (map[string]*workflow.Definition, error) {
	definitions := map[string]*workflow.Definition{}
	if len(named) == 0 {
		return definitions, nil
	}
	all, err := e.List(ctx, operator)
	if err != nil {
		return nil, err
	}
	for _, known := range all {
		if !known.Operator {
			continue
		}
		definitions[known.Name] = nil // a name to suggest
		if !slices.Contains(named, known.Name) {
			continue
		}
		if _, definitions[known.Name], err = e.LoadDefinition(ctx, operator, engine.RightRead, known.Name, known.Version); err != nil {
			return nil, err
		}
	}
	return definitions, nil
}

// Fits reports whether the gate fits a definition. An instance may be pinned to an older version that the gate does not
// fit.
func (g Gate) Fits(d *workflow.Definition) bool { return len(g.check(d)) == 0 }

func (g Gate) issue(pointer, format string, args ...any) *document.Issue {
	return issueAt(g.node, "/"+pointer, format, args...)
}

func (g Gate) check(d *workflow.Definition) (faults document.Errors) {
	fail := func(pointer, format string, args ...any) {
		faults = append(faults, g.issue(pointer, format, args...))
	}
	var after []string // states that the workflow may be in when the tool returns
	for i, name := range g.States {
		at := "states"
		if g.node.Get("states").Kind == document.Array {
			at += "/" + strconv.Itoa(i)
		}
		s := d.States[name]
		switch {
		case s == nil:
			fail(at, "the workflow %s has no state %q%s", d.Name, name, suggestName(name, d.StateNames))
			continue
		case s.Final:
			fail(at, "the state %q is final, so no tool can be called in it", name)
			continue
		case g.Action == "":
			after = append(after, name)
			continue
		}
		t := s.Transitions[g.Action]
		if t == nil {
			fail("action", "the state %q of the workflow %s has no action %q%s", name, d.Name, g.Action, suggestName(g.Action, s.Actions))
			continue
		}
		after = append(after, t.Targets()...)
	}
	for _, end := range []struct{ key, action string }{{"success", g.Success}, {"error", g.Error}} {
		if end.action == "" {
			continue
		}
		for _, name := range slices.Compact(slices.Sorted(slices.Values(after))) {
			for _, problem := range checkEnd(d, name, end.action) {
				fail(end.key, "%s", problem)
			}
		}
	}
	frozen := listFrozen(d)
	for _, b := range g.Bind {
		if !slices.ContainsFunc(frozen, func(f string) bool { return b.Field == f || strings.HasPrefix(b.Field, f+"/") }) {
			fail("bind"+string(document.PointerOf(b.Argument)), "no transition of the workflow %s freezes %s, so it may change after it was approved; add it to a transition's freezes%s", d.Name, b.Field, suggestName(b.Field, frozen))
		}
	}
	return faults
}

// checkEnd returns the problems of an action that follows a call, performed in the given state. Such an action must
// not require a judgement: the call has already happened.
func checkEnd(d *workflow.Definition, state, action string) []string {
	s := d.States[state]
	if s == nil {
		return nil // reported by the definition's lint
	}
	if s.Transitions[action] == nil {
		return []string{fmt.Sprintf("after the call the workflow %s is in the state %q, which has no action %q%s", d.Name, state, action, suggestName(action, s.Actions))}
	}
	var out []string
	for _, next := range d.DescribeActions(state, []string{action}, nil, nil) {
		for _, need := range next.Needs {
			out = append(out, fmt.Sprintf("the action %q in the state %q asks %s, but the call is already done; only fields, schemas and scripts may judge it",
				action, state, map[workflow.Need]string{workflow.NeedModel: "a model", workflow.NeedEvidence: "for evidence", workflow.NeedPerson: "a person"}[need]))
		}
	}
	return out
}

// listFrozen returns the pointers that any transition freezes.
func listFrozen(d *workflow.Definition) (out []string) {
	for _, name := range d.StateNames {
		for _, action := range d.States[name].Actions {
			out = append(out, d.States[name].Transitions[action].Freezes...)
		}
	}
	return out
}

// CheckTools compares the gates with the upstream servers and their tools. tools maps the names that clients use to
// definitions; known is false for a server that is not pinned yet. The error is document.Errors.
func (c Config) CheckTools(servers []string, tools func(server string) (definitions map[string]document.JSON, known bool)) error {
	var faults document.Errors
	for _, g := range c.Gates {
		if g.Builtin != "" {
			continue
		}
		server := g.Upstream()
		if !slices.Contains(servers, server) {
			faults = append(faults, g.issue("tool", "there is no upstream %q%s", server, suggestName(server, servers)))
			continue
		}
		definitions, known := tools(server)
		tool, found := definitions[g.Tool]
		switch {
		case known && !found:
			faults = append(faults, g.issue("tool", "the upstream %q has no pinned tool %q%s", server, g.Tool, suggestName(g.Tool, sortedKeys(definitions))))
		case g.Subject == nil:
			for name := range tool.Get("inputSchema").Get("properties").Members() {
				if strings.EqualFold(name.Text(), Handle) {
					faults = append(faults, g.issue("tool", "the tool has its own argument %q, which gavel needs to identify the workflow, so the tool cannot have a gate", name.Text()))
				}
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return faults
}

func suggestName(word string, known []string) string {
	if near := document.Suggest(word, known); near != "" {
		return "; did you mean " + strconv.Quote(near) + "?"
	}
	return ""
}
