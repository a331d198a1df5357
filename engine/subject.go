package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// FindSubject returns the position of the one instance of a workflow that is about a subject. The error
// has CodeUnknownInstance if there is none, and CodeForbidden if it belongs to another principal.
func (e *Engine) FindSubject(ctx context.Context, p Principal, workflow, subject string) (Position, error) {
	if err := Authorize(p, RightRead); err != nil {
		return Position{}, err
	}
	inst, err := store.First(e.cfg.Store.Instances(ctx, store.InstanceQuery{Workflow: workflow, Subject: subject, Limit: 1}), "an instance")
	switch {
	case subject == "" || errors.Is(err, store.ErrNotFound) || !p.InScope(workflow):
		return Position{}, newError(CodeUnknownInstance, "/subject", "No instance of %.80q has the subject %.80q.", workflow, subject).withHint("Start one.")
	case err != nil:
		return Position{}, StoreError("find the instance", err)
	}
	switch seen, err := e.canSee(ctx, p, inst); {
	case err != nil:
		return Position{}, err
	case !seen:
		return Position{}, newError(CodeForbidden, "/subject", "The instance of %.80q with the subject %.80q belongs to another principal.", workflow, subject).
			withHint("Only that principal may use it; an operator can release the subject.")
	}
	if inst, err = e.values.OpenInstance(ctx, inst); err != nil {
		return Position{}, StoreError("load the instance", err)
	}
	l, err := e.loadPinned(ctx, inst)
	if err != nil {
		return Position{}, err
	}
	return instance{Instance: inst, definition: l, by: p}.position(), nil
}

// ReleaseRequest asks to release the subject of an instance.
type ReleaseRequest struct{ ID, Reason string }

// ReleaseSubject releases the subject of an instance, so that another instance may be about it. Only
// operators may. It fails while a call of the instance is open or has an unknown outcome.
func (e *Engine) ReleaseSubject(ctx context.Context, p Principal, req ReleaseRequest) (MovedResult, error) {
	m := mutation{right: RightRelease, id: req.ID, requiresSettled: true, check: func() error { return e.CheckText("reason", req.Reason) }}
	return mutate(ctx, e, p, m, func(ctx context.Context, inst *instance) (MovedResult, error) {
		switch {
		case len(inst.Facts.Calls) > 0:
			c := inst.Facts.Calls[0]
			return MovedResult{}, newError(CodeCallOpen, "", "It is unknown whether the call %s of %s happened.", c.ID, c.Gate).
				withHint(fmt.Sprintf("Resolve the review %s first.", c.Review)).withPosition(inst.position())
		case inst.Subject == "":
			return MovedResult{Position: inst.position(), Message: "It has no subject; nothing was changed."}, nil
		}
		ev := e.newEvent(p, record.Released)
		ev.Reason = inst.maskWords().scrubText(req.Reason)
		w, err := e.commit(ctx, *inst, change{event: ev})
		if err != nil {
			return MovedResult{}, err
		}
		return MovedResult{Position: w.next.position(), Message: fmt.Sprintf("Released %q: another instance may have this subject now.", inst.Subject)}, nil
	}, nil)
}

// endsWithSuccess reports whether an instance with a subject has ended in a success state with no
// unsettled call; then the subject is released.
func (lib *library) endsWithSuccess(ctx context.Context, inst record.Instance) bool {
	if inst.Subject == "" || inst.Status != record.Complete || len(inst.Facts.Calls) > 0 {
		return false
	}
	l, err := lib.loadDefinition(ctx, inst.Workflow, inst.Version)
	if err != nil {
		return false // the subject stays taken; an operator can release it
	}
	s := l.def.States[inst.State]
	return s != nil && s.Outcome == "success"
}
