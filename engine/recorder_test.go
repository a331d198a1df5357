package engine_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
)

const recorderID = "gavel:tests"

func init() { engine.AddRecorder(recorderID, "kept.") }

const keptRuns = `{"name":"kept.pay","initialState":"running","states":{
	"running":{"transitions":{"step":{"target":"running","roles":["interpreter"]},"answer":{"target":"running","roles":["interpreter"]},"finish":{"target":"done","roles":["interpreter"]}}},
	"done":{"final":true,"outcome":"success"}}}`

// A run is recorded by its recorder, and by nobody else.
func TestRecorder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.Recorder(recorderID)
	ctx, id := t.Context(), engine.RunInstance("one")
	begin := func(run string, p engine.Principal) error {
		return r.BeginRun(ctx, p, engine.RunRequest{Run: run, Definition: []byte(keptRuns), Workflow: "kept.pay", Context: json.RawMessage(`{"a":1}`)})
	}
	for range 2 {
		if err := begin("one", agent); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, begin("one", other), engine.CodeKeyReused)
	step := engine.StepRecord{Run: "one", Key: "k", Action: "step", Data: json.RawMessage(`{"x":1}`)}
	for range 2 {
		if err := r.RecordStep(ctx, step); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := b.Status(ctx, agent, id); err != nil || now.Revision != 2 || now.Owner != agent.ID {
		t.Errorf("a step with the same key is recorded once: %+v, %v", now, err)
	}
	_, err := b.Advance(ctx, operator, engine.AdvanceRequest{ID: id, Action: "finish"})
	wantCode(t, err, engine.CodeForbidden)
	_, err = b.Cancel(ctx, operator, engine.CancelRequest{ID: id, Reason: "r"})
	wantCode(t, err, engine.CodeForbidden)
	_, err = b.Start(ctx, operator, engine.StartRequest{Type: "kept.pay"})
	wantCode(t, err, engine.CodeForbidden)
	_, err = b.Define(ctx, operator, engine.DefineRequest{Document: []byte(strings.Replace(keptRuns, "success", "good", 1))})
	wantCode(t, err, engine.CodeForbidden)
	_, err = b.Define(ctx, engine.Principal{ID: recorderID, Role: engine.RoleOperator}, engine.DefineRequest{Document: []byte(keptRuns)})
	wantCode(t, err, engine.CodeForbidden)
	if runs, err := r.ListOpenRuns(ctx); err != nil || !slices.Equal(runs, []string{"one"}) {
		t.Errorf("open runs: %q, %v", runs, err)
	}
	b.define(operator, simple)
	began, err := b.Start(ctx, agent, engine.StartRequest{Type: "simple"})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, r.RecordStep(ctx, engine.StepRecord{Run: strings.TrimPrefix(began.ID, engine.RunInstance("")), Action: "go"}), engine.CodeKeyReused)
}

// What became of a step is asked of a person, once, and a run that ends closes the question.
func TestRecorderAsks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, ctx := b.Recorder(recorderID), t.Context()
	if err := r.BeginRun(ctx, agent, engine.RunRequest{Run: "two", Definition: []byte(keptRuns), Workflow: "kept.pay", Context: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	ask := func(key string) (string, *engine.StepAnswer) {
		review, answer, err := r.AskStep(ctx, engine.StepQuestion{Run: "two", Key: key, Step: "pay", Principal: agent, Server: "s", Tool: "t", Arguments: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		return review, answer
	}
	review, _ := ask("a")
	if again, answer := ask("a"); again != review || answer != nil {
		t.Errorf("asked again: %q after %q, %+v", again, review, answer)
	}
	_, err := b.Resolve(ctx, reviewer, engine.ResolveRequest{ID: review, Decision: judge.Approve, Reason: "r"})
	wantCode(t, err, engine.CodeInvalidArgument) // without an output
	if _, err = b.Resolve(ctx, reviewer, engine.ResolveRequest{ID: review, Decision: judge.Approve, Reason: "r", Output: json.RawMessage(`7`)}); err != nil {
		t.Fatal(err)
	}
	if _, answer := ask("a"); answer == nil || answer.Decision != judge.Approve || string(answer.Output) != "7" {
		t.Errorf("the answer is %+v", answer)
	}
	left, _ := ask("b")
	if err := r.RecordStep(ctx, engine.StepRecord{Run: "two", Key: "end", Action: "finish", Why: "It is over."}); err != nil {
		t.Fatal(err)
	}
	if row, err := store.FindReview(ctx, b.store, left); err != nil || row.Reason != "It is over." {
		t.Errorf("the review of a run that ended: %+v, %v", row, err)
	}
}
