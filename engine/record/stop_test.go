package record_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

func refusedStop() record.Event {
	e := refused("", ``)
	e.Decision.Code = workflow.CodeNotFinished
	return e
}

func earlyEnd(review string) record.Event {
	e := escalated("", review)
	e.Decision.Code = workflow.CodeNotFinished
	return e
}

func TestStopsAreCountedUntilTheNextMove(t *testing.T) {
	t.Parallel()
	h := &history{tb: t}
	want := func(what string, s workflow.Stops) {
		t.Helper()
		if got := h.last().Facts.Stops; !reflect.DeepEqual(got, s) {
			t.Errorf("%s: %+v, want %+v", what, got, s)
		}
	}
	h.seal(started(`{}`), nil)
	h.seal(refusedStop(), nil)
	h.seal(refused("go", `{}`), nil)
	h.seal(refusedStop(), nil)
	want("two stops and another refusal", workflow.Stops{Refused: 2})
	h.seal(earlyEnd("r1"), nil)
	h.seal(reviewed("", "r1", resolved(judge.Reject)), nil)
	want("sent back", workflow.Stops{})
	h.seal(refusedStop(), nil)
	h.seal(earlyEnd("r2"), nil)
	h.seal(reviewed("", "r2", resolved(judge.Approve)), nil)
	want("accepted", workflow.Stops{Refused: 1, Accepted: true})
	at := h.last()
	h.seal(advanced("go", "reviewing", `{}`), nil)
	want("moved", workflow.Stops{})
	for _, session := range []string{"one", "two", "one"} {
		e := refusedStop()
		e.Decision.Data = record.NewStopData(session)
		h.seal(e, nil)
	}
	want("two sessions", workflow.Stops{Refused: 3, Sessions: map[string]int{"one": 2, "two": 1}})
	h.seal(advanced("go", "reviewing", `{}`), nil)
	h.seal(refusedStop(), nil)
	h.seal(earlyEnd("r3"), nil)
	h.seal(reviewed("", "r3", record.Review{Status: record.ReviewStale}), nil)
	want("overtaken", workflow.Stops{Refused: 1})
	h.seal(restoring(record.Undone, 1), &at)
	want("what is restored is a move too", workflow.Stops{})
	if again, err := record.FoldAt(h.seq(), 0); err != nil || !reflect.DeepEqual(again, h.last()) {
		t.Errorf("folded anew: %+v, %v", again, err)
	}
}

func TestStopsThatCannotBe(t *testing.T) {
	t.Parallel()
	with := func(e record.Event, change func(*record.Event)) record.Event { change(&e); return e }
	for name, e := range map[string]record.Event{
		"a refusal of nothing":              refused("", ``),
		"an escalation of nothing":          escalated("", "r2"),
		"a pre-check of one":                with(refusedStop(), func(e *record.Event) { e.Kind = record.Prechecked }),
		"one that was applied":              with(refusedStop(), func(e *record.Event) { e.Decision.Applied = true }),
		"one without a decision":            with(refusedStop(), func(e *record.Event) { e.Decision = nil }),
		"one that moves":                    with(refusedStop(), func(e *record.Event) { e.To = "done" }),
		"a second early end":                earlyEnd("r2"),
		"an early end without a review":     with(earlyEnd("r2"), func(e *record.Event) { e.Review = nil }),
		"an early end of what is cancelled": with(earlyEnd("r2"), func(e *record.Event) { e.Status = record.Cancelled }),
		"a move past one":                   advanced("go", "done", `{}`),
	} {
		h := &history{tb: t}
		h.seal(started(`{}`), nil)
		h.seal(earlyEnd("r1"), nil)
		e.Time, e.Principal, e.Role = epoch, "local:agent", "agent"
		if _, _, err := record.Seal(h.last(), e, nil); !errors.Is(err, record.ErrIllegalStep) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := &history{tb: t} // while a call is open, an agent may end early in a final state, too
	h.seal(started(`{}`), nil)
	ended := advanced("go", "done", `{}`)
	ended.Status = record.Complete
	h.seal(ended, nil)
	h.seal(earlyEnd("r1"), nil)
	if len(h.last().Facts.Reviews) != 1 {
		t.Errorf("%+v", h.last().Facts)
	}
}
