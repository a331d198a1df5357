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
func (e *Engine) loadInstance(ctx context.Context, p Principal, id string) (instance, error) {
	if id == "" {
		return instance{}, MissingField("id", "The id that start returned.")
	}
	inst, err := e.load(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return instance{}, UnknownInstance(id)
	case err != nil:
		return instance{}, StoreError("load the instance", err)
	}
	switch seen, err := e.canSee(ctx, p, inst); {
	case err != nil:
		return instance{}, err
	case !seen:
		return instance{}, UnknownInstance(id)
	}
	l, err := e.loadPinned(ctx, inst)
	if err == nil {
		l.overlays, l.overlaysHash, err = e.loadOverlays(ctx, l, inst.Owner, time.Time{})
	}
	return instance{Instance: inst, definition: l, by: p}, err
}

// see is loadInstance for a caller that only looks.
func (e *Engine) see(ctx context.Context, p Principal, id string) (instance, error) {
	if err := Authorize(p, RightRead); err != nil {
		return instance{}, err
	}
	return e.loadInstance(ctx, p, id)
}

// reload loads an instance anew.
func (e *Engine) reload(ctx context.Context, inst *instance) error {
	now, err := e.loadInstance(ctx, inst.by, inst.ID)
	if err == nil {
		now.request = inst.request
		*inst = now
	}
	return err
}

func (lib *library) loadPinned(ctx context.Context, inst record.Instance) (definition, error) {
	l, err := lib.loadDefinition(ctx, inst.Workflow, inst.Version)
	if err != nil || l.stored.Operator {
		return l, err
	}
	if last, err := lib.rules.isNewest(ctx, inst.Workflow, inst.Version); err != nil || last {
		return l, err
	}
	newest, err := lib.loadDefinition(ctx, inst.Workflow, 0)
	l.takenOver = newest.stored.Operator && !newest.def.Agents.Redefine
	return l, err
}

// mayMove refuses what moves an instance along the rules of an agent after an operator took
// their name over: who reads the name is to know whose rules were passed. And it refuses to judge
// by values that were destroyed.
func (i instance) mayMove() error {
	switch {
	case i.IsDestroyed():
		return valuesDestroyed().at(i.position())
	case !i.takenOver:
		return refuseOfChain(i.definition, "move its instance")
	}
	return newError(CodeDefinitionTakenOver, "",
		"The workflow %q belongs to an operator now, and the instance has version %d, which is not the operator's.", i.Workflow, i.Version).
		hint("Cancel the instance and start a new one, or ask an operator to migrate it.").at(i.position())
}

// mostNext is of how many actions an answer says what they take.
const mostNext = 8

// position is where an instance is, with what the next actions take.
func (i instance) position() Position {
	pos := i.place()
	if i.Context == nil { // it is not known any more
		return pos
	}
	first := pos.NextActions[:min(len(pos.NextActions), mostNext)]
	pos.Next = i.def.DescribeActions(pos.State, first, i.Context, i.overlays)
	pos.MoreActions = len(pos.NextActions) - len(first)
	return pos
}

// place is a position without what the next actions take.
func (i instance) place() Position {
	pos := Position{
		ID: i.ID, Workflow: i.Workflow, Version: i.Version, DefinitionOwner: definitionOwner(i.stored, i.by), State: i.State,
		NextActions: []string{}, Status: i.Status, Complete: i.Status == record.Complete,
		Revision: i.Revision, Seq: i.Seq,
	}
	if i.Status == record.Running && !i.takenOver && !i.Facts.HasOpenCall() {
		pos.NextActions = append(pos.NextActions, i.gates.leaveOut(i.Workflow, i.def.NextActions(i.State, string(i.by.Role)))...)
		if i.gates.next != nil {
			pos.NextTools = i.gates.next(i.by, pos)
		}
	}
	if s, ok := i.def.States[i.State]; ok && pos.Complete {
		pos.Outcome = s.Outcome
	}
	if pos.Progress = describeProgress(pos); i.takenOver && i.Status == record.Running {
		pos.Progress = fmt.Sprintf("Stopped in %q after %s: an operator has taken the workflow's name over. Cancel it, or ask an operator to migrate it.", pos.State, countChanges(pos.Revision-1))
	}
	if open := describeOpenCalls(i.Facts.Calls); open != "" {
		pos.Progress = fmt.Sprintf("In %q after %s. %s", pos.State, countChanges(pos.Revision-1), open)
	}
	return pos
}

// gates are what positions need to know of them.
type gates struct {
	performedBy func(workflow, action string) string
	next        func(Principal, Position) []string
}

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

// instanceAfter is what an instance was right after an event, for replays: its position and its context. Where
// the history no longer has the context, it has none.
func (e *Engine) instanceAfter(ctx context.Context, now instance, ev record.Event) (instance, error) {
	l, err := e.loadDefinition(ctx, ev.Workflow, ev.Version)
	if err != nil {
		return instance{}, err
	}
	then := record.Instance{
		ID: ev.Instance, Workflow: ev.Workflow, Version: ev.Version, State: ev.To,
		Status: ev.Status, Revision: ev.Revision, Seq: ev.Seq, Context: now.Context,
	}
	if now.Revision != ev.Revision {
		was, err := e.instanceAt(ctx, ev.Instance, ev.Revision)
		if err != nil && CodeOf(err) != CodeUnknownRevision {
			return instance{}, err
		}
		then.Context = was.Context
	}
	l.overlays, l.overlaysHash, err = e.loadOverlays(ctx, l, now.Owner, ev.Time)
	return instance{Instance: then, definition: l, by: now.by}, err
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
