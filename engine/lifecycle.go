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

// Cancel ends an instance without a final state. Its history is kept.
func (e *Engine) Cancel(ctx context.Context, p Principal, req CancelRequest) (MovedResult, error) {
	m := mutation{
		right: RightCancel, id: req.ID, key: req.Key, revision: req.ExpectedRevision, verb: "cancelled", requiresRunning: true, requiresSettled: true,
		content: func() []string { return []string{req.Reason, revisionText(req.ExpectedRevision)} },
		check:   func() error { return e.CheckText("reason", req.Reason) },
		permit: func(_ context.Context, inst instance) error {
			return cmp.Or(rejectRecorderMade(inst.definition, "cancel its instance"), checkOwner(inst, RightCancel))
		},
	}
	plan := func(_ context.Context, inst *instance) (change, error) {
		ev := e.newEvent(p, record.KindCancelled)
		ev.Reason = inst.maskWords().scrubText(req.Reason)
		return change{event: ev}, nil
	}
	return commitPlan(ctx, e, p, m, plan, func(a commitResult) MovedResult {
		return MovedResult{Position: a.Position, Message: fmt.Sprintf("Cancelled in state %q.", a.State), Replayed: a.replayed}
	})
}

// Checkpoint names the present revision, so that Rollback can return to it.
func (e *Engine) Checkpoint(ctx context.Context, p Principal, req CheckpointRequest) (CheckpointResult, error) {
	var metadata document.JSON
	m := mutation{
		right: RightCheckpoint, id: req.ID, key: req.Key, verb: "checkpointed", isCounted: true,
		content: func() []string { return []string{req.Description, string(metadata.Canonical())} },
		check: func() (err error) {
			if err = e.CheckText("description", req.Description); err == nil && len(req.Metadata) > 0 {
				metadata, err = readDocument("metadata", req.Metadata, e.cfg.Limits.Data)
			}
			return err
		},
	}
	plan := func(_ context.Context, inst *instance) (change, error) {
		mask := inst.maskWords()
		masked, err := mask.maskDocument(metadata.Raw())
		ev := e.newEvent(p, record.Checkpointed)
		ev.Checkpoint = &record.Checkpoint{ID: "cp-" + e.cfg.NewID(), Description: mask.scrubText(req.Description), Metadata: masked}
		return change{event: ev}, err
	}
	return commitPlan(ctx, e, p, m, plan, func(a commitResult) CheckpointResult {
		r := checkpointResult(a.event)
		r.Replayed = a.replayed
		return r
	})
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
	inst, err := e.loadForRead(ctx, p, id)
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
	made := e.cfg.Store.Events(ctx, store.EventQuery{Instance: inst.ID, Kinds: []record.Kind{record.Checkpointed}})
	for ev, err := range withYield(ctx, read, "read the checkpoints", made) {
		if err != nil {
			return CheckpointsResult{}, err
		}
		found = append(found, ev)
	}
	show := e.newView(p).withInstance(inst)
	for _, ev := range slices.Backward(found) { // outside the iteration, because rendering also reads the store
		cp, err := show.renderCheckpoint(ctx, ev)
		if err != nil {
			return CheckpointsResult{}, err
		}
		out.Checkpoints = append(out.Checkpoints, cp)
	}
	out.Count = len(out.Checkpoints)
	return out, nil
}

// Rollback restores the state, context and facts of a checkpoint. It adds an event; nothing is erased. See
// checkTakeBack for who may roll back. Only operators may roll back past a migration or past a move with an
// external effect (see Undo).
func (e *Engine) Rollback(ctx context.Context, p Principal, req RollbackRequest) (MovedResult, error) {
	m := e.takeBack(RightRollback, req.ID, req.Key, req.ExpectedRevision, "rolled back")
	m.content = func() []string { return []string{req.CheckpointID, revisionText(req.ExpectedRevision)} }
	m.check = func() error {
		if req.CheckpointID == "" {
			return MissingField("checkpointId", "An id that checkpoint or listCheckpoints returned.")
		}
		return nil
	}
	plan := func(ctx context.Context, inst *instance) (change, error) {
		cp, err := e.findCheckpoint(ctx, inst.ID, req.CheckpointID)
		if err != nil {
			return change{}, err
		}
		if cp.Revision > inst.Revision { // the checkpoint was made after the instance was loaded
			return change{}, &conflict{inst.ID}
		}
		if err := e.rejectCrossing(ctx, *inst, cp.Revision); err != nil {
			return change{}, err
		}
		restored, err := e.instanceAt(ctx, inst.ID, cp.Revision)
		if err != nil {
			return change{}, err
		}
		ev := e.newEvent(p, record.RolledBack)
		ev.Rollback = &record.Rollback{CheckpointID: cp.ID, Restores: cp.Revision}
		return change{event: ev, restored: &restored}, e.checkRestorable(ctx, *inst, restored)
	}
	return commitPlan(ctx, e, p, m, plan, func(a commitResult) MovedResult {
		message := fmt.Sprintf("Rolled back to checkpoint %s: in state %q again. The history is kept.", a.event.Rollback.CheckpointID, a.State)
		return MovedResult{Position: a.Position, Context: a.context, Message: message, Replayed: a.replayed}
	})
}

// takeBack returns the mutation for a request that restores an earlier revision of an instance, or redoes
// moves.
func (e *Engine) takeBack(op Right, id, key string, revision *int64, verb string) mutation {
	return mutation{
		right: op, id: id, key: key, revision: revision, isMove: true, verb: verb, isCounted: true, requiresSettled: true, noRetry: true,
		permit: func(ctx context.Context, inst instance) error { return e.checkTakeBack(ctx, inst, op) },
	}
}

func (past history) findCheckpoint(ctx context.Context, instance, id string) (record.Checkpoint, error) {
	var ids []string
	for ev, err := range past.store.Events(ctx, store.EventQuery{Instance: instance, Kinds: []record.Kind{record.Checkpointed}}) {
		if err != nil {
			return record.Checkpoint{}, StoreError("read the checkpoints", err)
		}
		if ev.Checkpoint.ID == id {
			return *ev.Checkpoint, nil
		}
		ids = append(ids, ev.Checkpoint.ID)
	}
	return record.Checkpoint{}, newError(CodeUnknownCheckpoint, "/checkpointId", "The instance has no checkpoint %q%s", id, suggestNearest(id, ids)).
		withHint("listCheckpoints returns the ids of this instance.").withCause(store.ErrNotFound)
}

// visibleContext returns the context as the caller may see it.
func (i instance) visibleContext() (json.RawMessage, error) {
	if i.seesUnmasked() {
		return i.Context, nil
	}
	return i.maskWords().maskDocument(i.Context)
}
