package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// believable is a time that a line may have: not in the future, and not before another.
func (pl *plan) believable(t, after time.Time) time.Time {
	if t.IsZero() || t.Year() < 1970 || t.After(pl.im.at) || t.Before(after) {
		return time.Time{}
	}
	return t.UTC()
}

func (pl *plan) status(told record.Status, state string) record.Status {
	if told == record.Cancelled {
		return told
	}
	return statusIn(pl.l.def, state)
}

// still are the kinds whose lines change nothing.
func still(k record.Kind) bool { return k != "" && !k.Revises() }

// follow makes a line an event.
func (pl *plan) follow(line ImportLine) (string, error) {
	kind := record.Imported
	if line.Kind == record.Reconciled {
		kind = record.Reconciled
	}
	ev := pl.event(kind, line.Number, line.Hash)
	ev.Action = line.Action
	ev.Key = &record.Key{Scope: pl.scope(line), Request: digest("gavel/request/v1", line.Hash)}
	extra, err := fieldsOf(line.Extra)
	if err != nil {
		return "", internal("read a line", err)
	}
	pl.timed(&ev, line, extra)
	if line.From != "" && pl.at.state != "" && line.From != pl.at.state && !still(line.Kind) {
		remark(&pl.out.Differences, "%s:%d: it goes from %q, and the line before led to %q", pl.in.Log, line.Number, line.From, pl.at.state)
		extra["from"] = quoted(line.From)
	}
	withExtra(ev.Import, "line", object(extra))
	context, reason, err := pl.leads(&ev, line)
	if reason != "" || err != nil {
		return reason, err
	}
	if reason := pl.fits(ev, line, context); reason != "" {
		return reason, nil
	}
	pl.compare(ev, line)
	return "", pl.add(ev, context)
}

// fits says what is too large of where a line leads to, "" for nothing.
func (pl *plan) fits(ev record.Event, line ImportLine, context json.RawMessage) string {
	if n := len(context); n > record.MaxContext {
		return fmt.Sprintf("%s:%d: it leads to a context of %d bytes; the limit is %d", pl.in.Log, line.Number, n, record.MaxContext)
	}
	pl.bytes += len(ev.Patch) + len(ev.Import.Extra)
	if pl.bytes > MaxImportBytes {
		return fmt.Sprintf("%s:%d: the lines up to this one change more than %d bytes together; that is the limit for one instance", pl.in.Log, line.Number, MaxImportBytes)
	}
	return ""
}

// timed gives an event its line's time, or the one of the event before: then the line's
// own is kept beside it.
func (pl *plan) timed(ev *record.Event, line ImportLine, extra map[string]json.RawMessage) {
	after := pl.time
	if len(pl.steps) == 0 && pl.here.inst.Seq == 0 {
		after = time.Time{} // the first one may be before the creation that the file tells
	}
	if t := pl.believable(line.Time, after); !t.IsZero() {
		ev.Time = t
		return
	}
	if !line.Time.IsZero() {
		extra["timestamp"] = timeText(line.Time)
		remark(&pl.out.Notes, "%s:%d: its time is before the one of the line before, or in the future; it gets %s", pl.in.Log, line.Number, exact(ev.Time))
	}
}

// leads says where a line leads to: To, Status, Patch and the context afterwards.
func (pl *plan) leads(ev *record.Event, line ImportLine) (json.RawMessage, string, error) {
	at := fmt.Sprintf("%s:%d", pl.in.Log, line.Number)
	if still(line.Kind) {
		ev.To, ev.Status = pl.at.state, pl.status(line.Status, pl.at.state)
		if ev.To == "" {
			return nil, at + ": nothing can come before a start", nil
		}
		return pl.context, "", nil
	}
	restored := pl.restores(line)
	after := line.Context
	ev.To = line.To
	if restored != nil {
		if ev.To == "" {
			ev.To = restored.State
		}
		if after == nil && line.Data == nil && line.Kind == "" { // an export says what changed
			after = restored.Context
		}
	}
	if ev.To == "" {
		ev.To = pl.target(line.Action)
	}
	if ev.To == "" {
		return nil, at + ": it does not say which state it led to, and the definition does not either", nil
	}
	ev.Status = pl.status(line.Status, ev.To)
	if ev.Kind == record.Reconciled {
		ev.Patch = orEmptyObject(line.Data)
		return ev.Patch, "", nil
	}
	if after != nil {
		patch, err := difference(pl.context, after)
		if err != nil {
			return nil, "", internal("compare contexts", err)
		}
		if ev.Patch, err = mergedPatch(patch, line.Data); err != nil {
			return nil, "", internal("read a line", err)
		}
	} else {
		ev.Patch = line.Data
	}
	context, err := workflow.Merge(pl.context, ev.Patch)
	if err != nil {
		return nil, "", internal("merge a line", err)
	}
	ev.Freezes = pl.freezes(line.Action)
	if backward(line) && pl.im.req.Counts && !pl.uncount(ev.To, context) {
		return nil, at + ": it takes back steps that were imported before and count as visited; import the folder into another store", nil
	}
	return context, "", nil
}

// backward reports whether a line goes back to an earlier point.
func backward(line ImportLine) bool {
	return line.CheckpointID != "" || line.Action == "rollback" || line.Kind == record.RolledBack || line.Kind == record.Undone
}

// target is where the definition has an action lead to, "" when that is not plain.
func (pl *plan) target(action string) string {
	t := pl.transition(action)
	if t == nil || t.Conditional() {
		return ""
	}
	return t.Routes[0].Target
}

func (pl *plan) freezes(action string) []string {
	if t := pl.transition(action); t != nil {
		return t.Freezes
	}
	return nil
}

func (pl *plan) transition(action string) *workflow.Transition {
	if s, ok := pl.l.def.States[pl.at.state]; ok {
		return s.Transitions[action]
	}
	return nil
}

// compare notes what the definition would not have let happen.
func (pl *plan) compare(ev record.Event, line ImportLine) {
	if still(line.Kind) || ev.Kind == record.Reconciled || backward(line) {
		return
	}
	at := fmt.Sprintf("%s:%d", pl.in.Log, line.Number)
	if _, ok := pl.l.def.States[ev.To]; !ok {
		remark(&pl.out.Notes, "%s: %q is no state of the definition any more", at, ev.To)
		return
	}
	if pl.at.state == "" || line.Kind != "" && line.Kind != record.Advanced && line.Kind != record.Imported {
		return
	}
	t := pl.transition(line.Action)
	if t == nil || !slices.ContainsFunc(t.Routes, func(r workflow.Route) bool { return r.Target == ev.To }) {
		remark(&pl.out.Notes, "%s: the definition has no %q that leads from %q to %q", at, line.Action, pl.at.state, ev.To)
	}
}
