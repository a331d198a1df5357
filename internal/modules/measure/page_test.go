package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// askedModel approves what is at most 10, and counts how often it is asked.
type askedModel struct{ asked int }

func (*askedModel) Name() judge.LayerName { return judge.LayerModel }

func (m *askedModel) Weigh(_ context.Context, c judge.Case) (judge.Opinion, error) {
	m.asked++
	cost := 0.002
	o := judge.Opinion{
		Layer: judge.LayerModel, Outcome: judge.Approve, Confidence: 0.95, Assurance: judge.AssuranceLLM, Reasoning: "It is met.",
		Model: &judge.ModelRecord{Model: "stub", CriteriaDigest: judge.CriteriaDigest(c.Rubric), Calls: 1, CostUSD: &cost},
	}
	if !bytes.Contains(c.Data.Raw(), []byte(`"amount":1`)) {
		o.Outcome, o.Reasoning = judge.Reject, "It is not met."
	}
	if bytes.Contains(c.Data.Raw(), []byte(`"amount":9`)) {
		o.Outcome, o.Trouble = judge.Escalate, judge.TroubleLoopGuard
		return o, nil
	}
	for i, text := range c.Rubric.Criteria {
		status := map[judge.Outcome]string{judge.Approve: "met", judge.Reject: "not_met"}[o.Outcome]
		o.Model.Criteria = append(o.Model.Criteria, judge.CriterionVerdict{ID: fmt.Sprintf("c%d", i+1), Text: text, Status: status})
	}
	return o, nil
}

// pages is a system with the pages of this module.
type pages struct {
	*gavel.System
	t     *testing.T
	model *askedModel
	own   *measured
}

func openPages(t *testing.T) pages {
	t.Helper()
	p := pages{t: t, model: &askedModel{}}
	var err error
	p.System, err = gavel.Open(t.Context(), gavel.Config{
		Model:     func(judge.Memory) (judge.Layer, error) { return p.model, nil },
		Configure: func(c *engine.Config) { c.ClientReviews = true },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.System.Close() })
	var ok bool
	if p.own, ok = module.Find[*measured](p.Extensions()); !ok {
		t.Fatal("the module does not extend the system")
	}
	return p
}

var (
	operatorEve = engine.Principal{ID: "op:eve", Role: engine.RoleOperator}
	agentAda    = engine.Principal{ID: "agent:ada", Role: engine.RoleAgent}
	auditorAnn  = engine.Principal{ID: "aud:ann", Role: engine.RoleAuditor}
)

func (p pages) define(doc string) {
	p.t.Helper()
	if _, err := p.Engine.Define(p.t.Context(), operatorEve, engine.DefineRequest{Document: []byte(doc)}); err != nil {
		p.t.Fatal(err)
	}
}

func (p pages) start(doc string) string {
	p.t.Helper()
	r, err := p.Engine.Start(p.t.Context(), agentAda, engine.StartRequest{Type: "pay", Context: json.RawMessage(doc)})
	if err != nil {
		p.t.Fatal(err)
	}
	return r.ID
}

func (p pages) advance(id, action, data string) engine.AdvanceResult {
	p.t.Helper()
	return p.as(agentAda, id, action, data)
}

func (p pages) as(who engine.Principal, id, action, data string) engine.AdvanceResult {
	p.t.Helper()
	r, err := p.Engine.Advance(p.t.Context(), who, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(data))})
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func (p pages) visit(who engine.Principal, path map[string]string, query string) module.Visit {
	values, err := url.ParseQuery(query)
	if err != nil {
		p.t.Fatal(err)
	}
	call := operation.Call{Engine: p.Engine}
	call.Caller.Principal = who
	return module.Visit{Path: func(name string) string { return path[name] }, Values: values, Call: call}
}

