package main

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

// reviewID is how the command line calls the review of an operation.
var (
	byReviewID = []string{"reviewId"}
	reviewID   = map[string]string{"reviewId": "id"}
)

// closed are the codes that keep a review from being decided.
var closed = []engine.Code{engine.CodeReviewClosed, engine.CodeConflict}

// reviewOperations are the commands that perform one operation, by their words.
var reviewOperations = map[string]*operationCommand{
	"review list": {
		op: operation.Reviews.Operation, flags: map[string]string{"id": "instance"}, usual: map[string]string{"status": string(record.ReviewOpen)},
		rows: typed(func(r engine.ReviewsResult) [][]string { return reviewRows(r.Reviews) }),
		none: sayNoReviews, json: typed(newReviewList),
	},
	"review show": {
		op: operation.Review.Operation, positional: byReviewID, flags: reviewID, text: printReview,
	},
	"review approve": decideReview(judge.Approve),
	"review reject":  decideReview(judge.Reject, "output"),
	"review reopen":  decideReview(engine.Reopen, "output"),
	"review give-up": decideReview(engine.GiveUp, "output"),
}

func sayNoReviews(req any) string {
	if r, _ := req.(*engine.ReviewsRequest); r.Status == string(record.ReviewOpen) {
		return "nothing waits for a person"
	}
	return "no such reviews"
}

// decideReview is a command that decides a review.
func decideReview(decision judge.Outcome, without ...string) *operationCommand {
	return &operationCommand{
		op: operation.Resolve.Operation, positional: byReviewID, flags: reviewID, without: without,
		fixed: map[string]string{"decision": string(decision)}, bad: closed,
		text: func(_ context.Context, con *console, a answer) error {
			r, _ := a.res.(engine.ResolveResult)
			con.out.Printf("%s is in state %s\n%s\n", r.ID, r.State, r.Message)
			return nil
		},
		refused: typed(func(r engine.ResolveResult) bool {
			carriedOut := r.Review.Status == record.ReviewResolved && r.Review.Decision == decision
			return !carriedOut && (decision != engine.Reopen || r.Review.Status != record.ReviewReopened)
		}),
	}
}
