package judge_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// sandbox is the real sandbox, with limits that a busy machine does not reach.
func sandbox(t testing.TB) *script.Pool {
	t.Helper()
	pool, err := script.NewPool(script.Config{
		Soft: 300 * time.Millisecond, Hard: 2 * time.Second, Total: 5 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	return pool
}

const (
	approveValidator = "(data, context) => ({ valid: data.comments?.length >= 20, confidence: 1.0, reason: 'Detailed comments required' })"
	goodComments     = `{"comments":"Read the whole design, checked every number against its source."}`
)

// accumulated sets the accumulated context, and the merged context to the same value.
func accumulated(doc string) func(*judge.Case) {
	return func(c *judge.Case) {
		c.Context = document.ReadTrusted([]byte(doc))
		c.MaskedContext, c.Merged, c.MaskedMerged = c.Context, c.Context, c.Context
	}
}

func stranger(c *judge.Case) { c.Owner.ID, c.Owner.Trusted = "agent:1", false }

// TestSandbox runs cases through the real sandbox.
func TestSandbox(t *testing.T) {
	t.Parallel()
	p := pipeline(t, sandbox(t), nil)
	// submit is the action of the example document-review, from draft to reviewing.
	submit := func(c *judge.Case) {
		c.State, c.Action = "draft", "submit"
		c.Candidates = []judge.Candidate{{Target: "reviewing"}}
		entry("documentId", "reviewer")(c)
		strict(&c.Rubric)
	}
	byLength := routes("context.wordCount > 10000", "true")
	tests := []struct {
		name string
		c    judge.Case
		want seen
	}{
		{
			"submit without its fields", newCase(submit, data(`{"documentId":"d-1"}`)),
			seen{judge.Reject, "required_field", 1, judge.AssuranceStructural, judge.LayerState, "reviewing", []string{`"reviewer" is required`}},
		},
		{
			"submit", newCase(submit, data(`{"documentId":"d-1","reviewer":"ann"}`)),
			seen{judge.Approve, "", 1, judge.AssuranceStructural, judge.LayerState, "reviewing", []string{}},
		},
		{
			"approve without comments", newCase(data(`{}`), validated(approveValidator), ruled(strict)),
			seen{judge.Reject, judge.CodeValidatorRejected, 1, judge.AssuranceValidators, judge.LayerScript, "approved", []string{"Detailed comments required"}},
		},
		{
			"approve with short comments", newCase(validated(approveValidator), ruled(strict), data(`{"comments":"ok"}`)),
			seen{judge.Reject, judge.CodeValidatorRejected, 1, judge.AssuranceValidators, judge.LayerScript, "approved", []string{"Detailed comments required"}},
		},
		{
			"approve with good comments", newCase(validated(approveValidator), ruled(strict), data(goodComments)),
			seen{judge.Approve, "", 1, judge.AssuranceValidators, judge.LayerScript, "approved", []string{}},
		},
		{
			"approve as a stranger's definition", newCase(stranger, validated(approveValidator), ruled(strict), data(goodComments)),
			seen{judge.Approve, "", 1, judge.AssuranceValidators, judge.LayerScript, "approved", []string{}},
		},
		{
			"a validator at 0.6 under strict 0.8", newCase(validated("() => ({ valid: true, confidence: 0.6 })"), ruled(strict)),
			seen{judge.Reject, judge.CodeLowConfidence, 0.6, judge.AssuranceValidators, judge.ByPolicy, "approved", nil},
		},
		{
			"a throwing validator", newCase(validated("() => { throw new Error('boom') }")),
			seen{judge.Reject, judge.CodeValidatorError, 1, judge.AssuranceNone, judge.LayerScript, "approved", nil},
		},
		{
			"an endless validator", newCase(validated("() => { for (;;) {} }")),
			seen{judge.Reject, judge.CodeValidatorError, 1, judge.AssuranceNone, judge.LayerScript, "approved", nil},
		},
		{
			"a validator that does not parse", newCase(validated("() => {")),
			seen{judge.Reject, judge.CodeValidatorError, 1, judge.AssuranceNone, judge.LayerScript, "approved", nil},
		},
		{
			"a validator that gives no answer", newCase(validated("() => 1")),
			seen{judge.Reject, judge.CodeValidatorError, 1, judge.AssuranceNone, judge.LayerScript, "approved", nil},
		},
		{
			"the judge switched off", newCase(validated(approveValidator), ruled(strict), data(`{"comments":"ok"}`), ruled(func(r *judge.Rubric) { r.Enabled = false })),
			seen{judge.Reject, judge.CodeValidatorRejected, 1, judge.AssuranceValidators, judge.LayerScript, "approved", []string{"Detailed comments required"}},
		},
		{
			"a long text", newCase(byLength, accumulated(`{"wordCount":10001}`)),
			seen{judge.Approve, "", 1, judge.AssuranceNone, judge.LayerScript, "p", []string{}},
		},
		{
			"a short text", newCase(byLength, accumulated(`{"wordCount":1}`)),
			seen{judge.Approve, "", 1, judge.AssuranceNone, judge.LayerScript, "q", []string{}},
		},
		{
			"no route", newCase(routes("data.kind === 'a'", "data.kind === 'b'"), data(`{"kind":"c"}`)),
			seen{judge.Reject, judge.CodeNoRoute, 1, judge.AssuranceNone, judge.LayerScript, "", nil},
		},
		{
			"a condition that throws", newCase(routes("data.a.b.c > 1", "true")),
			seen{judge.Reject, judge.CodeValidatorError, 1, judge.AssuranceNone, judge.LayerScript, "", nil},
		},
		{
			"no model, strict", newCase(validated(approveValidator), data(goodComments), ruled(strict), ruled(useLLM)),
			seen{judge.Reject, judge.CodeJudgeNotConfigured, 1, judge.AssuranceValidators, judge.ByPolicy, "approved", nil},
		},
		{
			"no model, not strict", newCase(validated(approveValidator), data(goodComments), ruled(useLLM)),
			seen{judge.Approve, "", 0.5, judge.AssuranceValidators, judge.ByFallback, "approved", []string{}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v, err := p.Decide(t.Context(), tt.c)
			if err != nil {
				t.Fatal(err)
			}
			got := seen{v.Outcome, v.Code, v.Confidence, v.Assurance, v.DecidedBy, v.Target, v.Violations()}
			if tt.want.Violations == nil {
				got.Violations = nil
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s\n%s", diff, v.Reasoning)
			}
			if wantFault := tt.want.Code == judge.CodeValidatorError; v.Fault != wantFault {
				t.Errorf("fault is %v", v.Fault)
			}
			if v.Outcome == judge.Reject && v.DecidedBy == judge.LayerScript && !v.Fault && tt.want.Violations != nil &&
				!strings.Contains(v.Reasoning, tt.want.Violations[0]) {
				t.Errorf("the reason is not in %q", v.Reasoning)
			}
		})
	}
}

// The same case gives the same verdict: scripts get the case's time and seed.
func TestTheSameCaseGetsTheSameVerdict(t *testing.T) {
	t.Parallel()
	p := pipeline(t, sandbox(t), nil)
	c := newCase(validated("() => ({ valid: false, confidence: Math.random(), reason: new Date().toISOString() })"))
	var first judge.Verdict
	for i := range 3 {
		v, err := p.Decide(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = v
		}
		if v.Confidence != first.Confidence || v.Reasoning != first.Reasoning || !strings.Contains(v.Reasoning, "2026-11-20T12:00:00") {
			t.Errorf("%v %q, first %v %q", v.Confidence, v.Reasoning, first.Confidence, first.Reasoning)
		}
	}
}

// The example document-review, from its file to the verdict: it passes and rejects as its README
// shows.
func TestSeed(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../testdata/workflows/document-review.json")
	if err != nil {
		t.Fatal(err)
	}
	definition, err := workflow.Parse("document-review.json", doc)
	if err != nil {
		t.Fatal(err)
	}
	p := pipeline(t, sandbox(t), nil)
	for _, tt := range []struct {
		name, state, action, data string
		want                      seen
	}{
		{
			"start", "", "", `{"title":"Design"}`,
			seen{judge.Approve, "", 1, judge.AssuranceNone, judge.LayerTransition, "draft", []string{}},
		},
		{
			"submit without its fields", "draft", "submit", `{}`,
			seen{
				judge.Reject, "required_field", 1, judge.AssuranceStructural, judge.LayerState, "reviewing",
				[]string{`"documentId" is required`, `"reviewer" is required`},
			},
		},
		{
			"submit", "draft", "submit", `{"documentId":"d-1","reviewer":"ann"}`,
			seen{judge.Approve, "", 1, judge.AssuranceStructural, judge.LayerState, "reviewing", []string{}},
		},
		{
			"approve with short comments", "reviewing", "approve", `{"comments":"ok"}`,
			seen{
				judge.Reject, judge.CodeValidatorRejected, 1, judge.AssuranceValidators, judge.LayerScript, "approved",
				[]string{"Detailed comments required"},
			},
		},
		{
			"approve with good comments", "reviewing", "approve", goodComments,
			seen{judge.Approve, "", 1, judge.AssuranceValidators, judge.LayerScript, "approved", []string{}},
		},
		{
			"an action of another state", "draft", "approve", goodComments,
			seen{judge.Reject, "illegal_action", 1, judge.AssuranceNone, judge.LayerTransition, "", nil},
		},
	} {
		in := workflow.CaseInput{
			Operation: judge.Advance, State: tt.state, Action: tt.action, Data: json.RawMessage(tt.data),
			Owner: validators.Owner{ID: "agent:1"}, Principal: "agent:1", Role: "agent",
		}
		if tt.state == "" {
			in.Operation = judge.Start
		}
		c, err := definition.Case(in)
		if err != nil {
			t.Fatal(err)
		}
		v, err := p.Decide(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		got := seen{v.Outcome, v.Code, v.Confidence, v.Assurance, v.DecidedBy, v.Target, v.Violations()}
		if tt.want.Violations == nil { // text and code come from another package
			got.Violations, got.Code = nil, tt.want.Code
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
