package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// resetKinds are the kinds of events that may reset the event quotas of an instance: see
// resetsQuota.
var resetKinds = slices.DeleteFunc(record.RevisingKinds(), func(k record.Kind) bool { return k == record.Cancelling })

// resetsQuota reports whether everyone's event quota starts anew behind an event of one of
// resetKinds. What goes back and forth resets only when an operator did it: others could
// do it forever.
func resetsQuota(ev record.Event) bool {
	return ev.Rollback == nil || ev.Role == string(RoleOperator)
}

// checkEventQuota refuses what would be recorded of an instance for a principal that has
// had Limits.Events events of it recorded since its last move: repeating what is refused,
// or undoing and redoing, fills a disk and costs a judgement each time. Each principal has
// a quota of its own, so no one uses up what the owner needs to move. Operators have none.
func (e *Engine) checkEventQuota(ctx context.Context, inst instance) error {
	if err := e.ledger.checkBudget(ctx, inst.by, budgetBytes); err != nil {
		return err
	}
	most := e.cfg.Limits.Events
	if inst.by.Role == RoleOperator || inst.Seq <= int64(most) {
		return nil
	}
	n, err := e.countEvents(ctx, inst.Instance, inst.by.ID)
	if err != nil || n < most {
		return err
	}
	return newError(CodeTooManyEvents, "",
		"%d refusals and other events of yours were recorded since the last move of this instance, which is the limit; no more are judged or recorded.", n).
		hint("Do not repeat the request. Ask an operator to make the move or to roll back, or cancel the instance and start another.").at(inst.position())
}

// countEvents is how many events of an instance a principal has had recorded since the
// last move. Where a move is among the last Limits.Events events, it is only known to be
// fewer than that, and 0 is returned.
func (e *Engine) countEvents(ctx context.Context, inst record.Instance, principal string) (int, error) {
	known, _ := e.eventCounts.Get(inst.ID)
	if known.reset > 0 && inst.Seq-known.reset < int64(e.cfg.Limits.Events) {
		return 0, nil
	}
	if known.of == nil {
		from, near, err := e.lastReset(ctx, inst, int64(e.cfg.Limits.Events))
		if err != nil {
			return 0, err
		}
		if near {
			e.eventCounts.Add(inst.ID, eventCount{reset: from})
			return 0, nil
		}
		known.seq = from
	}
	if known.seq < inst.Seq {
		var err error
		if known, err = e.countOn(ctx, inst, known); err != nil {
			return 0, err
		}
		e.eventCounts.Add(inst.ID, known)
	}
	return known.of[principal], nil
}

// lastReset is the seq of the last event of an instance that resets quotas. near says that
// it is among the last Limits.Events events; then it need not be the last one.
func (past history) lastReset(ctx context.Context, inst record.Instance, window int64) (seq int64, near bool, err error) {
	// Nearly always a move is in the newer half: then the page is spared now, and this for the next half.
	lately := store.EventQuery{Instance: inst.ID, AfterSeq: max(0, inst.Seq-window/2), Kinds: resetKinds, Limit: 1}
	for ev, err := range past.store.Events(ctx, lately) {
		if err == nil && ev.Seq <= inst.Seq && resetsQuota(ev) {
			return ev.Seq, true, nil
		}
	}
	for to := inst.Seq; to > 0; to -= window {
		found := int64(0)
		for ev, err := range past.store.Events(ctx, store.EventQuery{Instance: inst.ID, AfterSeq: max(0, to-window), Kinds: resetKinds}) {
			switch {
			case err != nil:
				return 0, false, StoreError("read the history", err)
			case ev.Seq > to || !resetsQuota(ev):
			case to == inst.Seq:
				return ev.Seq, true, nil
			default:
				found = ev.Seq
			}
			if ev.Seq >= to {
				break
			}
		}
		if found > 0 {
			return found, false, nil
		}
	}
	return 0, false, nil
}

// countOn adds the events behind those that were counted before.
func (past history) countOn(ctx context.Context, inst record.Instance, known eventCount) (eventCount, error) {
	out := eventCount{reset: known.reset, seq: inst.Seq, of: maps.Clone(known.of)}
	if out.of == nil {
		out.of = map[string]int{}
	}
	for ev, err := range past.store.Events(ctx, store.EventQuery{Instance: inst.ID, AfterSeq: known.seq, MaxRevision: inst.Revision}) {
		switch {
		case err != nil:
			return eventCount{}, StoreError("read the history", err)
		case ev.Seq > inst.Seq:
			return out, nil
		case ev.Kind.Revises() && ev.Kind != record.Cancelling && resetsQuota(ev):
			clear(out.of)
			out.reset = ev.Seq
		default:
			out.of[ev.Principal]++
		}
	}
	return out, nil
}

// eventCount is how many events each principal has of an instance, up to a seq, since the
// last event that reset the quotas.
type eventCount struct {
	reset int64 // the seq of an event that reset them, 0 where none is known
	seq   int64
	of    map[string]int // never written once it is cached, nil where nothing was counted
}

// mostEventCounts bounds for how many instances with many events since their last move
// counts are remembered.
const mostEventCounts = 1000
