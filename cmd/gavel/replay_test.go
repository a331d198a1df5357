package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// Decisions that were made without a model are put to one: live, then from what it
// answered, which is the same and asks nobody.
func TestReplayAsksAModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := filepath.Join(dir, "s.db")
	sys, err := openSystem(t.Context(), slog.New(slog.DiscardHandler), storePlace{path: store}, equipment{})
	if err != nil {
		t.Fatal(err)
	}
	document := []byte("name: f\ninitialState: a\nstates: {a: {transitions: {go: {target: b, useLLM: true, criteria: [it is said]}}}, b: {final: true}}")
	if _, err := sys.Engine.Define(t.Context(), localCLI, engine.DefineRequest{Source: "f.yaml", Document: document}); err != nil {
		t.Fatal(err)
	}
	started, err := sys.Engine.Start(t.Context(), localCLI, engine.StartRequest{Type: "f"})
	if err != nil {
		t.Fatal(err)
	}
	data := json.RawMessage(`{"comment":"The counter of shelf 12 was read twice on Monday morning."}`)
	moved, err := sys.Engine.Advance(t.Context(), localCLI, engine.AdvanceRequest{ID: started.ID, Action: "go", Data: data})
	if err != nil || !moved.Decision.Applied || !moved.Decision.Degraded {
		t.Fatalf("%+v, %v", moved, err)
	}
	if err := sys.Close(); err != nil {
		t.Fatal(err)
	}
	var asked string
	provider := llmtest.New(llmtest.OpenAI(), func(q llmtest.Question) llmtest.Thought {
		asked = q.System
		return llmtest.Rejecter(q)
	})
	server := httptest.NewServer(provider)
	defer server.Close()
	tape := filepath.Join(dir, "tape.jsonl")
	again := func(code int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		args = append([]string{"replay", "--store", store, "--llm-base-url", server.URL, "--json"}, args...)
		if got := run(context.Background(), args, strings.NewReader(""), &out, &errs); got != code {
			t.Fatalf("%v: exit code %d\n%s%s", args, got, out.String(), errs.String())
		}
		return out.String()
	}
	if out := again(0); !strings.Contains(out, `"flips": 0`) || provider.Count() != 0 {
		t.Errorf("what was recorded is not the answer: %d calls, %s", provider.Count(), out)
	}
	out := again(4, "--mode", "record", "--model", "m", "--cassette", tape, "--max-flips", "0")
	if !strings.Contains(out, `"newRefusals": 1`) || !strings.Contains(out, `"asked": 1`) || !strings.Contains(out, "criterion_not_met") {
		t.Error(out)
	}
	calls := provider.Count()
	if replayed := again(4, "--mode", "replay", "--model", "m", "--cassette", tape, "--max-flips", "0"); !strings.Contains(replayed, `"newRefusals": 1`) || provider.Count() != calls || calls == 0 {
		t.Errorf("%d calls, then %d: %s", calls, provider.Count(), replayed)
	}
	for _, name := range []string{"v1", "v3"} {
		if out := again(4, "--mode", "live", "--model", "m", "--prompt", name, "--max-flips", "0"); asked != mustRender(t, "transition/"+name).System {
			t.Errorf("not asked with %s: %s", name, out)
		}
	}
	if err := os.Remove(tape); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if out := again(3, "--mode", "live", "--model", "m", "--max-flips", "0", "--llm-deadline", "10s"); !strings.Contains(out, "model_unavailable") {
		t.Error(out)
	}
}
