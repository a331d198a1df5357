package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// rejectedAgain repeats a rejected request. It fails the test unless the result is that rejection,
// recorded, and no review was opened.
func (b *bench) rejectedAgain(id, action, data, review string) {
	b.t.Helper()
	r := b.refused(agent, id, action, data, judge.CodeReviewRejected)
	if r.Review == nil || r.Review.ID != review || r.Review.Status != record.ReviewResolved || r.Review.Reason != "looked at it" ||
		r.Decision.DecidedBy != judge.ByReviewer || r.Decision.Assurance != judge.AssuranceHuman || len(r.Decision.Findings) != 1 ||
		!strings.Contains(r.Decision.Findings[0].Message, "looked at it") || !strings.Contains(r.Decision.Findings[0].Message, review) {
		b.t.Fatalf("%+v, review %+v", r.Decision, r.Review)
	}
}

// A question that a person rejected is not put to a person again while it is the same. It is once a
// relevant part of it has changed.
func TestRejectedReviewAnswersSameRequest(t *testing.T) {
	t.Parallel()
	const asked = `{"why":"it is time","token":"secret"}`
	for name, tt := range map[string]struct {
		change func(b *bench, id, review string)
		data   string // "" means the same data
		who    engine.Principal
		parks  bool
	}{
		"nothing changed":        {change: func(*bench, string, string) {}},
		"written otherwise":      {change: func(*bench, string, string) {}, data: `{ "token": "secret", "why": "it is ti\u006de" }`},
		"a refusal came between": {change: func(b *bench, id, _ string) { b.refused(agent, id, "nonsense", `{}`, "illegal_action") }},
		"it went away and back": {change: func(b *bench, id, _ string) {
			b.moved(agent, id, "fix", `{}`, "broken")
			b.moved(agent, id, "mend", `{}`, "ready")
		}},
		"a new version is defined": {change: func(b *bench, _, _ string) {
			b.define(operator, strings.Replace(guardedFlow, "forbidden word", "no", 1))
		}},
		"its rules changed": {change: func(b *bench, id, _ string) {
			b.define(operator, strings.Replace(guardedFlow, "forbidden word", "no", 1))
			if r, err := b.Migrate(b.t.Context(), operator, engine.MigrateRequest{Workflow: "guarded"}); err != nil || r.Migrated != 1 {
				b.t.Fatal(r, err)
			}
		}, parks: true},
		"other data were rejected": {change: func(b *bench, id, _ string) {
			if _, err := b.resolve(rita, b.parked(agent, id, "release", `{"why":"please"}`).ID, judge.Reject); err != nil {
				b.t.Fatal(err)
			}
		}},
		"other data":      {change: func(*bench, string, string) {}, data: `{"why":"the tests pass","token":"secret"}`, parks: true},
		"another secret":  {change: func(*bench, string, string) {}, data: `{"why":"it is time","token":"other"}`, parks: true},
		"another context": {change: func(b *bench, id, _ string) { b.moved(agent, id, "note", `{"n":2}`, "ready") }, parks: true},
		"somebody else":   {change: func(*bench, string, string) {}, who: operator, parks: true},
		"it was reopened": {change: func(b *bench, id, review string) { b.reopened(id, review) }, parks: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, id := parkable(t)
			first := b.parked(agent, id, "release", asked)
			if _, err := b.resolve(rita, first.ID, judge.Reject); err != nil {
				t.Fatal(err)
			}
			tt.change(b, id, first.ID)
			data := asked
			if tt.data != "" {
				data = tt.data
			}
			who := agent
			if tt.who.ID != "" {
				who = tt.who
			}
			if tt.parks {
				if again := b.parked(who, id, "release", data); again.ID == first.ID {
					t.Error("the old review waits again")
				}
			} else {
				b.rejectedAgain(id, "release", data, first.ID)
				b.rejectedAgain(id, "release", data, first.ID)
			}
			b.verify(id)
		})
	}
}

