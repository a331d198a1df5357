package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
)

// loadInstance loads an instance that the caller may see, with the definition
// version that it is pinned to. One that it may not see does not exist for it.
func (e *Engine) loadInstance(ctx context.Context, p Principal, id string) (record.Instance, definition, error) {
	if id == "" {
		return record.Instance{}, definition{}, MissingField("id", "The id that start returned.")
	}
	inst, err := e.load(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return record.Instance{}, definition{}, UnknownInstance(id)
	case err != nil:
		return record.Instance{}, definition{}, StoreError("load the instance", err)
	}
	switch seen, err := e.canSee(ctx, p, inst); {
	case err != nil:
		return record.Instance{}, definition{}, err
	case !seen:
		return record.Instance{}, definition{}, UnknownInstance(id)
	}
	l, err := e.loadPinned(ctx, inst)
	if err == nil {
		l.overlays, l.overlaysHash, err = e.loadOverlays(ctx, l, inst.Owner, time.Time{})
	}
	return inst, l, err
}

func (e *Engine) loadPinned(ctx context.Context, inst record.Instance) (definition, error) {
	l, err := e.loadDefinition(ctx, inst.Workflow, inst.Version)
	if err != nil || l.stored.Operator {
		return l, err
	}
	if last, err := e.rules.isNewest(ctx, inst.Workflow, inst.Version); err != nil || last {
		return l, err
	}
	newest, err := e.loadDefinition(ctx, inst.Workflow, 0)
	l.takenOver = newest.stored.Operator && !newest.def.Agents.Redefine
	return l, err
}

// mayMove refuses what moves an instance along the rules of an agent after an operator took
// their name over: who reads the name is to know whose rules were passed. And it refuses to judge
// by values that were destroyed.
func mayMove(inst record.Instance, l definition, p Principal) error {
	switch {
	case inst.IsDestroyed():
		return valuesDestroyed().at(newPosition(inst, l, p))
	case !l.takenOver:
		return refuseOfChain(l, "move its instance")
	}
	return newError(CodeDefinitionTakenOver, "",
		"The workflow %q belongs to an operator now, and the instance has version %d, which is not the operator's.", inst.Workflow, inst.Version).
		hint("Cancel the instance and start a new one, or ask an operator to migrate it.").at(newPosition(inst, l, p))
}

// mostNext is of how many actions an answer says what they take.
const mostNext = 8

// newPosition is where an instance is, with what the next actions take.
func newPosition(inst record.Instance, l definition, p Principal) Position {
	pos := newPlace(inst, l, p)
	first := pos.NextActions[:min(len(pos.NextActions), mostNext)]
	pos.Next = l.def.DescribeActions(pos.State, first, inst.Context, l.overlays)
	pos.MoreActions = len(pos.NextActions) - len(first)
	return pos
}

// newPlace is a position without what the next actions take.
func newPlace(inst record.Instance, l definition, p Principal) Position {
	pos := Position{
		ID: inst.ID, Workflow: inst.Workflow, Version: inst.Version, DefinitionOwner: definitionOwner(l.stored, p), State: inst.State,
		NextActions: []string{}, Status: inst.Status, Complete: inst.Status == record.Complete,
		Revision: inst.Revision, Seq: inst.Seq,
	}
	if inst.Status == record.Running && !l.takenOver && !inst.Facts.HasOpenCall() {
		pos.NextActions = append(pos.NextActions, l.gates.leaveOut(inst.Workflow, l.def.NextActions(inst.State, string(p.Role)))...)
		if l.gates.next != nil {
			pos.NextTools = l.gates.next(p, pos)
		}
	}
	if s, ok := l.def.States[inst.State]; ok && pos.Complete {
		pos.Outcome = s.Outcome
	}
	if pos.Progress = describeProgress(pos); l.takenOver && inst.Status == record.Running {
		pos.Progress = fmt.Sprintf("Stopped in %q after %s: an operator has taken the workflow's name over. Cancel it, or ask an operator to migrate it.", pos.State, countChanges(pos.Revision-1))
	}
	if open := describeOpenCalls(inst.Facts.Calls); open != "" {
		pos.Progress = fmt.Sprintf("In %q after %s. %s", pos.State, countChanges(pos.Revision-1), open)
	}
	return pos
}

// gates are what positions need to know of them.
type gates struct {
	performedBy func(workflow, action string) string
	next        func(Principal, Position) []string
}

func (e *Engine) gates() gates { return gates{e.cfg.Gated, e.cfg.NextTools} }

// leaveOut removes the actions that only a gate performs.
func (g gates) leaveOut(workflow string, actions []string) []string {
	if g.performedBy == nil {
		return actions
	}
	return slices.DeleteFunc(slices.Clone(actions), func(action string) bool { return g.performedBy(workflow, action) != "" })
}

func definitionOwner(s store.Definition, p Principal) DefinitionOwner {
	switch {
	case s.Operator:
		return OwnedByOperator
	case s.Owner == p.ID:
		return OwnedByCaller
	default:
		return OwnedByOther
	}
}

