package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// resetKinds lists the kinds of events that may reset the event quotas of an instance: see resetsQuota.
var resetKinds = slices.DeleteFunc(record.RevisingKinds(), func(k record.Kind) bool { return k == record.KindCancelled })

// resetsQuota reports whether an event of one of resetKinds restarts the event quotas of all principals. A
// rollback, undo or redo resets them only if an operator made it, because others could repeat it forever.
func resetsQuota(ev record.Event) bool {
	return ev.Rollback == nil || ev.Role == string(RoleOperator)
}

// checkEventQuota rejects a request if the principal has caused Limits.Events events of the instance since
// its last move. Repeating refused requests, or undoing and redoing, fills the disk and costs a judgement
// each time. Each principal has a separate quota, so that others cannot use up the owner's. Operators have
// none.
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
		withHint("Do not repeat the request. Ask an operator to make the move or to roll back, or cancel the instance and start another.").withPosition(inst.position())
}

// countEvents returns how many events of an instance a principal has caused since the last move. If a move is
// among the last Limits.Events events, the number is below that limit, and countEvents returns 0.
func (e *Engine) countEvents(ctx context.Context, inst record.Instance, principal string) (int, error) {
	known, _ := e.eventCounts.Get(inst.ID)
	if known.reset > 0 && inst.Seq-known.reset < int64(e.cfg.Limits.Events) {
		return 0, nil
	}
	if known.of == nil {
		from, near, err := e.findLastReset(ctx, inst, int64(e.cfg.Limits.Events))
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
		if known, err = e.countNewer(ctx, inst, known); err != nil {
			return 0, err
		}
		e.eventCounts.Add(inst.ID, known)
	}
	return known.of[principal], nil
}

// findLastReset returns the seq of the last event of an instance that resets quotas. near reports that the
// event is among the last Limits.Events events; then a later event may reset them as well.
func (past history) findLastReset(ctx context.Context, inst record.Instance, window int64) (seq int64, near bool, err error) {
	// The newer half of the window nearly always contains a move. Then the older half need not be read now, and
	// nothing is read again until half a window of events has followed.
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

// countNewer adds the events after those that were already counted.
func (past history) countNewer(ctx context.Context, inst record.Instance, known eventCount) (eventCount, error) {
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
		case ev.Kind.Revises() && ev.Kind != record.KindCancelled && resetsQuota(ev):
			clear(out.of)
			out.reset = ev.Seq
		default:
			out.of[ev.Principal]++
		}
	}
	return out, nil
}

// eventCount holds how many events of an instance each principal caused, up to a seq, since the last event
// that reset the quotas.
type eventCount struct {
	reset int64 // the seq of an event that reset the quotas, 0 if unknown
	seq   int64
	of    map[string]int // must not be written once it is cached; nil if nothing was counted
}

// maxEventCounts limits the number of instances whose counts are cached. Only instances with many events
// since their last move are counted.
const maxEventCounts = 1000
