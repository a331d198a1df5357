package chain

import (
	"context"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// TestActsForSurvivesRestart: a run that is taken up continues with its original rights, and so does a
// redriven run.
func TestActsForSurvivesRestart(t *testing.T) {
	ctx, path := context.Background(), t.TempDir()
	house := engine.Principal{ID: "house", Role: engine.RoleAgent, Workflows: "deploy"}
	var mu sync.Mutex
	var did []Command
	effects := effectsFunc(func(_ context.Context, c Command) Outcome {
		mu.Lock()
		defer mu.Unlock()
		did = append(did, c)
		if len(did) == 2 {
			return Outcome{Err: &StepError{Code: CodeToolError, Message: "busy"}}
		}
		return Outcome{Value: "ok"}
	})
	r := openRuns(t, path, effects)
	d := parse(t, "concurrency: 1\n"+steps(`{id: a, type: tool, server: s, action: a}`, `{id: w, type: wait, signal: go}`, `{id: b, type: tool, server: s, action: b}`))
	run, err := r.Start(ctx, StartRequest{Definition: d, Principal: agentA, ActsFor: &house})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the question", func() (map[string][]RunQuestion, bool) {
		q, err := r.questions(ctx, run)
		return q, err == nil && len(q[run]) == 1
	})
	r.Close()
	r = openRuns(t, path, effects)
	defer r.Close()
	if err := r.Signal(ctx, run, "go", "ann", nil); err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, r, run); result.Err == nil {
		t.Fatalf("it ends with %+v", result)
	}
	again, err := r.Redrive(ctx, run, "olga", "")
	if err != nil {
		t.Fatal(err)
	}
	if result := waitRun(t, r, again); result.Err != nil {
		t.Fatalf("again it ends with %+v", result)
	}
	if len(did) != 3 {
		t.Fatalf("%d commands", len(did))
	}
	for _, c := range did {
		if c.Principal != house || c.Chain != d.Name {
			t.Errorf("%s is done for %+v, of %q", c.Key, c.Principal, c.Chain)
		}
	}
	for _, id := range []string{run, again} {
		if s, err := r.Get(ctx, id); err != nil || s.Principal != "a" || s.ActsFor != "house" {
			t.Errorf("%s is %+v, %v", id, s, err)
		}
	}
}