// describeProgress is one sentence that says where the instance is and what can be done.
// What it counts are changes, as the revision does: an undo takes a move back and is one
// more of them, and so is a cancel.
func describeProgress(p Position) string {
	switch {
	case p.Status == record.Cancelled:
		return fmt.Sprintf("Cancelled in %q after %s.", p.State, countChanges(p.Revision-1))
	case p.Complete && p.Outcome != "":
		return fmt.Sprintf("Complete: reached %q (%s) after %s.", p.State, p.Outcome, countChanges(p.Revision-1))
	case p.Complete:
		return fmt.Sprintf("Complete: reached %q after %s.", p.State, countChanges(p.Revision-1))
	case len(p.NextActions)+len(p.NextTools) == 0:
		return fmt.Sprintf("In %q after %s. No action is open to this role.", p.State, countChanges(p.Revision-1))
	case p.Revision == 1:
		return fmt.Sprintf("Started in %q.%s", p.State, describeNext(p))
	default:
		return fmt.Sprintf("In %q after %s.%s", p.State, countChanges(p.Revision-1), describeNext(p))
	}
}

// describeNext says which actions and tools are possible now.
func describeNext(p Position) (text string) {
	if len(p.NextTools) > 0 {
		text = fmt.Sprintf(" Tools: %s.", strings.Join(p.NextTools, ", "))
	}
	if len(p.NextActions) > 0 {
		text += fmt.Sprintf(" Next: %s.", strings.Join(p.NextActions, ", "))
	}
	return text
}

func countChanges(n int64) string {
	if n == 1 {
		return "1 change"
	}
	return fmt.Sprintf("%d changes", n)
}

// positionAt is the position right after an event, for replays. What the next actions took is
// left out where the history no longer has the context.
func (e *Engine) positionAt(ctx context.Context, p Principal, ev record.Event) (Position, error) {
	l, err := e.loadDefinition(ctx, ev.Workflow, ev.Version)
	if err != nil {
		return Position{}, err
	}
	then := record.Instance{
		ID: ev.Instance, Workflow: ev.Workflow, Version: ev.Version, State: ev.To,
		Status: ev.Status, Revision: ev.Revision, Seq: ev.Seq,
	}
	inst, err := e.load(ctx, ev.Instance)
	if err == nil && inst.Revision != ev.Revision {
		inst, err = e.instanceAt(ctx, ev.Instance, ev.Revision)
	}
	switch {
	case CodeOf(err) == CodeUnknownRevision:
		return newPlace(then, l, p), nil
	case err != nil:
		return Position{}, StoreError("load the instance", err)
	}
	then.Context = inst.Context
	if l.overlays, _, err = e.loadOverlays(ctx, l, inst.Owner, ev.Time); err != nil {
		return Position{}, err
	}
	return newPosition(then, l, p), nil
}

// decisionView is a decision as callers see it; nil is an event without one.
func decisionView(d *record.Decision) Decision {
	if d == nil {
		d = &record.Decision{}
	}
	return Decision{
		ID: d.ID, Outcome: d.Outcome, Proposed: d.Proposed, Applied: d.Applied, Code: d.Code, Target: d.Target,
		Confidence: d.Confidence, Assurance: d.Assurance, DecidedBy: d.DecidedBy, Degraded: d.Degraded,
		Fault: d.Fault, Mode: d.Mode, Reasoning: d.Reasoning, Violations: d.Violations(), Findings: d.Findings,
		Suggestions: suggestionsOf(d.Verdict), Warnings: d.Warnings, RetryAfterMs: d.RetryAfter.Milliseconds(), Sandbox: d.Sandbox,
		Evidence: withoutPlainDigests(withoutContent(ViewEvidence(d.Evidence))),
	}
}

// withoutPlainDigests removes digests without a key: who may not see a content could have guesses
// at it digested.
func withoutPlainDigests(all []Evidence) []Evidence {
	for i := range all {
		if ev := &all[i]; strings.HasPrefix(ev.Digest, "sha256:") {
			ev.Digest, ev.SameDigest = "", ""
		}
	}
	return all
}

// withoutContent is evidence without what it holds: that it was fetched, when, and its digest.
func withoutContent(all []Evidence) []Evidence {
	out := slices.Clone(all)
	for i := range out {
		out[i].Content, out[i].Arguments = nil, nil
	}
	return out
}

// suggestionsOf are the layers' own, else the findings' hints, else what always
// helps: a refusal never leaves the caller without a next step. Never nil.
func suggestionsOf(v judge.Verdict) []string {
	out := append([]string{}, v.Suggestions...)
	if v.Outcome == judge.Approve {
		return out
	}
	for _, f := range v.Findings {
		if f.Hint != "" && !slices.Contains(out, f.Hint) {
			out = append(out, f.Hint)
		}
	}
	if len(out) == 0 && v.Outcome == judge.Escalate {
		return append(out, waitForPerson)
	}
	if len(out) == 0 {
		out = append(out, correctViolations)
	}
	return out
}

// The suggestions of decisions that have none of their own.
const (
	waitForPerson     = "Wait for the person who decides this, or choose another action; asking again with the same data changes nothing."
	correctViolations = "Correct what the violations name and ask again, or choose another action."
)

// IsUsualSuggestion reports whether a suggestion is one that a decision has for want of its own.
func IsUsualSuggestion(s string) bool { return s == waitForPerson || s == correctViolations }
