package review

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

// byReviewID makes the field reviewId an argument, and reviewID names it id on the command line.
var (
	byReviewID = []string{"reviewId"}
	reviewID   = map[string]string{"reviewId": "id"}
)

// closedCodes lists the codes that mean that a review cannot be decided as requested.
var closedCodes = []engine.Code{engine.CodeReviewClosed, engine.CodeConflict}

// Operations maps the words of each command that performs one operation to its spec.
var Operations = map[string]*cli.OperationSpec{
	"review list": {
		Operation: operation.Reviews.Operation, Flags: map[string]string{"id": "instance"}, Defaults: map[string]string{"status": string(record.ReviewOpen)},
		Rows:      cli.AdaptResult(func(r engine.ReviewsResult) [][]string { return cli.ReviewRows(r.Reviews) }),
		EmptyText: formatNoReviews, JSON: cli.AdaptResult(newReviewList),
	},
	"review show": {
		Operation: operation.Review.Operation, Positional: byReviewID, Flags: reviewID, Text: printReview,
	},
	"review approve": decideReview(judge.Approve),
	"review reject":  decideReview(judge.Reject, "output"),
	"review reopen":  decideReview(engine.Reopen, "output"),
	"review give-up": decideReview(engine.GiveUp, "output"),
}

func formatNoReviews(req any) string {
	if r, _ := req.(*engine.ReviewsRequest); r.Status == string(record.ReviewOpen) {
		return "nothing waits for a person"
	}
	return "no such reviews"
}

// decideReview returns the spec of a command that decides a review.
func decideReview(decision judge.Outcome, without ...string) *cli.OperationSpec {
	return &cli.OperationSpec{
		Operation: operation.Resolve.Operation, Positional: byReviewID, Flags: reviewID, Omitted: without,
		Fixed: map[string]string{"decision": string(decision)}, BadCodes: closedCodes,
		Text: func(_ context.Context, con *cli.Console, a cli.Answer) error {
			r, _ := a.Result.(engine.ResolveResult)
			con.Out.Printf("%s is in state %s\n%s\n", r.ID, r.State, r.Message)
			return nil
		},
		Refused: cli.AdaptResult(func(r engine.ResolveResult) bool {
			carriedOut := r.Review.Status == record.ReviewResolved && r.Review.Decision == decision
			return !carriedOut && (decision != engine.Reopen || r.Review.Status != record.ReviewReopened)
		}),
	}
}