// reopened lets a reviewer reopen a rejected review, and checks that this only adds an event.
func (b *bench) reopened(id, review string) {
	b.t.Helper()
	before := b.load(id)
	got, err := b.Resolve(b.t.Context(), ralf, engine.ResolveRequest{ID: review, Decision: engine.Reopen, Reason: "I was wrong", Key: "k" + review})
	if err != nil || got.Applied || got.Review.Status != record.ReviewReopened || got.Review.By != ralf.ID || got.Review.Reason != "I was wrong" {
		b.t.Fatalf("%+v, %v", got, err)
	}
	again, err := b.Resolve(b.t.Context(), ralf, engine.ResolveRequest{ID: review, Decision: engine.Reopen, Reason: "I was wrong", Key: "k" + review})
	if err != nil || !again.Replayed {
		b.t.Errorf("repeated: %+v, %v", again, err)
	}
	if after := b.load(id); after.Seq != before.Seq+1 || after.Revision != before.Revision || len(after.Facts.Reviews) != 0 {
		b.t.Errorf("%+v -> %+v", before, after)
	}
}

// Evidence is fetched again and compared. If it is unchanged, scripts, models and people are not asked
// again.
func TestRejectionHoldsUntilEvidenceChanges(t *testing.T) {
	t.Parallel()
	w := &world{content: `{"v":0}`}
	b := newReviewBenchOn(t, memory.New(), w)
	b.define(operator, watchedFlow)
	id := b.start(agent, "watched", `{}`).ID
	first := b.parked(agent, id, "go", `{}`)
	if _, err := b.resolve(rita, first.ID, judge.Reject); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Hour)
	b.rejectedAgain(id, "go", `{}`, first.ID)
	checked, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`{}`))})
	if err != nil || checked.Approved || checked.Decision.Code != judge.CodeReviewRejected {
		t.Errorf("validate: %+v, %v", checked, err)
	}
	w.content = `{"v":1}`
	if again := b.parked(agent, id, "go", `{}`); again.ID == first.ID {
		t.Error("the old review waits again")
	}
	b.verify(id)
}

// A model that changes its mind does not overrule a person.
func TestModelDoesNotOverruleRejection(t *testing.T) {
	t.Parallel()
	b := newReviewBench(t)
	b.define(operator, judgedFlow)
	id := b.start(agent, "judged", "").ID
	first := b.parked(agent, id, "close", `{"note":"did it"}`) // no model is configured
	if _, err := b.resolve(rita, first.ID, judge.Reject); err != nil {
		t.Fatal(err)
	}
	b.judge.before = func(_ context.Context, c judge.Case) error {
		if c.Rejected == nil || c.Rejected.Review != first.ID {
			t.Errorf("the judge is told of %+v", c.Rejected)
		}
		return nil
	}
	r, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "close", Data: document.ReadTrusted([]byte(`{"note":"did it"}`)), Key: "k"})
	if err != nil || r.Decision.Code != judge.CodeReviewRejected || len(r.Decision.Warnings) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	again, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "close", Data: document.ReadTrusted([]byte(`{"note":"did it"}`)), Key: "k"})
	if err != nil || !again.Replayed || again.Decision.ID != r.Decision.ID || again.Review == nil || again.Review.ID != first.ID {
		t.Errorf("the key: %+v, %v", again, err)
	}
	for _, ev := range b.events(id) {
		if ev.Kind == record.Refused && len(ev.Decision.Opinions) > 0 && ev.Decision.Opinions[len(ev.Decision.Opinions)-1].Layer != judge.ByReviewer {
			t.Errorf("asked after the person: %+v", ev.Decision.Opinions)
		}
	}
}

