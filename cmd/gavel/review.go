package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

type reviewCmd struct {
	List    reviewListCmd    `cmd:"" help:"List the moves that wait for a person, the most urgent first."`
	Watch   reviewWatchCmd   `cmd:"" help:"Show what waits for a person, and then what comes and goes."`
	Show    reviewShowCmd    `cmd:"" help:"Show all that is needed to decide one."`
	Approve reviewApproveCmd `cmd:"" help:"Let a move happen."`
	Reject  reviewRejectCmd  `cmd:"" help:"Refuse a move."`
	Reopen  reviewReopenCmd  `cmd:"" help:"Take a rejection back, so that the same may be asked for again."`
	GiveUp  reviewGiveUpCmd  `cmd:"" name:"give-up" help:"Give up a chain's step that waits for a person."`
}

func (reviewCmd) Help() string {
	return `A move that the gate cannot decide alone waits as a review, bound to exactly what was
asked: data, context, evidence, definition and revision. It is decided once. When the
instance moves on, or what was fetched has changed, the review is void.

Servers park such moves unless they were started with --no-reviews. On the
store's machine you decide as its operator; a server may have the store open meanwhile.
With --server the server decides for the principal of your token.`
}

type reviewListCmd struct {
	Status   string `name:"status" enum:"open,resolved,rejected,reopened,stale,expired,superseded,all" default:"open" placeholder:"STATUS" help:"open (the default), resolved, rejected, reopened, stale, expired, superseded or all."`
	Workflow string `name:"workflow" placeholder:"NAME" help:"Only reviews of this workflow."`
	Instance string `name:"instance" placeholder:"ID" help:"Only reviews of this instance."`
	Limit    int    `name:"limit" default:"50" placeholder:"N" help:"At most this many, 1 to 500."`
	After    string `name:"after" placeholder:"CURSOR" help:"Continue where a list ended."`
	JSON     bool   `name:"json" help:"Print JSON."`
	placeFlags
}

func (reviewListCmd) Help() string {
	return `Examples:

    gavel review list
    gavel review list --status all --instance wf-019bedd2-33e0-735d-935b-1a4cd46500a0
    gavel review list --json | jq -r '.reviews[].id'`
}

func (c *reviewListCmd) Run(ctx context.Context, con *console) error {
	if err := checkLimit(c.Limit, 500); err != nil {
		return err
	}
	result, err := ask(ctx, con, c.placeFlags, operation.Reviews, engine.ReviewsRequest{
		Status: c.Status, Workflow: c.Workflow, Instance: c.Instance, Cursor: c.After, Limit: c.Limit,
	})
	if err != nil {
		return err
	}
	none := "no such reviews"
	if c.Status == "open" {
		none = "nothing waits for a person"
	}
	return con.printList(c.JSON, newReviewList(result), reviewRows(result.Reviews, c.Status != "open"), none, formatCursorFlag("--after", result.NextCursor))
}

// reviewList is a list of reviews whose id is the review's, as what other commands take.
type reviewList struct {
	engine.ReviewsResult
	Reviews []listedReview `json:"reviews"`
}

type listedReview struct {
	engine.ReviewSummary
	ID       string `json:"id"`
	Instance string `json:"instance"`
}

func newReviewList(r engine.ReviewsResult) reviewList {
	list := reviewList{r, make([]listedReview, 0, len(r.Reviews))}
	for _, one := range r.Reviews {
		list.Reviews = append(list.Reviews, listedReview{one, one.ID, one.Instance})
	}
	return list
}

// endMark stands for an action where an agent wanted to end.
const endMark = "(end)"

