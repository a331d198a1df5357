package operation

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
)

// EventsRequest reads committed events, oldest first; with an ID, those of one instance.
type EventsRequest struct {
	ID, Workflow       string
	LastEventID, After *int64
	Limit              int
}

// Tail returns the request for the engine. It begins at from unless the request names a position. LastEventID takes
// precedence over After, because clients resume streams at the same URL.
func (r EventsRequest) Tail(from int64) engine.TailRequest {
	switch {
	case r.LastEventID != nil:
		from = max(*r.LastEventID, 0)
	case r.After != nil:
		from = max(*r.After, -1)
	}
	return engine.TailRequest{After: from, Limit: r.Limit, Workflow: r.Workflow, Instance: r.ID}
}

func toStrings[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

const aboutEvents = "With Accept: text/event-stream, events arrive as they happen, from every process. A stream resumes after Last-Event-ID and neither loses nor repeats an event."

// The operations on records.
var (
	History = Add(Operation{
		ID: "history", Group: "history", Title: "Show the decisions", Right: engine.RightRead,
		Description: "Show every decision about an instance, oldest first, with refusals and pre-checks (flagged): the request, and each layer's opinion, confidence and assurance.",
		Fields: []Field{
			{Name: "id", Required: true, Help: fieldID.Help + " Required unless you search.", HTTPHelp: fieldID.Help},
			{Name: "afterSeq", HTTPName: "after", Range: &Range{Min: 0}, Help: "Continue after this seq: nextAfter of the previous page. Not for a search."},
			PageLimit("decisions", 1000),
			{Name: "revision", Range: &Range{Min: 1}, Help: "Show the past: the decisions up to this revision. Not for a search."},
			{Name: "at", Help: "Show the past: the decisions up to this time, RFC 3339 (2026-03-10T09:30:00Z). Not for a search."},
		},
		Tool: Tool{
			Name: "workflow.judge.history", ReadOnly: true, Or: "decisions", OrPrefix: "Search: ", Without: []string{"id"},
			Note: "Or search the decisions about all your instances, newest first: give any search argument, with or without id.",
		},
		Routes: []Route{{At: "GET /v1/instances/{id}/history"}},
		Show:   Adapt(briefHistory),
	}, callEngine(Engine.History))
	Timeline = Add(Operation{
		ID: "timeline", Group: "history", Title: "Read the timeline of an instance", Right: engine.RightRead,
		Description: "Every event of an instance, oldest first: decisions, checkpoints, rollbacks, undos, migrations and others, without their documents.",
		Fields: []Field{
			fieldID,
			{Name: "after", Go: "AfterSeq", Range: &Range{Min: 0}, Help: "Continue after this seq: nextAfter of the previous page."},
			PageLimit("entries", 1000), fieldPast, fieldAt,
		},
		Routes: []Route{{At: "GET /v1/instances/{id}/timeline"}},
	}, callEngine(Engine.Timeline))
	Events = Add(Operation{
		ID: "events", Group: "history", Title: "Read events", Right: engine.RightRead,
		Description: "The events that the caller may see, oldest first, page by page. " + aboutEvents,
		Fields: []Field{
			fieldID,
			{Name: "lastEventId", Header: "Last-Event-ID", Help: "The id of the last event that you received; the stream resumes after it."},
			{Name: "after", Help: "Continue after this position: next of the previous page. 0 is before the first event, -1 is the end. By default a page begins with the first event and a stream with new events."},
			fieldWorkflow,
			{Name: "limit", Range: &Range{1, 1000}, Help: "Maximum number of events, 1 to 1000 (default 100). Not for a stream."},
		},
		Routes: []Route{
			{At: "GET /v1/events", Events: true},
			{
				At: "GET /v1/instances/{id}/events", ID: "instanceEvents", Events: true, Without: []string{"workflow"},
				Title: "Read the events of an instance", Description: "Its events, oldest first, page by page. " + aboutEvents,
			},
		},
	}, func(ctx context.Context, c Call, req EventsRequest) (engine.TailResult, error) {
		return c.Engine.Tail(ctx, c.Caller.Principal, req.Tail(0))
	})
	Decisions = Add(Operation{
		ID: "decisions", Group: "history", Title: "Search the decisions", Right: engine.RightRead,
		Description: "Search the decisions that the caller may see, newest first, page by page.",
		Fields: []Field{
			fieldWorkflow,
			{Name: "id", Go: "Instance", Help: "Only about this instance."},
			{Name: "owner", HTTPOnly: true, Help: "Only about instances that this principal started."},
			{Name: "principal", Help: "Only requests of this principal."},
			{Name: "action", Help: "Only about this action."},
			{Name: "outcome", Enum: toStrings(engine.Outcomes), Help: "Only with this outcome."},
			{Name: "decidedBy", Enum: toStrings(engine.Deciders), Help: "Only those that this layer settled."},
			{Name: "assurance", Enum: toStrings(engine.Assurances), Help: "Only with this assurance."},
			{Name: "code", Help: "Only refusals and escalations with this code."},
			{Name: "degraded", Help: "Only decisions with (true) or without (false) an unavailable judgement."},
			{Name: "minConfidence", Range: &Range{0, 1}, Help: "Only with at least this confidence."},
			{Name: "maxConfidence", Range: &Range{0, 1}, Help: "Only with at most this confidence."},
			fieldSince, fieldUntil,
			{Name: "kind", Go: "Kinds", HTTPOnly: true, Help: "Only events of these kinds."},
			{Name: "text", Help: "Only if reasoning and findings contain all these words."},
			{Name: "cursor", Help: "Continue the list, nextCursor of the previous page."},
			PageLimit("decisions", 1000),
		},
		Routes: []Route{{At: "GET /v1/decisions"}},
		Show:   Adapt(briefDecisions),
	}, callEngine(Engine.Decisions))
	Statistics = Add(Operation{
		ID: "statistics", Group: "history", Title: "Count the decisions", Right: engine.RightRead,
		Description: "Count the decisions about your instances per action and state: approvals, rejections and escalations, deciding layers, reasons, durations and confidence. Use it to see at which action a process gets stuck.",
		Fields:      []Field{fieldWorkflow, fieldSince, fieldUntil},
		Tool:        Tool{Name: "workflow.judge.statistics", ReadOnly: true},
		Routes:      []Route{{At: "GET /v1/decisions/statistics"}},
	}, callEngine(Engine.Statistics))
	Decide = Add(Operation{
		ID: "decide", Group: "decide", Title: "Judge an action without an instance", Right: engine.RightDecide,
		Description: "For callers that keep their own state and only need the judgement. Nothing is recorded; notChecked lists the rules that need a history and were not checked. Reviewers and operators also get the opinion of each layer.",
		Fields: []Field{
			{Name: "idempotencyKey", Go: "Key", Header: fieldKey.Header, Help: "With the same key, a model's answer to exactly this request is reused."},
			{Name: "workflow", Help: "The name of a defined workflow; or give a definition."},
			{Name: "version", Range: &Range{Min: 1}, Help: "The version of the workflow, from 1; omit it for the newest."},
			{Name: "definition", Help: "A definition, as a JSON object. It is not stored."},
			{Name: "state", Required: true, Help: "The state in which the action would be performed."},
			{Name: "action", Required: true, Help: "An action of that state."},
			{Name: "data", Open: true, Help: "The action's data: a JSON object."},
			{Name: "context", Help: "The context that an instance would have: a JSON object."},
		},
		Routes: []Route{{At: "POST /v1/decide"}},
	}, callEngine(Engine.Decide))
)
