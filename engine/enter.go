package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// awaitedChain returns the chain that must end before anything else moves the instance; nil if there is
// none. Only an operator's definition can have one.
func (i instance) awaitedChain() *workflow.OnEnter {
	if !i.stored.Operator {
		return nil
	}
	return i.def.AwaitedChain(i.State, i.Facts)
}

// Entry records that an instance of an operator's workflow entered a state that starts a chain.
type Entry struct {
	// Position is the event's position in the log.
	Position int64
	// Instance is the id, Revision the revision in which it entered State, and Context its context at that
	// point.
	Instance, Workflow, State, Owner, Subject string
	Revision                                  int64
	Context                                   json.RawMessage
	OnEnter                                   *workflow.OnEnter
	// Sensitive holds the pointers into Context that the definition marks as sensitive. A run does not
	// keep them.
	Sensitive []string `json:"-"`
}

// entersState lists the kinds of events that may put an instance into a state that it was not in.
var entersState = []record.Kind{record.Started, record.Advanced, record.RolledBack, record.Undone, record.Redone, record.Migrated, record.Imported}

// ListEntries returns at most limit entries after a position of the log, and the position up to which it
// has looked.
//
// A start enters a state, and so does a move from another state. Events that restore the past enter
// nothing, unless the restored state waits for a chain that never ran.
//
// damaged has one error for each entry of an instance whose records cannot be read; those entries are
// skipped.
func (e *Engine) ListEntries(ctx context.Context, after int64, limit int) (found []Entry, damaged []error, upTo int64, err error) {
	last, err := e.cfg.Store.LastPosition(ctx)
	if err != nil {
		return nil, nil, after, StoreError("find the last event", err)
	}
	if last <= after {
		return nil, nil, after, nil
	}
	for at, err := range e.cfg.Store.EventsAfter(store.BulkRead(ctx), store.TailQuery{After: after, UpTo: last}) {
		if err != nil {
			return nil, nil, after, StoreError("read the events", err)
		}
		entry, err := e.findEntry(ctx, at)
		switch {
		case isDamage(err):
			if known, ok := errors.AsType[*Error](err); ok && known.Err != nil {
				err = known.Err // the cause, which is for the log only
			}
			damaged = append(damaged, fmt.Errorf("the records of the instance %s cannot be read at revision %d, in which it entered %q: %w", at.Event.Instance, at.Event.Revision, at.Event.To, err))
		case err != nil:
			return nil, nil, after, err
		case entry == nil:
			continue
		default:
			found = append(found, *entry)
		}
		if len(found)+len(damaged) == limit {
			return found, damaged, at.Position, nil
		}
	}
	return found, damaged, last, nil
}

// isDamage reports whether an error means that records are unreadable, so that retrying is pointless.
func isDamage(err error) bool {
	return slices.Contains([]Code{CodeInternal, CodeValuesUnreadable, CodeValuesDestroyed}, CodeOf(err)) ||
		errors.Is(err, store.ErrDamaged) || errors.Is(err, record.ErrMalformed)
}

// findEntry returns the entry that an event makes, or nil.
func (e *Engine) findEntry(ctx context.Context, at store.PlacedEvent) (*Entry, error) {
	ev := at.Event
	if !slices.Contains(entersState, ev.Kind) || ev.Kind == record.Advanced && ev.From == ev.To {
		return nil, nil //nolint:nilnil // most events are none
	}
	l, err := e.loadDefinition(ctx, ev.Workflow, ev.Version)
	switch {
	case CodeOf(err) == CodeUnknownWorkflow, err == nil && !l.stored.Operator:
		return nil, nil //nolint:nilnil // its definition is gone, or may start nothing
	case err != nil:
		return nil, err
	}
	state := l.def.States[ev.To]
	if state == nil || state.OnEnter == nil {
		return nil, nil //nolint:nilnil // it starts nothing
	}
	inst, err := e.foldTo(ctx, ev.Instance, ev.Revision, ev.Seq)
	switch {
	case errors.Is(err, store.ErrNotFound), CodeOf(err) == CodeUnknownInstance, CodeOf(err) == CodeUnknownRevision:
		return nil, nil //nolint:nilnil // its records were removed
	case err != nil:
		return nil, err
	}
	if ev.Kind != record.Started && ev.Kind != record.Advanced && l.def.AwaitedChain(ev.To, inst.Facts) == nil {
		return nil, nil //nolint:nilnail // the past is not repeated
	}
	return &Entry{
		Position: at.Position, Instance: ev.Instance, Workflow: ev.Workflow, State: ev.To, Owner: at.Owner, Subject: inst.Subject,
		Revision: ev.Revision, Context: inst.Context, OnEnter: state.OnEnter, Sensitive: l.def.Sensitive,
	}, nil
}

