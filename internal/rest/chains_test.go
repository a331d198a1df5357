package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/internal/rest"
)

// oneRun has a single run that never ends, with all optional parts set. asked is the latest request.
type oneRun struct{ asked any }

func (o *oneRun) services() map[string]any {
	return map[string]any{chain.ServiceName: chain.Source(func(context.Context, bool) (chain.Chains, error) { return o, nil })}
}

var aRun = chain.RunView{
	Run: "run-1", Chain: "tour", Status: chain.StatusPaused, Principal: "ada", Instance: "wf-1", Started: time.Unix(1, 0).UTC(), Ended: time.Unix(2, 0).UTC(),
	Note:    chain.RunNote{Paused: true, By: "eve", Why: "lunch", At: time.Unix(1, 0).UTC()},
	Waiting: []chain.RunQuestion{{Kind: "step", Key: "pay", Step: "pay", Server: "bank", Name: "transfer", Since: time.Unix(1, 0).UTC(), Review: "rev-1"}},
	Output:  json.RawMessage(`{"n":1.50}`), Error: &chain.RunError{Code: "tool_error", Message: "no", Step: "pay", Key: "pay", MayHaveRun: true},
	Steps: []chain.RunStep{{Key: "list", Op: "call", Status: chain.StatusDone, Started: time.Unix(1, 0).UTC(), Ended: time.Unix(2, 0).UTC(), Error: &chain.RunError{Code: "x", Message: "y"}}},
}

func (o *oneRun) ListChains(context.Context, engine.Principal) ([]chain.ChainView, error) {
	return []chain.ChainView{{Name: "tour", Description: "A tour.", Hash: "sha256:0", Steps: 2, InputSchema: json.RawMessage(`{"type":"object"}`)}}, nil
}

func (o *oneRun) ListRuns(_ context.Context, _ engine.Principal, req chain.ListRuns) (chain.RunList, error) {
	o.asked = req
	return chain.RunList{Runs: []chain.RunView{aRun}, Count: 1, NextCursor: "next"}, nil
}

func (o *oneRun) answer(asked any) (chain.RunView, error) {
	o.asked = asked
	return aRun, nil
}

func (o *oneRun) StartRun(_ context.Context, _ engine.Principal, req chain.StartRun) (chain.RunView, error) {
	return o.answer(req)
}

func (o *oneRun) ReadNewSteps(_ context.Context, _ engine.Principal, run, cursor string) (chain.RunView, error) {
	return o.answer(chain.RunRequest{Run: run, Cursor: cursor})
}

func (o *oneRun) WaitRun(ctx context.Context, _ engine.Principal, _ string) (chain.RunView, error) {
	<-ctx.Done()
	return chain.RunView{}, ctx.Err()
}

func (o *oneRun) SignalRun(_ context.Context, _ engine.Principal, run, name string, value json.RawMessage) (chain.RunView, error) {
	return o.answer(chain.SignalRequest{Run: run, Name: name, Value: value})
}

func (o *oneRun) AnswerRun(_ context.Context, _ engine.Principal, run, key, answer string, output json.RawMessage) (chain.RunView, error) {
	return o.answer(chain.AnswerRequest{Run: run, Key: key, Answer: answer, Output: output})
}

func (o *oneRun) CancelRun(_ context.Context, _ engine.Principal, run, why string) (chain.RunView, error) {
	return o.answer(chain.ChangeRunRequest{Run: run, Reason: why})
}

func (o *oneRun) PauseRun(_ context.Context, _ engine.Principal, run, why string) (chain.RunView, error) {
	return o.answer(chain.ChangeRunRequest{Run: run, Reason: why})
}

func (o *oneRun) ResumeRun(_ context.Context, _ engine.Principal, run, why string) (chain.RunView, error) {
	return o.answer(chain.ChangeRunRequest{Run: run, Reason: why})
}

