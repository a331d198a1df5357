package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Cancel ends an instance without a final state. What happened stays recorded.
func (e *Engine) Cancel(ctx context.Context, p Principal, req CancelRequest) (CancelResult, error) {
	if err := Authorize(p, RightCancel); err != nil {
		return CancelResult{}, err
	}
	if err := e.CheckText("reason", req.Reason); err != nil {
		return CancelResult{}, err
	}
	r := keyedRequest{RightCancel, req.ID, req.Key, func() []string { return []string{req.Reason, revisionText(req.ExpectedRevision)} }}
	return runOnce(ctx, e, p, r, e.replayCancel, func(ctx context.Context, key *record.Key) (CancelResult, error) {
		r := race{instance: req.ID, expected: req.ExpectedRevision, unjudged: true}
		return retryOvertaken(ctx, e, p, r, func(*race) (CancelResult, error) { return e.cancel(ctx, p, req, key) })
	})
}

func (e *Engine) cancel(ctx context.Context, p Principal, req CancelRequest, key *record.Key) (CancelResult, error) {
	inst, l, err := e.loadInstance(ctx, p, req.ID)
	if err != nil {
		return CancelResult{}, err
	}
	if err := cmp.Or(refuseOfChain(l, "cancel its instance"), isOthers(p, inst, RightCancel)); err != nil {
		return CancelResult{}, err
	}
	if err := checkRevision(inst, l, p, req.ExpectedRevision); err != nil {
		return CancelResult{}, err
	}
	if inst.Status != record.Running {
		return CancelResult{}, instanceEnded(inst, l, p, "cancelled")
	}
	if inst, err = e.mayMoveNow(ctx, p, inst, l, ""); err != nil {
		return CancelResult{}, err
	}
	ev := e.newEvent(p, record.Cancelling)
	ev.Reason, ev.Key = maskWords(inst, l).scrubText(req.Reason), key
	w, err := e.commit(ctx, inst, change{event: ev})
	if err != nil {
		return CancelResult{}, err
	}
	pos := newPosition(w.next, l, p)
	return CancelResult{Position: pos, Message: cancelMessage(pos)}, nil
}

func (e *Engine) replayCancel(ctx context.Context, p Principal, ev record.Event) (CancelResult, error) {
	pos, err := e.positionAt(ctx, p, ev)
	return CancelResult{Position: pos, Message: cancelMessage(pos), Replayed: true}, err
}

func cancelMessage(pos Position) string {
	return fmt.Sprintf("Cancelled in state %q.", pos.State)
}

func instanceEnded(inst record.Instance, l definition, p Principal, verb string) *Error {
	return newError(CodeInstanceEnded, "", "The instance is %s in state %q and cannot be %s.", inst.Status, inst.State, verb).
		hint("Start a new instance.").at(newPosition(inst, l, p))
}

// Checkpoint names the present revision, to roll back to.
func (e *Engine) Checkpoint(ctx context.Context, p Principal, req CheckpointRequest) (CheckpointResult, error) {
	if err := Authorize(p, RightCheckpoint); err != nil {
		return CheckpointResult{}, err
	}
	if err := e.CheckText("description", req.Description); err != nil {
		return CheckpointResult{}, err
	}
	var metadata document.JSON
	if len(req.Metadata) > 0 {
		var err error
		if metadata, err = e.readDocument("metadata", req.Metadata, e.cfg.Limits.Data); err != nil {
			return CheckpointResult{}, err
		}
		req.Metadata = metadata.Raw()
	}
	r := keyedRequest{RightCheckpoint, req.ID, req.Key, func() []string { return []string{req.Description, string(metadata.Canonical())} }}
	return runOnce(ctx, e, p, r, replayCheckpoint, func(ctx context.Context, key *record.Key) (CheckpointResult, error) {
		return retryOvertaken(ctx, e, p, race{instance: req.ID, unjudged: true}, func(*race) (CheckpointResult, error) { return e.checkpoint(ctx, p, req, key) })
	})
}

