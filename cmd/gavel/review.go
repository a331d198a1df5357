package main

import (
	"context"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/operation"
)

type reviewCmd struct {
	List    reviewListCmd    `cmd:"" help:"List the moves that wait for a person, the most urgent first."`
	Show    reviewShowCmd    `cmd:"" help:"Show all that is needed to decide one."`
	Approve reviewApproveCmd `cmd:"" help:"Let a move happen."`
	Reject  reviewRejectCmd  `cmd:"" help:"Refuse a move."`
}

// Help says what a review is.
func (reviewCmd) Help() string {
	return `A move that the gate cannot decide alone waits as a review, bound to exactly what was
asked: data, context, evidence, definition and revision. It is decided once. When the
instance moves on, or what was fetched has changed, the review is void.

Servers park such moves when they were started with gavel mcp --reviews. Whoever can run
this on the store's machine is its operator; a server may have the store open meanwhile.
With --server the server is asked, and who decides is who the token says.`
}

type reviewListCmd struct {
	Status   string `name:"status" enum:"open,resolved,stale,expired,superseded,all" default:"open" placeholder:"STATUS" help:"open (the default), resolved, stale, expired, superseded or all."`
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only reviews of this workflow."`
	Instance string `name:"instance" placeholder:"ID" help:"Only reviews of this instance."`
	Limit    int    `name:"limit" default:"50" placeholder:"N" help:"At most this many, 1 to 500."`
	After    string `name:"after" placeholder:"CURSOR" help:"Continue where a list ended."`
	JSON     bool   `name:"json" help:"Print JSON."`
	placeFlags
}

// Help shows examples.
func (reviewListCmd) Help() string {
	return `Examples:

    gavel review list
    gavel review list --status all --instance wf-01926f0e-7c1a-7000-8000-000000000000
    gavel review list --json | jq -r '.reviews[].reviewId'`
}

// Run lists reviews.
func (c *reviewListCmd) Run(ctx context.Context, con *console) error {
	if c.Limit < 1 {
		return term.UsageErrorf("", "--limit is 1 to 500, not %d", c.Limit)
	}
	g, done, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	result, err := operation.Reviews.Do(ctx, g, engine.ReviewsRequest{
		Status: c.Status, Workflow: c.Workflow, WorkflowID: c.Instance, Cursor: c.After, Limit: c.Limit,
	})
	if err != nil {
		return engineFailure(err)
	}
	if c.JSON {
		return con.out.JSON(result)
	}
	if len(result.Reviews) == 0 {
		if c.Status == "open" {
			con.err.Printf("nothing waits for a person\n")
		} else {
			con.err.Printf("no such reviews\n")
		}
	} else {
		con.out.Table(reviewRows(result.Reviews, c.Status != "open"))
	}
	if result.NextCursor != "" {
		con.err.Printf("more with --after %s\n", result.NextCursor)
	}
	return nil
}

// reviewRows is the table of reviews; ended adds what became of each.
func reviewRows(reviews []engine.ReviewSummary, ended bool) [][]string {
	head := []string{"ID", "PRIORITY", "WORKFLOW", "ACTION", "MOVE", "REQUESTED BY", "WAITS SINCE", "EXPIRES"}
	if ended {
		head = append(head, "STATUS")
	}
	rows := [][]string{head}
	for _, r := range reviews {
		row := []string{
			r.ID, string(r.Priority), r.Workflow, r.Action, r.From + " -> " + orNone(r.Target), r.RequestedBy,
			moment(r.ParkedAt), expiry(r),
		}
		if ended {
			row = append(row, cut(howEnded(r), 80))
		}
		rows = append(rows, row)
	}
	return rows
}

// howEnded says what became of a review, in a few words.
func howEnded(r engine.ReviewSummary) string {
	if r.Status != record.ReviewResolved {
		return string(r.Status)
	}
	verb := "approved"
	if r.Resolution != "approve" {
		verb = "rejected"
	}
	return verb + " by " + r.By
}

func expiry(r engine.ReviewSummary) string {
	if r.ExpiresAt.IsZero() {
		return "never"
	}
	return moment(r.ExpiresAt)
}

func moment(t time.Time) string { return t.Format(time.RFC3339) }
