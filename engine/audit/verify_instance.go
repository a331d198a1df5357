package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// instanceAttempts limits how often an instance that seems broken is read again because it has moved
// in the meantime.
const instanceAttempts = 10

// checkInstance verifies one instance. If it seems broken while it is being written to, it is read
// again: data read before and after a write may not match.
func (v *verification) checkInstance(ctx context.Context, id string) error {
	for attempt := 1; ; attempt++ {
		row, err := v.store.Load(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound) && v.req.Instance != "":
			v.absent = true
			return nil
		case errors.Is(err, store.ErrNotFound):
			v.addProblem(Problem{Instance: id, Kind: BreakRow, Message: "it is listed, but its context is missing"})
			return nil
		case err != nil:
			return v.problemOf(err, Problem{Instance: id}, "its present state")
		}
		h := &historyCheck{v: v, row: row}
		if err := h.run(ctx); err != nil {
			return err
		}
		if len(h.problems) > 0 && attempt < instanceAttempts {
			if again, err := v.store.Load(ctx, id); err == nil && again.Seq != row.Seq {
				continue
			}
		}
		for _, p := range h.problems {
			v.addProblem(p)
		}
		if h.shortened != nil {
			v.shortened.Add(1)
		}
		v.recordExtent(row, h.unsigned)
		v.reportProgress(h.events)
		return nil
	}
}

type historyCheck struct {
	v        *verification
	row      record.Instance
	problems []Problem
	events   int64

	chain   record.Chain
	started bool
	// shortened is the newest truncation, nil for a whole history.
	shortened *record.Truncation
	unsigned  []int64 // the truncated events that no key signed

	// inst is the fold so far. If folding is false, it is behind the chain.
	inst          record.Instance
	isFolding     bool
	restores      map[int64]bool // revisions that a rollback will restore, nil if they are not known
	needsRestores bool           // a second pass must collect these revisions
	revisions     map[int64]record.Instance
	snapshots     map[int64]string // by seq
	floor         *record.Instance // the oldest snapshot
	references    references
}

func (h *historyCheck) addProblem(kind Break, seq int64, format string, args ...any) {
	h.problems = append(h.problems, Problem{Instance: h.row.ID, Seq: seq, Kind: kind, Message: fmt.Sprintf(format, args...)})
}

// run verifies the history in one pass. If the history contains a rollback, undo or redo, a second pass follows that
// knows which revisions to keep.
func (h *historyCheck) run(ctx context.Context) error {
	if err := h.checkOnce(ctx); err != nil || !h.needsRestores {
		return err
	}
	second := &historyCheck{v: h.v, row: h.row, restores: map[int64]bool{}}
	if err := second.readRollbacks(ctx); err != nil {
		return err
	}
	err := second.checkOnce(ctx)
	*h = *second
	return err
}

func (h *historyCheck) checkOnce(ctx context.Context) error {
	h.isFolding, h.revisions = true, map[int64]record.Instance{}
	h.references = references{map[int]string{}, map[string]int64{}}
	if err := h.readSnapshots(ctx); err != nil {
		return err
	}
	// Start below number 1, because events stored there are shown to readers, too.
	for e, err := range h.v.store.Events(ctx, store.EventQuery{Instance: h.row.ID, AfterSeq: math.MinInt64}) {
		if err != nil && !isDamage(err) {
			return engine.StoreError("be verified", err)
		}
		if h.started && h.chain.Seq() == h.row.Seq { // events after the last one
			if err := h.checkAfterEnd(ctx, e, err); err != nil {
				return err
			}
			break
		}
		if err != nil {
			return h.diagnose(ctx, err)
		}
		if !h.started {
			if err := h.findStart(ctx, e); err != nil {
				return err
			}
		}
		if e.Instance != h.row.ID {
			return h.diagnose(ctx, nil)
		}
		if err := h.chain.Add(e); err != nil {
			return h.diagnose(ctx, err)
		}
		h.events++
		if cut := e.Truncation; cut != nil && cut.CheckNote(e.Instance, h.v.req.Keys...) != nil {
			h.unsigned = append(h.unsigned, e.Seq)
		}
		if h.foldEvent(ctx, e); h.needsRestores {
			return nil
		}
	}
	return h.checkEnd(ctx)
}

