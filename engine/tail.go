package engine

import (
	"context"
	"iter"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// EventView is an event of any kind as callers see it, without context and data.
type EventView struct {
	// Position orders all events of a store; it never changes.
	Position  int64         `json:"position"`
	Instance  string        `json:"id"`
	Workflow  string        `json:"workflow"`
	Version   int           `json:"version"`
	Seq       int64         `json:"seq"`
	Revision  int64         `json:"revision"`
	Time      time.Time     `json:"time"`
	Kind      record.Kind   `json:"kind"`
	Principal string        `json:"principal"`
	Role      string        `json:"role"`
	Action    string        `json:"action,omitempty"`
	From      string        `json:"from,omitempty"`
	To        string        `json:"to,omitempty"`
	Status    record.Status `json:"status"`
	// Decision is set for events that carry one.
	Decision *Decision `json:"decision,omitempty"`
	// ReviewID is the review that the event opened or ended, ReviewStatus its status after the event.
	ReviewID     string              `json:"reviewId,omitempty"`
	ReviewStatus record.ReviewStatus `json:"reviewStatus,omitempty"`
	Hash         string              `json:"hash"`
}

// TailRequest asks for events in commit order.
type TailRequest struct {
	// After excludes events up to and including a position; 0 starts at the first event that is kept. A
	// negative value starts at the end and excludes everything committed so far.
	After int64
	Limit int // 0 is 100; at most 1000
	// Instance and Workflow, if not "", restrict the events to one instance or one workflow.
	Instance, Workflow string
}

// TailResult answers a TailRequest.
type TailResult struct {
	Events []EventView `json:"events"` // never nil
	// Next is the After of the next request. It advances even if the caller may see none of the events.
	Next int64 `json:"next"`
	// More reports whether more events are available already.
	More bool `json:"more"`
}

// Tail returns the events committed after a position, by any process. Agents see the events of their own
// instances and of shared ones.
func (e *Engine) Tail(ctx context.Context, p Principal, req TailRequest) (TailResult, error) {
	return e.readTail(ctx, p, req, pageBytes)
}

// readTail is Tail with pages limited to the given number of bytes (most).
func (e *Engine) readTail(ctx context.Context, p Principal, req TailRequest, most int) (TailResult, error) {
	if err := Authorize(p, RightRead); err != nil {
		return TailResult{}, err
	}
	limit, err := pageSize(req.Limit, defaultHistoryPage, maxHistoryPage)
	if err != nil {
		return TailResult{}, err
	}
	if req.Instance != "" {
		if _, err := e.loadInstance(ctx, p, req.Instance); err != nil {
			return TailResult{}, err
		}
	}
	last, err := e.cfg.Store.LastPosition(ctx)
	switch {
	case err != nil:
		return TailResult{}, StoreError("find the last event", err)
	case req.After < 0:
		return TailResult{Events: []EventView{}, Next: last}, nil
	case req.After >= last:
		return TailResult{Events: []EventView{}, Next: req.After}, nil
	}
	return e.tailPage(ctx, p, req, last, limit, most)
}

// maxTailed limits how many events one request examines.
const maxTailed = 5000

func (e *Engine) tailPage(ctx context.Context, p Principal, req TailRequest, last int64, limit, most int) (TailResult, error) {
	ctx, read, err := e.BeginBulkRead(ctx, p)
	if err != nil {
		return TailResult{}, err
	}
	defer read.End()
	q := store.TailQuery{After: req.After, UpTo: last, Instance: req.Instance}
	if q.Instance == "" {
		q.UpTo = min(last, req.After+maxTailed)
	}
	sees, err := e.loadSight(ctx, p)
	if err != nil {
		return TailResult{}, err
	}
	list := func(of listPart) iter.Seq2[store.PlacedEvent, error] {
		q := q
		q.Workflow, q.Owner = of.workflow, of.owner
		return e.cfg.Store.EventsAfter(ctx, q)
	}
	next := q.UpTo
	var found []store.PlacedEvent
	for ev, err := range withYield(ctx, read, "read the events", mergeParts(sees.listParts(req.Workflow, ""), list, earliestFirst)) {
		if err != nil {
			return TailResult{}, err
		}
		if sees.showsEvent(req, ev) {
			found = append(found, ev)
			read.add(len(ev.Event.Body()))
		}
		if len(found) == limit || read.bytes >= most || read.isFull() {
			next = ev.Position
			break
		}
	}
	show := e.newView(p)
	views, err := showEvents(ctx, read, found, func(ev store.PlacedEvent) (EventView, error) {
		if err := show.prepareEvent(ctx, ev); err != nil {
			return EventView{}, err
		}
		return eventView(ctx, show, ev)
	})
	if err != nil {
		return TailResult{}, err
	}
	if n := len(views); n < len(found) {
		next = found[n-1].Position
	}
	return TailResult{Events: views, Next: next, More: next < last}, nil
}

func (s sight) showsEvent(req TailRequest, ev store.PlacedEvent) bool {
	return s.sees(ev.Event.Workflow, ev.Owner) &&
		(req.Instance == "" || ev.Event.Instance == req.Instance) && (req.Workflow == "" || ev.Event.Workflow == req.Workflow)
}

func eventView(ctx context.Context, show *view, at store.PlacedEvent) (EventView, error) {
	ev := at.Event
	out := EventView{
		Position: at.Position, Instance: ev.Instance, Workflow: ev.Workflow, Version: ev.Version, Seq: ev.Seq, Revision: ev.Revision,
		Time: ev.Time, Kind: ev.Kind, Principal: ev.Principal, Role: ev.Role, Action: ev.Action, From: ev.From, To: ev.To, Status: ev.Status, Hash: ev.Hash,
	}
	if ev.Review != nil {
		out.ReviewID, out.ReviewStatus = ev.Review.ID, ev.Review.Status
	}
	if ev.Decision == nil {
		var err error
		out.Action, _, err = show.renderWords(ctx, ev, "")
		return out, err
	}
	entry, err := show.renderEntry(ctx, ev)
	if err != nil {
		return EventView{}, err
	}
	d := entry.Decision
	d.Evidence, out.Action = withoutContent(d.Evidence), entry.Action
	out.Decision = &d
	return out, nil
}
