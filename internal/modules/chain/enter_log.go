package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Entry records that an instance of an operator's workflow entered a state that starts a chain.
type Entry struct {
	// Position is the event's position in the log.
	Position int64
	// Instance is the id, Revision the revision in which it entered State, and Context its context at that
	// point.
	Instance, Workflow, State, Owner, Subject string
	Revision                                  int64
	Context                                   json.RawMessage
	OnEnter                                   *OnEnter
	// Sensitive holds the pointers into Context that the definition marks as sensitive. A run does not
	// keep them.
	Sensitive []string `json:"-"`
}

// EntryLog finds entries in the log of a store.
type EntryLog struct {
	Engine *engine.Engine
	Store  interface {
		LastPosition(ctx context.Context) (int64, error)
		EventsAfter(ctx context.Context, q store.TailQuery) iter.Seq2[store.PlacedEvent, error]
		Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error]
	}
}

// entersState lists the kinds of events that may put an instance into a state that it was not in.
var entersState = []record.Kind{record.Started, record.Advanced, record.RolledBack, record.Undone, record.Redone, record.Migrated, record.Imported}

// List returns at most limit entries after a position of the log. upTo is the position up to which it has
// read.
//
// A start enters a state, and so does a move from another state. Events that restore the past enter
// nothing, unless the restored state waits for a chain that never ran.
//
// damaged has one error for each entry of an instance whose records cannot be read; those entries are
// skipped.
func (l EntryLog) List(ctx context.Context, after int64, limit int) (found []Entry, damaged []error, upTo int64, err error) {
	last, err := l.Store.LastPosition(ctx)
	if err != nil {
		return nil, nil, after, engine.StoreError("find the last event", err)
	}
	if last <= after {
		return nil, nil, after, nil
	}
	for at, err := range l.Store.EventsAfter(store.BulkRead(ctx), store.TailQuery{After: after, UpTo: last}) {
		if err != nil {
			return nil, nil, after, engine.StoreError("read the events", err)
		}
		entry, err := l.find(ctx, at)
		switch {
		case isDamage(err):
			if known, ok := errors.AsType[*engine.Error](err); ok && known.Err != nil {
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
	return slices.Contains([]engine.Code{engine.CodeInternal, engine.CodeValuesUnreadable, engine.CodeValuesDestroyed}, engine.CodeOf(err)) ||
		errors.Is(err, store.ErrDamaged) || errors.Is(err, record.ErrMalformed)
}

// find returns the entry that an event represents, or nil.
func (l EntryLog) find(ctx context.Context, at store.PlacedEvent) (*Entry, error) {
	ev := at.Event
	if !slices.Contains(entersState, ev.Kind) || ev.Kind == record.Advanced && ev.From == ev.To {
		return nil, nil //nolint:nilnil // most events are none
	}
	stored, d, err := l.Engine.LoadDefinition(ctx, systemPrincipal, engine.RightRead, ev.Workflow, ev.Version)
	switch {
	case isCode(err, engine.CodeUnknownWorkflow), err == nil && !stored.Operator:
		return nil, nil //nolint:nilnil // its definition is gone, or may start nothing
	case err != nil:
		return nil, err
	}
	o := findOnEnter(d.States[ev.To])
	if o == nil {
		return nil, nil //nolint:nilnil // it starts nothing
	}
	inst, err := l.Engine.LoadInstance(ctx, ev.Instance, ev.Revision, ev.Seq)
	switch {
	case errors.Is(err, store.ErrNotFound), isCode(err, engine.CodeUnknownInstance), isCode(err, engine.CodeUnknownRevision):
		return nil, nil //nolint:nilnil // its records were removed
	case err != nil:
		return nil, err
	}
	if ev.Kind != record.Started && ev.Kind != record.Advanced && d.FindHold(ev.To, inst.Facts) == nil {
		return nil, nil //nolint:nilnil // the past is not repeated
	}
	return &Entry{
		Position: at.Position, Instance: ev.Instance, Workflow: ev.Workflow, State: ev.To, Owner: at.Owner, Subject: inst.Subject,
		Revision: ev.Revision, Context: inst.Context, OnEnter: o, Sensitive: d.Sensitive,
	}, nil
}

// FindAwaited returns the entry of the state in which an instance waits for a chain that never ran, or nil
// if it waits for none.
func (l EntryLog) FindAwaited(ctx context.Context, id string) (*Entry, error) {
	inst, err := l.Engine.LoadInstance(ctx, id, 0, 0)
	if err != nil {
		return nil, err
	}
	stored, d, err := l.Engine.LoadDefinition(ctx, systemPrincipal, engine.RightRead, inst.Workflow, inst.Version)
	if err != nil {
		return nil, err
	}
	if inst.Status != record.Running || !stored.Operator || d.FindHold(inst.State, inst.Facts) == nil {
		return nil, nil //nolint:nilnil // nothing is awaited
	}
	var entered record.Event
	for ev, err := range l.Store.Events(ctx, store.EventQuery{Instance: id, Kinds: entersState}) {
		if err != nil {
			return nil, engine.StoreError("read the history", err)
		}
		if ev.Kind != record.Advanced || ev.From != ev.To {
			entered = ev
		}
	}
	return l.find(ctx, store.PlacedEvent{Event: entered, Owner: inst.Owner})
}

// entryTime is how long the run of a state counts as in progress; then a person is asked for its outcome.
const entryTime = 7 * 24 * time.Hour

// callRecorder is the part of *engine.Engine that records the run of an entry as a call of its instance.
type callRecorder interface {
	BeginCall(ctx context.Context, p engine.Principal, req engine.CallRequest) (engine.CallResult, error)
	SettleCall(ctx context.Context, p engine.Principal, req engine.SettleRequest) (engine.SettleResult, error)
	Status(ctx context.Context, p engine.Principal, id string) (engine.StatusResult, error)
}

// beginEntry records that the run of an entry is in progress, as a call of the instance; until the call
// ends, nothing else moves the instance. p owns the instance. beginEntry is idempotent. If the instance has
// left the state in the meantime, the call is refused, and the refusal is recorded.
func beginEntry(ctx context.Context, calls callRecorder, p engine.Principal, run string, entry Entry) (engine.CallResult, error) {
	o := entry.OnEnter
	return calls.BeginCall(ctx, p, engine.CallRequest{
		ID: entry.Instance, Gate: o.gate(entry.State), Upstream: recorder, Tool: o.Chain, States: []string{entry.State},
		Success: o.OnSuccess, Error: o.OnFailure, Timeout: entryTime, Key: run, Exempt: true,
	})
}

// settleEntry records how the run of an entry ended, together with the action that follows. That action is
// judged only by the layers that use no model. settleEntry is idempotent, and needs no earlier beginEntry.
// It does nothing if the state does not wait and no action follows this outcome.
func settleEntry(ctx context.Context, calls callRecorder, p engine.Principal, run string, entry Entry, done bool) error {
	action, outcome := entry.OnEnter.OnSuccess, engine.CallOK
	if !done {
		action, outcome = entry.OnEnter.OnFailure, engine.CallError
	}
	if !entry.OnEnter.Wait && action == "" {
		return nil
	}
	begun, err := beginEntry(ctx, calls, p, run, entry)
	if err != nil || begun.Answer == engine.CallRefused || begun.Outcome != "" && begun.Outcome != engine.CallUnknown {
		return err
	}
	now, err := calls.Status(ctx, p, entry.Instance)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(now.Calls, func(c engine.CallSummary) bool { return c.CallID != begun.CallID && !c.Unknown }) { // it would cause the action to be refused
		return &engine.Error{Code: engine.CodeBusy, Message: fmt.Sprintf("Another call of %s is open.", entry.Instance), Hint: "Wait for its answer."}
	}
	_, err = calls.SettleCall(ctx, p, engine.SettleRequest{ID: entry.Instance, CallID: begun.CallID, Outcome: outcome})
	return err
}
