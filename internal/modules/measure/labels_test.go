package measure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/modules/measure/label"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/judge"
)

var (
	reviewerRob = engine.Principal{ID: "rev:rob", Role: engine.RoleReviewer}
	reviewerAnn = engine.Principal{ID: "rev:ann", Role: engine.RoleReviewer}
)

// claimFlow is a workflow whose payments a person decides.
const claimFlow = `{"name":"pay","initialState":"open","sensitive":["/card"],"states":{
	"open":{"transitions":{"ask":{"target":"asked","requiredFields":["amount"]}}},
	"asked":{"transitions":{"pay":{"target":"paid","useLLM":true,"requireAssurance":"human","notBy":"ask","criteria":["The amount is right.","An invoice is named."]}}},"paid":{"final":true}}}`

// request lets ada ask for a payment that a person decides, and returns the instance and the review.
func (p pages) request(data string) (id, review string) {
	p.t.Helper()
	id = p.start(`{"card":"4000-1234"}`)
	p.as(operatorEve, id, "ask", `{"amount":1}`)
	r := p.advance(id, "pay", data)
	if r.Review == nil {
		p.t.Fatalf("no review: %+v", r)
	}
	return id, r.Review.ID
}

func (p pages) resolve(by engine.Principal, review string, how judge.Outcome, why string, channel record.Channel) {
	p.t.Helper()
	if _, err := p.Engine.Resolve(p.t.Context(), by, engine.ResolveRequest{ID: review, Decision: how, Reason: why, Channel: channel}); err != nil {
		p.t.Fatal(err)
	}
}

// labels returns what a reader gets as golden cases.
func (p pages) labels(who engine.Principal, req LabelsRequest) (cases []eval.Case, out LabelsResult) {
	p.t.Helper()
	call := p.visit(who, nil, "").Call
	call.Services = p.Extensions().Services()
	out, err := Labels.Do(p.t.Context(), call, req)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, line := range out.Cases {
		for golden, err := range eval.ReadCases("labels.jsonl", bytes.NewReader(line)) {
			if err != nil {
				p.t.Fatalf("%s: %v", line, err)
			}
			cases = append(cases, golden.Case)
		}
	}
	return cases, out
}

