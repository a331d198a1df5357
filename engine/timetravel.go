package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// When is a point in the past: a revision of an instance, or a time. The zero value is now. A time
// includes everything recorded up to and including that moment.
type When struct {
	Revision int64 // from 1; 0 for none
	At       time.Time
}

func (w When) isNow() bool { return w.Revision == 0 && w.At.IsZero() }

// validate checks the request alone, without the instance.
func (w When) validate() error {
	switch {
	case w.Revision < 0:
		return &Error{Code: CodeInvalidArgument, Path: "/revision", Message: "A revision is 1 or more.", Hint: "Leave it out for now."}
	case w.Revision > 0 && !w.At.IsZero():
		return &Error{Code: CodeInvalidArgument, Path: "/at", Message: "A revision and a time were both given.", Hint: "Give only one."}
	}
	return nil
}

// Past marks a result about the past.
type Past struct {
	// Revision and State are the present ones.
	Revision int64  `json:"currentRevision"`
	State    string `json:"currentState"`
}

// loadPast returns an instance as it was, with the version of the definition that it had then. now reports that
// it has not changed since.
func (e *Engine) loadPast(ctx context.Context, inst record.Instance, w When) (then record.Instance, l definition, now bool, err error) {
	if then, err = e.foldPast(ctx, inst, w); err != nil {
		return record.Instance{}, definition{}, false, err
	}
	l, err = e.loadDefinition(ctx, then.Workflow, then.Version)
	return then, l, then.Seq == inst.Seq, err
}

func (past history) foldPast(ctx context.Context, inst record.Instance, w When) (record.Instance, error) {
	if err := w.validate(); err != nil {
		return record.Instance{}, err
	}
	switch {
	case w.isNow(), w.Revision == inst.Revision, !w.At.IsZero() && !w.At.Before(inst.UpdatedAt):
		return inst, nil
	case w.Revision > inst.Revision:
		return record.Instance{}, newError(CodeUnknownRevision, "/revision", "The instance has no revision %d yet; it is at %d.", w.Revision, inst.Revision).
			withHint(fmt.Sprintf("Give one from 1 to %d.", inst.Revision))
	case w.Revision > 0:
		return past.instanceAt(ctx, inst.ID, w.Revision)
	}
	return past.instanceAtTime(ctx, inst, w.At)
}

// instanceAtTime folds the events that were recorded up to a time.
func (past history) instanceAtTime(ctx context.Context, inst record.Instance, at time.Time) (record.Instance, error) {
	cut, err := LoadTruncation(ctx, past.store, inst.ID)
	if err != nil {
		return record.Instance{}, err
	}
	// Times increase along a history, which can be long, so a binary search reads few of its events. If a clock
	// was turned back, the search still finds two consecutive events of which the first is not later than the
	// time, and the second is.
	var failed error
	var last record.Event // the last event found that is not later
	sort.Search(int(inst.Seq-cut.UpTo), func(i int) bool {
		if failed != nil {
			return true
		}
		query := store.EventQuery{Instance: inst.ID, AfterSeq: cut.UpTo + int64(i), Limit: 1}
		ev, err := store.First(past.store.Events(ctx, query), "an event")
		switch {
		case errors.Is(err, store.ErrNotFound): // lost, with all after it
			return true
		case err != nil:
			failed = StoreError("read the history", err)
			return true
		case ev.Time.After(at), ev.Seq > inst.Seq:
			return true
		}
		last = ev
		return false
	})
	switch {
	case failed != nil:
		return record.Instance{}, failed
	case last.Seq > 0:
		return past.foldTo(ctx, inst.ID, last.Revision, last.Seq)
	case cut.UpTo == 0:
		return record.Instance{}, newError(CodeUnknownRevision, "/at", "The instance did not exist at %s; it was started at %s.", formatTime(at), formatTime(inst.CreatedAt)).
			withHint("Give a later time.")
	}
	floor, err := past.foldTo(ctx, inst.ID, cut.Revision, cut.UpTo)
	if err != nil {
		return record.Instance{}, err
	}
	if floor.UpdatedAt.After(at) {
		return record.Instance{}, &Error{
			Code: CodeUnknownRevision, Path: "/at", Message: fmt.Sprintf("The instance's state at %s is no longer available: its history up to %s was removed.", formatTime(at), formatTime(floor.UpdatedAt)),
			Hint: "Give a later time.",
		}
	}
	return floor, nil
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Histories is the part of a store.Store that instances are folded from.
type Histories interface {
	Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error]
	Snapshot(ctx context.Context, id string, revision int64) (record.Instance, error)
}

// LoadTruncation returns how much of the beginning of a history was removed; zero if nothing was.
func LoadTruncation(ctx context.Context, from Histories, id string) (record.Truncation, error) {
	var cut record.Truncation
	for ev, err := range from.Events(ctx, store.EventQuery{Instance: id, Kinds: []record.Kind{record.Truncated}}) {
		if err != nil {
			return cut, StoreError("read the history", err)
		}
		cut = *ev.Truncation
	}
	return cut, nil
}

