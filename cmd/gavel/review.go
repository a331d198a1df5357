package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

type reviewCmd struct {
	List    operationCmd   `cmd:"" help:"List the moves that wait for a person, the most urgent first."`
	Watch   reviewWatchCmd `cmd:"" help:"Show what waits for a person, and then what comes and goes."`
	Show    operationCmd   `cmd:"" help:"Show all that is needed to decide one."`
	Approve resolveCmd     `cmd:"" help:"Let a move happen."`
	Reject  resolveCmd     `cmd:"" help:"Refuse a move."`
	Reopen  resolveCmd     `cmd:"" help:"Take a rejection back, so that the same may be asked for again."`
	GiveUp  resolveCmd     `cmd:"" name:"give-up" help:"Give up a chain's step that waits for a person."`
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

// endMark is shown as the action of an agent's request to end.
const endMark = "(end)"

// reviewRows returns the table of reviews. It has a status column if any of them is closed.
func reviewRows(reviews []engine.ReviewSummary) [][]string {
	ended := slices.ContainsFunc(reviews, func(r engine.ReviewSummary) bool { return r.Status != record.ReviewOpen })
	head := []string{"ID", "PRIORITY", "WORKFLOW", "ACTION", "MOVE", "REQUESTED BY", "WAITS SINCE", "EXPIRES"}
	if ended {
		head = append(head, "STATUS")
	}
	rows := [][]string{head}
	for _, r := range reviews {
		row := []string{
			r.ID, string(r.Priority), r.Workflow, cmp.Or(r.Action, endMark), r.From + " -> " + term.OrNone(r.Target), r.RequestedBy,
			formatTime(r.ParkedAt), describeExpiry(r),
		}
		if ended {
			row = append(row, term.Truncate(howEnded(r), 80))
		}
		rows = append(rows, row)
	}
	return rows
}

// howEnded briefly describes the result of a review.
func howEnded(r engine.ReviewSummary) string {
	if r.Status != record.ReviewResolved {
		return string(r.Status)
	}
	if r.Decision == engine.GiveUp {
		return "given up by " + r.By + ": " + r.Reason
	}
	if r.Decision != judge.Approve {
		return "rejected by " + r.By + ": " + r.Reason
	}
	return "approved by " + r.By
}

func describeExpiry(r engine.ReviewSummary) string {
	if r.ExpiresAt.IsZero() {
		return "never"
	}
	return formatTime(r.ExpiresAt)
}

func formatTime(t time.Time) string { return t.Format(time.RFC3339) }

// resolveCmd decides a review.
type resolveCmd struct {
	performFlags
	Principal *string `name:"principal" env:"GAVEL_REVIEWER" placeholder:"ID" help:"Who decides, for the record. Default: local:user: and your name on this machine."`
	placeFlags
}

// findReviewer returns the principal who decides: the named one, or the user of this machine. The user's alias is
// the command line's principal, because the user may have made moves under that name.
func findReviewer(principal *string) (engine.Principal, error) {
	if principal != nil {
		return engine.Principal{ID: *principal, Role: engine.RoleOperator}, checkPrincipal(*principal)
	}
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return engine.Principal{ID: "local:user:" + name, Role: engine.RoleOperator, Alias: gavel.Operator.ID}, nil
}

// Run decides the review. It returns an error if the decision cannot be carried out.
func (c *resolveCmd) Run(ctx context.Context, con *console) error {
	return c.perform(ctx, con, c.placeFlags, func(asked any) (operation.Caller, func(), error) {
		req, _ := asked.(*engine.ResolveRequest)
		if strings.TrimSpace(req.Reason) == "" {
			return nil, nil, term.UsageErrorf("add --reason 'what you have looked at'", "to %s a review, say why: the reason is recorded, and the agent that asked for the move reads it", string(req.Decision))
		}
		who, err := findReviewer(c.Principal)
		if err != nil {
			return nil, nil, err
		}
		return c.open(ctx, con, who, *req)
	})
}

// open returns a caller that decides. A server has its own sources and identifies the caller. The local engine
// uses the sources of the configuration file for an approval.
func (c resolveCmd) open(ctx context.Context, con *console, who engine.Principal, req engine.ResolveRequest) (operation.Caller, func(), error) {
	if c.Server != "" {
		if c.Principal != nil {
			return nil, nil, term.UsageErrorf("leave it out; look for GAVEL_REVIEWER too", "--principal does not go with --server: who decides is who the token says")
		}
		return c.placeFlags.open(ctx, con, openForWriting)
	}
	var config configFlag // only an approval fetches evidence again
	if req.Decision == judge.Approve {
		config = c.configFlag
	}
	declared, err := config.open(con.log)
	if err != nil {
		return nil, nil, err
	}
	with := equipment{file: config.Config, reviews: true, sources: declared}
	at, err := c.place(con.log, false)
	if err != nil {
		return nil, nil, errors.Join(err, with.Close())
	}
	sys, err := openSystem(ctx, con.log, at, with)
	if err != nil {
		return nil, nil, errors.Join(err, with.Close())
	}
	caller := completing{Caller: operation.Call{Engine: sys.Engine, Caller: auth.Identity{Principal: who}, Channel: record.ChannelCLI}}
	if req.Decision == judge.Approve {
		if err := canFetch(ctx, sys, caller, req.ID); err != nil {
			return nil, nil, errors.Join(err, sys.Close())
		}
	}
	return caller, func() { sys.Close() }, nil
}

// canFetch prevents a reviewer without the configuration from voiding a review. Evidence that cannot be fetched
// again counts as changed.
func canFetch(ctx context.Context, sys *system, at operation.Caller, id string) error {
	view, err := operation.Review.Do(ctx, at, operation.IDRequest{ID: id})
	if err != nil {
		return badEnd(err, closed...)
	}
	if view.Status != record.ReviewOpen {
		return nil // the engine reports it
	}
	for _, e := range view.Escalation.Evidence {
		if e.Failure != judge.FailureNotConfigured && !slices.Contains(sys.sources.Names(), e.Source) {
			return term.UsageErrorf("give the file that the server has: --config FILE",
				"the evidence %q has to be fetched again from %q, and no such source is configured here; the review stays open", e.Name, e.Source)
		}
	}
	return nil
}