func (o *oneRun) RedriveRun(_ context.Context, _ engine.Principal, run, why string) (chain.RunView, error) {
	return o.answer(chain.ChangeRunRequest{Run: run, Reason: why})
}

var aSchedule = chain.ScheduleView{
	Chain: "tour", Timing: "0 9 * * 1-5 Europe/Berlin", Paused: true, Note: aRun.Note, Next: time.Unix(3, 0).UTC(), Instance: "wf-2",
	Last:    &chain.TickOutcome{Tick: aTick, Since: time.Unix(1, 0).UTC(), Outcome: "skipped", Reason: "missed"},
	Waiting: 1, Running: []string{"run-1"}, RunAs: "night",
}

var aTick = chain.Tick{At: time.Unix(2, 0).UTC(), Run: "run-2", By: "eve", Why: "lunch"}

func (o *oneRun) ListSchedules(context.Context, engine.Principal) ([]chain.ScheduleView, error) {
	return []chain.ScheduleView{aSchedule}, nil
}

func (o *oneRun) PauseSchedule(_ context.Context, _ engine.Principal, name, why string) (chain.ScheduleView, error) {
	o.asked = chain.ChangeScheduleRequest{Chain: name, Reason: why}
	return aSchedule, nil
}

func (o *oneRun) ResumeSchedule(_ context.Context, _ engine.Principal, name, why string) (chain.ScheduleView, error) {
	o.asked = chain.ChangeScheduleRequest{Chain: name, Reason: why}
	return aSchedule, nil
}

func (o *oneRun) TriggerSchedule(_ context.Context, _ engine.Principal, name, why string) (chain.Tick, error) {
	o.asked = chain.ChangeScheduleRequest{Chain: name, Reason: why}
	return aTick, nil
}

func init() {
	extra.services = (&oneRun{}).services()
	for _, s := range chainSteps {
		extra.steps = append(extra.steps, step{s.what, s.body, s.status})
	}
}

// chainSteps call every operation on chains.
var chainSteps = []struct {
	what, body string
	status     int
	asked      string // JSON of the request that the chains received; "" if irrelevant
}{
	{"GET /v1/chains", "", http.StatusOK, ""},
	{"POST /v1/runs", `{"chain":"tour","input":{"n":1.50},"run":"mine"}`, http.StatusCreated, `{"Chain":"tour","Run":"mine","Input":{"n":1.50}}`},
	{"GET /v1/runs?chain=tour&status=failed&limit=3&cursor=x", "", http.StatusOK, `{"Chain":"tour","Status":"failed","Limit":3,"Cursor":"x"}`},
	{"GET /v1/runs/run-1?cursor=7", "", http.StatusOK, `{"Run":"run-1","Cursor":"7"}`},
	{"GET /v1/runs/run-1/result?wait=0", "", http.StatusOK, `{"Run":"run-1","Cursor":""}`},
	{"POST /v1/runs/run-1/signal", `{"name":"go","value":[1.50,"a"]}`, http.StatusOK, `{"Run":"run-1","Name":"go","Value":[1.50,"a"]}`},
	{"POST /v1/runs/run-1/signal", `{"name":"go"}`, http.StatusOK, `{"Run":"run-1","Name":"go","Value":null}`},
	{"POST /v1/runs/run-1/answer", `{"key":"pay","answer":"happened","output":"ok"}`, http.StatusOK, `{"Run":"run-1","Key":"pay","Answer":"happened","Output":"ok"}`},
	{"POST /v1/runs/run-1/cancel", `{"reason":"late"}`, http.StatusOK, `{"Run":"run-1","Reason":"late"}`},
	{"POST /v1/runs/run-1/pause", ``, http.StatusOK, `{"Run":"run-1","Reason":""}`},
	{"POST /v1/runs/run-1/resume", ``, http.StatusOK, `{"Run":"run-1","Reason":""}`},
	{"POST /v1/runs/run-1/redrive", ``, http.StatusOK, `{"Run":"run-1","Reason":""}`},
	{"GET /v1/schedules", "", http.StatusOK, ""},
	{"POST /v1/schedules/tour/pause", `{"reason":"lunch"}`, http.StatusOK, `{"Chain":"tour","Reason":"lunch"}`},
	{"POST /v1/schedules/tour/resume", ``, http.StatusOK, `{"Chain":"tour","Reason":""}`},
	{"POST /v1/schedules/tour/trigger", `{"reason":"late"}`, http.StatusOK, `{"Chain":"tour","Reason":"late"}`},
	{"POST /v1/schedules/tour/trigger", `{"chain":"other"}`, http.StatusBadRequest, ""},
	{"POST /v1/runs/run-1/answer", `{"key":"pay","answer":"perhaps"}`, http.StatusBadRequest, ""},
	{"GET /v1/runs/run-1/result?wait=301", "", http.StatusBadRequest, ""},
	{"GET /v1/runs?status=lost", "", http.StatusBadRequest, ""},
	{"POST /v1/runs", `{"chain":"tour","n":1}`, http.StatusBadRequest, ""},
}

