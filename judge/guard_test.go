package judge

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestModelRecalls(t *testing.T) {
	t.Parallel()
	c := reviewCase()
	ids := idsOf(t, c)
	down := errors.New("the store is down")
	refusal := opine(t, newModel(t, ModelConfig{Completer: tells(rejecting(ids))}), c)
	unsure := refusal
	unsure.Outcome, unsure.Trouble, unsure.Confidence, unsure.Assurance = Escalate, TroubleCannotAssess, unavailableConfidence, AssuranceNone
	lie := func(change func(*Opinion)) *Opinion { op := refusal; change(&op); return &op }

	for _, tt := range []struct {
		name    string
		held    Recollection
		limit   int
		change  func(*Case)
		want    Outcome
		trouble Trouble
		reused  bool
		refused int // ModelRecord.Refusals and RefusalLimit
		of      int
	}{
		{"nothing", Recollection{}, 0, nil, Approve, "", false, 0, 3},
		{"below the limit", Recollection{Refusals: 2}, 0, nil, Approve, "", false, 2, 3},
		{"at the limit", Recollection{Refusals: 3}, 0, nil, Escalate, TroubleLoopGuard, false, 3, 3},
		{"above the limit", Recollection{Refusals: 30}, 0, nil, Escalate, TroubleLoopGuard, false, 30, 3},
		{"above the limit, and refused before", Recollection{Refusals: 3, Opinion: &refusal}, 0, nil, Escalate, TroubleLoopGuard, false, 3, 3},
		{"a limit of its own", Recollection{Refusals: 1}, 1, nil, Escalate, TroubleLoopGuard, false, 1, 1},
		{"no limit", Recollection{Refusals: 99}, -1, nil, Approve, "", false, 99, 0},
		{"a count below zero", Recollection{Refusals: -7}, 0, nil, Approve, "", false, 0, 3},
		{"refused before", Recollection{Refusals: 1, Opinion: &refusal}, 0, nil, Reject, "", true, 1, 3},
		{"could not be assessed before", Recollection{Refusals: 1, Opinion: &unsure}, 0, nil, Escalate, TroubleCannotAssess, true, 1, 3},
		{"refused before, without limit", Recollection{Refusals: 9, Opinion: &refusal}, -1, nil, Reject, "", true, 9, 0},

		{"without a guard key nothing counts", Recollection{Refusals: 9}, 0, func(c *Case) { c.Guard = "" }, Approve, "", false, 0, 0},
		{"without an identity nothing is reused", Recollection{Refusals: 1, Opinion: &refusal}, 0, func(c *Case) { c.Identity = "" }, Approve, "", false, 1, 3},
		{"without a guard key it is reused all the same", Recollection{Opinion: &refusal}, 0, func(c *Case) { c.Guard = "" }, Reject, "", true, 0, 0},

		{"an approval is not reused", Recollection{Opinion: lie(func(op *Opinion) { op.Outcome, op.Findings = Approve, nil })}, 0, nil, Approve, "", false, 0, 3},
		{"another layer's refusal is not reused", Recollection{Opinion: lie(func(op *Opinion) { op.Layer = LayerScript })}, 0, nil, Approve, "", false, 0, 3},
		{"what was unavailable is not reused", Recollection{Opinion: lie(func(op *Opinion) { op.Outcome, op.Trouble = Escalate, TroubleUnavailable })}, 0, nil, Approve, "", false, 0, 3},
		{"what was unreadable is not reused", Recollection{Opinion: lie(func(op *Opinion) { op.Outcome, op.Trouble = Escalate, TroubleUnreadable })}, 0, nil, Approve, "", false, 0, 3},
		{"an empty opinion is not reused", Recollection{Opinion: &Opinion{}}, 0, nil, Approve, "", false, 0, 3},
		{"nonsense is not reused", Recollection{Opinion: lie(func(op *Opinion) { op.Confidence = math.NaN() })}, 0, nil, Approve, "", false, 0, 3},
	} {
		c := reviewCase()
		if tt.change != nil {
			tt.change(&c)
		}
		m := tells(approving(ids))
		op := opine(t, newModel(t, ModelConfig{Completer: m, Memory: &ledger{held: tt.held}, RefusalLimit: tt.limit}), c)
		if op.Outcome != tt.want || op.Trouble != tt.trouble || op.Model.Reused != tt.reused {
			t.Errorf("%s: %+v", tt.name, op)
		}
		if op.Model.Refusals != tt.refused || op.Model.RefusalLimit != tt.of {
			t.Errorf("%s: %d of %d", tt.name, op.Model.Refusals, op.Model.RefusalLimit)
		}
		if calls := op.Model.Calls; (calls == 0) != (tt.want != Approve) || calls != len(m.asked) {
			t.Errorf("%s: %d calls, %d questions", tt.name, calls, len(m.asked))
		}
	}

	// A failing memory does not bypass the loop guard.
	m := tells(approving(ids))
	op, err := newModel(t, ModelConfig{Completer: m, Memory: &ledger{err: down}}).Weigh(t.Context(), c)
	if !errors.Is(err, down) || op.Outcome != "" || len(m.asked) != 0 {
		t.Errorf("%v %+v", err, op)
	}
}