// Status and the list show rejected reviews with their reason, while the instance is in the state of the
// request.
func TestRejectedReviewIsVisible(t *testing.T) {
	t.Parallel()
	b, id := parkable(t)
	first := b.parked(agent, id, "release", `{"why":"it is time"}`)
	if _, err := b.resolve(rita, first.ID, judge.Reject); err != nil {
		t.Fatal(err)
	}
	waits := b.parked(agent, id, "other", `{}`)
	seen := func(what string, got []engine.ReviewSummary, want ...string) {
		t.Helper()
		var ids []string
		for _, r := range got {
			ids = append(ids, r.ID)
			if r.ID == first.ID && r.Status == record.ReviewResolved && (r.Reason != "looked at it" || r.By != rita.ID || r.Decision != judge.Reject || !strings.Contains(r.Next, "reopens")) {
				t.Errorf("%s: %+v", what, r)
			}
		}
		slices.Sort(ids)
		slices.Sort(want)
		if !slices.Equal(ids, want) {
			t.Errorf("%s shows %v, want %v", what, ids, want)
		}
	}
	status := func() []engine.ReviewSummary {
		t.Helper()
		s, err := b.Status(t.Context(), agent, id)
		if err != nil {
			t.Fatal(err)
		}
		return s.Reviews
	}
	list := func(p engine.Principal, status string) []engine.ReviewSummary {
		t.Helper()
		r, err := b.Reviews(t.Context(), p, engine.ReviewsRequest{Status: status})
		if err != nil || r.Count != len(r.Reviews) {
			t.Fatal(r, err)
		}
		return r.Reviews
	}
	seen("status", status(), first.ID, waits.ID)
	seen("the agent's list", list(agent, ""), first.ID, waits.ID)
	seen("the agent's open ones", list(agent, "open"), waits.ID)
	seen("the worklist", list(rita, ""), waits.ID)
	seen("the rejected ones", list(rita, "rejected"), first.ID)
	seen("another agent's list", list(other, ""))

	second := b.parked(agent, id, "release", `{"why":"please"}`)
	seen("status with another request", status(), second.ID, waits.ID)
	b.moved(agent, id, "fix", `{}`, "broken")
	seen("status elsewhere", status())
	seen("the agent's list elsewhere", list(agent, ""))
	b.moved(agent, id, "mend", `{}`, "ready")
	seen("status back there", status(), first.ID)
	b.reopened(id, first.ID)
	seen("status when it was reopened", status())
	seen("the reopened ones", list(rita, "reopened"), first.ID)
}

// A principal that may not decide a review may not reopen it, and only a rejected review can be reopened.
func TestReopenRights(t *testing.T) {
	t.Parallel()
	b, id := parkable(t)
	reopen := func(p engine.Principal, review string) error {
		_, err := b.Resolve(t.Context(), p, engine.ResolveRequest{ID: review, Decision: engine.Reopen, Reason: "why not"})
		return err
	}
	first := b.parked(agent, id, "release", `{"why":"a"}`)
	wantCode(t, reopen(rita, first.ID), engine.CodeInvalidArgument) // it is open
	if _, err := b.resolve(rita, first.ID, judge.Reject); err != nil {
		t.Fatal(err)
	}
	wantCode(t, reopen(agent, first.ID), engine.CodeForbidden)
	wantCode(t, reopen(engine.Principal{ID: agent.ID, Role: engine.RoleOperator}, first.ID), engine.CodeForbidden)
	wantCode(t, reopen(auditor, first.ID), engine.CodeForbidden)
	if _, err := b.resolve(ralf, first.ID, judge.Approve); engine.CodeOf(err) != engine.CodeReviewClosed {
		t.Errorf("a rejected review is approved: %v", err)
	}
	b.reopened(id, first.ID)
	wantCode(t, reopen(rita, first.ID), engine.CodeReviewClosed) // only once
	approved := b.parked(agent, id, "release", `{"why":"a"}`)
	if _, err := b.resolve(rita, approved.ID, judge.Approve); err != nil {
		t.Fatal(err)
	}
	wantCode(t, reopen(ralf, approved.ID), engine.CodeReviewClosed)
	b.verify(id)
}
