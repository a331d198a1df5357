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

// What follows runs only for a history that is known to be broken, and says how. It
// looks at the events by their places: the numbers that the store keeps them under,
// which need not be the numbers that they give themselves.

// place is what stands at one place of a history.
type place struct {
	number int64
	state  placeState
	// seq is the number that the event gives itself; one whose hash does not cover its
	// bytes may say anything, and counts where it stands.
	seq        int64
	hash, prev string
	how        string // what is wrong with it, unless it is as it was written
}

type placeState int

const (
	placeSealed     placeState = iota // the hash covers the bytes and the previous hash
	placeUnsealed                     // it does not
	placeForeign                      // sealed, and of another instance
	placeUndecoded                    // no event
	placeUnreadable                   // the store cannot say, and nothing behind it
)

// diagnose says how the history is broken, from the last event that the chain took on.
// why is what was noticed behind it, nil for an event of another instance.
func (h *historyCheck) diagnose(ctx context.Context, why error) error {
	h.folding = false
	before := len(h.problems)
	d := &diagnosis{historyCheck: h, from: max(1, h.chain.Seq()), bySeq: map[int64][]place{}, replaced: map[int64]bool{}}
	places, err := h.readPlaces(ctx, d.from)
	if err != nil {
		return err
	}
	if !d.sortPlaces(places) {
		return nil
	}
	d.run()
	if len(h.problems) > before {
		return nil
	}
	stray, err := h.hasStrays(ctx)
	switch {
	case err != nil:
		return err
	case stray:
		h.addProblem(BreakInserted, 0, "an event is kept below the place of the first one")
	default: // whatever was noticed is not to be lost
		h.addProblem(BreakEdited, h.chain.Seq()+1, "%s", clauseOf(why))
	}
	return nil
}

