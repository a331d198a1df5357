package review

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

// Command has the commands that show and decide reviews.
type Command struct {
	List    cli.OperationCommand `cmd:"" help:"List the moves that wait for a person, the most urgent first."`
	Watch   reviewWatchCmd       `cmd:"" help:"Show the moves that wait for a person, and follow changes."`
	Show    cli.OperationCommand `cmd:"" help:"Show everything needed to decide a review."`
	Approve resolveCmd           `cmd:"" help:"Approve a move."`
	Reject  resolveCmd           `cmd:"" help:"Reject a move."`
	Reopen  resolveCmd           `cmd:"" help:"Withdraw a rejection, so that the move may be requested again."`
	GiveUp  resolveCmd           `cmd:"" name:"give-up" help:"Give up a chain's step that waits for a person."`
}

// listedReview is a review with its own id under "id", as other commands expect.
type listedReview struct {
	engine.ReviewSummary
	ID       string `json:"id"`
	Instance string `json:"instance"`
}

func newReviewList(r engine.ReviewsResult) any {
	list := make([]listedReview, 0, len(r.Reviews))
	for _, one := range r.Reviews {
		list = append(list, listedReview{one, one.ID, one.Instance})
	}
	return struct {
		engine.ReviewsResult
		Reviews []listedReview `json:"reviews"`
	}{r, list}
}

// resolveCmd decides a review.
type resolveCmd struct {
	cli.PerformFlags
	Principal *string `name:"principal" env:"GAVEL_REVIEWER" placeholder:"ID" help:"The reviewer's name in the record. Default: local:user: and your user name."`
	cli.TargetFlags
}

// Run decides the review. It returns an error if the decision cannot be carried out.
func (c *resolveCmd) Run(ctx context.Context, con *cli.Console) error {
	return c.Perform(ctx, con, c.TargetFlags, func(asked any) (operation.Caller, func(), error) {
		req, _ := asked.(*engine.ResolveRequest)
		if strings.TrimSpace(req.Reason) == "" {
			return nil, nil, term.UsageErrorf("add --reason 'what you checked'", "--reason is required to %s a review: it is recorded, and the agent that requested the move reads it", string(req.Decision))
		}
		who, err := cli.FindReviewer(c.Principal)
		if err != nil {
			return nil, nil, err
		}
		return c.open(ctx, con, who, *req)
	})
}

// open returns a caller that decides. A server has its own sources and identifies the caller. The local engine
// uses the sources of the configuration file for an approval.
func (c resolveCmd) open(ctx context.Context, con *cli.Console, who engine.Principal, req engine.ResolveRequest) (operation.Caller, func(), error) {
	if c.Server != "" {
		if c.Principal != nil {
			return nil, nil, term.UsageErrorf("drop it; also check the environment for GAVEL_REVIEWER", "--principal cannot be used with --server: the token identifies the reviewer")
		}
		return c.TargetFlags.Open(ctx, con, cli.OpenForWriting)
	}
	var config cli.ConfigFlag // only an approval fetches evidence again
	if req.Decision == judge.Approve {
		config = c.ConfigFlag
	}
	declared, err := config.Open(con.Log)
	if err != nil {
		return nil, nil, err
	}
	with := cli.SystemOptions{File: config.Config, Reviews: true, Sources: declared}
	at, err := c.Locate(con.Log, false)
	if err != nil {
		return nil, nil, errors.Join(err, with.Close())
	}
	sys, err := cli.OpenSystem(ctx, con.Log, at, with)
	if err != nil {
		return nil, nil, errors.Join(err, with.Close())
	}
	caller := cli.IDCompleter{Caller: operation.Call{Engine: sys.Engine, Caller: auth.Identity{Principal: who}, Channel: record.ChannelCLI}}
	if req.Decision == judge.Approve {
		if err := checkSources(ctx, sys, caller, req.ID); err != nil {
			return nil, nil, errors.Join(err, sys.Close())
		}
	}
	return caller, func() { sys.Close() }, nil
}

// checkSources returns an error if the sources of the review's evidence are not configured here. Evidence that cannot
// be fetched again counts as changed, so the approval would void the review.
func checkSources(ctx context.Context, sys *cli.System, at operation.Caller, id string) error {
	view, err := operation.Review.Do(ctx, at, operation.IDRequest{ID: id})
	if err != nil {
		return cli.OperationFailure(err, closedCodes...)
	}
	if view.Status != record.ReviewOpen {
		return nil // the engine reports it
	}
	for _, e := range view.Escalation.Evidence {
		if e.Failure != judge.FailureNotConfigured && !slices.Contains(cli.ListSources(sys.Sources), e.Source) {
			return term.UsageErrorf("give the server's configuration file: --config FILE",
				"the evidence %q must be fetched again from %q, but that source is not configured here; the review stays open", e.Name, e.Source)
		}
	}
	return nil
}
