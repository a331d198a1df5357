package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/values"
)

// InstanceKeys lists the data keys of an instance, which seal its sensitive values.
type InstanceKeys struct {
	ID string `json:"id"`
	// Workflow is "" for an instance that was never stored after its key was created.
	Workflow string          `json:"workflow,omitempty"`
	Keys     []store.DataKey `json:"keys"`
	// PlainEvents is the number of events with plain sensitive values, from before values were sealed.
	PlainEvents int `json:"plainEvents"`
}

// ListKeys lists the data keys of one instance, or of all if id is "", and counts the events with plain
// values. It reads every history that may contain plain sensitive values. Only operators may call it, like
// all operations on keys.
func (e *Engine) ListKeys(ctx context.Context, p Principal, id string) ([]InstanceKeys, error) {
	if err := Authorize(p, RightMigrate); err != nil {
		return nil, err
	}
	ctx = store.BulkRead(ctx)
	out, at := []InstanceKeys{}, map[string]int{}
	add := func(id string) *InstanceKeys {
		if _, known := at[id]; !known {
			at[id] = len(out)
			out = append(out, InstanceKeys{ID: id, Keys: []store.DataKey{}})
		}
		return &out[at[id]]
	}
	for row, err := range e.cfg.Store.DataKeys(ctx, id, 0) {
		if err != nil {
			return nil, StoreError("list the keys", err)
		}
		if id != "" && row.Instance != id {
			break
		}
		one := add(row.Instance)
		one.Keys = append(one.Keys, row)
	}
	look := func(inst record.Instance) error {
		n, err := e.countPlainEvents(ctx, inst)
		if _, known := at[inst.ID]; err == nil && (known || n > 0) {
			one := add(inst.ID)
			one.Workflow, one.PlainEvents = inst.Workflow, n
		}
		return err
	}
	if id != "" {
		inst, err := e.cfg.Store.Load(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound) && len(out) == 0:
			return nil, UnknownInstance(id)
		case errors.Is(err, store.ErrNotFound):
			return out, nil
		case err != nil:
			return nil, StoreError("load the instance", err)
		}
		return out, look(inst)
	}
	for q := (store.InstanceQuery{Limit: maxInstancesPage}); ; {
		var page []record.Instance
		for inst, err := range e.cfg.Store.Instances(ctx, q) {
			if err != nil {
				return nil, StoreError("list the instances", err)
			}
			page = append(page, inst)
		}
		for _, inst := range page { // outside the iteration, because look also reads the store
			if err := look(inst); err != nil {
				return nil, err
			}
			q.BeforeID = inst.ID
		}
		if len(page) < q.Limit {
			return out, nil
		}
	}
}

// patchKinds lists the kinds of events that bring values into a context.
var patchKinds = []record.Kind{record.Started, record.Advanced, record.Imported, record.Reconciled}

func (e *Engine) countPlainEvents(ctx context.Context, inst record.Instance) (n int, err error) {
	sensitive := false
	for v := 1; v <= inst.Version && !sensitive; v++ {
		l, err := e.loadDefinition(ctx, inst.Workflow, v)
		if err != nil {
			return 0, err
		}
		sensitive = len(l.def.Sensitive) > 0
	}
	if !sensitive {
		return 0, nil
	}
	for ev, err := range e.cfg.Store.Events(ctx, store.EventQuery{Instance: inst.ID, Kinds: patchKinds}) {
		if err != nil {
			return 0, StoreError("read the history", err)
		}
		l, err := e.loadDefinition(ctx, ev.Workflow, ev.Version)
		if err != nil {
			return 0, err
		}
		if values.HoldsPlain(l.def, ev) {
			n++
		}
	}
	return n, nil
}

// RotateKey gives an instance a new data key for later values, and returns its number. Values that are
// already sealed stay unchanged.
func (e *Engine) RotateKey(ctx context.Context, p Principal, id string) (int, error) {
	if err := e.checkKeyRights(p); err != nil {
		return 0, err
	}
	n, err := e.values.Rotate(ctx, id)
	if err != nil {
		return 0, keysError(id, err)
	}
	return n, nil
}

// ShredInstance destroys the data keys of an instance, and returns how many there were. Its sealed values
// can never be read again. Everything else that was recorded stays, and still verifies.
func (e *Engine) ShredInstance(ctx context.Context, p Principal, id string) (int, error) {
	if err := e.checkKeyRights(p); err != nil {
		return 0, err
	}
	n, err := e.values.Shred(ctx, id)
	if err != nil {
		return 0, keysError(id, err)
	}
	return n, nil
}

// RewrapResult is the result for all data keys.
type RewrapResult struct {
	// Rewrapped counts keys that are now wrapped with the present key, Kept those that already were or are
	// destroyed.
	Rewrapped int `json:"rewrapped"`
	Kept      int `json:"kept"`
	// Unreadable lists keys whose wrapping key is not available; they stay unchanged.
	Unreadable []store.DataKey `json:"unreadable"`
	// Damaged lists keys that do not unwrap with their wrapping key; they stay unchanged.
	Damaged []store.DataKey `json:"damaged"`
}

// RewrapKeys wraps all data keys with the present key, including those that are wrapped with the old one.
func (e *Engine) RewrapKeys(ctx context.Context, p Principal, old []byte) (RewrapResult, error) {
	out := RewrapResult{Unreadable: []store.DataKey{}, Damaged: []store.DataKey{}}
	if err := e.checkKeyRights(p); err != nil {
		return out, err
	}
	const page = 500
	for after := (store.DataKey{}); ; {
		var rows []store.DataKey
		for row, err := range e.cfg.Store.DataKeys(ctx, after.Instance, after.Number) {
			if err != nil {
				return out, StoreError("list the keys", err)
			}
			if rows = append(rows, row); len(rows) == page {
				break
			}
		}
		for _, row := range rows { // outside the iteration over the store
			done, err := e.values.Rewrap(ctx, row, old)
			switch {
			case errors.Is(err, values.ErrDamagedKey):
				out.Damaged = append(out.Damaged, row)
			case errors.Is(err, values.ErrUnreadable):
				out.Unreadable = append(out.Unreadable, row)
			case err != nil && !errors.Is(err, store.ErrConflict): // on a conflict, another process rewrapped or destroyed it
				return out, StoreError("write the key", err)
			case done:
				out.Rewrapped++
			default:
				out.Kept++
			}
		}
		if len(rows) < page {
			return out, nil
		}
		after = rows[len(rows)-1]
	}
}

func (e *Engine) checkKeyRights(p Principal) error {
	if err := Authorize(p, RightMigrate); err != nil {
		return err
	}
	if e.values == nil {
		return &Error{Code: CodeInvalidArgument, Message: "The key for the sensitive values of this store is missing.", Hint: "Restore the store's key."}
	}
	return nil
}

func keysError(id string, err error) error {
	if errors.Is(err, values.ErrNoKey) {
		return newError(CodeInvalidArgument, "/id", "Nothing is sealed for %.80q: the instance does not exist, or has received no sensitive value since sealing began.", id).
			withHint("List the keys; gavel retain removes values stored in plain text.").withCause(err)
	}
	if errors.Is(err, values.ErrDestroyed) {
		return newError(CodeValuesDestroyed, "/id", "The keys of %.80q were destroyed; it gets no new key.", id).withCause(err)
	}
	return StoreError(fmt.Sprintf("write the key of %s", id), err)
}
