package judge_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

const benchSchema = `{
	"type": "object",
	"properties": {
		"documentId": {"type": "string", "pattern": "^d-[0-9]+$"},
		"reviewer": {"type": "string", "minLength": 2},
		"pages": {"type": "integer", "minimum": 1},
		"tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8}
	},
	"required": ["documentId", "reviewer"]
}`

const benchData = `{"documentId":"d-1042","reviewer":"ann","pages":12,"tags":["design","api"],"comments":"Read the whole design, checked every number."}`

// instant is a sandbox that costs nothing.
type instant struct{}

func (instant) Run(context.Context, script.Batch) (script.Reply, error) {
	return script.Reply{Route: -1, Results: []script.Result{agrees(1)}}, nil
}

func (instant) Check(context.Context, string, script.Owner, []script.Script) ([]script.Problem, error) {
	return nil, nil
}

// instantModel is a model that costs nothing and agrees with everything.
func instantModel(b *testing.B) judge.Layer {
	answer := llm.Answer{Approved: true, Confidence: 0.9}
	for i, quote := range []string{"Read the whole design", "the whole design, checked", "whole design, checked every number"} {
		answer.Criteria = append(answer.Criteria, llm.Criterion{ID: fmt.Sprintf("c%d", i+1), Status: llm.StatusMet, Evidence: quote})
	}
	layer, err := judge.NewModel(judge.ModelConfig{
		Completer: llm.CompleterFunc(func(context.Context, llm.Request) (llm.Reply, error) { return llm.Reply{Answer: answer}, nil }),
	})
	if err != nil {
		b.Fatal(err)
	}
	return layer
}

// BenchmarkDecide measures the pipeline: alone, with fields and schema, with a script and an instant
// sandbox (the pipeline's overhead for a script), with an instant model (the overhead of asking
// one), and with the real sandbox. The baseline calls only the compiled fields and schema.
func BenchmarkDecide(b *testing.B) {
	structural := []func(*judge.Case){data(benchData), requires("documentId", "reviewer"), shaped(benchSchema)}
	run := func(name string, p *judge.Pipeline, c judge.Case) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v, err := p.Decide(b.Context(), c)
				if err != nil || v.Outcome != judge.Approve {
					b.Fatalf("%v %+v", err, v)
				}
			}
		})
	}
	b.Run("baseline: the compiled fields and schema", func(b *testing.B) {
		c := newCase(structural...)
		set, problems, err := validators.NewCompiler(&runner{}, validators.Options{}).Compile(b.Context(), c.Principal, c.Owner, c.Checks)
		if err != nil || problems != nil {
			b.Fatal(err, problems)
		}
		b.ReportAllocs()
		for b.Loop() {
			if found := set.CheckFields(c.Data); found != nil {
				b.Fatal(found)
			}
			if r, err := set.CheckSchema(b.Context(), c.Principal, c.Data); err != nil || len(r.Findings) > 0 {
				b.Fatal(err, r.Findings)
			}
		}
	})
	run("nothing to check", pipeline(b, &runner{}, nil), newCase())
	run("fields and schema", pipeline(b, &runner{}, nil), newCase(structural...))
	run("fields, schema and an instant model", pipeline(b, &runner{}, instantModel(b)), newCase(append(structural, ruled(useLLM))...))
	run("fields, schema and an instant sandbox", pipeline(b, instant{}, nil), newCase(append(structural, validated(approveValidator))...))
	run("fields, schema and the sandbox", pipeline(b, sandbox(b), nil), newCase(append(structural, validated(approveValidator))...))
	run("a schema and a script in the sandbox", pipeline(b, sandbox(b), nil), newCase(data(benchData), shaped(`{"$ref":"#/$defs/x","$defs":{"x":`+benchSchema+`}}`), stranger, validated(approveValidator)))
}