// reviewRows is the table of reviews; ended adds what became of each.
func reviewRows(reviews []engine.ReviewSummary, ended bool) [][]string {
	head := []string{"ID", "PRIORITY", "WORKFLOW", "ACTION", "MOVE", "REQUESTED BY", "WAITS SINCE", "EXPIRES"}
	if ended {
		head = append(head, "STATUS")
	}
	rows := [][]string{head}
	for _, r := range reviews {
		row := []string{
			r.ID, string(r.Priority), r.Workflow, cmp.Or(r.Action, endMark), r.From + " -> " + orNone(r.Target), r.RequestedBy,
			formatTime(r.ParkedAt), describeExpiry(r),
		}
		if ended {
			row = append(row, truncateText(howEnded(r), 80))
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

// resolving is what approve and reject have in common.
type resolving struct {
	ID        string  `arg:"" name:"id" help:"The review: its id, or the beginning of it."`
	Reason    string  `name:"reason" placeholder:"TEXT" help:"Why, in a sentence. It is recorded and shown to the caller that asked for the move."`
	Principal *string `name:"principal" env:"GAVEL_REVIEWER" placeholder:"ID" help:"Who decides, for the record. Default: local:user: and your name on this machine."`
	Key       string  `name:"idempotency-key" placeholder:"KEY" help:"The same decision with the same key is answered and not repeated."`
	JSON      bool    `name:"json" help:"Print JSON."`
	placeFlags
	notifyFlags
}

// reviewer is who decides: who --principal names, or the user of this machine. What the command
// line performed under its own name may have been that user's doing.
func (r resolving) reviewer() (engine.Principal, error) {
	if r.Principal != nil {
		return engine.Principal{ID: *r.Principal, Role: engine.RoleOperator}, checkPrincipal(*r.Principal)
	}
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return engine.Principal{ID: "local:user:" + name, Role: engine.RoleOperator, Alias: localCLI.ID}, nil
}

type reviewApproveCmd struct {
	resolving
	Output string `name:"output" placeholder:"JSON" help:"What a chain's step gave that happened, where the review is of kind step, null for nothing; or the input, where it is of kind input."`
}

func (reviewApproveCmd) Help() string {
	return `The rules of the workflow are asked again first: fields, schemas, scripts and evidence
have to let exactly that move pass as the instance is now. A model is not asked again.
Where the workflow asks for evidence, give the --config that the server has. Evidence
that has changed since the review was opened makes it void.

A review of kind step or input needs --output: the run goes on with it.

Examples:

    gavel review approve rev-019bf369-3c73-7383-95b4-99444377c42a --reason 'Checked with the customer.'
    gavel review approve rev-019bf369-3c73-7383-95b4-99444377c42a --reason 'CI is green.' --config gavel.yaml
    gavel review approve rev-019bf369-3c73-7383-95b4-99444377c42a --reason 'It is on the statement.' --output '{"receipt": 7}'

Exit codes: 0 the move was made, 1 it could not be made, or the review is closed,
2 wrong usage, 3 could not find out.`
}

func (c *reviewApproveCmd) Run(ctx context.Context, con *console) error {
	if c.Output != "" && !json.Valid([]byte(c.Output)) {
		return term.UsageErrorf("quote text: --output '\"paid\"'", "--output is not JSON")
	}
	req := engine.ResolveRequest{Decision: judge.Approve}
	if c.Output != "" {
		req.Output = json.RawMessage(c.Output)
	}
	return c.resolve(ctx, con, req, c.configFlag)
}

type reviewRejectCmd struct{ resolving }

func (reviewRejectCmd) Help() string {
	return `The state does not change. The agent that asked for the move reads the reason.

Examples:

    gavel review reject rev-019bf900-4506-7b52-99fb-7e1e2e698315 --reason 'The invoice is missing.'

Exit codes: 0 rejected, 1 the review is closed, 2 wrong usage, 3 could not find out.`
}

func (c *reviewRejectCmd) Run(ctx context.Context, con *console) error {
	return c.resolve(ctx, con, engine.ResolveRequest{Decision: judge.Reject}, configFlag{})
}

type reviewReopenCmd struct{ resolving }

func (reviewReopenCmd) Help() string {
	return `Exactly the same request is not put to a person again after a rejection, until its data,
the context or the evidence has changed. Reopening lifts that: nothing moves, and the
agent may ask again.

Examples:

    gavel review reopen rev-019bf900-4506-7b52-99fb-7e1e2e698315 --reason 'The invoice came by mail.'

Exit codes: 0 reopened, 1 the review was not rejected, 2 wrong usage, 3 could not find out.`
}

func (c *reviewReopenCmd) Run(ctx context.Context, con *console) error {
	return c.resolve(ctx, con, engine.ResolveRequest{Decision: engine.Reopen}, configFlag{})
}

type reviewGiveUpCmd struct{ resolving }

func (reviewGiveUpCmd) Help() string {
	return `For a review of kind step, where nobody will find out whether the step happened, or of kind
input, where nobody has the answer. The step fails, and with it the run, unless the chain
handles that.

Examples:

    gavel review give-up rev-019bf900-4506-7b52-99fb-7e1e2e698315 --reason 'The bank does not answer.'

Exit codes: 0 given up, 1 the review is closed, 2 wrong usage, 3 could not find out.`
}

func (c *reviewGiveUpCmd) Run(ctx context.Context, con *console) error {
	return c.resolve(ctx, con, engine.ResolveRequest{Decision: engine.GiveUp}, configFlag{})
}

// resolve decides the review. A decision that could not be carried out is a bad end.
func (r resolving) resolve(ctx context.Context, con *console, req engine.ResolveRequest, config configFlag) error {
	if strings.TrimSpace(r.Reason) == "" {
		return term.UsageErrorf("add --reason 'what you have looked at'", "to %s a review, say why: the reason is recorded, and the agent that asked for the move reads it", string(req.Decision))
	}
	who, err := r.reviewer()
	if err != nil {
		return err
	}
	at, done, err := r.open(ctx, con, who, req.Decision, config)
	if err != nil {
		return err
	}
	defer done()
	req.ID, req.Reason, req.Key = r.ID, r.Reason, r.Key
	result, err := operation.Resolve.Do(ctx, at, req)
	if err != nil {
		return reviewFailure(err)
	}
	err = con.print(r.JSON, result, func() {
		con.out.Printf("%s is in state %s\n%s\n", result.ID, result.State, result.Message)
	})
	carriedOut := result.Review.Status == record.ReviewResolved && result.Review.Decision == req.Decision || req.Decision == engine.Reopen && result.Review.Status == record.ReviewReopened
	return cmp.Or(err, badUnless(carriedOut))
}

// open returns what decides: a server, which has the sources and knows who asks, or the
// engine here with the sources of config.
func (r resolving) open(ctx context.Context, con *console, who engine.Principal, decision judge.Outcome, config configFlag) (operation.Caller, func(), error) {
	if r.Server != "" {
		if r.Principal != nil {
			return nil, nil, term.UsageErrorf("leave it out; look for GAVEL_REVIEWER too", "--principal does not go with --server: who decides is who the token says")
		}
		return r.placeFlags.open(ctx, con, openForWriting)
	}
	declared, err := config.open(con.log, nil)
	if err != nil {
		return nil, nil, err
	}
	with := equipment{reviews: true, sources: declared}
	if with.notifier, err = r.notifyFlags.open(con.log, true); err != nil {
		return nil, nil, errors.Join(err, with.Close())
	}
	at, err := r.place(con.log, false)
	if err != nil {
		return nil, nil, errors.Join(err, with.Close())
	}
	sys, err := openSystem(ctx, con.log, at, with)
	if err != nil {
		return nil, nil, errors.Join(err, with.Close())
	}
	caller := completing{operation.Call{Engine: sys.Engine, Caller: auth.Identity{Principal: who}, Channel: record.ChannelCLI}}
	if decision == judge.Approve {
		if err := canFetch(ctx, sys, caller, r.ID); err != nil {
			return nil, nil, errors.Join(err, sys.Close())
		}
	}
	return caller, func() { sys.Close() }, nil
}

// canFetch keeps a reviewer who forgot the configuration from voiding a review:
// evidence that cannot be fetched again counts as changed.
func canFetch(ctx context.Context, sys *system, at operation.Caller, id string) error {
	view, err := operation.Review.Do(ctx, at, operation.IDRequest{ID: id})
	if err != nil {
		return reviewFailure(err)
	}
	if view.Status != record.ReviewOpen {
		return nil // the engine tells it
	}
	for _, e := range view.Escalation.Evidence {
		if e.Failure != judge.FailureNotConfigured && !slices.Contains(sys.sources.Names(), e.Source) {
			return term.UsageErrorf("give the file that the server has: --config FILE",
				"the evidence %q has to be fetched again from %q, and no such source is configured here; the review stays open", e.Name, e.Source)
		}
	}
	return nil
}

// reviewFailure is engineFailure for a review that is closed, or moved under the
// reviewer's hands: then nothing is wrong with the command.
func reviewFailure(err error) error {
	return badEnd(err, engine.CodeReviewClosed, engine.CodeConflict)
}
