package main

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/chain"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

type scheduleCmd struct {
	List    scheduleListCmd    `cmd:"" help:"List schedules: when each runs next, and what became of its last tick."`
	Pause   schedulePauseCmd   `cmd:"" help:"Let the ticks of a schedule pass without runs."`
	Resume  scheduleResumeCmd  `cmd:"" help:"Let the ticks of a paused schedule run again, from now on."`
	Trigger scheduleTriggerCmd `cmd:"" help:"Ask for a run now."`
}

func (scheduleCmd) Help() string {
	return `A chain with a schedule runs at times, while a server with that chain runs. What became of each
tick is an instance in the store.

With --server it is asked, and you see what your token lets you see. On the store's machine
you are its operator (local:cli); the chains are those of the section chains of --config.`
}

// schedulePlace says where schedules are: at a server, or in a store of this machine.
type schedulePlace struct{ placeFlags }

func (p schedulePlace) open(ctx context.Context, con *console) (operation.Caller, func(), error) {
	return p.placeFlags.open(ctx, con, openWithChains)
}

type scheduleListCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
	schedulePlace
}

func (scheduleListCmd) Help() string {
	return `A tick is skipped with its reason. All of them are in the history of the instance:
gavel instances timeline ID, where ID is the id that --json shows.

Examples:

    gavel schedule list --config gavel.yaml
    gavel schedule list --server https://gavel.example --json | jq '.schedules[] | select(.paused)'`
}

func (c *scheduleListCmd) Run(ctx context.Context, con *console) error {
	at, done, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	all, err := chain.AskSchedules.Do(ctx, at, operation.Empty{})
	if err != nil {
		return engineFailure(err)
	}
	rows := [][]string{{"CHAIN", "TIMING", "NEXT", "LAST", "STATUS", "ACTS FOR", "NOTE"}}
	for i := range all.Schedules {
		rows = append(rows, scheduleRow(&all.Schedules[i]))
	}
	return con.printList(c.JSON, all, rows, "no chain has a schedule", "", "ACTS FOR")
}

// scheduleRow is a schedule in the table. STATUS is what became of the last tick.
func scheduleRow(s *chain.ScheduleView) []string {
	next, last, status, note := "never", "-", "-", ""
	if !s.Next.IsZero() {
		next = formatTime(s.Next)
	}
	if s.Last != nil {
		last, status, note = formatTime(s.Last.At), s.Last.Outcome, s.Last.Reason
	}
	switch {
	case s.Paused:
		next, note = "paused", explainNote(s.Note)
	case s.RunAs == "":
		note = "nobody is named for whom it runs"
	case s.Warning != "":
		note = s.Warning
	}
	return []string{s.Chain, s.Timing, next, last, status, orNone(s.RunAs), truncateText(orNone(note), 80)}
}

// scheduleChange is what the commands have in common that change a schedule, for the record.
type scheduleChange struct {
	Chain  string `arg:"" name:"chain" help:"The chain's name."`
	Reason string `name:"reason" placeholder:"TEXT" help:"Why, for the record."`
	JSON   bool   `name:"json" help:"Print JSON."`
	schedulePlace
}

// change asks for a change of a schedule, and prints it as a line of text says.
func changeSchedule[Res any](ctx context.Context, con *console, c scheduleChange, op operation.Typed[chain.ChangeScheduleRequest, Res], text func(Res)) error {
	at, done, err := c.open(ctx, con)
	if err != nil {
		return err
	}
	defer done()
	changed, err := op.Do(ctx, at, chain.ChangeScheduleRequest{Chain: c.Chain, Reason: c.Reason})
	if err != nil {
		return badEnd(err, engine.CodeConflict)
	}
	return con.print(c.JSON, changed, func() { text(changed) })
}

// printNext says when a schedule runs next.
func printNext(out *term.Terminal) func(chain.ScheduleView) {
	return func(s chain.ScheduleView) {
		switch {
		case s.Paused:
			out.Printf("%s is paused\n", s.Chain)
		case s.Next.IsZero():
			out.Printf("%s does not run again\n", s.Chain)
		default:
			out.Printf("%s runs next at %s\n", s.Chain, formatTime(s.Next))
		}
	}
}

type schedulePauseCmd struct{ scheduleChange }

func (schedulePauseCmd) Help() string {
	return `Runs that are under way go on. Ticks that pass meanwhile are recorded as skipped.

Examples:

    gavel schedule pause nightly --reason 'The warehouse is down.'

Exit codes: 0 paused, 1 it is paused already, 2 wrong usage, 3 could not find out.`
}

func (c *schedulePauseCmd) Run(ctx context.Context, con *console) error {
	return changeSchedule(ctx, con, c.scheduleChange, chain.AskPauseSchedule, printNext(con.out))
}

type scheduleResumeCmd struct{ scheduleChange }

func (scheduleResumeCmd) Help() string {
	return `Ticks that passed while it was paused do not run.

Examples:

    gavel schedule resume nightly

Exit codes: 0 resumed, 1 it is not paused, 2 wrong usage, 3 could not find out.`
}

func (c *scheduleResumeCmd) Run(ctx context.Context, con *console) error {
	return changeSchedule(ctx, con, c.scheduleChange, chain.AskResumeSchedule, printNext(con.out))
}

type scheduleTriggerCmd struct{ scheduleChange }

func (scheduleTriggerCmd) Help() string {
	return `The run starts within seconds, when a server with the chain looks, also while the schedule is
paused. Where a run is under way, the overlap of the schedule says what becomes of it. The id
that the run will have is printed.

Examples:

    gavel schedule trigger nightly --reason 'The night was missed.'

Exit codes: 0 asked for, 1 it was changed meanwhile, 2 wrong usage, 3 could not find out.`
}

func (c *scheduleTriggerCmd) Run(ctx context.Context, con *console) error {
	return changeSchedule(ctx, con, c.scheduleChange, chain.AskTrigger, func(t chain.Tick) { con.out.Printf("%s\n", t.Run) })
}