func TestModelAsksTheMemoryOnce(t *testing.T) {
	t.Parallel()
	c := reviewCase()
	for _, tt := range []struct {
		name   string
		window time.Duration
		change func(*Case)
		want   []string
	}{
		{"a day", 0, nil, []string{"guard identity 2026-11-19T12:00:00Z"}},
		{"an hour", time.Hour, nil, []string{"guard identity 2026-11-20T11:00:00Z"}},
		{"a case without a time", 0, func(c *Case) { c.Now = time.Time{} }, []string{"guard identity 2030-01-01T00:00:00Z"}},
		{"nothing to ask for", 0, func(c *Case) { c.Guard, c.Identity = "", "" }, nil},
	} {
		c := c
		if tt.change != nil {
			tt.change(&c)
		}
		memory := &ledger{}
		opine(t, newModel(t, ModelConfig{
			Completer: tells(approving(idsOf(t, c))), Memory: memory, RefusalWindow: tt.window,
			Now: func() time.Time { return time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC) },
		}), c)
		if diff := cmp.Diff(tt.want, memory.asked); diff != "" {
			t.Errorf("%s:\n%s", tt.name, diff)
		}
	}
}

// A reused refusal is the same and costs nothing, even after it was stored.
func TestReusedRefusal(t *testing.T) {
	t.Parallel()
	c := reviewCase()
	fresh := opine(t, newModel(t, ModelConfig{Completer: tells(rejecting(idsOf(t, c)))}), c)
	fresh.Took = document.Milliseconds(time.Second)
	text, err := json.Marshal(fresh)
	if err != nil {
		t.Fatal(err)
	}
	var stored Opinion
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	memory := &ledger{held: Recollection{Refusals: 1, Opinion: &stored}}
	got := opine(t, newModel(t, ModelConfig{Completer: failsWith(errors.New("asked")), Memory: memory}), c)
	want := fresh
	model := *fresh.Model
	model.Reused, model.Calls, model.Breaker = true, 0, ""
	model.PromptTokens, model.CompletionTokens, model.CachedTokens, model.CostUSD = nil, nil, nil, nil
	model.Refusals, model.RefusalLimit = 1, 3
	want.Model, want.Took = &model, 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reused (-want +got):\n%s", diff)
	}
	got.Findings[0].Message = "changed"
	if stored.Model.Reused || stored.Findings[0].Message == "changed" {
		t.Error("the stored opinion changed")
	}
}

// The whole sequence: two refusals, the third is escalated to a person, and then the model is not
// asked again; an approval that is carried out clears all refusals.
func TestLoopGuardOverTime(t *testing.T) {
	t.Parallel()
	c := reviewCase(func(c *Case) { c.ReviewPath = true })
	ids := idsOf(t, c)
	memory, recorded := &ledger{}, map[string]*Opinion{}
	m := tells(rejecting(ids))
	p := bench(map[LayerName]Opinion{LayerTransition: legal()}, Opinion{})
	p.withModel[len(p.withModel)-1] = []Layer{newModel(t, ModelConfig{Completer: m, Memory: memory})}
	step := func(identity string) string {
		t.Helper()
		c.Identity = identity
		memory.held.Opinion = recorded[identity]
		v, err := p.Decide(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		checkCoherent(t, v)
		memory.learn(v)
		recorded[identity] = memory.held.Opinion
		return strings.TrimSpace(string(v.Outcome) + " " + v.Code)
	}
	for i, want := range []struct {
		identity, says string
		questions      int
	}{
		{"a", "reject criterion_not_met", 1},
		{"a", "reject criterion_not_met", 1}, // the recorded refusal
		{"b", "escalate loop_guard", 2},      // reworded: asked, then escalated
		{"c", "escalate loop_guard", 2},      // no longer asked
		{"c", "escalate loop_guard", 2},
	} {
		if got := step(want.identity); got != want.says || len(m.asked) != want.questions {
			t.Errorf("step %d: %s after %d questions, want %+v", i, got, len(m.asked), want)
		}
	}
	if memory.held.Refusals != 3 {
		t.Errorf("%d refusals are counted", memory.held.Refusals)
	}
	memory.held = Recollection{Refusals: 2}
	m.tell = tells(approving(ids)).tell
	if got := step("d"); got != "approve" || memory.held.Refusals != 0 {
		t.Errorf("%s, %d refusals", got, memory.held.Refusals)
	}
	// An unreadable or unavailable answer does not count.
	memory.held = Recollection{Refusals: 2}
	for _, class := range []llm.Class{llm.ClassRefusal, llm.ClassNetwork} {
		m.tell = failsWith(&llm.Error{Class: class}).tell
		if step("e"); memory.held.Refusals != 2 {
			t.Errorf("%s: %d refusals", class, memory.held.Refusals)
		}
	}
}
