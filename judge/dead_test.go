package judge_test

import (
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// BenchmarkDecideBreakerOpen measures a decision with a model that is known to be down, compared
// with the same decision in a workflow without a model.
func BenchmarkDecideBreakerOpen(b *testing.B) {
	client, err := llm.New(llm.Config{
		Models: []llm.Model{{Name: "m", ID: "m", BaseURL: "https://dead.example/v1"}}, Retries: -1,
		Doer: llmtest.New(llmtest.RefuseConnections(), llmtest.Approver),
	})
	if err != nil {
		b.Fatal(err)
	}
	model, err := judge.NewModel(judge.ModelConfig{Completer: client})
	if err != nil {
		b.Fatal(err)
	}
	gate := pipeline(b, &runner{}, model)
	asking := goodReview(setting{})
	for range 5 { // until the breaker opens
		if _, err := gate.Decide(b.Context(), asking); err != nil {
			b.Fatal(err)
		}
	}
	plain := asking
	plain.Rubric.UseLLM = false
	for name, c := range map[string]judge.Case{"open": asking, "baseline-no-model": plain} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				v, err := gate.Decide(b.Context(), c)
				if err != nil || v.Degraded != c.Rubric.UseLLM {
					b.Fatalf("%v %+v", err, v)
				}
			}
		})
	}
}
