package chain

import (
	"context"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

type startCommand struct {
	Chain string          `arg:"" name:"chain" help:"The chain's name."`
	Input string          `name:"input" default:"{}" placeholder:"JSON" help:"Values of variables.input: a JSON object, or @FILE."`
	ID    string          `name:"run" placeholder:"ID" help:"Your own id for the run: repeating the same command returns that run; another command with this id is refused."`
	Watch bool            `name:"watch" help:"Show the steps as they end, until the run has ended."`
	JSON  bool            `name:"json" help:"Print JSON."`
	Place cli.TargetFlags `embed:""`
}

func (startCommand) Help() string {
	return `Chains are declared in the section chains of the server's configuration file, or of --config;
gavel chain list --chains lists them. The server performs the steps; a run that is started over
its store waits until a server with the chain runs. It acts for the principal of your token, or for
local:cli on the store's machine.

Examples:

    gavel chain start check-site --server http://127.0.0.1:4285 --input '{"site_url": "https://example.com"}'
    gavel chain start pay --config gavel.yaml --run invoice-7 --watch

Exit codes: 0 started, with --watch done; 1 with --watch failed or cancelled, 2 wrong usage,
3 could not find out.`
}

func (c *startCommand) Run(ctx context.Context, con *cli.Console) error {
	input, err := cli.ReadJSONArgument("--input", c.Input)
	if err != nil {
		return err
	}
	at, done, err := c.Place.Open(ctx, con, cli.OpenWithModules)
	if err != nil {
		return err
	}
	defer done()
	c.warn(con)
	run, err := AskStart.Do(ctx, at, StartRun{Chain: c.Chain, Run: c.ID, Input: input})
	if err != nil {
		return cli.OperationFailure(err)
	}
	if c.Watch {
		con.Err.Printf("%s\n", run.Run)
		return watchRun(ctx, con, at, run.Run, c.JSON, c.Place.FormatFlags())
	}
	return con.Print(c.JSON, run, func() { con.Out.Printf("%s\n", run.Run) })
}

// warn prints the lint warnings of the chain if its definition is on this machine. A server logs them instead.
func (c *startCommand) warn(con *cli.Console) {
	file, err := cli.ConfigFlag{Config: c.Place.LocalConfig()}.Load()
	if err != nil || file == nil {
		return
	}
	section, err := readChains(file, nil)
	if err != nil || section == nil {
		return
	}
	for _, issue := range section.warnings[c.Chain] {
		con.Err.Printf("%s\n", issue)
	}
}

type listCommand struct {
	Chains bool            `name:"chains" help:"List the chains that you can start, instead of runs."`
	Chain  string          `name:"chain" placeholder:"NAME" help:"Only runs of this chain."`
	Status string          `name:"status" enum:",queued,running,paused,done,failed,cancelled" default:"" placeholder:"STATUS" help:"Only runs with this status: queued, running, paused, done, failed or cancelled."`
	Limit  int             `name:"limit" default:"50" placeholder:"N" help:"Maximum number of runs, 1 to 500."`
	After  string          `name:"after" placeholder:"CURSOR" help:"Continue after an earlier list, with its cursor."`
	JSON   bool            `name:"json" help:"Print JSON."`
	Place  cli.TargetFlags `embed:""`
}

func (listCommand) Help() string {
	return `Examples:

    gavel chain list
    gavel chain list --chain pay --status failed
    gavel chain list --chains --config gavel.yaml
    gavel chain list --json | jq -r '.runs[].run'`
}

func (c *listCommand) Run(ctx context.Context, con *cli.Console) error {
	if c.Limit < 1 {
		return term.UsageErrorf("", "--limit must be 1 to 500, not %d", c.Limit)
	}
	at, done, err := c.Place.Open(ctx, con, cli.OpenWithModules)
	if err != nil {
		return err
	}
	defer done()
	if c.Chains {
		all, err := AskChains.Do(ctx, at, operation.Empty{})
		if err != nil {
			return cli.OperationFailure(err)
		}
		rows := [][]string{{"CHAIN", "STEPS", "DESCRIPTION"}}
		for _, v := range all.Chains {
			rows = append(rows, []string{v.Name, fmt.Sprint(v.Steps), term.Truncate(term.OrNone(v.Description), 80)})
		}
		return con.PrintList(c.JSON, all, rows, "no chains", "")
	}
	page, err := AskRuns.Do(ctx, at, ListRuns{Chain: c.Chain, Status: RunStatus(c.Status), Limit: c.Limit, Cursor: c.After})
	if err != nil {
		return cli.OperationFailure(err)
	}
	more := page.NextCursor
	if more != "" {
		more = "--after " + more
	}
	return con.PrintList(c.JSON, page, runRows(con.Out, page.Runs), "no runs", more, "ACTS FOR")
}

// runRows builds the table of runs.
func runRows(out *term.Terminal, runs []RunView) [][]string {
	rows := [][]string{{"RUN", "CHAIN", "STATUS", "STARTED", "TOOK", "ACTS FOR", "NOTE"}}
	for i := range runs {
		r := &runs[i]
		took := "-"
		if r.Status.HasEnded() {
			took = term.ShortDuration(r.Ended.Sub(r.Started))
		}
		rows = append(rows, []string{r.Run, r.Chain, string(r.Status), r.Started.Format(time.RFC3339), took, r.Principal, truncateForTerminal(out, term.OrNone(noteOnRun(*r, time.Now())))})
	}
	return rows
}

// truncateForTerminal shortens a table cell on a terminal; a file or a pipe gets the full text.
func truncateForTerminal(out *term.Terminal, text string) string {
	if !out.IsTerminal() {
		return text
	}
	return term.Truncate(text, 80)
}

// noteOnRun explains briefly what blocks a run, what it is doing, or why it ended.
func noteOnRun(r RunView, now time.Time) string {
	more := func(all []RunQuestion) string {
		text := describeQuestion(all[0], now)
		if len(all) > 1 {
			text += fmt.Sprintf(", and %d more", len(all)-1)
		}
		return text
	}
	switch {
	case r.Error != nil:
		return r.Error.Describe()
	case r.Note.By != "" && (r.Status == StatusPaused || r.Status == StatusCancelled):
		return r.Note.String()
	case r.Status == StatusQueued:
		return "waits for " + queueDescription
	case len(r.Waiting) > 0:
		return "waits for " + more(r.Waiting)
	case len(r.UnderWay) > 0:
		return more(r.UnderWay)
	}
	return ""
}

// queueDescription describes what a queued run waits for.
const queueDescription = "its turn, or for a server that runs its chain"

// describeQuestion names what a run waits for or does, and for how long.
func describeQuestion(q RunQuestion, now time.Time) string {
	return describeWithReview(q, "") + ", for " + term.Roughly(max(now.Sub(q.Since), 0))
}

// watchPoll is the polling interval for a run whose steps are shown.
const watchPoll = 500 * time.Millisecond
