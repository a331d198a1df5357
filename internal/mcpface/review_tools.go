package mcpface

import (
	"context"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// reviewTools are there where an operator opened the review path.
var reviewTools = []tool{
	{
		name: "workflow.review.list", title: "List what waits for a person", readOnly: true, idempotent: true, output: reviewsAnswer{},
		description: "List the moves that wait for a person's decision, most urgent first; an agent sees those of its own instances. Use it after an ESCALATED advance to see whether somebody has decided. With reviewId it shows that one review in full instead: what was asked, with which data, what keeps the judge from deciding, and how it ended.",
		params: []param{
			{name: "reviewId", kind: kindString, help: "Show this review in full (rev-...), instead of a list; goes without the other arguments."},
			{name: "status", kind: kindString, enum: []string{"open", "resolved", "stale", "expired", "superseded", "all"}, help: "Only of this status; open when left out."},
			{name: "workflowId", kind: kindString, help: "Only of this instance (wf-...)."},
			{name: "workflow", kind: kindString, help: "Only of this workflow."},
			{name: "cursor", kind: kindString, help: "Continue here: nextCursor of the page before."},
			{name: "limit", kind: kindInteger, within: &bounds{1, 500}, help: "How many reviews at most, 1 to 500; 50 when left out."},
		},
		run: runReviews,
	},
	{
		name: "workflow.review.resolve", title: "Decide a review", destructive: true, output: engine.ResolveResult{},
		roles:       []engine.Role{engine.RoleReviewer, engine.RoleOperator},
		description: "Decide a move that waits for a person, once and for good. Approve makes the move, if the workflow's own rules still allow it; reject refuses it. Read the whole review first, with workflow.review.list and its reviewId. This is for a person's decision: never decide on your own.",
		params: []param{
			{name: "reviewId", kind: kindString, required: true, help: "The review's id (rev-...)."},
			{name: "decision", kind: kindString, required: true, enum: []string{"approve", "reject"}, help: "approve or reject; there is no default."},
			{name: "reason", kind: kindString, required: true, help: "Why, in one sentence. It is recorded, and whoever asked for the move reads it."},
			paramKey,
		},
		run: runResolve,
	},
}

// reviewsAnswer is what workflow.review.list may answer: a list, or one review.
type reviewsAnswer struct {
	engine.ReviewsResult
	engine.ReviewView
}

func runReviews(ctx context.Context, f *Face, a arguments) (answer, error) {
	if id := a.text("reviewId"); id != "" {
		if len(a.fields) > 1 {
			return answer{}, wrong("reviewId", "The argument \"reviewId\" goes without the others.", "Leave it out for a list.")
		}
		r, err := f.cfg.Engine.Review(ctx, callerOf(ctx), id)
		if err != nil {
			return answer{}, err
		}
		line := fmt.Sprintf("%s, asked for by %s. %s", reviewLabel(r.ReviewSummary), r.RequestedBy, r.Next)
		if r.Reason != "" {
			line += " Reason: " + sentence(r.Reason)
		}
		return answer{line: line, content: r}, nil
	}
	r, err := f.cfg.Engine.Reviews(ctx, callerOf(ctx), engine.ReviewsRequest{
		Status: a.text("status"), WorkflowID: a.text("workflowId"), Workflow: a.text("workflow"), Cursor: a.text("cursor"), Limit: int(a.integer("limit")),
	})
	if err != nil {
		return answer{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, the most urgent first.", counted(r.Count, "review"))
	const named = 5
	for i, one := range r.Reviews {
		if i == named {
			b.WriteString(" ...")
			break
		}
		fmt.Fprintf(&b, " %s.", reviewLabel(one))
	}
	if r.NextCursor != "" {
		fmt.Fprintf(&b, " More with cursor %q.", r.NextCursor)
	}
	return answer{line: b.String(), content: r}, nil
}

// reviewLabel names a review and what it is about.
func reviewLabel(r engine.ReviewSummary) string {
	return fmt.Sprintf("%s (%s, %s): %q in %q of %s (%s)", r.ID, r.Status, r.Priority, r.Action, r.From, r.Instance, r.Workflow)
}

func runResolve(ctx context.Context, f *Face, a arguments) (answer, error) {
	r, err := f.cfg.Engine.Resolve(ctx, callerOf(ctx), engine.ResolveRequest{
		ID: a.text("reviewId"), Decision: judge.Outcome(a.text("decision")), Reason: a.text("reason"),
		Channel: record.ChannelMCP, Key: a.text("idempotencyKey"),
	})
	if err != nil {
		return answer{}, err
	}
	what := fmt.Sprintf("%q in %q of %s (%s)", r.Review.Action, r.Review.From, r.Review.Instance, r.Review.ID)
	switch {
	case r.Applied:
		return answer{line: fmt.Sprintf("APPROVED %s. %s", what, r.Progress), content: r}, nil
	case r.Review.Status == record.ReviewResolved:
		return answer{line: fmt.Sprintf("REJECTED %s: %s Nothing moved. %s", what, sentence(r.Review.Reason), r.Progress), content: r}, nil
	default:
		return answer{line: fmt.Sprintf("NOT APPROVED: %s %s was not performed, and its review is %s. %s", sentence(r.Review.Reason), what, r.Review.Status, r.Progress), content: r, refused: true}, nil
	}
}
