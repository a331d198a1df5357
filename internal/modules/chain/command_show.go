package chain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

type showCommand struct {
	ID    string          `arg:"" name:"run" help:"The run's id, or the beginning of the id."`
	Watch bool            `name:"watch" help:"Show the steps as they end, until the run has ended."`
	JSON  bool            `name:"json" help:"Print JSON."`
	Place cli.TargetFlags `embed:""`
}

func (showCommand) Help() string {
	return `A run is also an instance in the store: gavel instances timeline and gavel verify take the id that
is shown as instance.

Examples:

    gavel chain show run-019d0a11-7a41-7c35-8bd6-a7a9f1f3c1d2
    gavel chain show run-019d0a11 --watch
    gavel chain show invoice-7 --json | jq .output

Exit codes: 0 shown, with --watch done; 1 with --watch failed or cancelled, 2 wrong usage,
3 could not find out.`
}

func (c *showCommand) Run(ctx context.Context, con *cli.Console) error {
	at, done, err := c.Place.Open(ctx, con, cli.OpenWithModules)
	if err != nil {
		return err
	}
	defer done()
	if c.Watch {
		return watchRun(ctx, con, at, c.ID, c.JSON, c.Place.FormatFlags())
	}
	run, err := AskRun.Do(ctx, at, RunRequest{Run: c.ID})
	if err != nil {
		return cli.OperationFailure(err)
	}
	return con.Print(c.JSON, run, func() { printRun(con.Out, run, time.Now(), c.Place.FormatFlags()) })
}