// instanceAt folds up to and including all events of a revision.
func (past history) instanceAt(ctx context.Context, id string, revision int64) (record.Instance, error) {
	return past.foldTo(ctx, id, revision, 0)
}

func (past history) foldTo(ctx context.Context, id string, revision, seq int64) (record.Instance, error) {
	inst, err := FoldTo(ctx, past.store, id, revision, seq)
	if err == nil {
		inst, err = past.values.OpenInstance(ctx, inst)
	}
	if err != nil {
		return record.Instance{}, StoreError("read the history", err)
	}
	return inst, nil
}

// FoldTo folds an instance up to the last event of a revision, or up to the event with the given seq in
// it. It starts at the nearest snapshot. Sealed values stay sealed.
func FoldTo(ctx context.Context, from Histories, id string, revision, seq int64) (record.Instance, error) {
	inst, err := loadSnapshot(ctx, from, id, revision)
	if err == nil && seq > 0 && inst.Seq > seq {
		inst, err = loadSnapshot(ctx, from, id, revision-1)
	}
	if err != nil || (seq > 0 && inst.Seq == seq) {
		return inst, err
	}
	q := store.EventQuery{Instance: id, AfterSeq: inst.Seq, MaxRevision: revision}
	if seq > 0 {
		q.Limit = int(seq - inst.Seq)
	}
	for ev, err := range from.Events(ctx, q) {
		if err == nil {
			err = YieldBulkRead(ctx)
		}
		if err != nil {
			return record.Instance{}, StoreError("read the history", err)
		}
		if ev.Seq != inst.Seq+1 {
			break // the event before it was removed
		}
		inst, err = record.Fold(inst, ev, func(r int64) (record.Instance, error) { return FoldTo(ctx, from, id, r, 0) })
		if err != nil {
			if slices.Contains([]Code{CodeUnknownRevision, CodeUnavailable, CodeCancelled}, CodeOf(err)) { // from folding the revision that it restores
				return record.Instance{}, err
			}
			return record.Instance{}, InternalError("fold the history", err)
		}
	}
	if inst.Revision == revision && (seq == 0 || inst.Seq == seq) {
		return inst, nil
	}
	return record.Instance{}, unknownRevision(ctx, from, id, revision)
}

// loadSnapshot returns the newest snapshot at or below a revision, or the zero Instance if there is none.
func loadSnapshot(ctx context.Context, from Histories, id string, revision int64) (record.Instance, error) {
	inst, err := from.Snapshot(ctx, id, revision)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return record.Instance{}, nil
	case err != nil:
		return record.Instance{}, StoreError("read a snapshot", err)
	}
	return inst, nil
}

func unknownRevision(ctx context.Context, from Histories, id string, revision int64) error {
	cut, err := LoadTruncation(ctx, from, id)
	switch {
	case err != nil:
		return err
	case cut.UpTo == 0:
		return InternalError("fold the history", fmt.Errorf("instance %s has no revision %d", id, revision))
	}
	return newError(CodeUnknownRevision, "/revision", "Revision %d is no longer available: the history before revision %d was removed.", revision, cut.Revision).
		withHint(fmt.Sprintf("Give %d or later.", cut.Revision)).withCause(record.ErrNoRevision)
}

// StatusAt is Status at a point in the past: the position and context of the instance then, under the
// version of the definition that it had then. Values that either that version or the present one marks as
// sensitive are masked.
//
// The error has CodeUnknownRevision if the instance did not exist then, or if its history was removed.
func (e *Engine) StatusAt(ctx context.Context, p Principal, id string, w When) (StatusResult, error) {
	inst, err := e.loadForRead(ctx, p, id)
	if err != nil {
		return StatusResult{}, err
	}
	if w.isNow() {
		return e.currentStatus(ctx, inst)
	}
	ctx, read, err := e.BeginBulkRead(ctx, p)
	if err != nil {
		return StatusResult{}, err
	}
	defer read.End()
	then, l, now, err := e.loadPast(ctx, inst.Instance, w)
	if err != nil {
		return StatusResult{}, err
	}
	if now {
		return e.currentStatus(ctx, inst)
	}
	doc := then.Context
	if !inst.seesUnmasked() {
		if doc, err = newMasking([]json.RawMessage{then.Context, inst.Context}, inst.def, l.def).maskDocument(doc); err != nil {
			return StatusResult{}, err
		}
	}
	waited, err := e.newView(p).withInstance(inst).renderReviews(ctx, then)
	if err != nil {
		return StatusResult{}, err
	}
	out := StatusResult{
		Position: instance{Instance: then, definition: l, by: p}.position(), Context: doc, Owner: then.Owner, Visited: append([]string{}, then.Facts.Visited...),
		CreatedAt: then.CreatedAt, UpdatedAt: then.UpdatedAt, Reviews: waited, Calls: summarizeCalls(then),
		Past: &Past{Revision: inst.Revision, State: inst.State},
	}
	out.Progress = fmt.Sprintf("As it was at revision %d; now it is %q at revision %d. %s", then.Revision, inst.State, inst.Revision, out.Progress)
	return out, nil
}
