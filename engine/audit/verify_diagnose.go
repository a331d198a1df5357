package audit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// The code below runs only for a history that is known to be broken, to describe the damage. It uses
// the numbers under which the store keeps the events, which may differ from the events' own seqs.

// slot is the content of one stored number of a history.
type slot struct {
	number int64
	state  slotState
	// seq is the event's own seq. If the hash does not cover the event's bytes, its seq cannot be trusted,
	// and the stored number is used.
	seq        int64
	hash, prev string
	problem    string // the problem, if the event is not as it was written
}

type slotState int

const (
	slotSealed     slotState = iota // the hash covers the bytes and the previous hash
	slotUnsealed                    // the hash does not cover them
	slotForeign                     // sealed, but belongs to another instance
	slotUndecoded                   // not an event
	slotUnreadable                  // the store cannot read it, or anything after it
)

// diagnose describes how the history is broken, starting at the last event that the chain accepted.
// why is the error of the next event, nil for an event of another instance.
func (h *historyCheck) diagnose(ctx context.Context, why error) error {
	h.isFolding = false
	before := len(h.problems)
	d := &diagnosis{historyCheck: h, from: max(1, h.chain.Seq()), bySeq: map[int64][]slot{}, replaced: map[int64]bool{}}
	places, err := h.readSlots(ctx, d.from)
	if err != nil {
		return err
	}
	if !d.sortSlots(places) {
		return nil
	}
	d.run()
	if len(h.problems) > before {
		return nil
	}
	stray, err := h.hasStrayEvents(ctx)
	switch {
	case err != nil:
		return err
	case stray:
		h.addProblem(BreakInserted, 0, "an event is stored before the first place")
	default: // report at least the original error
		h.addProblem(BreakEdited, h.chain.Seq()+1, "%s", clauseOf(why))
	}
	return nil
}

// hasStrayEvents reports whether an event is stored under a number below 1, where it could pass for another
// event.
func (h *historyCheck) hasStrayEvents(ctx context.Context) (bool, error) {
	var n [2]int
	for i, after := range []int64{math.MinInt64, 0} {
		for _, err := range h.v.store.Events(ctx, store.EventQuery{Instance: h.row.ID, AfterSeq: after}) {
			if err != nil && !isDamage(err) {
				return false, engine.StoreError("be verified", err)
			}
			n[i]++
		}
	}
	return n[0] > n[1], nil
}

// readSlots reads every number separately: if two queries with consecutive start numbers return the
// same event, the number between them is empty.
func (h *historyCheck) readSlots(ctx context.Context, from int64) ([]slot, error) {
	var places []slot
	var waiting *slot // the last event found; its number is not known yet
	var body []byte
	for number := from; ; number++ {
		e, there, err := h.firstEventAfter(ctx, number-1)
		if err != nil && !isDamage(err) {
			return nil, engine.StoreError("be verified", err)
		}
		if waiting != nil && there && err == nil && e.Hash == waiting.hash && bytes.Equal(e.Body(), body) {
			*waiting = h.newSlot(e, number)
			continue
		}
		if waiting != nil {
			places, waiting, body = append(places, *waiting), nil, nil
		}
		switch {
		case err != nil && (!isUndecodable(err) || number > h.row.Seq):
			return append(places, slot{number: number, state: slotUnreadable, problem: err.Error()}), nil
		case err != nil:
			places = append(places, slot{number: number, state: slotUndecoded, problem: clauseOf(err)})
		case !there:
			return places, nil
		default:
			p := h.newSlot(e, number)
			waiting, body = &p, e.Body()
		}
	}
}

func (h *historyCheck) firstEventAfter(ctx context.Context, number int64) (e record.Event, there bool, err error) {
	for e, err := range h.v.store.Events(ctx, store.EventQuery{Instance: h.row.ID, AfterSeq: number, Limit: 1}) {
		return e, true, err
	}
	return record.Event{}, false, nil
}

func (h *historyCheck) newSlot(e record.Event, number int64) slot {
	p := slot{number: number, seq: e.Seq, hash: e.Hash, prev: e.PrevHash}
	if err := record.VerifyEvent(e); err != nil {
		p.state, p.seq, p.problem = slotUnsealed, number, clauseOf(err)
	} else if e.Instance != h.row.ID {
		p.state, p.problem = slotForeign, fmt.Sprintf("this is event %d of instance %s", e.Seq, e.Instance)
	}
	return p
}

