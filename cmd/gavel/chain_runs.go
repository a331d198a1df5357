package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/chain"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

// chainPlace says where chains run: at a server, or over a store of this machine.
type chainPlace struct{ placeFlags }

func (p chainPlace) open(ctx context.Context, con *console) (operation.Caller, func(), error) {
	return p.placeFlags.open(ctx, con, openWithRuns)
}

type chainStartCmd struct {
	Chain string `arg:"" name:"chain" help:"The chain's name."`
	Input string `name:"input" default:"{}" placeholder:"JSON" help:"Values of variables.input: a JSON object, or @FILE."`
	ID    string `name:"run" placeholder:"ID" help:"An id of your own for the run: the same command with the same id starts it once, another one is refused."`
	Watch bool   `name:"watch" help:"Show its steps as they end, until it has ended."`
	JSON  bool   `name:"json" help:"Print JSON."`
	chainPlace
}

func (chainStartCmd) Help() string {
	return `The chains are those of the section chains of the server's configuration file, or of --config;
gavel chain list --chains lists them. The server performs the steps; a run that is started over
its store waits until a server with the chain is there. It acts for whoever your token is, on the
store's machine for local:cli.

Examples:

    gavel chain start check-site --server http://127.0.0.1:4285 --input '{"site_url": "https://example.com"}'
    gavel chain start pay --config gavel.yaml --run invoice-7 --watch

Exit codes: 0 started, with --watch done; 1 with --watch failed or cancelled, 2 wrong usage,
3 could not find out.`
}

func (c *chainStartCmd) Run(ctx context.Context, con *console) error {
	input, err := jsonArgument("--input", c.Input)
	if err != nil {
		return err
	}
	at, done, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	c.warn(con)
	run, err := chain.AskStart.Do(ctx, at, chain.StartRun{Chain: c.Chain, Run: c.ID, Input: input})
	if err != nil {
		return engineFailure(err)
	}
	if c.Watch {
		con.err.Printf("%s\n", run.Run)
		return watchRun(ctx, con, at, run.Run, c.JSON, c.again())
	}
	return con.print(c.JSON, run, func() { con.out.Printf("%s\n", run.Run) })
}

// warn prints the lint warnings of the chain if its definition is on this machine. A server logs them instead.
func (c *chainStartCmd) warn(con *console) {
	if c.Config == "" || c.Server != "" {
		return
	}
	section, err := readChains(c.Config, nil)
	if err != nil || section == nil {
		return
	}
	for _, issue := range section.warnings[c.Chain] {
		con.err.Printf("%s\n", issue)
	}
}

type chainListCmd struct {
	Chains bool   `name:"chains" help:"List the chains that can be started, instead of their runs."`
	Chain  string `name:"chain" placeholder:"NAME" help:"Only runs of this chain."`
	Status string `name:"status" enum:",queued,running,paused,done,failed,cancelled" default:"" placeholder:"STATUS" help:"Only queued, running, paused, done, failed or cancelled ones."`
	Limit  int    `name:"limit" default:"50" placeholder:"N" help:"At most this many, 1 to 500."`
	After  string `name:"after" placeholder:"CURSOR" help:"Continue where a list ended."`
	JSON   bool   `name:"json" help:"Print JSON."`
	chainPlace
}

func (chainListCmd) Help() string {
	return `Examples:

    gavel chain list
    gavel chain list --chain pay --status failed
    gavel chain list --chains --config gavel.yaml
    gavel chain list --json | jq -r '.runs[].run'`
}

func (c *chainListCmd) Run(ctx context.Context, con *console) error {
	if err := checkLimit(c.Limit, 500); err != nil {
		return err
	}
	at, done, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	if c.Chains {
		all, err := chain.AskChains.Do(ctx, at, operation.Empty{})
		if err != nil {
			return engineFailure(err)
		}
		rows := [][]string{{"CHAIN", "STEPS", "DESCRIPTION"}}
		for _, v := range all.Chains {
			rows = append(rows, []string{v.Name, fmt.Sprint(v.Steps), truncateText(orNone(v.Description), 80)})
		}
		return con.printList(c.JSON, all, rows, "no chains", "")
	}
	page, err := chain.AskRuns.Do(ctx, at, chain.ListRuns{Chain: c.Chain, Status: chain.RunStatus(c.Status), Limit: c.Limit, Cursor: c.After})
	if err != nil {
		return engineFailure(err)
	}
	return con.printList(c.JSON, page, runRows(con.out, page.Runs), "no runs", formatCursorFlag("--after", page.NextCursor), "ACTS FOR")
}