// hasStrays reports whether something is kept below the place of event 1, where it could
// pass for another event.
func (h *historyCheck) hasStrays(ctx context.Context) (bool, error) {
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

// readPlaces asks for every place by itself: what stands behind a place, when asked for
// twice, is the same, and then the place between is empty.
func (h *historyCheck) readPlaces(ctx context.Context, from int64) ([]place, error) {
	var places []place
	var waiting *place // what was found behind the last place; its number is not known yet
	var body []byte
	for number := from; ; number++ {
		e, there, err := h.firstBehind(ctx, number-1)
		if err != nil && !isDamage(err) {
			return nil, engine.StoreError("be verified", err)
		}
		if waiting != nil && there && err == nil && e.Hash == waiting.hash && bytes.Equal(e.Body(), body) {
			*waiting = h.placeOf(e, number)
			continue
		}
		if waiting != nil {
			places, waiting, body = append(places, *waiting), nil, nil
		}
		switch {
		case err != nil && (!isUndecodable(err) || number > h.row.Seq):
			return append(places, place{number: number, state: placeUnreadable, how: err.Error()}), nil
		case err != nil:
			places = append(places, place{number: number, state: placeUndecoded, how: clauseOf(err)})
		case !there:
			return places, nil
		default:
			p := h.placeOf(e, number)
			waiting, body = &p, e.Body()
		}
	}
}

func (h *historyCheck) firstBehind(ctx context.Context, number int64) (e record.Event, there bool, err error) {
	for e, err := range h.v.store.Events(ctx, store.EventQuery{Instance: h.row.ID, AfterSeq: number, Limit: 1}) {
		return e, true, err
	}
	return record.Event{}, false, nil
}

func (h *historyCheck) placeOf(e record.Event, number int64) place {
	p := place{number: number, seq: e.Seq, hash: e.Hash, prev: e.PrevHash}
	if err := record.VerifyEvent(e); err != nil {
		p.state, p.seq, p.how = placeUnsealed, number, clauseOf(err)
	} else if e.Instance != h.row.ID {
		p.state, p.how = placeForeign, fmt.Sprintf("event %d of instance %s stands here", e.Seq, e.Instance)
	}
	return p
}

// clauseOf is what is wrong, without where.
func clauseOf(err error) string {
	var broken *record.BrokenError
	switch {
	case err == nil:
		return "it does not follow"
	case errors.As(err, &broken):
		return broken.How
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err.Error()
}

// diagnosis looks at a broken history by the numbers that the events give themselves.
type diagnosis struct {
	*historyCheck
	from  int64 // the first number in question
	bySeq map[int64][]place
	// replaced are the numbers whose event is known not to be the one that was written.
	replaced map[int64]bool
	// moved says that places and numbers have come apart, because something was put in
	// or taken out; blind that what is behind the last place cannot be known.
	moved, blind bool
}

// sortPlaces tells of what can be said of single places, and sorts the rest by number. It is
// false when there is nothing more to say.
func (d *diagnosis) sortPlaces(places []place) bool {
	foreign := 0
	for _, p := range places {
		if p.state == placeForeign {
			foreign++
		}
	}
	if foreign > 0 && foreign == len(places) {
		d.problems = nil // what stands beside it is as foreign
		d.addProblem(BreakSwapped, places[0].number, "%s, and another history than its own behind it", places[0].how)
		return false
	}
	for _, p := range places {
		if p.number > d.chain.Seq() {
			d.events++
		}
		switch {
		case p.state == placeForeign:
			d.addProblem(BreakSwapped, p.number, "%s", p.how)
			d.replaced[p.number] = true
		case p.state == placeUndecoded:
			d.addProblem(BreakEdited, p.number, "its bytes cannot be read: %s", p.how)
			d.replaced[p.number] = true
		case p.state == placeUnreadable:
			d.addProblem(BreakUnreadable, p.number, "the history cannot be read from here on: %s", p.how)
			d.blind = true
		case p.seq < d.from:
			d.addProblem(BreakInserted, p.number, "an event that says it is number %d stands here", p.seq)
			d.moved = true
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
	due, prev := d.from, "" // the next number, and the hash that it should follow from
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
	for ; due <= d.row.Seq && d.replaced[due]; due++ { // told of
	}
	if due <= d.row.Seq && !d.blind {
		d.addProblem(BreakTruncated, due, "the history ends at event %d, the instance is at event %d", due-1, d.row.Seq)
	}
}

// chooseEvent finds, of several events with one number, the one that the next event follows
// from, or that the instance ends with. The others were never written.
func (d *diagnosis) chooseEvent(seq int64) {
	at := d.bySeq[seq]
	if len(at) < 2 {
		return
	}
	d.moved = true
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
			d.addProblem(BreakInserted, p.number, "an event that says it is number %d stands here, and none follows from it", seq)
		}
	}
	d.bySeq[seq] = []place{at[written]}
}

// reportGap tells of the events that are missing, from one number to another, unless it was
// told already what stands in their places.
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
		d.moved = true // the gap was closed
	}
}

// checkLink checks one event: its hash, and that it follows from the one before, whose hash
// is prev, "" where that is not known.
func (d *diagnosis) checkLink(p place, prev string) {
	switch {
	case p.state == placeUnsealed:
		d.addProblem(BreakEdited, p.seq, "%s", p.how)
		d.replaced[p.seq] = true
	case p.seq == 1 && p.prev != "":
		d.addProblem(BreakEdited, p.seq, "it is the first, and names an event before it")
		d.replaced[p.seq] = true
	case prev != "" && p.prev != prev && !d.replaced[p.seq-1]:
		d.addProblem(BreakEdited, p.seq-1, "it is not the event that event %d was written behind", p.seq)
		d.replaced[p.seq-1] = true
	}
}

// reportMisplaced tells of events that stand in the places of others. Where something was put
// in or taken out the numbers shift, and only the order can be wrong.
func (d *diagnosis) reportMisplaced(numbers []int64) {
	events := make([]place, 0, len(numbers))
	for _, seq := range numbers {
		events = append(events, d.bySeq[seq][0])
	}
	slices.SortFunc(events, func(a, b place) int { return cmp.Compare(a.number, b.number) })
	highest := int64(0)
	for _, p := range events {
		if wrong := p.seq != p.number; wrong && (!d.moved || p.seq < highest) {
			d.addProblem(BreakReordered, p.number, "event %d stands in the place of event %d", p.seq, p.number)
		}
		highest = max(highest, p.seq)
	}
}