// clauseOf returns the description of an error without its place.
func clauseOf(err error) string {
	var broken *record.BrokenError
	switch {
	case err == nil:
		return "it does not follow from the event before"
	case errors.As(err, &broken):
		return broken.How
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// diagnosis examines a broken history by the events' own seqs.
type diagnosis struct {
	*historyCheck
	from  int64 // the first seq in question
	bySeq map[int64][]slot
	// replaced are the seqs whose original event is known to have been replaced.
	replaced map[int64]bool
	// isShifted is true if numbers and seqs differ because something was inserted or removed. isUnreadable is true
	// if the store cannot be read after the last place.
	isShifted, isUnreadable bool
}

// sortSlots reports the problems of single places, and groups the rest by seq. It returns false if
// nothing else can be reported.
func (d *diagnosis) sortSlots(places []slot) bool {
	foreign := 0
	for _, p := range places {
		if p.state == slotForeign {
			foreign++
		}
	}
	if foreign > 0 && foreign == len(places) {
		d.problems = nil // earlier problems are about the foreign history, too
		d.addProblem(BreakSwapped, places[0].number, "%s, and the rest of the history is also another instance's", places[0].problem)
		return false
	}
	for _, p := range places {
		if p.number > d.chain.Seq() {
			d.events++
		}
		switch {
		case p.state == slotForeign:
			d.addProblem(BreakSwapped, p.number, "%s", p.problem)
			d.replaced[p.number] = true
		case p.state == slotUndecoded:
			d.addProblem(BreakEdited, p.number, "its bytes cannot be read: %s", p.problem)
			d.replaced[p.number] = true
		case p.state == slotUnreadable:
			d.addProblem(BreakUnreadable, p.number, "the history cannot be read from here on: %s", p.problem)
			d.isUnreadable = true
		case p.seq < d.from:
			d.addProblem(BreakInserted, p.number, "the event here has the number %d", p.seq)
			d.isShifted = true
		default:
			d.bySeq[p.seq] = append(d.bySeq[p.seq], p)
		}
	}
	return true
}

func (d *diagnosis) run() {
	numbers := slices.Sorted(maps.Keys(d.bySeq))
	for _, seq := range numbers {
		d.chooseEvent(seq)
	}
	due, prev := d.from, "" // the next seq, and the hash that it should follow from
	for _, seq := range numbers {
		if seq > due {
			d.reportGap(due, seq-1)
			prev = ""
		}
		p := d.bySeq[seq][0]
		d.checkLink(p, prev)
		due, prev = seq+1, p.hash
	}
	d.reportMisplaced(numbers)
	for ; due <= d.row.Seq && d.replaced[due]; due++ { // already reported
	}
	if due <= d.row.Seq && !d.isUnreadable {
		d.addProblem(BreakTruncated, due, "the history ends at event %d, but the instance is at event %d", due-1, d.row.Seq)
	}
}

// chooseEvent selects, from several events with one seq, the one that the next event follows or that
// the instance ends with. The others were never written by gavel.
func (d *diagnosis) chooseEvent(seq int64) {
	at := d.bySeq[seq]
	if len(at) < 2 {
		return
	}
	d.isShifted = true
	written := 0
	for i, p := range at {
		if p.hash == d.row.Head {
			written = i
		}
		for _, next := range d.bySeq[seq+1] {
			if next.prev == p.hash {
				written = i
			}
		}
	}
	for i, p := range at {
		if i != written {
			d.addProblem(BreakInserted, p.number, "the event here has the number %d, and none follows from it", seq)
		}
	}
	d.bySeq[seq] = []slot{at[written]}
}

// reportGap reports the missing events from one seq to another, except for those already reported as
// replaced.
func (d *diagnosis) reportGap(from, to int64) {
	for from <= to && d.replaced[from] {
		from++
	}
	for to >= from && d.replaced[to] {
		to--
	}
	switch {
	case from > to:
		return
	case from == to:
		d.addProblem(BreakDeleted, from, "the event is missing")
	default:
		d.addProblem(BreakDeleted, from, "the events %d to %d are missing", from, to)
	}
	if next := d.bySeq[to+1]; len(next) > 0 && next[0].number <= to {
		d.isShifted = true // the gap was closed
	}
}

// checkLink checks one event: its hash, and that it follows from the previous event, whose hash is
// prev, or "" if it is not known.
func (d *diagnosis) checkLink(p slot, prev string) {
	switch {
	case p.state == slotUnsealed:
		d.addProblem(BreakEdited, p.seq, "%s", p.problem)
		d.replaced[p.seq] = true
	case p.seq == 1 && p.prev != "":
		d.addProblem(BreakEdited, p.seq, "it is the first event but names a previous one")
		d.replaced[p.seq] = true
	case prev != "" && p.prev != prev && !d.replaced[p.seq-1]:
		d.addProblem(BreakEdited, p.seq-1, "it is not the event that event %d follows", p.seq)
		d.replaced[p.seq-1] = true
	}
}

// reportMisplaced reports events in the place of others. If something was inserted or removed, the
// numbers shift, and only the order can be checked.
func (d *diagnosis) reportMisplaced(numbers []int64) {
	events := make([]slot, 0, len(numbers))
	for _, seq := range numbers {
		events = append(events, d.bySeq[seq][0])
	}
	slices.SortFunc(events, func(a, b slot) int { return cmp.Compare(a.number, b.number) })
	highest := int64(0)
	for _, p := range events {
		if wrong := p.seq != p.number; wrong && (!d.isShifted || p.seq < highest) {
			d.addProblem(BreakReordered, p.number, "event %d is in the place of event %d", p.seq, p.number)
		}
		highest = max(highest, p.seq)
	}
}
