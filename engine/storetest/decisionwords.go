//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// decisionsText checks that text typed by a person finds the right decisions, in any script, and is never interpreted
// as query syntax.
func decisionsText(t *testing.T, _ Driver, s store.Store) {
	saying := func(n int, reasoning string) {
		mustCommit(t, s, Start(t, ID(n), `{}`, func(e *record.Event) { e.Decision.Reasoning = reasoning }))
	}
	saying(1, "Zoë's naïve façade – ΣΊΣΥΦΟΣ")
	mustCommit(t, s, Start(t, ID(2), `{}`, func(e *record.Event) {
		e.Decision.Reasoning = "The field is missing."
		decodeFixture(`[{"code": "required_field", "path": "/customer/tax-id", "message": "“amount” is <missing>.", "hint": "Send it."}]`, &e.Decision.Findings)
	}))
	saying(3, "発注書の金額が一致しません。 承認を拒否します。")
	saying(4, "Done 🦊👍🏽, 100% 👨‍👩‍👧")
	saying(5, "Страница не найдена; 가격이 틀렸습니다")
	saying(6, `AND OR NOT NEAR("x") terms:x ^y z* "quoted'' -- ;`)
	saying(7, strings.Repeat("long ", 5000)+strings.Repeat("x", 100))
	nothing := sampleSize(600)
	for i := range nothing { // so that an indexing store has indexed
		saying(100+i, "nothing")
	}
	for text, want := range map[string][]int{
		"zoe": {1}, "ZOË": {1}, "Zoë's": {1}, "naive facade": {1}, "facade naive": {1}, "σίσυφος": {1}, "σισυφοσ": {1}, "zo": nil,
		"missing": {2}, "amount": {2}, "tax-id": {2}, "required_field": {2}, "/customer/tax-id": {2}, "send missing": {2}, "missing zoe": nil,
		"拒否": {3}, "拒": {3}, "金額": {3}, "承認を拒否": {3}, "否拒": nil, "金額 拒否": {3}, "注文": nil,
		"🦊": {4}, "🦊 done": {4}, "👍": {4}, "👍🏽": {4}, "👨‍👩‍👧": {4}, "🐻": nil, "100": {4}, "100%": {4},
		"СТРАНИЦА": {5}, "найдена": {5}, "가격": {5}, "틀렸": {5},
		"AND": {6}, "or not": {6}, `"`: nil, `"quoted`: {6}, `x"`: {6}, "z*": {6}, "terms:x": {6}, "^y": {6}, "NEAR(": {6}, "*": nil, "--": nil, "' OR 1=1": nil, "(": nil, "nothing AND zoe": nil,
		"long": {7}, strings.Repeat("x", 100): {7}, strings.Repeat("long ", 20000): {7}, strings.Repeat("long and ", 2000) + "other": nil,
		"\x00": nil, "\xff\xfe": nil, "mis\x00sing": nil, "missing\x00": {2}, "\ue000doc": nil, "   ": nil, "…": nil, strings.Repeat(`"`, 100000): nil,
	} {
		var got []int
		for _, h := range findDecisions(t, s, store.DecisionQuery{Text: text}) {
			for n := range 8 {
				if h.Event.Instance == ID(n) {
					got = append(got, n)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.40q finds %v, want %v", text, got, want)
		}
	}
	if got := findDecisions(t, s, store.DecisionQuery{Text: "nothing", Workflow: "doc"}); len(got) != nothing {
		t.Errorf("\"nothing\" finds %d decisions, want %d", len(got), nothing)
	}
}

// decisionsOfReviews checks that escalated moves and people's decisions are found like other decisions. A review that
// ended without a decision is not found.
func decisionsOfReviews(t *testing.T, _ Driver, s store.Store) {
	var all []known
	note := func(inst record.Instance) { all = append(all, known{lastEvent(t, s, inst), inst.Owner}) }
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	note(inst)
	inst = mustCommit(t, s, Refuse(t, inst, "submit"))
	note(inst)
	inst = mustCommit(t, s, Escalate(t, inst, "approve", "rev-1"))
	note(inst)
	inst = mustCommit(t, s, EndReview(t, inst, "approve", &record.Review{ID: "rev-1", Status: record.ReviewStale, Reason: "moved"}))
	note(inst)
	inst = mustCommit(t, s, Escalate(t, inst, "approve", "rev-2"))
	note(inst)
	rejected := newDecision(false)
	rejected.DecidedBy, rejected.Assurance, rejected.Code = "reviewer", "human", "review_rejected"
	inst = mustCommit(t, s, EndReview(t, inst, "approve", &record.Review{ID: "rev-2", Status: record.ReviewResolved, Resolution: "reject", By: "ada"},
		func(e *record.Event) { e.Decision = rejected }))
	note(inst)
	inst = mustCommit(t, s, Advance(t, inst, "reviewing", `{}`))
	note(inst)
	then := mustCommit(t, s, CheckpointOf(t, inst))
	note(then)
	note(mustCommit(t, s, RollbackTo(t, then, inst)))
	for _, q := range []store.DecisionQuery{
		{},
		{Outcome: "escalate"},
		{Kinds: []record.Kind{record.Reviewed}},
		{DecidedBy: "reviewer"},
		{Assurance: "human"},
		{Code: "review_rejected"},
		{Instance: ID(1), Outcome: "reject"},
		{Kinds: []record.Kind{record.RolledBack}},
	} {
		wantDecisions(t, s, all, q)
	}
}

func decisionsReopened(t *testing.T, s store.Store) func(store.Store) {
	all := growJudged(t, s, sampleSize(400))
	before := positions(findDecisions(t, s, store.DecisionQuery{}))
	return func(s store.Store) {
		for _, q := range singleFilters(all) {
			wantDecisions(t, s, all, q)
		}
		RequireFigures(t, s, store.DecisionQuery{})
		if after := positions(findDecisions(t, s, store.DecisionQuery{})); !slices.Equal(after, before) {
			t.Fatalf("decisions were at %v and are at %v", before, after)
		}
	}
}

// decisionsBeside checks that two stores that concurrently write and search the same data index everything exactly
// once.
func decisionsBeside(t *testing.T, d Driver, s store.Store) {
	other := d.Beside(t, s)
	defer closeStore(t, other)
	var wg sync.WaitGroup
	for w, at := range []store.Store{s, other} {
		random := rand.New(rand.NewPCG(7, uint64(w))) //nolint:gosec // the same every time
		commits := make([]store.Commit, 400)
		for i := range commits {
			commits[i] = judgedStart(t, random, w*100_000+i)
		}
		wg.Go(func() { commitAll(t, at, commits) })
		for range 2 {
			wg.Go(func() {
				for range 20 {
					for _, err := range at.Decisions(t.Context(), store.DecisionQuery{Kinds: []record.Kind{record.Started}, Limit: 70}) {
						if err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
	}
	wg.Wait()
	for what, at := range map[string]store.Store{"first": s, "second": other} {
		RequireFigures(t, at, store.DecisionQuery{})
		for _, q := range []store.DecisionQuery{{}, {Kinds: []record.Kind{record.Started}}} {
			seen := map[string]int{}
			for _, h := range findDecisions(t, at, q) {
				seen[h.Event.Instance]++
			}
			if len(seen) != 800 {
				t.Errorf("the %s store finds %d instances with %+v, want 800", what, len(seen), q)
			}
			for id, n := range seen {
				if n != 1 {
					t.Errorf("the %s store finds the start of %s %d times", what, id, n)
				}
			}
		}
	}
}

// decisionsCancelled checks that a cancelled caller gets an error, and that consumers may stop anywhere.
func decisionsCancelled(t *testing.T, _ Driver, s store.Store) {
	growJudged(t, s, 300)
	for _, err := range s.Decisions(t.Context(), store.DecisionQuery{Outcome: "reject"}) {
		wantNone(t, err)
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, "a caller that cancelled", onlyError(s.Decisions(ctx, store.DecisionQuery{})), context.Canceled)
	closeStore(t, s)
	wantError(t, "closed", onlyError(s.Decisions(t.Context(), store.DecisionQuery{})), store.ErrClosed)
}

// decisionsOfWhatIsLeft checks that events removed from a history are not found, and that the rest is found at its
// position.
func decisionsOfWhatIsLeft(t *testing.T, _ Driver, s store.Store) {
	growLong(t, s, ID(1))
	inst, at := growLong(t, s, ID(2))
	growJudged(t, s, sampleSize(600)) // so that an indexing store has indexed
	all := store.DecisionQuery{Workflow: "doc", Principal: "local:agent", Kinds: []record.Kind{record.Started, record.Advanced, record.Refused}}
	before := findDecisions(t, s, all)
	floor := at[4]
	mustCommit(t, s, Truncate(t, inst, floor))
	want := slices.DeleteFunc(before, func(h store.PlacedEvent) bool { return h.Event.Instance == inst.ID && h.Event.Seq <= floor.Seq })
	of := func(hits []store.PlacedEvent) (out []string) {
		for _, h := range hits {
			out = append(out, fmt.Sprintf("%d: %s #%d", h.Position, h.Event.Instance, h.Event.Seq))
		}
		return out
	}
	if got := findDecisions(t, s, all); len(want) == 0 || !slices.Equal(of(got), of(want)) {
		t.Errorf("got %v\nwant %v", of(got), of(want))
	}
	RequireFigures(t, s, store.DecisionQuery{})
}
