package record_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

func escalated(action, review string) record.Event {
	d := decision(false)
	d.Outcome = judge.Escalate
	return record.Event{
		Kind: record.Escalated, Action: action, Decision: d,
		Review: &record.Review{ID: review, Status: record.ReviewOpen, Digest: "d-" + review, Priority: record.PriorityHigh},
	}
}

func reviewed(action, review string, how record.Review) record.Event {
	how.ID = review
	return record.Event{Kind: record.Reviewed, Action: action, Review: &how}
}

func resolved(how judge.Outcome) record.Review {
	return record.Review{Status: record.ReviewResolved, Resolution: how, By: "rita", Channel: record.ChannelCLI, Reason: "looked"}
}

func TestReviewsAreFolded(t *testing.T) {
	t.Parallel()
	h := &history{tb: t}
	h.seal(started(`{}`), nil)
	h.seal(escalated("go", "r1"), nil)
	h.seal(escalated("run", "r2"), nil)
	want := []workflow.OpenReview{{ID: "r1", Action: "go", Digest: "d-r1", Seq: 2}, {ID: "r2", Action: "run", Digest: "d-r2", Seq: 3}}
	if got := h.last(); !reflect.DeepEqual(got.Facts.Reviews, want) || got.Revision != 1 || got.State != "draft" {
		t.Fatalf("%+v", got)
	}
	h.seal(record.Event{Kind: record.Checkpointed, Checkpoint: &record.Checkpoint{ID: "cp"}}, nil)
	at := h.last()
	h.seal(reviewed("run", "r2", record.Review{Status: record.ReviewOpen, Priority: record.PriorityUrgent}), nil)
	if got := h.last(); len(got.Facts.Reviews) != 2 || got.Status != record.Running {
		t.Errorf("raised: %+v", got.Facts)
	}
	h.seal(reviewed("run", "r2", resolved(judge.Reject)), nil)
	repeated, rejected := refused("run", `{}`), resolved(judge.Reject)
	rejected.ID, repeated.Review = "r2", &rejected
	h.seal(repeated, nil)
	h.seal(reviewed("run", "r2", record.Review{Status: record.ReviewReopened, By: "rita", Reason: "wrong"}), nil)
	if got := h.last(); len(got.Facts.Reviews) != 1 || got.Revision != 1 {
		t.Errorf("reopened: %+v", got.Facts)
	}
	h.seal(reviewed("go", "r1", resolved(judge.Approve)), nil)
	if got := h.last(); got.Facts.Reviews != nil || got.Revision != 1 {
		t.Errorf("%+v", got)
	}
	moved := advanced("go", "done", `{}`)
	approval := resolved(judge.Approve)
	approval.ID = "r1"
	moved.Review = &approval
	h.seal(moved, nil)
	if who := h.last().Facts.Performed["go"]; !reflect.DeepEqual(who, []string{"local:agent", "rita"}) {
		t.Errorf("performed by %v", who)
	}
	// The rollback restores a past revision, so its review is no longer pending.
	h.seal(record.Event{Kind: record.RolledBack, Rollback: &record.Rollback{CheckpointID: "cp", Restores: 1}}, &at)
	if got := h.last(); got.State != "draft" || got.Facts.Reviews != nil {
		t.Errorf("after the rollback: %+v", got)
	}
	if err := record.Verify(h.seq()); err != nil {
		t.Error(err)
	}
	if again, err := record.FoldAt(h.seq(), 0); err != nil || !reflect.DeepEqual(again, h.last()) {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestReviewsThatCannotBe(t *testing.T) {
	t.Parallel()
	const malformed = "text that is no text in a reason"
	with := func(e record.Event, change func(*record.Event)) record.Event { change(&e); return e }
	for name, e := range map[string]record.Event{
		"a second one of the same action": escalated("go", "r9"),
		"the same one again":              escalated("run", "r1"),
		"bound to nothing":                with(escalated("run", "r2"), func(e *record.Event) { e.Review.Digest = "" }),
		"reopened while it is open":       reviewed("go", "r1", record.Review{Status: record.ReviewReopened, By: "rita"}),
		"reopened by nobody":              reviewed("run", "r0", record.Review{Status: record.ReviewReopened}),
		"reopened and resolved":           reviewed("run", "r0", record.Review{Status: record.ReviewReopened, By: "rita", Resolution: judge.Reject}),
		"a refusal by an open one":        with(refused("run", `{}`), func(e *record.Event) { how := resolved(judge.Reject); how.ID = "r1"; e.Review = &how }),
		"a refusal by an approved one":    with(refused("run", `{}`), func(e *record.Event) { how := resolved(judge.Approve); how.ID = "r0"; e.Review = &how }),
		"opened as resolved":              with(escalated("run", "r2"), func(e *record.Event) { e.Review.Status = record.ReviewResolved }),
		"escalated without one":           with(escalated("run", "r2"), func(e *record.Event) { e.Review = nil }),
		"escalated although it was a no":  with(escalated("run", "r2"), func(e *record.Event) { e.Decision.Outcome = judge.Reject }),
		"escalated although applied":      with(escalated("run", "r2"), func(e *record.Event) { e.Decision.Applied = true }),
		"a refusal with a review":         with(refused("run", `{}`), func(e *record.Event) { e.Review = &record.Review{ID: "r1"} }),
		"a move past one":                 advanced("run", "done", `{}`),
		"a cancel past one":               {Kind: record.KindCancelled},
		"the end of one that is not open": reviewed("go", "r7", resolved(judge.Reject)),
		"the end of another action's":     reviewed("run", "r1", resolved(judge.Reject)),
		"the end of none":                 {Kind: record.Reviewed, Action: "go"},
		"a resolution by nobody":          reviewed("go", "r1", record.Review{Status: record.ReviewResolved, Resolution: judge.Approve}),
		"a resolution that is none":       reviewed("go", "r1", record.Review{Status: record.ReviewResolved, By: "rita", Resolution: judge.Escalate}),
		"stale and approved":              reviewed("go", "r1", record.Review{Status: record.ReviewStale, By: "rita", Resolution: judge.Approve}),
		"an unknown status":               reviewed("go", "r1", record.Review{Status: "lost"}),
		"an end that changes the state":   with(reviewed("go", "r1", resolved(judge.Reject)), func(e *record.Event) { e.To = "done" }),
		"an end that changes the context": with(reviewed("go", "r1", resolved(judge.Reject)), func(e *record.Event) { e.Patch = []byte(`{}`) }),
		malformed:                         with(reviewed("go", "r1", resolved(judge.Reject)), func(e *record.Event) { e.Review.Reason = "\xff" }),
	} {
		h := &history{tb: t}
		h.seal(started(`{}`), nil)
		h.seal(escalated("go", "r1"), nil)
		e.Time, e.Principal, e.Role = epoch, "local:agent", "agent"
		_, _, err := record.Seal(h.last(), e, nil)
		if !errors.Is(err, record.ErrIllegalStep) && (name != malformed || !errors.Is(err, record.ErrMalformed)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := &history{tb: t}
	h.seal(started(`{}`), nil)
	for name, r := range map[string]record.Review{
		"rejected":  {ID: "r1", Status: record.ReviewResolved, Resolution: judge.Reject, By: "rita"},
		"open":      {ID: "r1", Status: record.ReviewOpen},
		"by nobody": {ID: "r1", Status: record.ReviewResolved, Resolution: judge.Approve},
	} {
		e := advanced("go", "done", `{}`)
		e.Time, e.Principal, e.Role = epoch, "local:agent", "agent"
		e.Review = &r
		if _, _, err := record.Seal(h.last(), e, nil); !errors.Is(err, record.ErrIllegalStep) {
			t.Errorf("a move by a review that is %s: %v", name, err)
		}
	}
}