// runRows is the table of runs.
func runRows(out *term.Terminal, runs []chain.RunView) [][]string {
	rows := [][]string{{"RUN", "CHAIN", "STATUS", "STARTED", "TOOK", "ACTS FOR", "NOTE"}}
	for i := range runs {
		r := &runs[i]
		took := "-"
		if r.Status.HasEnded() {
			took = shortDuration(r.Ended.Sub(r.Started))
		}
		rows = append(rows, []string{r.Run, r.Chain, string(r.Status), formatTime(r.Started), took, r.Principal, cutForPerson(out, orNone(noteOnRun(*r, time.Now())))})
	}
	return rows
}

// cutForPerson keeps a cell of a table on a terminal short; a file or a pipe gets all of it.
func cutForPerson(out *term.Terminal, text string) string {
	if !out.IsTerminal() {
		return text
	}
	return truncateText(text, 80)
}

// noteOnRun says in a few words what keeps a run from going on, what it does, or why it ended.
func noteOnRun(r chain.RunView, now time.Time) string {
	more := func(all []chain.RunQuestion) string {
		text := describeQuestion(all[0], now)
		if len(all) > 1 {
			text += fmt.Sprintf(", and %d more", len(all)-1)
		}
		return text
	}
	switch {
	case r.Error != nil:
		return r.Error.Describe()
	case r.Note != nil && (r.Status == chain.StatusPaused || r.Status == chain.StatusCancelled):
		return explainNote(r.Note)
	case r.Status == chain.StatusQueued:
		return "waits for " + itsTurn
	case len(r.Waiting) > 0:
		return "waits for " + more(r.Waiting)
	case len(r.UnderWay) > 0:
		return more(r.UnderWay)
	}
	return ""
}

// itsTurn is what a queued run waits for.
const itsTurn = "its turn, or for a server that runs its chain"

func explainNote(n *chain.RunNote) string {
	if n.Why == "" {
		return "by " + n.By
	}
	return fmt.Sprintf("by %s: %s", n.By, n.Why)
}

// describeQuestion says what a run waits for, or does, and for how long.
func describeQuestion(q chain.RunQuestion, now time.Time) string {
	return nameQuestion(q, "") + ", for " + formatRoughly(max(now.Sub(q.Since), 0))
}

// runFlags are what every command about one run has.
type runFlags struct {
	ID   string `arg:"" name:"run" help:"The run: its id, or the beginning of it."`
	JSON bool   `name:"json" help:"Print JSON."`
	chainPlace
}

type chainSignalCmd struct {
	runFlags
	Name  string `arg:"" name:"name" help:"The signal's name."`
	Value string `name:"value" default:"null" placeholder:"JSON" help:"The signal's value; null when left out."`
}

func (chainSignalCmd) Help() string {
	return `The next step of the run that waits for a signal of this name gets the value, also where the
run has not come to it yet.

Examples:

    gavel chain signal run-019d0a11-7a41-7c35-8bd6-a7a9f1f3c1d2 approved --value '{"by": "ada"}'

Exit codes: 0 sent, 1 the run has ended, 2 wrong usage, 3 could not find out.`
}

func (c *chainSignalCmd) Run(ctx context.Context, con *console) error {
	if !json.Valid([]byte(c.Value)) {
		return term.UsageErrorf(`quote text: --value '"yes"'`, "--value is not JSON")
	}
	return changeRun(ctx, con, c.runFlags, chain.AskSignal, func(run string) chain.SignalRequest {
		return chain.SignalRequest{Run: run, Name: c.Name, Value: json.RawMessage(c.Value)}
	})
}

// changing is what the commands have in common that change a run, for the record.
type changing struct {
	runFlags
	Reason string `name:"reason" placeholder:"TEXT" help:"Why, for the record."`
}

func (c changing) change(ctx context.Context, con *console, op operation.Typed[chain.ChangeRunRequest, chain.RunView]) error {
	return changeRun(ctx, con, c.runFlags, op, func(run string) chain.ChangeRunRequest {
		return chain.ChangeRunRequest{Run: run, Reason: c.Reason}
	})
}

