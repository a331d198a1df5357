package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/values"
)

// InstanceKeys are the data keys of an instance, which seal its sensitive values.
type InstanceKeys struct {
	ID string `json:"id"`
	// Workflow is "" for an instance that came to nothing after its key was made.
	Workflow string          `json:"workflow,omitempty"`
	Keys     []store.DataKey `json:"keys"`
	// PlainEvents is how many events hold sensitive values in plain, from before those were sealed.
	PlainEvents int `json:"plainEvents"`
}

// ListKeys lists the data keys of one instance, or of all for "", and what is kept in plain. It
// reads every history in which something may be. It is an operator's to do, as all about keys.
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
	for q := (store.InstanceQuery{Limit: instancesMost}); ; {
		var page []record.Instance
		for inst, err := range e.cfg.Store.Instances(ctx, q) {
			if err != nil {
				return nil, StoreError("list the instances", err)
			}
			page = append(page, inst)
		}
		for _, inst := range page { // not while the store is read: this reads it too
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

// patched are the kinds of events that bring values into a context.
var patched = []record.Kind{record.Started, record.Advanced, record.Imported, record.Reconciled}

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
	for ev, err := range e.cfg.Store.Events(ctx, store.EventQuery{Instance: inst.ID, Kinds: patched}) {
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

// RotateKey gives an instance another data key for what follows, and returns its number. What is
// sealed stays as it is.
func (e *Engine) RotateKey(ctx context.Context, p Principal, id string) (int, error) {
	if err := e.mayUseKeys(p); err != nil {
		return 0, err
	}
	n, err := e.values.Rotate(ctx, id)
	if err != nil {
		return 0, keysError(id, err)
	}
	return n, nil
}

// ShredInstance destroys the data keys of an instance, and returns how many there were: nobody reads
// its sealed values again. What was recorded otherwise stays, and verifies.
func (e *Engine) ShredInstance(ctx context.Context, p Principal, id string) (int, error) {
	if err := e.mayUseKeys(p); err != nil {
		return 0, err
	}
	n, err := e.values.Shred(ctx, id)
	if err != nil {
		return 0, keysError(id, err)
	}
	return n, nil
}

// RewrapResult is what became of all data keys.
type RewrapResult struct {
	// Rewrapped are wrapped with the present key now, Kept were already or are destroyed.
	Rewrapped int `json:"rewrapped"`
	Kept      int `json:"kept"`
	// Unreadable are of keys that are not here; they stay as they are.
	Unreadable []store.DataKey `json:"unreadable"`
	// Damaged do not unwrap with the key that they are wrapped with; they stay as they are.
	Damaged []store.DataKey `json:"damaged"`
}

// RewrapKeys wraps all data keys with the present key, those that are wrapped with an old one, too.
func (e *Engine) RewrapKeys(ctx context.Context, p Principal, old []byte) (RewrapResult, error) {
	out := RewrapResult{Unreadable: []store.DataKey{}, Damaged: []store.DataKey{}}
	if err := e.mayUseKeys(p); err != nil {
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
		for _, row := range rows { // not while the store is read
			done, err := e.values.Rewrap(ctx, row, old)
			switch {
			case errors.Is(err, values.ErrDamagedKey):
				out.Damaged = append(out.Damaged, row)
			case errors.Is(err, values.ErrUnreadable):
				out.Unreadable = append(out.Unreadable, row)
			case err != nil && !errors.Is(err, store.ErrConflict): // which is somebody else's doing the same, or a shred
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

func (e *Engine) mayUseKeys(p Principal) error {
	if err := Authorize(p, RightMigrate); err != nil {
		return err
	}
	if e.values == nil {
		return &Error{Code: CodeInvalidArgument, Message: "There is no key for the sensitive values of this store.", Hint: "Put the store's key back."}
	}
	return nil
}

func keysError(id string, err error) error {
	if errors.Is(err, values.ErrNoKey) {
		return newError(CodeInvalidArgument, "/id", "Nothing is sealed for %.80q: there is no such instance, or none of its sensitive values came since values are sealed.", id).
			hint("List the keys; what is kept in plain goes with gavel retain.").because(err)
	}
	if errors.Is(err, values.ErrDestroyed) {
		return newError(CodeValuesDestroyed, "/id", "The keys of %.80q were destroyed, and it gets no other.", id).because(err)
	}
	return StoreError(fmt.Sprintf("write the key of %s", id), err)
}