// TestOutputOfAStep shows that a call's output may be any JSON, and reaches the run unchanged.
func TestOutputOfAStep(t *testing.T) {
	a, ctx := newAPI(t), t.Context()
	d, err := chain.Parse("chain.json", []byte(`{"name":"pay","steps":[{"id":"pay","type":"tool","server":"bank","action":"transfer"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	w, err := d.Workflow()
	if err != nil {
		t.Fatal(err)
	}
	who := engine.Principal{ID: "payer", Role: engine.RoleAgent}
	ledger := chain.NewLedger(a.engine)
	if err := ledger.BeginRun(ctx, who, engine.RunRequest{Run: "r", Definition: w.Document, Workflow: w.Name, Context: json.RawMessage(`{"chain":"pay","run":"r"}`)}); err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{`{"receipt":1.50}`, `"R-7"`, `7`, `[1,null]`, `true`, `{}`, `""`} {
		q := engine.StepQuestion{Run: "r", Key: output, Step: "pay", Principal: who, Server: "bank", Tool: "transfer", Arguments: []byte(`{}`)}
		review, _, err := ledger.AskStep(ctx, q)
		for err == nil && review == "" {
			review, _, err = ledger.AskStep(ctx, q)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.ask(reviewer, "POST /v1/reviews/"+review+"/resolve", `{"decision":"approve","reason":"It is in the books.","output":`+output+`}`).is(http.StatusOK)
		if _, said, err := ledger.AskStep(ctx, q); err != nil || said == nil || string(said.Output) != output {
			t.Errorf("%s reaches the run as %+v, %v", output, said, err)
		}
	}
}

func TestChains(t *testing.T) {
	chains := &oneRun{}
	a, without := newAPI(t, func(c *rest.Config) { c.Services = chains.services() }), newAPI(t)
	for what, hint := range map[string]string{"POST /v1/runs": `give the run an id of your own in "run"`, "POST /v1/runs/run-1/pause": "a repeated request would be performed again"} {
		if got := a.ask(operator, what, `{}`, "Idempotency-Key", "k").is(http.StatusBadRequest).problem(engine.CodeInvalidArgument); !strings.Contains(got.Hint, hint) {
			t.Errorf("%s with Idempotency-Key: %+v", what, got)
		}
	}
	for _, s := range chainSteps {
		got := a.ask(operator, s.what, s.body).is(s.status)
		if at := got.header.Get("Location"); s.status == http.StatusCreated && at != "/v1/runs/run-1" {
			t.Errorf("%s: Location %q", s.what, at)
		}
		raw, err := json.Marshal(chains.asked)
		if err != nil || s.asked != "" && string(raw) != s.asked {
			t.Errorf("%s %s asks %s, %v", s.what, s.body, raw, err)
		}
		if s.status < 300 {
			without.ask(operator, s.what, s.body).is(http.StatusNotFound)
		}
	}
}