// printRun prints everything known about a run; again is appended to suggested commands.
func printRun(out *term.Terminal, r RunView, now time.Time, again string) {
	rows := [][]string{{"run", r.Run}, {"chain", r.Chain}, {"status", string(r.Status)}, {"acts for", cmp.Or(r.ActsFor, r.Principal)}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	if r.ActsFor != "" {
		add("started by", r.Principal)
	}
	add("instance", r.Instance)
	add("started", r.Started.Format(time.RFC3339))
	if r.Status.HasEnded() {
		add("ended", fmt.Sprintf("%s, after %s", r.Ended.Format(time.RFC3339), term.ShortDuration(r.Ended.Sub(r.Started))))
	}
	add("note", r.Note.String())
	switch r.Status {
	case StatusQueued:
		add("waits for", queueDescription)
	case StatusPaused:
		add("to resume", "gavel chain resume "+term.ShellWord(r.Run)+again)
	case StatusRunning, StatusDone, StatusFailed, StatusCancelled:
	}
	for _, q := range r.Waiting {
		add("waits for", explainQuestion(q, now)+suggestCommand(r.Run, q, again))
	}
	for _, q := range r.UnderWay {
		add("under way", explainQuestion(q, now)+suggestCommand(r.Run, q, again))
	}
	if r.Error != nil {
		add("failed", r.Error.Describe())
	}
	if r.Swept {
		add("steps", "deleted after the retention period; see gavel instances history "+r.Instance+again)
	}
	out.Table(rows)
	if len(r.Steps) > 0 {
		out.Printf("\nsteps\n")
		out.Table(stepRows(out, r.Steps))
	}
	printOutput(out, r.Output)
}

// explainQuestion describes what a run waits for or does, and since when.
func explainQuestion(q RunQuestion, now time.Time) string {
	line := fmt.Sprintf("%s (step %s, since %s, for %s)", q.Describe(), q.Step, q.Since.Format(time.RFC3339), term.Roughly(max(now.Sub(q.Since), 0)))
	if q.Kind != "sleep" && !q.Until.IsZero() {
		line += ", until " + q.Until.Format(time.RFC3339)
	}
	return line
}

// suggestCommand suggests the command that answers what a run waits for, or "".
func suggestCommand(run string, q RunQuestion, again string) string {
	switch {
	case q.Kind == "signal":
		return fmt.Sprintf("; gavel chain signal %s %s%s", term.ShellWord(run), term.ShellWord(q.Key), again)
	case q.Review != "":
		return "; gavel review show " + q.Review + again
	case q.Instance != "":
		return "; gavel status " + term.ShellWord(q.Instance) + again
	}
	return ""
}

func stepRows(out *term.Terminal, steps []RunStep) [][]string {
	rows := [][]string{{"STEP", "DID", "STATUS", "TOOK", "ERROR"}}
	for _, s := range steps {
		wrong := "-"
		if s.Error != nil {
			wrong = truncateForTerminal(out, s.Error.Why())
		}
		rows = append(rows, []string{s.Key, s.Op, string(s.Status), term.ShortDuration(s.Ended.Sub(s.Started)), wrong})
	}
	return rows
}

// printOutput prints the output of a run, if it has any.
func printOutput(out *term.Terminal, output json.RawMessage) {
	if len(output) > 0 && string(output) != "{}" {
		out.Printf("\noutput\n")
		_ = out.JSON(output) // the JSON is valid; Terminal keeps a write error
	}
}

// watchRun prints the steps of a run to standard error as they end, and its output once it has ended. A run
// that is not done is an error. Once the run has been seen, a request that fails temporarily is repeated.
func watchRun(ctx context.Context, con *cli.Console, at operation.Caller, id string, asJSON bool, again string) error {
	w := runWatch{again: again, at: at, id: id, lines: newStepLines(con.Err), shown: map[string]bool{}}
	defer w.lines.close()
	tick := time.NewTicker(watchPoll)
	defer tick.Stop()
	for failing := false; ; {
		run, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return term.UnknownErrorf("watch it again with: gavel chain show "+term.ShellWord(w.id)+" --watch"+again, "interrupted; the run continues")
		case err != nil && !w.isTemporary(cli.OperationFailure(err)):
			return cli.OperationFailure(err)
		case err != nil && !failing:
			w.lines.printLine("unknown", w.id, "cannot read the run, trying again: "+cli.OperationFailure(err).Error())
		case err == nil && run.Status.HasEnded():
			w.lines.close()
			if asJSON { // with all of its steps
				if run, err = AskRun.Do(ctx, at, RunRequest{Run: run.Run}); err != nil {
					return cli.OperationFailure(err)
				}
			}
			return endWatch(con, run, asJSON)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// runWatch prints the progress of a run.
type runWatch struct {
	at    operation.Caller
	id    string // as typed, until the run was seen
	seen  bool
	after string // the cursor of the last look
	again string // appended to suggested commands
	lines *stepLines
	shown map[string]bool // keys of steps, and of questions
}

// look prints the run's progress since the last call.
func (w *runWatch) look(ctx context.Context) (RunView, error) {
	run, err := AskRun.Do(ctx, w.at, RunRequest{Run: w.id, Cursor: w.after})
	if err != nil {
		return run, err //nolint:wrapcheck // an *engine.Error
	}
	w.id, w.seen, w.after = run.Run, true, run.NextCursor
	isNew := func(key string) bool {
		known := w.shown[key]
		w.shown[key] = true
		return !known
	}
	for _, s := range run.Steps {
		if isNew(s.Op + " " + s.Key) {
			w.lines.printEnd(string(s.Status), s.Key, s.Ended.Sub(s.Started), s.Error)
		}
	}
	for _, q := range run.Waiting {
		if isNew(q.Kind + " " + q.Key) {
			w.lines.printLine("waiting", q.Step, describeWithReview(q, w.again))
		}
	}
	w.lines.setStatus(describeActivity(run, time.Now()))
	return run, nil
}

// describeWithReview describes what a run waits for.
func describeWithReview(q RunQuestion, again string) string {
	if q.Review == "" {
		return q.Describe()
	}
	return q.Describe() + ": gavel review show " + q.Review + again
}

// describeActivity describes what a run is doing now.
func describeActivity(r RunView, now time.Time) string {
	under := []string{fmt.Sprintf("%s for %s", r.Status, term.Roughly(now.Sub(r.Started)))}
	for _, q := range r.UnderWay {
		under = append(under, fmt.Sprintf("%s %s", q.Key, term.Roughly(max(now.Sub(q.Since), 0))))
	}
	return strings.Join(under, "; ")
}

// isTemporary reports whether a request for a run that was seen may succeed later: a server that restarts is
// briefly unreachable.
func (w *runWatch) isTemporary(err error) bool {
	failed, ok := errors.AsType[*term.ExitError](err)
	return ok && w.seen && failed.Code == term.ExitUnknown
}

func endWatch(con *cli.Console, run RunView, asJSON bool) error {
	err := con.Print(asJSON, run, func() {
		if len(run.Output) > 0 && string(run.Output) != "{}" {
			_ = con.Out.JSON(run.Output) // the JSON is valid; Terminal keeps a write error
		}
	})
	switch {
	case err != nil || run.Status == StatusDone:
		return err
	case asJSON:
		return term.ErrBad
	case run.Error != nil:
		return &term.ExitError{Code: term.ExitBad, Err: errors.New(explainFailure(*run.Error))}
	case run.Note.By != "":
		return &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("the run is %s, %s", run.Status, run.Note)}
	}
	return &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("the run is %s", run.Status)}
}

func explainFailure(e RunError) string {
	if e.Step == "" {
		return "the run failed: " + e.Why()
	}
	return fmt.Sprintf("the step %q failed: %s", e.Step, e.Why())
}