// changeRun asks for a change of a run and says where it is then. A run that has ended is a bad end.
func changeRun[Req any](ctx context.Context, con *console, f runFlags, op operation.Typed[Req, chain.RunView], req func(run string) Req) error {
	at, done, err := f.open(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	run, err := op.Do(ctx, at, req(f.ID))
	if err != nil {
		return badEnd(err, engine.CodeInstanceEnded, engine.CodeConflict)
	}
	return con.print(f.JSON, run, func() { con.out.Printf("%s is %s\n", run.Run, con.out.Outcome(string(run.Status))) })
}

type chainCancelCmd struct{ changing }

func (chainCancelCmd) Help() string {
	return `A call that is under way may still be done; what the steps of the run did stays done.

Examples:

    gavel chain cancel run-019d0a11 --reason 'The invoice was wrong.'

Exit codes: 0 cancelled, 1 the run has ended, 2 wrong usage, 3 could not find out.`
}

func (c *chainCancelCmd) Run(ctx context.Context, con *console) error {
	return c.change(ctx, con, chain.AskCancel)
}

type chainPauseCmd struct{ changing }

func (chainPauseCmd) Help() string {
	return `What is under way ends first; no step begins until the run is resumed.

Examples:

    gavel chain pause run-019d0a11 --reason 'The bank is down.'

Exit codes: 0 paused, 1 the run has ended, 2 wrong usage, 3 could not find out.`
}

func (c *chainPauseCmd) Run(ctx context.Context, con *console) error {
	return c.change(ctx, con, chain.AskPause)
}

type chainResumeCmd struct{ changing }

func (chainResumeCmd) Help() string {
	return `Examples:

    gavel chain resume run-019d0a11

Exit codes: 0 resumed, 1 the run has ended, 2 wrong usage, 3 could not find out.`
}

func (c *chainResumeCmd) Run(ctx context.Context, con *console) error {
	return c.change(ctx, con, chain.AskResume)
}

type chainRedriveCmd struct{ changing }

func (chainRedriveCmd) Help() string {
	return `A failed run is run again from the step that failed, as a new run with the definition and input
of the first. What ended before that step keeps its outcome. Of a call that may have been done, and
may not run twice, a person is asked first (gavel review list). The id of the new run is printed, also when
it was started before.

Examples:

    gavel chain redrive run-019d0a11 --reason 'The bank is up again.'

Exit codes: 0 started, 1 the run has not failed, or cannot go on from there, 2 wrong usage,
3 could not find out.`
}

func (c *chainRedriveCmd) Run(ctx context.Context, con *console) error {
	return c.change(ctx, con, chain.AskRedrive)
}

// lookAtRunEvery is how often a run is looked at whose steps are shown.
const lookAtRunEvery = 500 * time.Millisecond

// openWithChains opens a store with the chains of the configuration file, for its operator.
func openWithChains(ctx context.Context, con *console, flag storeFlag) (*system, error) {
	sys, err := openForWriting(ctx, con, flag)
	if err != nil || flag.Config == "" {
		return sys, err
	}
	catalogue, err := openCatalogue(slog.New(slog.DiscardHandler), flag.Config, nil) // the server warns
	if err != nil {
		return nil, errors.Join(err, sys.Close())
	}
	if catalogue != nil {
		sys.chains = &chains{catalogue: catalogue, log: con.log, sys: sys, stop: func() {}}
	}
	return sys, nil
}

// openWithRuns is openWithChains with the runs. None of their steps are performed here: the server
// that has the chains does what is asked for.
func openWithRuns(ctx context.Context, con *console, flag storeFlag) (*system, error) {
	sys, err := openWithChains(ctx, con, flag)
	if err != nil {
		return nil, err
	}
	if sys.chains == nil { // what runs is known without the definitions
		catalogue := &chainCatalogue{}
		catalogue.section.Store(&chainSection{Settings: &chain.Settings{}})
		sys.chains = &chains{catalogue: catalogue, log: con.log, sys: sys, stop: func() {}}
	}
	if err := sys.chains.openControl(ctx); err != nil {
		return nil, errors.Join(err, sys.Close())
	}
	return sys, nil
}
