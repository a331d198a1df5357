package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

const demanding = `{"name":"demanding","initialState":"a","sensitive":["/ssn"],"states":{
	"a":{"transitions":{"go":{"target":"b","requiredFields":["comments"]},"stay":"a"}},
	"b":{"final":true}}}`

func (b *bench) find(p engine.Principal, req engine.DecisionsRequest) engine.DecisionsResult {
	b.t.Helper()
	r, err := b.Decisions(b.t.Context(), p, req)
	if err != nil {
		b.t.Fatalf("decisions %+v: %v", req, err)
	}
	if r.Count != len(r.Decisions) || r.Decisions == nil {
		b.t.Fatalf("count %d of %d", r.Count, len(r.Decisions))
	}
	return r
}

// A search shows each decision as History does, with its instance.
func TestDecisionsMatchHistory(t *testing.T) {
	b := newBench(t)
	b.define(operator, demanding)
	id := b.start(agent, "demanding", `{}`).ID
	const secret = "123-45-6789"
	b.refused(agent, id, "go", `{"ssn":"`+secret+`"}`, "required_field")
	if _, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"}); err != nil {
		t.Fatal(err)
	}
	b.moved(agent, id, "go", `{"comments":"fine","ssn":"`+secret+`"}`, "b")
	for _, p := range []engine.Principal{agent, operator, reviewer, auditor} {
		h, err := b.History(t.Context(), p, engine.HistoryRequest{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		r := b.find(p, engine.DecisionsRequest{})
		slices.Reverse(h.Decisions)
		if len(r.Decisions) != 4 || len(h.Decisions) != 4 {
			t.Fatalf("%s: %d found, %d in the history", p.Role, len(r.Decisions), len(h.Decisions))
		}
		for i, d := range r.Decisions {
			got, want := encoded(t, d.HistoryEntry), encoded(t, h.Decisions[i])
			if got != want || d.Instance != id || d.Workflow != "demanding" || d.Version != 1 {
				t.Errorf("%s, decision %d of %s:\n got %s\nwant %s", p.Role, i, d.Instance, got, want)
			}
		}
		if all := encoded(t, r); strings.Contains(all, secret) || !strings.Contains(all, `"ssn"`) {
			t.Errorf("%s sees the sensitive value, or nothing of it: %s", p.Role, all)
		}
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	doc, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// An agent finds only decisions about its own instances, whatever the query; statistics count only those.
func TestDecisionsOfOthers(t *testing.T) {
	b := newBench(t)
	b.define(operator, demanding)
	mine, theirs := b.start(agent, "demanding", `{}`).ID, b.start(other, "demanding", `{}`).ID
	b.refused(agent, mine, "go", `{}`, "required_field")
	b.refused(other, theirs, "go", `{}`, "required_field")
	b.advance(operator, theirs, "stay", `{}`)
	for name, q := range map[string]store.DecisionQuery{
		"nothing asked": {}, "the action": {Action: "go"}, "the text": {Text: "comments"}, "as owner": {Owner: other.ID}, "as principal": {Principal: other.ID},
	} {
		for _, d := range b.find(agent, engine.DecisionsRequest{Query: q}).Decisions {
			if d.Instance != mine {
				t.Errorf("%s: an agent finds a decision about %s", name, d.Instance)
			}
		}
	}
	_, err := b.Decisions(t.Context(), agent, engine.DecisionsRequest{Query: store.DecisionQuery{Instance: theirs}})
	wantCode(t, err, engine.CodeUnknownInstance)
	if n := b.find(operator, engine.DecisionsRequest{}).Count; n != 5 {
		t.Errorf("the operator finds %d, want 5", n)
	}
	if n := b.find(auditor, engine.DecisionsRequest{Query: store.DecisionQuery{Owner: other.ID}}).Count; n != 3 {
		t.Errorf("the auditor finds %d of one owner, want 3", n)
	}
	for p, want := range map[engine.Principal]int64{agent: 2, other: 3, operator: 5} {
		s, err := b.Statistics(t.Context(), p, engine.StatisticsRequest{})
		if err != nil || s.Decisions != want {
			t.Errorf("%s: statistics over %d decisions, %v; want %d", p.ID, s.Decisions, err, want)
		}
	}
}

// Pages follow each other, unaffected by later commits.
func TestDecisionsPages(t *testing.T) {
	b := newBench(t)
	b.define(operator, demanding)
	id := b.start(agent, "demanding", `{}`).ID
	for range 25 {
		b.advance(agent, id, "stay", `{}`)
	}
	var seqs []int64
	req := engine.DecisionsRequest{Query: store.DecisionQuery{Action: "stay"}, Limit: 10}
	for pages := 1; ; pages++ {
		r := b.find(agent, req)
		for _, d := range r.Decisions {
			seqs = append(seqs, d.Seq)
		}
		b.advance(agent, id, "stay", `{}`)
		if req.Cursor = r.NextCursor; req.Cursor == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	for i, seq := range seqs {
		if len(seqs) != 25 || seq != int64(26-i) {
			t.Fatalf("seqs %v", seqs)
		}
	}
}

func TestDecisionsRefuseMistakes(t *testing.T) {
	b := newBench(t)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	num := func(f float64) *float64 { return &f }
	for path, req := range map[string]engine.DecisionsRequest{
		"/cursor":        {Cursor: "next"},
		"/limit":         {Limit: 1001},
		"/outcome":       {Query: store.DecisionQuery{Outcome: "approved"}},
		"/decidedBy":     {Query: store.DecisionQuery{DecidedBy: "me"}},
		"/assurance":     {Query: store.DecisionQuery{Assurance: "full"}},
		"/maxConfidence": {Query: store.DecisionQuery{MaxConfidence: num(1.5)}},
		"/minConfidence": {Query: store.DecisionQuery{MinConfidence: num(0.5), MaxConfidence: num(0.4)}},
		"/since":         {Query: store.DecisionQuery{Since: at, Until: at}},
		"/text":          {Query: store.DecisionQuery{Text: `"*"`}},
	} {
		_, err := b.Decisions(t.Context(), operator, req)
		if e := wantCode(t, err, engine.CodeInvalidArgument); e.Path != path || e.Hint == "" {
			t.Errorf("%s: %s %q", path, e.Path, e.Hint)
		}
	}
	_, err := b.Decisions(t.Context(), operator, engine.DecisionsRequest{Query: store.DecisionQuery{Text: strings.Repeat("a ", 5000)}})
	wantCode(t, err, engine.CodeTooLarge)
	_, err = b.Decisions(t.Context(), engine.Principal{ID: "x", Role: "stranger"}, engine.DecisionsRequest{})
	wantCode(t, err, engine.CodeForbidden)
	_, err = b.Statistics(t.Context(), engine.Principal{Role: engine.RoleAgent}, engine.StatisticsRequest{})
	wantCode(t, err, engine.CodeForbidden)
}

// Older decisions of a migrated instance are shown by the definition that they were made by.
func TestDecisionsAcrossVersions(t *testing.T) {
	b := newBench(t)
	b.define(operator, demanding)
	id := b.start(agent, "demanding", `{}`).ID
	b.define(operator, strings.Replace(demanding, `"stay":"a"`, `"stay":"a","wait":"a"`, 1))
	later := b.start(agent, "demanding", `{}`).ID
	versions := map[string]int{}
	for _, d := range b.find(agent, engine.DecisionsRequest{}).Decisions {
		versions[d.Instance] = d.Version
	}
	if versions[id] != 1 || versions[later] != 2 {
		t.Errorf("versions %v", versions)
	}
}

// A decision that matches a query has a term from each of the query's lists, so that a store that looks up
// terms misses nothing.
func TestTermsNarrowOnly(t *testing.T) {
	text := rapid.StringOf(rapid.RuneFrom([]rune("aZéß ς_-/\"'*拒否가ー🦊👍🏽\u0301\u200d\ufe0f5½İ\n")))
	rapid.Check(t, func(r *rapid.T) {
		e := record.Event{Kind: record.Refused, Workflow: text.Draw(r, "workflow"), Action: "go", Principal: text.Draw(r, "principal"), Decision: &record.Decision{}}
		e.Decision.Outcome, e.Decision.DecidedBy, e.Decision.Code = judge.Reject, judge.LayerSchema, "schema"
		e.Decision.Confidence = rapid.Float64Range(0, 1).Draw(r, "confidence")
		e.Decision.Reasoning = text.Draw(r, "reasoning")
		e.Decision.Findings = []validators.Finding{{Message: text.Draw(r, "message")}}
		owner := text.Draw(r, "owner")
		low, high := rapid.Float64Range(0, 1).Draw(r, "low"), rapid.Float64Range(0, 1).Draw(r, "high")
		said := []rune(e.Decision.Reasoning)
		part := string(said[:rapid.IntRange(0, len(said)).Draw(r, "part")])
		q := store.DecisionQuery{Workflow: e.Workflow, Owner: owner, Principal: e.Principal, MinConfidence: &low, MaxConfidence: &high, Text: part, Degraded: new(bool)}
		if !q.Matcher()(e, owner) {
			return
		}
		have := store.DecisionTerms(e, owner)
		for _, list := range q.Terms() {
			if !slices.ContainsFunc(list, func(term string) bool { return slices.Contains(have, term) }) {
				r.Fatalf("%q: none of %q is in %q", part, list, have)
			}
		}
		for _, term := range have {
			if term == "" || strings.ContainsAny(term, " \"'*():^+-\x00") {
				r.Fatalf("term %q", term)
			}
		}
	})
}

// The figures equal those of a list that is sorted and counted.
func TestStatistics(t *testing.T) {
	b := newBench(t)
	b.define(operator, demanding)
	id := b.start(agent, "demanding", `{}`).ID
	for range 3 {
		b.refused(agent, id, "go", `{}`, "required_field")
	}
	b.refused(agent, id, "fly", `{}`, "illegal_action")
	if _, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"}); err != nil {
		t.Fatal(err)
	}
	since := b.now.Add(time.Millisecond)
	b.moved(agent, id, "go", `{"comments":"fine"}`, "b")
	s, err := b.Statistics(t.Context(), operator, engine.StatisticsRequest{Workflow: "demanding"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Decisions != 7 || len(s.Transitions) != 3 || s.NotShown != 0 {
		t.Fatalf("%+v", s)
	}
	start, fly, gone := s.Transitions[0], s.Transitions[1], s.Transitions[2]
	if start.State != "" || start.Approved != 1 || fly.Action != "fly" || fly.Rejected != 1 {
		t.Errorf("start %+v\nfly %+v", start, fly)
	}
	if gone.State != "a" || gone.Action != "go" || gone.Decisions != 4 || gone.Prechecks != 1 || gone.Approved != 1 || gone.Rejected != 3 || gone.Degraded != 0 ||
		fmt.Sprint(gone.DecidedBy) != "[{fields 3} {transition 1}]" && fmt.Sprint(gone.DecidedBy) != "[{fields 4}]" ||
		fmt.Sprint(gone.Codes) != "[{required_field 3}]" || gone.ConfidenceMedian != 1 || gone.TookMedianMs <= 0 || gone.TookP95Ms < gone.TookMedianMs {
		t.Errorf("go %+v", gone)
	}
	if s, err = b.Statistics(t.Context(), operator, engine.StatisticsRequest{Since: since}); err != nil || s.Decisions != 1 {
		t.Errorf("since then %+v, %v", s, err)
	}
	if s, err = b.Statistics(t.Context(), operator, engine.StatisticsRequest{Workflow: "other"}); err != nil || s.Decisions != 0 || s.Transitions == nil {
		t.Errorf("of no workflow %+v, %v", s, err)
	}
}
