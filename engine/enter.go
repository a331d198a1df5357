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

// awaitedChain is the chain without whose end nothing else moves an instance; nil for none. Only an
// operator's definition has one.
func (i instance) awaitedChain() *workflow.OnEnter {
	if !i.stored.Operator {
		return nil
	}
	return i.def.AwaitedChain(i.State, i.Facts)
}

// Entry is a state of an operator's workflow that an instance entered, and that starts a chain.
type Entry struct {
	// Position is that of the event in the log.
	Position int64
	// Instance is the id, Revision the one in which it entered State, Context what it had then.
	Instance, Workflow, State, Owner, Subject string
	Revision                                  int64
	Context                                   json.RawMessage
	OnEnter                                   *workflow.OnEnter
	// Sensitive are the pointers into Context that the definition calls sensitive. A run does not keep them.
	Sensitive []string `json:"-"`
}

// entersState are the kinds of events after which an instance may be in a state that it was not in.
var entersState = []record.Kind{record.Started, record.Advanced, record.RolledBack, record.Undone, record.Redone, record.Migrated, record.Imported}

// ListEntries returns the entries behind a position of the log, at most so many, and the position up to
// which it has looked. A state is entered by a start, or by a move from another state. What goes back to
// the past enters nothing, unless the state that it goes back to waits for a chain that never ran. damaged
// are the entries of instances whose records cannot be read any more, which it passes: each error names one.
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
				err = known.Err // what only the log says
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

// isDamage reports whether an error says that what is recorded cannot be read, however often it is tried.
func isDamage(err error) bool {
	return slices.Contains([]Code{CodeInternal, CodeValuesUnreadable, CodeValuesDestroyed}, CodeOf(err)) ||
		errors.Is(err, store.ErrDamaged) || errors.Is(err, record.ErrMalformed)
}

// findEntry is the entry that an event is; nil for none.
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

// FindAwaited returns the entry of the state in which an instance waits for a chain that never ran; nil where it waits
// for none.
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

// chainTime is how long the run of a state counts as under way: then a person is asked what became of it.
const chainTime = 7 * 24 * time.Hour

// BeginChain records that the run of an entry is under way, as a call of the instance: while it is, nothing else
// moves that. p owns the instance. It happens once, however often it is asked for; where the instance has left
// the state meanwhile it is refused, which is recorded.
func (e *Engine) BeginChain(ctx context.Context, p Principal, run string, entry Entry) (CallResult, error) {
	o := entry.OnEnter
	return e.BeginCall(ctx, p, CallRequest{
		ID: entry.Instance, Gate: o.Gate(entry.State), Upstream: interpreter.ID, Tool: o.Chain, States: []string{entry.State},
		Success: o.OnSuccess, Error: o.OnFailure, Timeout: chainTime, Key: run, exempt: true,
	})
}

// SettleChain records how the run of an entry ended, with the action that follows, which the layers without a
// model judge. It happens once, and needs no BeginChain before. A state that does not wait, and performs nothing
// after such an end, is left as it is.
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
	if slices.ContainsFunc(now.Calls, func(c CallSummary) bool { return c.CallID != begun.CallID && !c.Unknown }) { // the action would be refused
		return newError(CodeBusy, "", "Another call of %s is open.", entry.Instance).hint("Wait for its answer.")
	}
	_, err = e.SettleCall(ctx, p, SettleRequest{ID: entry.Instance, CallID: begun.CallID, Outcome: outcome})
	return err
}
