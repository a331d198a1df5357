package chain

import (
	"context"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// scheduleRows builds the table of schedules.
func scheduleRows(res any) [][]string {
	rows := [][]string{{"CHAIN", "TIMING", "NEXT", "LAST", "STATUS", "ACTS FOR", "NOTE"}}
	list, _ := res.(ScheduleList)
	for i := range list.Schedules {
		rows = append(rows, scheduleRow(&list.Schedules[i]))
	}
	return rows
}

// scheduleRow is a schedule's row in the table. STATUS is the outcome of the last tick.
func scheduleRow(s *ScheduleView) []string {
	next, last, status, note := "never", "-", "-", ""
	if !s.Next.IsZero() {
		next = s.Next.Format(time.RFC3339)
	}
	if s.Last != nil {
		last, status, note = s.Last.At.Format(time.RFC3339), s.Last.Outcome, s.Last.Reason
	}
	switch {
	case s.Paused:
		next, note = "paused", s.Note.String()
	case s.RunAs == "":
		note = "chains.runAs names no principal"
	case s.Warning != "":
		note = s.Warning
	}
	return []string{s.Chain, s.Timing, next, last, status, term.OrNone(s.RunAs), term.Truncate(term.OrNone(note), 80)}
}

// printSchedule prints when a schedule runs next, or the run that was triggered.
func printSchedule(_ context.Context, con *cli.Console, a cli.Answer) error {
	switch s := a.Result.(type) {
	case Tick:
		con.Out.Printf("%s\n", s.Run)
	case ScheduleView:
		switch {
		case s.Paused:
			con.Out.Printf("%s is paused\n", s.Chain)
		case s.Next.IsZero():
			con.Out.Printf("%s does not run again\n", s.Chain)
		default:
			con.Out.Printf("%s runs next at %s\n", s.Chain, s.Next.Format(time.RFC3339))
		}
	}
	return nil
}
