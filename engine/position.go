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

// loadInstance loads an instance with the definition version that it is pinned to. If the caller may not see the
// instance, the error is that of a missing one.
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

// loadForRead is loadInstance for a caller that only reads.
func (e *Engine) loadForRead(ctx context.Context, p Principal, id string) (instance, error) {
	if err := Authorize(p, RightRead); err != nil {
		return instance{}, err
	}
	return e.loadInstance(ctx, p, id)
}

// reload loads an instance again.
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

// checkNotTakenOver rejects moves under an agent's rules after an operator has taken over the workflow's name: a reader
// of the name must know whose rules were applied. It also rejects moves of instances whose sensitive values
// were destroyed, and moves of a recorder's instances.
func (i instance) checkNotTakenOver() error {
	switch {
	case i.IsDestroyed():
		return valuesDestroyed().withPosition(i.position())
	case !i.takenOver:
		return rejectRecorderMade(i.definition, "move its instance")
	}
	return newError(CodeDefinitionTakenOver, "",
		"The workflow %q belongs to an operator now, and the instance has version %d, which is not the operator's.", i.Workflow, i.Version).
		withHint("Cancel the instance and start a new one, or ask an operator to migrate it.").withPosition(i.position())
}

// maxDescribed limits how many next actions a position describes.
const maxDescribed = 8

// position returns the position of an instance, with a description of the next actions.
func (i instance) position() Position {
	pos := i.positionWithoutActions()
	if i.Context == nil { // it is no longer known
		return pos
	}
	first := pos.NextActions[:min(len(pos.NextActions), maxDescribed)]
	pos.Next = i.def.DescribeActions(pos.State, first, i.Context, i.overlays)
	pos.MoreActions = len(pos.NextActions) - len(first)
	return pos
}

// positionWithoutActions returns a position without a description of the next actions.
func (i instance) positionWithoutActions() Position {
	pos := Position{
		ID: i.ID, Workflow: i.Workflow, Version: i.Version, DefinitionOwner: definitionOwner(i.stored, i.by), State: i.State,
		NextActions: []string{}, Status: i.Status, Complete: i.Status == record.Complete,
		Revision: i.Revision, Seq: i.Seq,
	}
	if i.Status == record.Running && !i.takenOver && !i.Facts.HasOpenCall() {
		pos.NextActions = append(pos.NextActions, i.gates.withoutGated(i.Workflow, i.def.NextActions(i.State, string(i.by.Role)))...)
		if i.gates.next != nil {
			pos.NextTools = i.gates.next(i.by, pos)
		}
	}
	if s, ok := i.def.States[i.State]; ok && pos.Complete {
		pos.Outcome = s.Outcome
	}
	if pos.Progress = describeProgress(pos); i.takenOver && i.Status == record.Running {
		pos.Progress = fmt.Sprintf("Stopped in %q after %s: an operator has taken over the workflow's name. Cancel it, or ask an operator to migrate it.", pos.State, countChanges(pos.Revision-1))
	}
	if open := describeOpenCalls(i.Facts.Calls); open != "" {
		pos.Progress = fmt.Sprintf("In %q after %s. %s", pos.State, countChanges(pos.Revision-1), open)
	}
	return pos
}

// gates holds the gate functions that positions need.
type gates struct {
	performedBy func(workflow, action string) string
	next        func(Principal, Position) []string
}

// withoutGated returns the actions without those that only a gate performs.
func (g gates) withoutGated(workflow string, actions []string) []string {
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

// describeProgress describes in one sentence where the instance is and what can be done. Like the revision, it
// counts changes: an undo adds one change, and so does a cancel.
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

// describeNext lists the actions and tools that are possible now.
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

// instanceAfter returns an instance as it was right after an event, for replays. It has no context if the history no
// longer holds it.
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

// decisionView returns a decision as callers see it; d is nil for an event without one.
func decisionView(d *record.Decision) Decision {
	if d == nil {
		d = &record.Decision{}
	}
	out := Decision{ID: d.ID, Verdict: d.Verdict, Violations: d.Violations()}
	out.Suggestions, out.Opinions = suggestionsOf(d.Verdict), nil
	out.Evidence = withoutPlainDigests(withoutContent(d.Evidence))
	return out
}

// withoutPlainDigests removes digests without a key: a caller that may not see the content could test guesses against
// them.
func withoutPlainDigests(all []judge.Evidence) []judge.Evidence {
	for i := range all {
		if ev := &all[i]; strings.HasPrefix(ev.Digest, "sha256:") {
			ev.Digest, ev.SameDigest = "", ""
		}
	}
	return all
}

// withoutContent returns evidence without its content and arguments. The fact that it was fetched, the time and
// the digest remain.
func withoutContent(all []judge.Evidence) []judge.Evidence {
	out := slices.Clone(all)
	for i := range out {
		out[i].Content, out[i].Arguments = nil, nil
	}
	return out
}

// suggestionsOf returns the suggestions of the layers, else the hints of the findings, else a generic one: every
// refusal has a next step. Never nil.
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

// The generic suggestions, for decisions without any of their own.
const (
	waitForPerson     = "Wait for the person who decides this, or choose another action; asking again with the same data changes nothing."
	correctViolations = "Fix the violations and ask again, or choose another action."
)

// IsUsualSuggestion reports whether a suggestion is a generic one, used because the decision had none of its own.
func IsUsualSuggestion(s string) bool { return s == waitForPerson || s == correctViolations }