func (e *Engine) checkpoint(ctx context.Context, p Principal, req CheckpointRequest, key *record.Key) (CheckpointResult, error) {
	inst, l, err := e.loadInstance(ctx, p, req.ID)
	if err != nil {
		return CheckpointResult{}, err
	}
	if inst.Status == record.Cancelled {
		return CheckpointResult{}, instanceEnded(inst, l, p, "checkpointed")
	}
	if err := e.checkEventQuota(ctx, p, inst, l); err != nil {
		return CheckpointResult{}, err
	}
	mask := maskWords(inst, l)
	metadata, err := mask.maskDocument(req.Metadata)
	if err != nil {
		return CheckpointResult{}, err
	}
	ev := e.newEvent(p, record.Checkpointed)
	ev.Key = key
	ev.Checkpoint = &record.Checkpoint{ID: "cp-" + e.cfg.NewID(), Description: mask.scrubText(req.Description), Metadata: metadata}
	w, err := e.commit(ctx, inst, change{event: ev})
	if err != nil {
		return CheckpointResult{}, err
	}
	return checkpointResult(w.event), nil
}

func replayCheckpoint(_ context.Context, _ Principal, ev record.Event) (CheckpointResult, error) {
	r := checkpointResult(ev)
	r.Replayed = true
	return r, nil
}

func checkpointResult(ev record.Event) CheckpointResult {
	c := ev.Checkpoint
	return CheckpointResult{
		CheckpointID: c.ID, Instance: ev.Instance, State: c.State, Revision: c.Revision,
		Timestamp: ev.Time, Description: c.Description, Metadata: c.Metadata,
	}
}

// ListCheckpoints returns an instance's checkpoints, newest first.
func (e *Engine) ListCheckpoints(ctx context.Context, p Principal, id string) (CheckpointsResult, error) {
	if err := Authorize(p, RightRead); err != nil {
		return CheckpointsResult{}, err
	}
	inst, l, err := e.loadInstance(ctx, p, id)
	if err != nil {
		return CheckpointsResult{}, err
	}
	ctx, read, err := e.BeginBulkRead(ctx, p)
	if err != nil {
		return CheckpointsResult{}, err
	}
	defer read.End()
	out := CheckpointsResult{Instance: inst.ID, Checkpoints: []CheckpointResult{}}
	var found []record.Event
	for ev, err := range e.cfg.Store.Events(ctx, store.EventQuery{Instance: inst.ID, Kinds: []record.Kind{record.Checkpointed}}) {
		if err == nil {
			err = read.yield(ctx)
		}
		if err != nil {
			return CheckpointsResult{}, StoreError("read the checkpoints", err)
		}
		found = append(found, ev)
	}
	show := e.newView(p).withInstance(inst, l)
	for _, ev := range slices.Backward(found) { // not while the store is read: this reads it too
		cp, err := show.renderCheckpoint(ctx, ev)
		if err != nil {
			return CheckpointsResult{}, err
		}
		out.Checkpoints = append(out.Checkpoints, cp)
	}
	out.Count = len(out.Checkpoints)
	return out, nil
}

// Rollback restores the state, context and facts of a checkpoint. It is an event
// like any other: nothing is erased. Only who governs the definition may, and across a
// move with an effect outside, or a migration, only an operator: see Undo.
func (e *Engine) Rollback(ctx context.Context, p Principal, req RollbackRequest) (RollbackResult, error) {
	if err := Authorize(p, RightRollback); err != nil {
		return RollbackResult{}, err
	}
	if req.CheckpointID == "" {
		return RollbackResult{}, MissingField("checkpointId", "An id that checkpoint or listCheckpoints returned.")
	}
	r := keyedRequest{RightRollback, req.ID, req.Key, func() []string { return []string{req.CheckpointID, revisionText(req.ExpectedRevision)} }}
	return runOnce(ctx, e, p, r, e.replayRollback, func(ctx context.Context, key *record.Key) (RollbackResult, error) {
		return e.rollback(ctx, p, req, key)
	})
}