// readSnapshots computes digests of all snapshots, from the newest down, and keeps the oldest: a
// shortened history begins there.
func (h *historyCheck) readSnapshots(ctx context.Context) error {
	h.snapshots = map[int64]string{}
	above, reported := h.row.Seq+1, false
	for revision := h.row.Revision; revision > 0; {
		s, err := h.v.store.Snapshot(ctx, h.row.ID, revision)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil && isDamage(err):
			if !reported { // each revision above it finds the same snapshot
				h.addProblem(BreakRow, 0, "a snapshot at or below revision %d cannot be read: %v", revision, err)
			}
			reported = true
			revision--
			continue
		case err != nil:
			return engine.StoreError("be verified", err)
		case s.ID != h.row.ID || s.Revision < 1 || s.Revision > revision:
			h.addProblem(BreakRow, 0, "the snapshot stored at or below revision %d belongs to revision %d of %s", revision, s.Revision, s.ID)
			return nil
		case s.Seq < 1 || s.Seq >= above: // the order must match their seqs, or a snapshot could hide another
			h.addProblem(BreakRow, 0, "the snapshot of revision %d has the impossible event number %d", s.Revision, s.Seq)
			return nil
		}
		h.snapshots[s.Seq] = record.DigestState(s)
		reported = false
		h.floor, revision, above = &s, s.Revision-1, s.Seq
	}
	return nil
}

func (h *historyCheck) readRollbacks(ctx context.Context) error {
	return h.v.eachEvent(ctx, h.row.ID, func(e record.Event) {
		if e.Rollback != nil {
			h.restores[e.Rollback.Restores] = true
		}
	}, record.RolledBack, record.Undone, record.Redone)
}

// eachEvent calls do for the events of some kinds. It stops at a broken event without an error: the pass over all events
// reports it.
func (v *verification) eachEvent(ctx context.Context, id string, do func(record.Event), kinds ...record.Kind) error {
	var last int64
	for e, err := range v.store.Events(ctx, store.EventQuery{Instance: id, Kinds: kinds}) {
		if err != nil && !isDamage(err) {
			return engine.StoreError("be verified", err)
		}
		if err != nil || e.Seq <= last {
			return nil
		}
		last = e.Seq
		do(e)
	}
	return nil
}

// findStart finds where a history starts: at its first event, or after the events that a truncated
// event records as removed.
func (h *historyCheck) findStart(ctx context.Context, first record.Event) error {
	h.started = true
	if first.Seq <= 1 || first.Instance != h.row.ID {
		return nil
	}
	said, err := h.v.loadTruncation(ctx, h.row.ID)
	if err != nil || said == nil || said.UpTo != first.Seq-1 || said.Hash != first.PrevHash {
		return err // the chain starts at the beginning, and so breaks at the first event
	}
	h.shortened = said
	h.chain = record.NewChainFrom(record.Instance{ID: h.row.ID, Seq: said.UpTo, Revision: said.Revision, Head: said.Hash})
	f := h.floor
	switch {
	case f == nil:
		h.isFolding = false
		h.addProblem(BreakRow, first.Seq, "the snapshot at which the shortened history begins is missing")
	case f.Seq != said.UpTo || record.DigestState(*f) != said.Floor:
		h.isFolding = false
		h.addProblem(BreakRow, first.Seq, "the snapshot at which the history begins is not the one that the truncated event names")
	default:
		h.inst = *f
		h.revisions[f.Revision] = *f
		delete(h.snapshots, f.Seq)
	}
	return nil
}

// loadTruncation returns the newest truncation of an instance, nil if its history was never shortened.
func (v *verification) loadTruncation(ctx context.Context, id string) (newest *record.Truncation, err error) {
	err = v.eachEvent(ctx, id, func(e record.Event) { newest = e.Truncation }, record.Truncated)
	return newest, err
}

