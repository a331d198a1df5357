package instance

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/cli"
)

func printStart(_ context.Context, con *cli.Console, a cli.Answer) error {
	r, _ := a.Result.(engine.StartResult)
	if r.ID != "" {
		con.Out.Printf("%s\n", r.ID)
		cli.PrintPosition(con.Out, r.Position, a.Target.FormatAdvance)
	}
	cli.PrintDecision(con.Out, r.Decision)
	return nil
}

func printAdvance(_ context.Context, con *cli.Console, a cli.Answer) error {
	r, _ := a.Result.(engine.AdvanceResult)
	cli.PrintPosition(con.Out, r.Position, a.Target.FormatAdvance)
	switch {
	case cli.WaitsForPerson(r):
		con.Out.Printf("it waits for a person: gavel review show %s\n", r.Review.ID)
	case r.Review != nil:
		con.Out.Printf("it was sent to a person: gavel review show %s\n", r.Review.ID)
	}
	cli.PrintDecision(con.Out, r.Decision)
	return nil
}

func printStatus(_ context.Context, con *cli.Console, a cli.Answer) error {
	r, _ := a.Result.(engine.StatusResult)
	cli.PrintPosition(con.Out, r.Position, a.Target.FormatAdvance)
	cli.PrintCalls(con.Out, r.Calls)
	for _, review := range r.Reviews {
		if review.Status == record.ReviewResolved {
			con.Out.Printf("%q was rejected by %s: %s (gavel review show %s)\n", review.Action, review.By, review.Reason, review.ID)
			continue
		}
		con.Out.Printf("%q waits for a person: gavel review show %s\n", review.Action, review.ID)
	}
	return nil
}
