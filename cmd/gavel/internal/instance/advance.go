package instance

import (
	"context"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/setup"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
)

func printStart(_ context.Context, con *setup.Console, a setup.Answer) error {
	r, _ := a.Result.(engine.StartResult)
	if r.ID != "" {
		con.Out.Printf("%s\n", r.ID)
		setup.PrintPosition(con.Out, r.Position, a.Target.FormatAdvance)
	}
	setup.PrintDecision(con.Out, r.Decision)
	return nil
}

func printAdvance(_ context.Context, con *setup.Console, a setup.Answer) error {
	r, _ := a.Result.(engine.AdvanceResult)
	setup.PrintPosition(con.Out, r.Position, a.Target.FormatAdvance)
	switch {
	case setup.WaitsForPerson(r):
		con.Out.Printf("it waits for a person: gavel review show %s\n", r.Review.ID)
	case r.Review != nil:
		con.Out.Printf("it was sent to a person: gavel review show %s\n", r.Review.ID)
	}
	setup.PrintDecision(con.Out, r.Decision)
	return nil
}

func printStatus(_ context.Context, con *setup.Console, a setup.Answer) error {
	r, _ := a.Result.(engine.StatusResult)
	setup.PrintPosition(con.Out, r.Position, a.Target.FormatAdvance)
	setup.PrintCalls(con.Out, r.Calls)
	for _, review := range r.Reviews {
		if review.Status == record.ReviewResolved {
			con.Out.Printf("%q was rejected by %s: %s (gavel review show %s)\n", review.Action, review.By, review.Reason, review.ID)
			continue
		}
		con.Out.Printf("%q waits for a person: gavel review show %s\n", review.Action, review.ID)
	}
	return nil
}
