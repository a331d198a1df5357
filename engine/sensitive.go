package engine

import (
	"context"
	"errors"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/values"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Sensitive values are opened when they are loaded from the store, in most cases in this file. They are sealed
// in appendEvent and sealRows before they are written. In between, they are plain.

// Values returns the keyring that opens sealed values of the engine's store; nil if nothing is sealed.
func (e *Engine) Values() *values.Keyring { return e.values }

// load returns an instance from the store. The error is the store's, or of package values.
func (past history) load(ctx context.Context, id string) (record.Instance, error) {
	inst, err := past.store.Load(ctx, id)
	if err != nil {
		return record.Instance{}, err
	}
	return past.values.OpenInstance(ctx, inst)
}

// findReview returns a review from the store. The error is the store's, or of package values.
func (past history) findReview(ctx context.Context, id string) (store.Review, error) {
	row, err := store.FindReview(ctx, past.store, id)
	if err == nil {
		row, _, err = past.values.OpenReview(ctx, row)
	}
	return row, err
}

// appendEvent seals an event onto an instance, after sealing its sensitive values. The returned event is
// in its stored form; the returned instance is opened.
func (e *Engine) appendEvent(ctx context.Context, inst record.Instance, ev record.Event, restored *record.Instance) (record.Event, record.Instance, error) {
	if restored != nil && restored.IsDestroyed() {
		return record.Event{}, record.Instance{}, valuesDestroyed()
	}
	merged := ev.Merged(inst.Context)
	if len(ev.Patch) > 0 || ev.Import != nil {
		l, err := e.loadDefinition(ctx, inst.Workflow, inst.Version)
		if err != nil {
			return record.Event{}, record.Instance{}, err
		}
		if ev, err = e.values.SealEvent(ctx, l.def, inst, ev); err != nil {
			return record.Event{}, record.Instance{}, StoreError("read the key of the sensitive values", err)
		}
	}
	ev, next, err := record.Seal(inst, ev, restored)
	if err != nil {
		return record.Event{}, record.Instance{}, sealError(err)
	}
	if opened, same := next.WithPlainContextOf(inst); same {
		return ev, opened, nil
	}
	if merged != nil && workflow.MayHoldSealed(next.Context) {
		next = next.WithPlainContext(merged, inst.IsDestroyed())
		e.values.Remember(next)
		return ev, next, nil
	}
	if next, err = e.values.OpenInstance(ctx, next); err != nil {
		return record.Event{}, record.Instance{}, StoreError("read the key of the sensitive values", err)
	}
	return ev, next, nil
}

// sealRows seals the data of reviews.
func (e *Engine) sealRows(ctx context.Context, inst record.Instance, rows []store.Review) error {
	for i, row := range rows {
		if len(row.Data) == 0 {
			continue
		}
		l, err := e.loadDefinition(ctx, inst.Workflow, row.Version)
		if err != nil {
			return err
		}
		if rows[i], err = e.values.SealReview(ctx, l.def, row); err != nil {
			return StoreError("read the key of the sensitive values", err)
		}
	}
	return nil
}

func valuesDestroyed() *Error {
	return newError(CodeValuesDestroyed, "", "Sensitive values of the instance were destroyed, so it cannot move or get new ones.").
		withHint("Start a new instance.")
}

// valuesError converts an error of package values for callers; it returns nil for any other error.
func valuesError(err error) *Error {
	switch {
	case errors.Is(err, values.ErrDestroyed):
		return valuesDestroyed().withCause(err)
	case errors.Is(err, values.ErrUnreadable):
		return newError(CodeValuesUnreadable, "", "A sensitive value in the store cannot be decrypted with the present key.").
			withHint("Ask the operator to check the log, which names the value, and to run gavel verify, which names the change.").withCause(err)
	}
	return nil
}