func TestDecisionsOfPersonsAreLabels(t *testing.T) {
	p := openPages(t)
	p.define(claimFlow)
	decide := func(by engine.Principal, how judge.Outcome, data, why string) (instance string) {
		id, review := p.request(data)
		p.resolve(by, review, how, why, "")
		return id
	}
	decide(reviewerRob, judge.Approve, `{"amount":1,"to":"disputed"}`, "Fine.")
	disputed := decide(reviewerAnn, judge.Reject, `{"amount":1,"to":"disputed"}`, "c2: no invoice.")
	decide(reviewerRob, judge.Approve, `{"amount":1,"to":"disputed"}`, "Fine again.")
	decide(reviewerRob, judge.Approve, `{"amount":1,"to":"agreed"}`, "Fine.")
	decide(reviewerAnn, judge.Approve, `{"amount":1,"to":"agreed"}`, "Fine.")
	decide(reviewerAnn, judge.Reject, `{"amount":1,"to":"changed","card":"4000-9999"}`, "C1, c2 and c9: a typo.")
	decide(reviewerAnn, judge.Approve, `{"amount":1,"to":"changed","card":"4000-9999"}`, "My mistake.")
	decide(reviewerAnn, judge.Reject, `{"amount":1,"to":"unnamed"}`, "It names c1, but no reason begins so.")
	p.request(`{"amount":1,"to":"open"}`)

	cases, out := p.labels(auditorAnn, LabelsRequest{Workflow: "pay"})
	if len(out.LeftOut) != 0 || out.Count != len(cases) || strings.Contains(fmt.Sprintf("%s", out.Cases), "4000-9999") {
		t.Errorf("%+v", out)
	}
	got := map[string]eval.Case{}
	for _, c := range cases {
		var data struct{ To string }
		if err := json.Unmarshal(c.Data, &data); err != nil {
			t.Fatal(err)
		}
		got[data.To+" "+string(c.Expect.Outcome)] = c
		if c.State != "asked" || c.Action != "pay" || c.Label.Source != "human" || c.Split != label.SplitOf(c.Group) || len(c.History) != 1 {
			t.Errorf("%+v", c)
		}
	}
	met := map[string]string{"c1": "met", "c2": "met"}
	for name, want := range map[string]struct {
		by       string
		n        int
		agree    float64
		criteria map[string]string
	}{
		"disputed approve": {"rev:rob", 2, 0.5, met}, "disputed reject": {"rev:ann", 2, 0.5, map[string]string{"c2": "not_met"}},
		"agreed approve": {"rev:rob, rev:ann", 2, 1, met}, "changed approve": {"rev:ann", 0, 0, met}, "unnamed reject": {"rev:ann", 0, 0, nil},
	} {
		c, ok := got[name]
		agree := 0.0
		if c.Label.Agreement != nil {
			agree = *c.Label.Agreement
		}
		if !ok || c.Label.By != want.by || c.Label.Raters != want.n || agree != want.agree || !maps.Equal(c.Expect.Criteria, want.criteria) {
			t.Errorf("%s: %v %+v", name, ok, c)
		}
	}
	if len(cases) != 5 || got["disputed reject"].Group != disputed || got["disputed approve"].Group != disputed {
		t.Errorf("%d cases: %v", len(cases), slices.Sorted(maps.Keys(got)))
	}

	// The linter points to the question on which persons disagree, and to nothing else about content.
	linter := eval.NewLinter(nil)
	for i, c := range cases {
		linter.Add(eval.Golden{Case: c, File: "labels.jsonl", Line: i + 1})
	}
	issues, _ := linter.Finish()
	rules := map[string]int{}
	for _, one := range issues {
		rules[one.Rule]++
	}
	if delete(rules, eval.RuleSplitWithoutClass); len(rules) != 1 || rules[eval.RuleContradictory] != 1 {
		t.Errorf("%v", issues)
	}

	// Page by page a reader gets the same decisions, and only with the right.
	pages, req := 0, LabelsRequest{Limit: 1}
	for next := true; next; next = req.Cursor != "" {
		_, out := p.labels(reviewerAnn, req)
		pages, req.Cursor = pages+out.Count, out.NextCursor
	}
	if pages != 8 {
		t.Errorf("%d decisions, page by page", pages)
	}
	call := p.visit(agentAda, nil, "").Call
	call.Services = p.Extensions().Services()
	if _, err := Labels.Do(t.Context(), call, LabelsRequest{}); engine.CodeOf(err) != engine.CodeForbidden {
		t.Errorf("an agent reads labels: %v", err)
	}
	if cases, _ := p.labels(engine.Principal{ID: "rev:lim", Role: engine.RoleReviewer, Workflows: "other"}, LabelsRequest{}); len(cases) != 0 {
		t.Errorf("a reviewer limited to other workflows reads %v", cases)
	}

	// What a later version marks as sensitive is masked in earlier cases too.
	p.define(strings.Replace(claimFlow, `"/card"`, `"/card","/to"`, 1))
	if _, err := p.Engine.Migrate(t.Context(), operatorEve, engine.MigrateRequest{Workflow: "pay"}); err != nil {
		t.Fatal(err)
	}
	if _, out := p.labels(auditorAnn, LabelsRequest{}); out.Count != 5 || strings.Contains(fmt.Sprintf("%s", out.Cases), "unnamed") {
		t.Errorf("%s", out.Cases)
	}
}

// Copies of sensitive values in other fields of the context or the data are masked, too.
func TestLabelsHoldNoCopyOfASensitiveValue(t *testing.T) {
	p := openPages(t)
	p.define(claimFlow)
	id := p.start(`{"card":"4000-1234","memo":"from 4000-1234"}`)
	p.as(operatorEve, id, "ask", `{"amount":1,"to":"4000-1234"}`)
	r := p.advance(id, "pay", `{"amount":1,"why":"it is 4000-1234"}`)
	if r.Review == nil {
		t.Fatalf("no review: %+v", r.Decision)
	}
	p.resolve(reviewerAnn, r.Review.ID, judge.Approve, "Fine.", "")
	cases, _ := p.labels(auditorAnn, LabelsRequest{})
	if len(cases) != 1 || !strings.Contains(string(cases[0].Context), "from [masked]") || strings.Contains(fmt.Sprintf("%s %s", cases[0].Context, cases[0].Data), "4000") {
		t.Errorf("%+v", cases)
	}
}

