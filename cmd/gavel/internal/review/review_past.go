package review

import (
	"context"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

// reviewPast is the history of an instance before the move under review was requested.
type reviewPast struct {
	events    []engine.TimelineEntry        // oldest first
	decisions map[int64]engine.HistoryEntry // by seq of their events
	reviews   []engine.ReviewSummary        // other reviews of the instance
}

// maxPathSteps limits the steps of a path that a review shows. The printed command shows all of them.
const maxPathSteps = 20

func readReviewPast(ctx context.Context, at operation.Caller, view engine.ReviewView) (reviewPast, error) {
	past := reviewPast{decisions: map[int64]engine.HistoryEntry{}}
	for page := (engine.HistoryRequest{ID: view.Instance, Limit: 1000}); ; {
		r, err := operation.Timeline.Do(ctx, at, page)
		if err != nil {
			return past, cli.EngineFailure(err)
		}
		for _, e := range r.Events {
			if e.Seq < view.Escalation.Seq {
				past.events = append(past.events, e)
			}
		}
		if page.AfterSeq = r.NextAfter; page.AfterSeq == 0 || page.AfterSeq >= view.Escalation.Seq {
			break
		}
	}
	for page := (engine.HistoryRequest{ID: view.Instance, Limit: 1000}); ; {
		r, err := operation.History.Do(ctx, at, page)
		if err != nil {
			return past, cli.EngineFailure(err)
		}
		for _, d := range r.Decisions {
			if d.Seq < view.Escalation.Seq {
				past.decisions[d.Seq] = d
			}
		}
		if page.AfterSeq = r.NextAfter; page.AfterSeq == 0 || page.AfterSeq >= view.Escalation.Seq {
			break
		}
	}
	for page := (engine.ReviewsRequest{Instance: view.Instance, Status: "all", Limit: 500}); ; {
		r, err := operation.Reviews.Do(ctx, at, page)
		if err != nil {
			return past, cli.EngineFailure(err)
		}
		for _, other := range r.Reviews {
			if other.ID != view.ID {
				past.reviews = append(past.reviews, other)
			}
		}
		if page.Cursor = r.NextCursor; page.Cursor == "" {
			return past, nil
		}
	}
}

// path prints how the instance reached its state: its states, and each step with how it was decided.
func (p reviewPage) path() {
	if len(p.past.events) == 0 {
		return
	}
	p.title("the path so far")
	var states []string
	rows := [][]string{{"SEQ", "TIME", "WHAT", "STATE", "BY", "OUTCOME", "DECIDED BY", "ASSURANCE", "NOTE"}}
	for _, e := range p.past.events {
		d, decided := p.past.decisions[e.Seq]
		mark := ""
		if decided {
			mark = describeDoubt(d)
		}
		if e.Kind == record.Truncated {
			states = append(states, "...")
		}
		if e.To != "" && (len(states) == 0 || e.Kind.Revises()) {
			state := e.To
			if mark != "" && e.Kind.Revises() {
				state += " (" + mark + ")"
			}
			states = append(states, state)
		}
		what := cli.FormatEvent(e)
		note := mark
		switch {
		case decided && mark == "": // show only the code: gavel writes it, a reason may be anyone's
			note = d.Code
		case !decided && e.Reason == "":
			note = cli.DescribeEvent(e)
		}
		rows = append(rows, []string{
			fmt.Sprint(e.Seq), cli.FormatTime(e.Time), what, term.OrNone(e.To), e.Principal,
			term.OrNone(string(d.Outcome)), term.OrNone(string(d.DecidedBy)), term.OrNone(string(d.Assurance)), term.OrNone(note),
		})
	}
	p.out.Printf("%s\n", strings.Join(states, " -> "))
	if left := len(rows) - 1 - maxPathSteps; left > 0 {
		rows = append(rows[:1:1], rows[1+left:]...)
		p.out.Printf("%d earlier steps: gavel instances timeline %s\n", left, p.Instance)
	}
	p.out.Table(rows)
	p.pastEvidence()
	if len(p.past.reviews) > 0 {
		p.title("other reviews of this instance")
		p.out.Table(cli.ShortenForTerminal(p.out, cli.ReviewRows(p.past.reviews)))
	}
}

func (p reviewPage) pastEvidence() {
	var fetched []cli.FetchedFor
	for _, e := range p.past.events {
		if d, ok := p.past.decisions[e.Seq]; ok {
			fetched = append(fetched, cli.ListFetched([]engine.HistoryEntry{d})...)
		}
	}
	if len(fetched) == 0 {
		return
	}
	p.title("evidence fetched so far")
	p.out.Table(cli.FetchedRows(fetched[max(0, len(fetched)-maxPathSteps):]))
}

// describeDoubt names why a decision does not count in full; "" if it does. Reasons are a missing judge, a failed
// examiner, or a judgement that was not enforced.
func describeDoubt(d engine.HistoryEntry) string {
	var doubts []string
	add := func(is bool, what string) {
		if is {
			doubts = append(doubts, what)
		}
	}
	add(d.Degraded, "degraded")
	add(d.DecidedBy == judge.ByFallback, "fallback")
	add(d.Fault, "fault")
	add(d.Mode != "" && d.Mode != judge.Enforce, string(d.Mode))
	return strings.Join(doubts, ", ")
}
