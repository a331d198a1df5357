package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// EventsRequest reads what was committed, the oldest first.
type EventsRequest struct {
	// LastEventID is the id of the last event of a stream that broke off: it goes on after it.
	LastEventID *int64 `header:"Last-Event-ID"`
	// After is the position to continue after: next of the page before. 0 is from the
	// first event, -1 from the end. When left out, a page begins with the first event and a
	// stream with what is committed from now on.
	After *int64 `query:"after"`
	// Workflow: only of this one.
	Workflow string `query:"workflow"`
	// Limit is how many a page has at most, 1 to 1000; 100 when left out. Not for a stream.
	Limit int `query:"limit"`
}

// InstanceEventsRequest reads what was committed about an instance, the oldest first.
type InstanceEventsRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// LastEventID is the id of the last event of a stream that broke off: it goes on after it.
	LastEventID *int64 `header:"Last-Event-ID"`
	// After is the position to continue after: next of the page before. 0 is from the
	// first event, -1 from the end. When left out, a page begins with the first event and a
	// stream with what is committed from now on.
	After *int64 `query:"after"`
	// Limit is how many a page has at most, 1 to 1000; 100 when left out. Not for a stream.
	Limit int `query:"limit"`
}

const aboutEvents = " With Accept: text/event-stream they come as they happen, whichever process made them; a stream that broke off goes on after Last-Event-ID and neither loses nor doubles one."

// The operations on events.
var (
	Events = Operation[EventsRequest, engine.TailResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/events", ID: "events", Tag: "history", Events: true,
			Summary: "Read what happened", Description: "All events that the caller may see, the oldest first, page by page." + aboutEvents,
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req EventsRequest) (engine.TailResult, error) {
			return h.cfg.Engine.Tail(ctx, who.Principal, req.tail(0))
		},
		about: func(_ EventsRequest, res engine.TailResult) headers { return tailed(res) },
		stream: func(h *Handler, w http.ResponseWriter, r *http.Request, who auth.Identity, req EventsRequest) error {
			return h.stream(w, r, who, req.tail(-1))
		},
	}
	InstanceEvents = Operation[InstanceEventsRequest, engine.TailResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/instances/{id}/events", ID: "instanceEvents", Tag: "history", Events: true,
			Summary: "Read what happened to an instance", Description: "Its events, the oldest first, page by page." + aboutEvents,
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req InstanceEventsRequest) (engine.TailResult, error) {
			return h.cfg.Engine.Tail(ctx, who.Principal, req.tail(0))
		},
		about: func(_ InstanceEventsRequest, res engine.TailResult) headers { return tailed(res) },
		stream: func(h *Handler, w http.ResponseWriter, r *http.Request, who auth.Identity, req InstanceEventsRequest) error {
			return h.stream(w, r, who, req.tail(-1))
		},
	}
)

func (r EventsRequest) tail(from int64) engine.TailRequest {
	return engine.TailRequest{After: startAt(r.LastEventID, r.After, from), Limit: r.Limit, Workflow: r.Workflow}
}

func (r InstanceEventsRequest) tail(from int64) engine.TailRequest {
	return engine.TailRequest{After: startAt(r.LastEventID, r.After, from), Limit: r.Limit, WorkflowID: r.ID}
}

// startAt is where to continue: what a stream had last counts before what its address says,
// because clients take streams up again at the same address.
func startAt(last, after *int64, from int64) int64 {
	switch {
	case last != nil:
		return max(*last, 0)
	case after != nil:
		return max(*after, -1)
	}
	return from
}

func tailed(res engine.TailResult) headers {
	if !res.More {
		return headers{}
	}
	return headers{nextParam: "after", nextValue: strconv.FormatInt(res.Next, 10)}
}