func (e *Engine) rollback(ctx context.Context, p Principal, req RollbackRequest, key *record.Key) (RollbackResult, error) {
	inst, l, err := e.loadInstance(ctx, p, req.ID)
	if err != nil {
		return RollbackResult{}, err
	}
	if err := e.mayTakeBack(ctx, p, inst, l, RightRollback); err != nil {
		return RollbackResult{}, err
	}
	if err := mayMove(inst, l, p); err != nil {
		return RollbackResult{}, err
	}
	if err := checkRevision(inst, l, p, req.ExpectedRevision); err != nil {
		return RollbackResult{}, err
	}
	if inst.Status == record.Cancelled {
		return RollbackResult{}, instanceEnded(inst, l, p, "rolled back")
	}
	if err := e.checkEventQuota(ctx, p, inst, l); err != nil {
		return RollbackResult{}, err
	}
	if inst, err = e.mayMoveNow(ctx, p, inst, l, ""); err != nil {
		return RollbackResult{}, err
	}
	cp, err := e.findCheckpoint(ctx, inst.ID, req.CheckpointID)
	if err != nil {
		return RollbackResult{}, err
	}
	if cp.Revision > inst.Revision { // it was made after the instance was loaded
		return RollbackResult{}, e.conflictFor(ctx, p, &conflict{inst.ID})
	}
	if err := e.rejectCrossing(ctx, p, inst, cp.Revision); err != nil {
		return RollbackResult{}, err
	}
	restored, err := e.instanceAt(ctx, inst.ID, cp.Revision)
	if err != nil {
		return RollbackResult{}, err
	}
	if err := e.checkRestorable(ctx, p, inst, restored, l); err != nil {
		return RollbackResult{}, err
	}
	ev := e.newEvent(p, record.RolledBack)
	ev.Key = key
	ev.Rollback = &record.Rollback{CheckpointID: cp.ID, Restores: cp.Revision}
	w, err := e.commit(ctx, inst, change{event: ev, restored: &restored})
	if err != nil {
		return RollbackResult{}, e.conflictFor(ctx, p, err)
	}
	pos := newPosition(w.next, l, p)
	return RollbackResult{Position: pos, Context: w.next.Context, Message: rollbackMessage(cp.ID, pos)}, nil
}

func (e *Engine) replayRollback(ctx context.Context, p Principal, ev record.Event) (RollbackResult, error) {
	pos, err := e.positionAt(ctx, p, ev)
	if err != nil {
		return RollbackResult{}, err
	}
	then, err := e.instanceAt(ctx, ev.Instance, ev.Revision)
	if err != nil {
		return RollbackResult{}, err
	}
	return RollbackResult{Position: pos, Context: then.Context, Message: rollbackMessage(ev.Rollback.CheckpointID, pos), Replayed: true}, nil
}

func rollbackMessage(checkpoint string, pos Position) string {
	return fmt.Sprintf("Rolled back to checkpoint %s: in state %q again. The history is kept.", checkpoint, pos.State)
}

func (e *Engine) findCheckpoint(ctx context.Context, instance, id string) (record.Checkpoint, error) {
	var ids []string
	for ev, err := range e.cfg.Store.Events(ctx, store.EventQuery{Instance: instance, Kinds: []record.Kind{record.Checkpointed}}) {
		if err != nil {
			return record.Checkpoint{}, StoreError("read the checkpoints", err)
		}
		if ev.Checkpoint.ID == id {
			return *ev.Checkpoint, nil
		}
		ids = append(ids, ev.Checkpoint.ID)
	}
	return record.Checkpoint{}, newError(CodeUnknownCheckpoint, "/checkpointId", "The instance has no checkpoint %q%s", id, suggestNearest(id, ids)).
		hint("listCheckpoints returns the ids of this instance.").because(store.ErrNotFound)
}

func (e *Engine) contextFor(p Principal, inst record.Instance, l definition) (json.RawMessage, error) {
	if seesPlain(p, inst) {
		return inst.Context, nil
	}
	return newMasking([]json.RawMessage{inst.Context}, l.def).maskDocument(inst.Context)
}
