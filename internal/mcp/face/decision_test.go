package face_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// A decision tells the agent completely how a missing model affected it.
func TestDecisionsSayHowTheyCameAbout(t *testing.T) {
	d := engine.Decision{ID: "dec-1", Violations: []string{"The model could not be reached."}, Verdict: judge.Verdict{
		Outcome: judge.Reject, Proposed: judge.Approve, Code: judge.CodeJudgeUnavailable, Target: "b",
		Confidence: 0.5, Assurance: judge.AssuranceStructural, DecidedBy: judge.ByPolicy, Degraded: true, Mode: judge.Enforce,
		Reasoning:   "The model could not be reached.",
		Findings:    []validators.Finding{{Code: judge.CodeJudgeUnavailable, Message: "The model could not be reached.", Hint: "Come back."}},
		Suggestions: []string{"Come back."}, Warnings: []string{"Decided without it."}, RetryAfter: document.Milliseconds(30 * time.Second),
	}}
	w := serve(t, scripted{Engine: newEngine(t), decision: d})
	defer w.end()
	w.hello("test")
	for tool, arguments := range map[string]string{
		"workflow.advance": `{"id":"wf-1","action":"go"}`, "workflow.start": `{"type":"w"}`, "workflow.judge.validate": `{"id":"wf-1","action":"go"}`,
	} {
		answer := w.call(tool, arguments).StructuredContent
		shown, _ := answer["decision"].(map[string]any)
		for field, want := range map[string]any{
			"outcome": "reject", "proposed": "approve", "code": "judge_unavailable", "assurance": "structural",
			"decidedBy": "policy", "degraded": true, "retryAfterMs": 30_000.0,
		} {
			if shown[field] != want {
				t.Errorf("%s: %s is %v, want %v", tool, field, shown[field], want)
			}
		}
		if doc := fmt.Sprint(answer); strings.Count(doc, "The model could not be reached.") != 1 || strings.Count(doc, "Come back.") != 1 || strings.Count(doc, "Decided without it.") != 1 {
			t.Errorf("%s: each is said once: %s", tool, doc)
		}
	}
}

// The judging model can only be one that an operator configured.
func TestConfiguringAnUnknownModel(t *testing.T) {
	w := serve(t, newEngine(t))
	defer w.end()
	w.hello("test")
	if r := w.call("workflow.define", `{"name":"mine","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`); r.IsError {
		t.Fatal(r.text())
	}
	r := w.call("workflow.judge.config", `{"name":"mine","model":"nobody"}`)
	if !r.IsError || r.code() != "invalid_argument" || !strings.Contains(r.text(), `\"nobody\"`) {
		t.Errorf("got %s", r.text())
	}
}
