package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/judge"
)

// HistoryRequest reads the history of an instance, the oldest first.
type HistoryRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// After is the seq to continue after: nextAfter of the page before.
	After int64 `query:"after"`
	// Limit is how many at most, 1 to 1000; 100 when left out.
	Limit int `query:"limit"`
	// Revision ends it with this one.
	Revision int64 `query:"revision"`
	// At ends it at this time (RFC 3339).
	At time.Time `query:"at"`
}

func (r HistoryRequest) engine() engine.HistoryRequest {
	return engine.HistoryRequest{ID: r.ID, AfterSeq: r.After, Limit: r.Limit, Until: engine.When{Revision: r.Revision, At: r.At}}
}

// DecisionsRequest looks for decisions, the newest first. What is left out selects all.
type DecisionsRequest struct {
	// Workflow: only of this one.
	Workflow string `query:"workflow"`
	// Instance: only about this one.
	Instance string `query:"instance"`
	// Owner: only about instances that this principal started.
	Owner string `query:"owner"`
	// Principal: only what this one asked for.
	Principal string `query:"principal"`
	// Action: only about this one.
	Action string `query:"action"`
	// Outcome: only with this one.
	Outcome judge.Outcome `query:"outcome"`
	// DecidedBy: only what this layer settled.
	DecidedBy judge.LayerName `query:"decidedBy"`
	// Assurance: only where this much was examined.
	Assurance judge.Assurance `query:"assurance"`
	// Code: only with this one of a refusal or escalation.
	Code string `query:"code"`
	// Degraded: only where a judgement could not be had (true), or could (false).
	Degraded *bool `query:"degraded"`
	// MinConfidence: only with at least this.
	MinConfidence *float64 `query:"minConfidence"`
	// MaxConfidence: only with at most this.
	MaxConfidence *float64 `query:"maxConfidence"`
	// Since: only from this time on (RFC 3339).
	Since time.Time `query:"since"`
	// Until: only before this time (RFC 3339).
	Until time.Time `query:"until"`
	// Kinds: only of these kinds of event.
	Kinds []string `query:"kind"`
	// Text: only where reasoning and findings hold all of these words.
	Text string `query:"text"`
	// Cursor is nextCursor of the page before.
	Cursor string `query:"cursor"`
	// Limit is how many at most, 1 to 1000; 100 when left out.
	Limit int `query:"limit"`
}

func (r DecisionsRequest) engine() engine.DecisionsRequest {
	q := engine.DecisionQuery{
		Workflow: r.Workflow, Instance: r.Instance, Owner: r.Owner, Principal: r.Principal, Action: r.Action,
		Outcome: r.Outcome, DecidedBy: r.DecidedBy, Assurance: r.Assurance, Code: r.Code, Degraded: r.Degraded,
		MinConfidence: r.MinConfidence, MaxConfidence: r.MaxConfidence, Since: r.Since, Until: r.Until, Text: r.Text,
	}
	for _, k := range r.Kinds {
		q.Kinds = append(q.Kinds, record.Kind(k))
	}
	return engine.DecisionsRequest{Query: q, Cursor: r.Cursor, Limit: r.Limit}
}

// StatisticsRequest asks for figures about decisions.
type StatisticsRequest struct {
	// Workflow: only of this one.
	Workflow string `query:"workflow"`
	// Since: only from this time on (RFC 3339).
	Since time.Time `query:"since"`
	// Until: only before this time (RFC 3339).
	Until time.Time `query:"until"`
}

// The operations on what was recorded.
var (
	History = Operation[HistoryRequest, engine.HistoryResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/instances/{id}/history", ID: "history", Tag: "history",
			Summary: "Read the decisions about an instance", Description: "The oldest first, refused ones and pre-checks (flagged) included.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req HistoryRequest) (engine.HistoryResult, error) {
			return h.cfg.Engine.History(ctx, who.Principal, req.engine())
		},
		about: func(_ HistoryRequest, res engine.HistoryResult) headers { return after(res.NextAfter) },
	}
	Timeline = Operation[HistoryRequest, engine.TimelineResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/instances/{id}/timeline", ID: "timeline", Tag: "history",
			Summary: "Read all that happened to an instance", Description: "The oldest first: decisions, checkpoints, rollbacks, undos, migrations and all the rest, without their documents.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req HistoryRequest) (engine.TimelineResult, error) {
			return h.cfg.Engine.Timeline(ctx, who.Principal, req.engine())
		},
		about: func(_ HistoryRequest, res engine.TimelineResult) headers { return after(res.NextAfter) },
	}
	Decisions = Operation[DecisionsRequest, engine.DecisionsResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/decisions", ID: "decisions", Tag: "history",
			Summary: "Look for decisions", Description: "Among all that the caller may see, the newest first, page by page.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req DecisionsRequest) (engine.DecisionsResult, error) {
			return h.cfg.Engine.Decisions(ctx, who.Principal, req.engine())
		},
		about: func(_ DecisionsRequest, res engine.DecisionsResult) headers {
			return headers{nextParam: "cursor", nextValue: res.NextCursor}
		},
	}
	Statistics = Operation[StatisticsRequest, engine.StatisticsResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/decisions/statistics", ID: "statistics", Tag: "history",
			Summary: "Count decisions", Description: "Per workflow, state and action: how many were approved, rejected and escalated, by which layer, why, how long it took, with what confidence.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req StatisticsRequest) (engine.StatisticsResult, error) {
			return h.cfg.Engine.Statistics(ctx, who.Principal, engine.StatisticsRequest{Workflow: req.Workflow, Since: req.Since, Until: req.Until})
		},
	}
)

// after continues a listing by seq.
func after(next int64) headers {
	if next == 0 {
		return headers{}
	}
	return headers{nextParam: "after", nextValue: strconv.FormatInt(next, 10)}
}
