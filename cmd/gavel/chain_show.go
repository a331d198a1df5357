package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/internal/operation"
)

type chainShowCmd struct {
	runFlags
	Watch bool `name:"watch" help:"Show the steps as they end, until the run has ended."`
}

func (chainShowCmd) Help() string {
	return `A run is an instance in the store, too: gavel instances timeline and gavel verify take the id that
is shown as instance.

Examples:

    gavel chain show run-019d0a11-7a41-7c35-8bd6-a7a9f1f3c1d2
    gavel chain show run-019d0a11 --watch
    gavel chain show invoice-7 --json | jq .output

Exit codes: 0 shown, with --watch done; 1 with --watch failed or cancelled, 2 wrong usage,
3 could not find out.`
}

func (c *chainShowCmd) Run(ctx context.Context, con *console) error {
	at, done, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	if c.Watch {
		return watchRun(ctx, con, at, c.ID, c.JSON)
	}
	run, err := operation.Run.Do(ctx, at, operation.RunRequest{Run: c.ID})
	if err != nil {
		return engineFailure(err)
	}
	return con.print(c.JSON, run, func() { printRun(con.out, run) })
}

// printRun prints all that is known of a run.
func printRun(out *term.Terminal, r operation.RunView) {
	rows := [][]string{{"run", r.Run}, {"chain", r.Chain}, {"status", string(r.Status)}, {"acts for", r.Principal}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("instance", r.Instance)
	add("started", formatTime(r.StartedAt))
	if r.Status.HasEnded() {
		add("ended", fmt.Sprintf("%s, after %s", formatTime(r.EndedAt), shortDuration(r.EndedAt.Sub(r.StartedAt))))
	}
	if r.Note != nil {
		add("note", explainNote(r.Note))
	}
	for _, q := range r.Waiting {
		add("waits for", fmt.Sprintf("%s (step %s, since %s)", nameQuestion(q), q.Step, formatTime(q.Since)))
	}
	if r.Error != nil {
		add("failed", fmt.Sprintf("%s: %s", r.Error.Step, cmp.Or(r.Error.Message, r.Error.Code)))
	}
	out.Table(rows)
	if len(r.Steps) > 0 {
		out.Printf("\nsteps\n")
		out.Table(stepRows(r.Steps))
	}
	printOutput(out, r.Output)
}

func stepRows(steps []operation.RunStep) [][]string {
	rows := [][]string{{"STEP", "DID", "STATUS", "TOOK", "ERROR"}}
	for _, s := range steps {
		wrong := "-"
		if s.Error != nil {
			wrong = truncateText(cmp.Or(s.Error.Message, s.Error.Code), 80)
		}
		rows = append(rows, []string{s.Key, s.Op, string(s.Status), shortDuration(s.EndedAt.Sub(s.StartedAt)), wrong})
	}
	return rows
}

// printOutput prints what a run gave; nothing where it gave nothing.
func printOutput(out *term.Terminal, output json.RawMessage) {
	if len(output) > 0 && string(output) != "{}" {
		out.Printf("\noutput\n")
		_ = out.JSON(output) // it was read from JSON; a failed write is kept
	}
}

// watchRun shows the steps of a run as they end, on standard error, until it has ended; then what it
// gave. A run that is not done is a bad end.
func watchRun(ctx context.Context, con *console, at operation.Caller, id string, asJSON bool) error {
	lines := newStepLines(con.err)
	defer lines.close()
	shown := map[string]bool{} // keys of steps, and of questions
	tick := time.NewTicker(lookAtRunEvery)
	defer tick.Stop()
	for {
		run, err := operation.Run.Do(ctx, at, operation.RunRequest{Run: id})
		switch {
		case ctx.Err() != nil:
			return term.UnknownErrorf("", "interrupted; the run goes on")
		case err != nil:
			return engineFailure(err)
		}
		id = run.Run
		for _, s := range run.Steps {
			if key := s.Key + " " + s.Op; !shown[key] {
				shown[key] = true
				lines.took(string(s.Status), s.Key, s.EndedAt.Sub(s.StartedAt), s.Error)
			}
		}
		for _, q := range run.Waiting {
			if key := q.Kind + " " + q.Key; !shown[key] {
				shown[key] = true
				lines.say("waiting", q.Step, nameQuestion(q))
			}
		}
		if run.Status.HasEnded() {
			lines.close()
			return endWatch(con, run, asJSON)
		}
		lines.setRest(fmt.Sprintf("%s for %s", run.Status, formatRoughly(time.Since(run.StartedAt))))
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func endWatch(con *console, run operation.RunView, asJSON bool) error {
	err := con.print(asJSON, run, func() {
		if len(run.Output) > 0 && string(run.Output) != "{}" {
			_ = con.out.JSON(run.Output) // it was read from JSON; a failed write is kept
		}
	})
	switch {
	case err != nil || run.Status == operation.RunDone:
		return err
	case asJSON:
		return term.ErrBad
	case run.Error != nil:
		return &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("the step %q failed: %s", run.Error.Step, cmp.Or(run.Error.Message, run.Error.Code))}
	case run.Note != nil:
		return &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("the run is %s, %s", run.Status, explainNote(run.Note))}
	}
	return &term.ExitError{Code: term.ExitBad, Err: fmt.Errorf("the run is %s", run.Status)}
}
