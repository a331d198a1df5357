package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/gate"
)

// beginSession describes to a new session the state of its workflows.
func (d *decision) beginSession(ctx context.Context) (Answer, error) {
	if err := d.open(ctx); err != nil {
		return Answer{}, err
	}
	finish := d.rules.Hooks.Finish
	var names, out []string
	if finish != nil {
		names = append(names, finish.Workflow)
	}
	for _, g := range d.rules.Gates.Gates {
		if g.Builtin != "" && !slices.Contains(names, g.Workflow) {
			names = append(names, g.Workflow)
		}
	}
	for _, name := range names {
		at, refusal, err := d.find(ctx, d.homeSite(), name, "This session", finish != nil && finish.Start && name == finish.Workflow)
		switch {
		case err != nil:
			return Answer{}, err
		case refusal == nil:
			out = append(out, d.describe(ctx, at))
		case refusal.Judged || !d.startsAtUse(name):
			out = append(out, strings.TrimSpace(refusal.Message+" "+refusal.Hint))
		}
	}
	return Answer{Context: strings.Join(out, "\n")}, nil
}

// startsAtUse reports whether a gate starts the workflow at the first use that it matches.
func (d *decision) startsAtUse(name string) bool {
	return slices.ContainsFunc(d.rules.Gates.Gates, func(g gate.Gate) bool { return g.Builtin != "" && g.Workflow == name && g.Start })
}

// describe describes the state of a workflow and the possible next steps.
func (d *decision) describe(ctx context.Context, at engine.Position) string {
	if at.Status != record.Running {
		return fmt.Sprintf("The workflow %s (%s) has ended in %q.", at.Workflow, at.ID, at.State)
	}
	tools, actions := d.rules.Gates.ListPossible(at, at.NextActions, mayUse)
	text := fmt.Sprintf("The workflow %s (%s) is in %q.", at.Workflow, at.ID, at.State)
	if _, definition, err := d.engine.LoadDefinition(ctx, ruleReader, engine.RightRead, at.Workflow, at.Version); err == nil && definition.States[at.State] != nil {
		text = strings.TrimSpace(text + " " + EndSentence(definition.States[at.State].Description))
	}
	return text + d.describePossible(at.ID, actions, tools)
}

// decideStop decides whether the agent may stop. A subagent always may: the decision is made when the whole agent
// stops.
func (d *decision) decideStop(ctx context.Context) (Answer, error) {
	finish := d.rules.Hooks.Finish
	if finish == nil || d.Subagent {
		return Answer{}, nil
	}
	if err := d.open(ctx); err != nil {
		return Answer{}, err
	}
	at, refusal, err := d.find(ctx, d.homeSite(), finish.Workflow, "The end of the work", false)
	if err != nil || refusal != nil { // the workflow has already ended well, or was never started
		return Answer{}, err
	}
	r, err := d.engine.Finish(ctx, d.principal, engine.FinishRequest{ID: at.ID, States: finish.States, Attempts: finish.Attempts, Session: d.Client + ":" + d.Session})
	if err != nil {
		return Answer{}, err
	}
	if r.MayEnd {
		return Answer{Context: describeEarlyEnd(r)}, nil
	}
	_, definition, err := d.engine.LoadDefinition(ctx, ruleReader, engine.RightRead, r.Workflow, r.Version)
	if err != nil {
		return Answer{}, err
	}
	first := r.Hint
	if r.Next != "" && strings.Contains(first, gate.BuiltinPrefix) { // the hint names a gate, which the agent does not know
		if step, own := d.rules.Gates.NextStep(finish.States, definition, r.Position, d.principal.Role, mayUse); own {
			first = step
		}
	}
	return Answer{Verdict: Continue, Reason: strings.TrimSpace(r.Reason + " " + first)}, nil
}

// describeEarlyEnd tells the client's user about an agent that ends before its workflow does; "" if it does not.
func describeEarlyEnd(r engine.FinishResult) string {
	switch {
	case r.Review == nil:
		return ""
	case r.Review.EndedEarly:
		return fmt.Sprintf("gavel: the agent ends early, with the workflow %q in %q, after %d refused stops. Review %s: gavel review show %s", r.Workflow, r.State, r.Refused, r.Review.ID, r.Review.ID)
	default:
		return fmt.Sprintf("gavel: the workflow %q is in %q, and waits for a person. Review %s: gavel review show %s", r.Workflow, r.State, r.Review.ID, r.Review.ID)
	}
}