// FindAwaited returns the entry of the state in which an instance waits for a chain that never ran, or nil
// if it waits for none.
func (e *Engine) FindAwaited(ctx context.Context, id string) (*Entry, error) {
	inst, err := e.load(ctx, id)
	if err != nil {
		return nil, err
	}
	l, err := e.loadPinned(ctx, inst)
	if err != nil {
		return nil, err
	}
	if inst.Status != record.Running || (instance{Instance: inst, definition: l}).awaitedChain() == nil {
		return nil, nil //nolint:nilnil // nothing is awaited
	}
	var entered record.Event
	for ev, err := range e.cfg.Store.Events(ctx, store.EventQuery{Instance: id, Kinds: entersState}) {
		if err != nil {
			return nil, StoreError("read the history", err)
		}
		if ev.Kind != record.Advanced || ev.From != ev.To {
			entered = ev
		}
	}
	return e.findEntry(ctx, store.PlacedEvent{Event: entered, Owner: inst.Owner})
}

// chainTime is how long the run of a state counts as in progress; then a person is asked for its outcome.
const chainTime = 7 * 24 * time.Hour

// BeginChain records that the run of an entry is in progress, as a call of the instance; while it is,
// nothing else moves the instance. p owns the instance. BeginChain is idempotent. If the instance has left
// the state in the meantime, the call is refused, and the refusal is recorded.
func (e *Engine) BeginChain(ctx context.Context, p Principal, run string, entry Entry) (CallResult, error) {
	o := entry.OnEnter
	return e.BeginCall(ctx, p, CallRequest{
		ID: entry.Instance, Gate: o.Gate(entry.State), Upstream: interpreter.ID, Tool: o.Chain, States: []string{entry.State},
		Success: o.OnSuccess, Error: o.OnFailure, Timeout: chainTime, Key: run, exempt: true,
	})
}

// SettleChain records how the run of an entry ended, together with the action that follows, which is
// judged by the layers without a model. It is idempotent, and needs no earlier BeginChain. It does nothing
// if the state does not wait and no action follows such an end.
func (e *Engine) SettleChain(ctx context.Context, p Principal, run string, entry Entry, done bool) error {
	action, outcome := entry.OnEnter.OnSuccess, CallOK
	if !done {
		action, outcome = entry.OnEnter.OnFailure, CallError
	}
	if !entry.OnEnter.Wait && action == "" {
		return nil
	}
	begun, err := e.BeginChain(ctx, p, run, entry)
	if err != nil || begun.Answer == CallRefused || begun.Outcome != "" && begun.Outcome != CallUnknown {
		return err
	}
	now, err := e.Status(ctx, p, entry.Instance)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(now.Calls, func(c CallSummary) bool { return c.CallID != begun.CallID && !c.Unknown }) { // it would make the action be refused
		return newError(CodeBusy, "", "Another call of %s is open.", entry.Instance).hint("Wait for its answer.")
	}
	_, err = e.SettleCall(ctx, p, SettleRequest{ID: entry.Instance, CallID: begun.CallID, Outcome: outcome})
	return err
}