// foldEvent applies an event to the instance and compares the result with the snapshot at this seq.
func (h *historyCheck) foldEvent(ctx context.Context, e record.Event) {
	if h.restores == nil && e.Rollback != nil {
		h.needsRestores = true
		return
	}
	if !h.isFolding {
		return
	}
	next, err := record.Fold(h.inst, e, func(revision int64) (record.Instance, error) { return h.loadRevision(ctx, revision) })
	if err != nil {
		h.isFolding = false
		h.addProblem(BreakEdited, e.Seq, "the event is not possible here: %v", err)
		return
	}
	h.inst = next
	h.references.addEvent(next, e)
	if h.restores[next.Revision] {
		h.revisions[next.Revision] = next
	}
	if want, ok := h.snapshots[e.Seq]; ok {
		delete(h.snapshots, e.Seq)
		if record.DigestState(next) != want {
			h.addProblem(BreakRow, e.Seq, "the snapshot of revision %d does not match the events", next.Revision)
		}
	}
}

// loadRevision returns the instance at a revision that a rollback names. A revision before the beginning of a
// shortened history exists only as a snapshot.
func (h *historyCheck) loadRevision(ctx context.Context, revision int64) (record.Instance, error) {
	if then, ok := h.revisions[revision]; ok {
		return then, nil
	}
	if h.shortened != nil {
		if s, err := h.v.store.Snapshot(ctx, h.row.ID, revision); err == nil && s.Revision == revision {
			return s, nil
		}
	}
	return record.Instance{}, record.ErrNoRevision
}

func (h *historyCheck) checkEnd(ctx context.Context) error {
	row := h.row
	switch seq := h.chain.Seq(); {
	case seq < row.Seq:
		h.addProblem(BreakTruncated, seq+1, "the history ends at event %d, but the instance is at event %d", seq, row.Seq)
		return nil
	case seq > row.Seq:
		h.addProblem(BreakRow, row.Seq, "the instance is at event %d, but its history ends at event %d", row.Seq, seq)
	case h.chain.Head() != row.Head:
		h.addProblem(BreakRow, row.Seq, "the instance's hash is not that of its last event")
	}
	if h.isFolding {
		if fields := listDifferences(h.inst, row); len(fields) > 0 {
			h.addProblem(BreakRow, row.Seq, "the stored instance differs from its events in %s", strings.Join(fields, ", "))
		}
		for seq := range h.snapshots {
			h.addProblem(BreakRow, seq, "the snapshot of event %d matches no event", seq)
		}
	}
	return h.checkReferences(ctx)
}

// checkAfterEnd checks an event after the last one, readable or not: it was written since the instance
// was loaded, or was never written by gavel.
func (h *historyCheck) checkAfterEnd(ctx context.Context, e record.Event, unreadable error) error {
	now, err := h.v.store.Load(ctx, h.row.ID)
	if err != nil && !isDamage(err) {
		return engine.StoreError("be verified", err)
	}
	switch {
	case err == nil && now.Seq > h.row.Seq:
	case unreadable != nil:
		h.addProblem(BreakInserted, h.row.Seq+1, "an extra event after the last one cannot be read: %s", clauseOf(unreadable))
	case e.Instance == h.row.ID && e.PrevHash == h.row.Head && e.Seq == h.row.Seq+1:
		h.addProblem(BreakRow, h.row.Seq, "the instance is at event %d, but its history continues", h.row.Seq)
	default:
		h.addProblem(BreakInserted, h.row.Seq+1, "an extra event after the last one does not follow from it")
	}
	return nil
}

func listDifferences(a, b record.Instance) []string {
	var fields []string
	differ := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	differ("workflow", a.Workflow == b.Workflow)
	differ("version", a.Version == b.Version)
	differ("definitionHash", a.DefinitionHash == b.DefinitionHash)
	differ("owner", a.Owner == b.Owner)
	differ("subject", a.Subject == b.Subject)
	differ("state", a.State == b.State)
	differ("status", a.Status == b.Status)
	differ("context", bytes.Equal(a.Context, b.Context))
	differ("revision", a.Revision == b.Revision)
	differ("facts", factsOf(a) == factsOf(b))
	differ("createdAt", a.CreatedAt.Equal(b.CreatedAt))
	differ("updatedAt", a.UpdatedAt.Equal(b.UpdatedAt))
	return fields
}

func factsOf(i record.Instance) string {
	text, err := json.Marshal(i.Facts)
	if err != nil { // facts are strings and numbers
		return err.Error()
	}
	return string(text)
}
