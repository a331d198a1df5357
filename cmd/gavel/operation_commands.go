package main

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

// Names of fields that many commands take as arguments, or do not take.
var (
	byID       = []string{"id"}
	byReviewID = []string{"reviewId"}
	reviewID   = map[string]string{"reviewId": "id"}
	ofInstance = map[string]string{"id": "instance"}
)

// closed lists the codes that mean that a review can no longer be decided.
var closed = []engine.Code{engine.CodeReviewClosed, engine.CodeConflict}

// operationCommands are the commands that perform one operation, by their words on the command line.
var operationCommands = map[string]*operationCommand{
	"start": {op: operation.Start.Operation, positional: []string{"type"}, flags: map[string]string{"type": "workflow"}, text: printStart},
	"advance": {
		op: operation.Advance.Operation, positional: []string{"id", "action"}, text: printAdvance,
		bad: []engine.Code{engine.CodeConflict, engine.CodeInstanceEnded, engine.CodeValuesDestroyed},
	},
	"status":         {op: operation.Status.Operation, positional: byID, without: []string{"revision", "at"}, text: printStatus},
	"instances list": {op: operation.Instances.Operation, rows: typed(instanceRows), none: say("no instances")},
	"instances show": {op: operation.Status.Operation, positional: byID},
	"instances history": {
		op: operation.History.Operation, positional: byID, none: say("no decisions"), spare: []string{"ASSURANCE", "CONFIDENCE", "FROM"},
		rows: typed(func(r engine.HistoryResult) [][]string { return decisionRows(r.Decisions) }),
	},
	"instances timeline": {op: operation.Timeline.Operation, positional: byID, flags: map[string]string{"after": "after-seq"}, rows: typed(timelineRows), none: say("no events")},
	"instances undo":     {op: operation.Undo.Operation, positional: byID, bad: unturnable},
	"instances redo":     {op: operation.Redo.Operation, positional: byID, bad: unturnable},
	"instances release":  {op: operation.Release.Operation, positional: byID, bad: []engine.Code{engine.CodeCallOpen, engine.CodeConflict}},
	"history search": {
		op: operation.Decisions.Operation, flags: ofInstance, none: say("no such decisions"),
		spare: []string{"ASSURANCE", "CONFIDENCE", "FROM", "DECIDED BY"},
		rows:  typed(func(r engine.DecisionsResult) [][]string { return foundRows(r.Decisions) }),
	},
	"history export": {op: operation.Decisions.Operation, flags: ofInstance, without: []string{"cursor", "limit"}},
	"history stats": {
		op: operation.Statistics.Operation, none: say("no such decisions"), rows: typed(statsRows),
		spare: []string{"P95", "TOOK", "CONFIDENCE (QUARTILES)", "ASKED ONLY", "DEGRADED", "DECIDED BY"},
	},
	"judge clear": {op: operation.ClearRefusals.Operation, flags: ofInstance},
	"review list": {
		op: operation.Reviews.Operation, flags: ofInstance, usual: map[string]string{"status": string(record.ReviewOpen)},
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

func say(none string) func(any) string { return func(any) string { return none } }

func sayNoReviews(req any) string {
	if r, _ := req.(*engine.ReviewsRequest); r.Status == string(record.ReviewOpen) {
		return "nothing waits for a person"
	}
	return "no such reviews"
}

// unturnable lists the codes that mean that undo or redo is not possible.
var unturnable = []engine.Code{engine.CodeNothingToUndo, engine.CodeInstanceEnded, engine.CodeConflict, engine.CodeValuesDestroyed}

// decideReview returns a command that decides a review.
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