// The last word of a person counts, also where the histories are read in another order. Other moves are synthetic.
func TestTheLastWordOfAPersonCounts(t *testing.T) {
	p := openPages(t)
	p.define(claimFlow)
	_, first := p.request(`{"amount":1}`)
	_, second := p.request(`{"amount":1}`)
	p.resolve(reviewerAnn, second, judge.Reject, "No.", "")
	p.resolve(reviewerAnn, first, judge.Approve, "After all.", "")
	h, said, synthetic := newHistoryReader(t.Context(), p.Store, p.visit(operatorEve, nil, "").Call), newVotes(), 0
	if err := h.readAll(store.DecisionQuery{}, said, func(c eval.Case) error {
		if synthetic++; c.Label.Source != "synthetic" || c.Action != "ask" {
			t.Errorf("%+v", c.Label)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	cases, labels := said.count()
	if len(cases) != 1 || cases[0].Expect.Outcome != judge.Approve || len(labels["rev:ann"]) != 1 || synthetic != 2 || len(h.left) != 0 {
		t.Errorf("%+v, %+v, %d, %v", cases, labels, synthetic, h.left)
	}
}

// Decisions of somebody who was involved are no labels.
func TestBiasedDecisionsAreNoLabels(t *testing.T) {
	p := openPages(t)
	p.define(claimFlow)
	want := map[string]int{}

	_, review := p.request(`{"amount":1,"to":"the agent's client"}`)
	p.resolve(engine.Principal{ID: "human_via_client:agent:ada", Role: engine.RoleReviewer}, review, judge.Approve, "The form says so.", record.ChannelClient)
	want["it was made in the agent's own client"]++

	_, review = p.request(`{"amount":1,"to":"taken back"}`)
	p.resolve(reviewerRob, review, judge.Reject, "No.", "")
	p.resolve(reviewerAnn, review, engine.Reopen, "Look again.", "")
	want["a person took it back"]++

	// The user of this machine may have made moves as local:cli. The record does not say so; the name does.
	local := engine.Principal{ID: "local:cli", Role: engine.RoleOperator}
	r, err := p.Engine.Start(t.Context(), agentAda, engine.StartRequest{Type: "pay"})
	if err != nil {
		t.Fatal(err)
	}
	p.as(local, r.ID, "ask", `{"amount":1}`)
	p.resolve(engine.Principal{ID: "local:user:eve", Role: engine.RoleOperator}, p.advance(r.ID, "pay", `{"amount":1,"to":"an alias"}`).Review.ID, judge.Approve, "Fine.", "")
	want[biased]++

	// A person who wrote the rules as an agent.
	owner := engine.Principal{ID: "agent:own", Role: engine.RoleAgent}
	if _, err := p.Engine.Define(t.Context(), owner, engine.DefineRequest{Document: []byte(strings.Replace(claimFlow, `"pay"`, `"own"`, 1))}); err != nil {
		t.Fatal(err)
	}
	r, err = p.Engine.Start(t.Context(), operatorEve, engine.StartRequest{Type: "own"})
	if err != nil {
		t.Fatal(err)
	}
	p.as(local, r.ID, "ask", `{"amount":1}`)
	p.resolve(engine.Principal{ID: owner.ID, Role: engine.RoleReviewer}, p.as(operatorEve, r.ID, "pay", `{"amount":1}`).Review.ID, judge.Approve, "Fine.", "")
	want[biased]++

	cases, out := p.labels(operatorEve, LabelsRequest{})
	got := map[string]int{}
	for _, left := range out.LeftOut {
		got[left.Why] = left.Count
	}
	if len(cases) != 0 || !maps.Equal(got, want) {
		t.Errorf("%v, left out %v", cases, out.LeftOut)
	}
	_, review = p.request(`{"amount":1,"to":"somebody else"}`)
	p.resolve(reviewerRob, review, judge.Approve, "Fine.", "")
	if cases, _ := p.labels(operatorEve, LabelsRequest{}); len(cases) != 1 {
		t.Errorf("%v", cases)
	}
}

// The names of persons are no paths.
func TestLabelFilesAreNamedAfterPersons(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "labels")
	of := map[string][]label.Labelling{}
	for _, by := range []string{"ada", "people:ann", "people-ann", "../../etc/passwd", "people/ann", strings.Repeat("é", 300)} {
		of[by] = []label.Labelling{{Case: "a", Content: "x", By: by, Outcome: judge.Approve}}
	}
	if err := writeLabels(folder, of); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(folder)
	if err != nil || len(files) != len(of) {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		read, err := readLabels(filepath.Join(folder, file.Name()))
		if err != nil || len(of[read.By]) != 1 {
			t.Errorf("%s: %+v, %v", file.Name(), read, err)
		}
	}
	if err := writeLabels(folder, of); err == nil {
		t.Error("labels were overwritten")
	}
}

func TestTheModelIsComparedWithPersons(t *testing.T) {
	p := openPages(t)
	p.define(claimFlow)
	decide := func(by engine.Principal, how judge.Outcome, amount int, why string) {
		_, review := p.request(fmt.Sprintf(`{"amount":%d}`, amount))
		p.resolve(by, review, how, why, "")
	}
	for range 3 {
		decide(reviewerRob, judge.Approve, 1, "Fine.")
	}
	decide(reviewerAnn, judge.Reject, 1, "c2 no invoice.")
	decide(reviewerAnn, judge.Approve, 9, "The loop guard was wrong.")
	_, review := p.request(`{"amount":1}`)
	p.resolve(engine.Principal{ID: "human_via_client:agent:ada", Role: engine.RoleReviewer}, review, judge.Reject, "No.", record.ChannelClient)

	d, err := p.own.loadJudge(t.Context(), p.visit(auditorAnn, nil, ""))
	if err != nil || d.Agreement == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	a := d.Agreement
	rate := func(r eval.Rate) string { return fmt.Sprintf("%d/%d", r.K, r.N) }
	if got := fmt.Sprintln(rate(a.Compared), rate(a.Approved), rate(a.Rejected), a.Groups, a.Undecided); got != "3/5 3/4 0/1 5 0\n" {
		t.Error(got)
	}
	var rows []string
	for _, one := range slices.Concat(a.Models, a.Criteria, a.Persons) {
		rows = append(rows, fmt.Sprintf("%s %s %d %d", one.Name, rate(one.Same), one.OverruledApprovals, one.OverruledRejections))
	}
	if want := []string{"stub 3/5 1 1", "An invoice is named. 3/4 1 0", "The amount is right. 3/3 0 0", "rev:ann 0/2 1 1", "rev:rob 3/3 0 0"}; !slices.Equal(rows, want) {
		t.Errorf("%q", rows)
	}
	if a.Compared.Low != eval.NewRate(3, 5, 5, 0.95).Low || len(a.LeftOut) != 1 || a.LeftOut[0].Count != 1 {
		t.Errorf("%+v", a)
	}

	// Decisions in one instance count as one draw.
	one := counts{"a": {2, 3}, "b": {1, 1}}
	if r := one.rate(); r.K != 3 || r.N != 4 || r.Draws != 1.6 {
		t.Errorf("%+v", r)
	}

	scrape := httptest.NewRecorder()
	telemetry.NewMetrics("v0", telemetry.Sources{Modules: p.own.writeMetrics}).Handler().ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{`{model="approve",person="approve"} 3`, `{model="approve",person="reject"} 1`, `{model="reject",person="approve"} 1`, `{model="escalate",person="reject"} 0`} {
		if !strings.Contains(scrape.Body.String(), "\ngavel_judge_reviewed"+want+"\n") {
			t.Errorf("no %s in the metrics", want)
		}
	}
	if d, err := p.own.loadJudge(t.Context(), p.visit(engine.Principal{ID: "rev:lim", Role: engine.RoleReviewer, Workflows: "other"}, nil, "")); err != nil || d.Agreement.Compared.N != 0 {
		t.Errorf("a visitor limited to other workflows: %+v, %v", d.Agreement, err)
	}
}