func (p pages) flips(query string) flips {
	p.t.Helper()
	f, err := p.own.loadFlips(p.t.Context(), p.visit(auditorAnn, map[string]string{"name": "pay"}, query))
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// payFlow is a workflow with a limit and a criterion for the model.
func payFlow(limit int, criterion string) string {
	return fmt.Sprintf(`{"name":"pay","initialState":"open","sensitive":["/card"],"states":{
		"open":{"transitions":{"ask":{"target":"asked","requiredFields":["amount"],"validator":"(data) => ({ valid: data.amount <= %d, reason: 'too much' })"}}},
		"asked":{"transitions":{"pay":{"target":"paid","useLLM":true,"criteria":[%q]},"back":"open"}},"paid":{"final":true}}}`, limit, criterion)
}

func TestFlipsOfRecordedDecisions(t *testing.T) {
	p := openPages(t)
	p.define(payFlow(100, "The amount is right."))
	first := p.start(`{"card":"4000-1234"}`)
	p.advance(first, "ask", `{"amount":500}`)
	p.advance(first, "ask", `{"amount":50}`)
	p.advance(first, "pay", `{"amount":1}`)
	second := p.start(`{}`)
	p.advance(second, "ask", `{"amount":80}`)
	p.advance(second, "pay", `{"amount":7}`) // the model refuses
	asked := p.model.asked
	if asked != 2 {
		t.Fatalf("the model was asked %d times", asked)
	}
	if f := p.flips(""); f.Asked != 0 || f.Found != 0 || f.Usual != usualFlips {
		t.Errorf("before anybody asked: %+v", f)
	}
	if f := p.flips("flip=200"); f.Found != 5 || f.Compared != 5 || len(f.Flipped)+len(f.Left) != 0 {
		t.Errorf("the same definition: %+v", f)
	}

	p.define(payFlow(60, "The amount is right."))
	f := p.flips("flip=9000")
	if f.Asked != maxFlips || f.Compared != 5 || len(f.Flipped) != 1 || len(f.Left) != 0 {
		t.Fatalf("a lower limit: %+v", f)
	}
	if one := f.Flipped[0]; one.Instance != second || one.Action != "ask" || one.Outcome != judge.Approve || one.Now != judge.Reject || one.By != judge.LayerScript || !strings.Contains(one.Why, "too much") {
		t.Errorf("what flips: %+v", one)
	}
	if f := p.flips("flip=200&version=1"); f.Version != 1 || len(f.Flipped) != 0 {
		t.Errorf("the earlier version: %+v", f)
	}

	p.define(payFlow(100, "The amount is right and somebody signed."))
	f = p.flips("flip=200")
	if f.Compared != 3 || len(f.Flipped) != 0 || len(f.Left) != 1 || f.Left[0].Count != 2 || !strings.Contains(f.Left[0].Why, "a model would have to be asked") {
		t.Errorf("other criteria: %+v", f)
	}
	if p.model.asked != asked {
		t.Errorf("the comparison asked the model %d times", p.model.asked-asked)
	}
	outsider := engine.Principal{ID: "rev:lim", Role: engine.RoleReviewer, Workflows: "other"}
	if _, err := p.own.loadFlips(t.Context(), p.visit(outsider, map[string]string{"name": "pay"}, "flip=9")); engine.CodeOf(err) != engine.CodeUnknownWorkflow {
		t.Errorf("a visitor limited to other workflows: %v", err)
	}

	// What takes too long is left out, and counted.
	late, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, _, err := p.own.readCases(late, first); err == nil {
		t.Error("the history was read although its time was up")
	}
}

func TestADecisionBecomesAGoldenCase(t *testing.T) {
	p := openPages(t)
	p.define(payFlow(100, "The amount is right."))
	id := p.start(`{"card":"4000-1234"}`)
	p.advance(id, "ask", `{"amount":500,"card":"4000-9999"}`)
	get := func(who engine.Principal, seq string) (module.File, error) {
		return p.own.writeGolden(t.Context(), p.visit(who, map[string]string{"id": id, "seq": seq}, ""))
	}
	for _, who := range []engine.Principal{operatorEve, auditorAnn} {
		file, err := get(who, "2")
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(file.Content, []byte("4000")) {
			t.Errorf("a %s gets a sensitive value: %s", who.Role, file.Content)
		}
		n := 0
		for golden, err := range eval.ReadCases("case.jsonl", bytes.NewReader(file.Content)) {
			if n++; err != nil || golden.State != "open" || golden.Action != "ask" || golden.Expect.Outcome != judge.Reject || golden.Group != id || golden.Label.Source != "synthetic" {
				t.Errorf("the case: %+v, %v", golden, err)
			}
		}
		if n != 1 {
			t.Errorf("%d cases in %s", n, file.Content)
		}
	}
	if data, err := findMove(t.Context(), p.visit(auditorAnn, map[string]string{"id": id, "seq": "1"}, "")); data != nil || err != nil {
		t.Errorf("a start is shown as a possible case: %v, %v", data, err)
	}
	for _, seq := range []string{"1", "3", "x"} {
		if _, err := get(auditorAnn, seq); engine.CodeOf(err) != engine.CodeUnknownInstance {
			t.Errorf("the case of event %s: %v", seq, err)
		}
	}
	outsider := engine.Principal{ID: "rev:lim", Role: engine.RoleReviewer, Workflows: "other"}
	if _, err := get(outsider, "2"); engine.CodeOf(err) != engine.CodeUnknownInstance {
		t.Errorf("a visitor limited to other workflows: %v", err)
	}
}

func TestThePageOfTheJudgeCountsJudgements(t *testing.T) {
	p := openPages(t)
	p.define(payFlow(100, "The amount is right."))
	for _, amount := range []int{1, 7, 8} {
		id := p.start(`{}`)
		p.advance(id, "ask", `{"amount":5}`)
		p.advance(id, "pay", fmt.Sprintf(`{"amount":%d}`, amount))
	}
	d, err := p.own.loadJudge(t.Context(), p.visit(auditorAnn, nil, ""))
	if err != nil || len(d.Judged.Models) != 1 || d.Judged.Read != 3 {
		t.Fatalf("%+v, %v", d, err)
	}
	if m := d.Judged.Models[0]; m.Name != "stub" || m.Count != 3 || m.Approved != 1 || m.Refused != 2 || m.Cost != "$0.0060" || m.CostEach != "$0.0020" || m.Median == "" {
		t.Errorf("%+v", m)
	}
}
