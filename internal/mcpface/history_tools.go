package mcpface

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
)

// historyAnswer describes what workflow.judge.history may answer: the history of an
// instance (engine.HistoryResult), or what a search found (engine.DecisionsResult).
type historyAnswer struct {
	WorkflowID string                 `json:"workflowId"`
	Decisions  []engine.FoundDecision `json:"decisions"`
	Count      int                    `json:"count"`
	NextAfter  int64                  `json:"nextAfter"`
	NextCursor string                 `json:"nextCursor"`
}

// The arguments of a search, without which workflow.judge.history reads one history.
var searchParams = []param{
	{name: "workflow", kind: kindString, help: "Search: only of this workflow."},
	{name: "principal", kind: kindString, help: "Search: only what this principal asked for."},
	{name: "action", kind: kindString, help: "Search: only about this action."},
	{name: "outcome", kind: kindString, enum: texts(engine.Outcomes), help: "Search: only with this outcome."},
	{name: "decidedBy", kind: kindString, enum: texts(engine.Deciders), help: "Search: only what this layer settled."},
	{name: "assurance", kind: kindString, enum: texts(engine.Assurances), help: "Search: only where this much was examined."},
	{name: "code", kind: kindString, help: "Search: only with this machine code of a refusal or escalation."},
	{name: "degraded", kind: kindBoolean, help: "Search: only where a judgement could not be had (true), or could (false)."},
	{name: "minConfidence", kind: kindNumber, within: &bounds{0, 1}, help: "Search: only with at least this confidence."},
	{name: "maxConfidence", kind: kindNumber, within: &bounds{0, 1}, help: "Search: only with at most this confidence."},
	{name: "since", kind: kindString, help: "Search: only from this time on, RFC 3339 (2026-01-02T15:04:05Z)."},
	{name: "until", kind: kindString, help: "Search: only before this time, RFC 3339."},
	{name: "text", kind: kindString, help: "Search: only where reasoning and findings hold all of these words."},
	{name: "cursor", kind: kindString, help: "Search: continue here, nextCursor of the page before."},
}

var historyTool = tool{
	name: "workflow.judge.history", title: "Show the decisions", readOnly: true, idempotent: true, output: historyAnswer{},
	description: "Show every decision about an instance, oldest first, refused ones and pre-checks (flagged) included: what was asked, what each layer said, with what confidence and assurance. Or search the decisions about all of your instances, newest first: give any of the arguments of a search, with id or without.",
	params: slices.Concat([]param{
		{name: paramID.name, kind: kindString, help: paramID.help + " Needed unless you search."},
		{name: "afterSeq", kind: kindInteger, within: &bounds{least: 0}, help: "Continue after this seq: nextAfter of the page before. Not for a search."},
		{name: "limit", kind: kindInteger, within: &bounds{1, 1000}, help: "How many decisions at most, 1 to 1000; 100 when left out."},
		{name: paramPast.name, kind: kindInteger, within: &bounds{least: 1}, help: "Look at the past: the decisions up to this revision. Leave it out for now. Not for a search."},
		{name: paramAt.name, kind: kindString, help: "Look at the past: the decisions up to this time, RFC 3339 (2026-01-02T15:04:05Z). Not for a search."},
	}, searchParams),
	run: runHistory,
}

var statisticsTool = tool{
	name: "workflow.judge.statistics", title: "Count the decisions", readOnly: true, idempotent: true, output: engine.StatisticsResult{},
	description: "Count the decisions about your instances per action and state: how many were approved, rejected and escalated, by which layer, why, how long it took, with what confidence. Use it to see where a process gets stuck.",
	params: []param{
		{name: "workflow", kind: kindString, help: "Only of this workflow."},
		{name: "since", kind: kindString, help: "Only from this time on, RFC 3339 (2026-01-02T15:04:05Z)."},
		{name: "until", kind: kindString, help: "Only before this time, RFC 3339."},
	},
	run: runStatistics,
}

func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

func runHistory(ctx context.Context, f *Face, a arguments) (answer, error) {
	if slices.ContainsFunc(searchParams, func(p param) bool { return a.fields[p.name] != nil }) {
		return runSearch(ctx, f, a)
	}
	if a.fields[paramID.name] == nil {
		return answer{}, wrong(paramID.name, fmt.Sprintf("The argument %q is missing.", paramID.name), paramID.help)
	}
	until, err := a.when()
	if err != nil {
		return answer{}, err
	}
	r, err := f.cfg.Engine.History(ctx, callerOf(ctx), engine.HistoryRequest{
		ID: a.text("id"), AfterSeq: a.integer("afterSeq"), Limit: int(a.integer("limit")), Until: until,
	})
	if err != nil {
		return answer{}, err
	}
	line := counted(r.Count, "decision") + ", oldest first."
	if r.NextAfter > 0 {
		line += fmt.Sprintf(" More with afterSeq %d.", r.NextAfter)
	}
	return answer{line: line, content: r}, nil
}

func runSearch(ctx context.Context, f *Face, a arguments) (answer, error) {
	for _, other := range [][2]string{
		{"afterSeq", "A search continues with cursor."},
		{paramPast.name, "A search ends in the past with until."},
		{paramAt.name, "A search ends in the past with until."},
	} {
		if a.fields[other[0]] != nil {
			return answer{}, wrong(other[0], fmt.Sprintf("The argument %q goes without those of a search.", other[0]), other[1])
		}
	}
	q := engine.DecisionQuery{
		Instance: a.text("id"), Workflow: a.text("workflow"), Principal: a.text("principal"), Action: a.text("action"),
		Outcome: judge.Outcome(a.text("outcome")), DecidedBy: judge.LayerName(a.text("decidedBy")), Assurance: judge.Assurance(a.text("assurance")),
		Code: a.text("code"), Degraded: optional[bool](a, "degraded"), Text: a.text("text"),
		MinConfidence: optional[float64](a, "minConfidence"), MaxConfidence: optional[float64](a, "maxConfidence"),
	}
	var err error
	if q.Since, q.Until, err = a.times(); err != nil {
		return answer{}, err
	}
	r, err := f.cfg.Engine.Decisions(ctx, callerOf(ctx), engine.DecisionsRequest{Query: q, Cursor: a.text("cursor"), Limit: int(a.integer("limit"))})
	if err != nil {
		return answer{}, err
	}
	line := counted(r.Count, "decision") + ", newest first."
	if r.NextCursor != "" {
		line += fmt.Sprintf(" More with cursor %q.", r.NextCursor)
	}
	return answer{line: line, content: r}, nil
}

func runStatistics(ctx context.Context, f *Face, a arguments) (answer, error) {
	since, until, err := a.times()
	if err != nil {
		return answer{}, err
	}
	r, err := f.cfg.Engine.Statistics(ctx, callerOf(ctx), engine.StatisticsRequest{Workflow: a.text("workflow"), Since: since, Until: until})
	if err != nil {
		return answer{}, err
	}
	return answer{line: fmt.Sprintf("%s about %s.", counted(int(r.Decisions), "decision"), counted(len(r.Transitions), "transition")), content: r}, nil
}

// times are the arguments since and until.
func (a arguments) times() (since, until time.Time, err error) {
	for name, into := range map[string]*time.Time{"since": &since, "until": &until} {
		text := a.text(name)
		if text == "" {
			continue
		}
		if *into, err = time.Parse(time.RFC3339, text); err != nil {
			return since, until, wrong(name, fmt.Sprintf("The argument %q is not a time: %.40q.", name, text), "Write it as RFC 3339: 2026-01-02T15:04:05Z.")
		}
	}
	return since, until, nil
}
