package operation_test

import (
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// The agent gets a model's reasoning even if it contains the findings, unless it says no more than they do.
func TestReasoningOfAModelIsShown(t *testing.T) {
	t.Parallel()
	finding := validators.Finding{Code: "model_objection", Message: "Approval without comments lacks accountability.", Hint: "Add comments."}
	for _, tt := range []struct {
		by, reasoning string
		shown         bool
	}{
		{"model", "Approval without comments lacks accountability. Say what was reviewed and found. Correct this and perform the action again.", true},
		{"model", "Something else is wrong.", true},
		{"model", "Approval without comments lacks accountability. Correct this and perform the action again.", false},
		{"model", "Approval without comments lacks accountability. Add comments.", false},
		{"script", "Approval without comments lacks accountability. Add comments.", false},
	} {
		want := ""
		if tt.shown {
			want = tt.reasoning
		}
		v := operation.BriefDecision(engine.Decision{Verdict: judge.Verdict{Outcome: judge.Reject, DecidedBy: judge.LayerName(tt.by), Reasoning: tt.reasoning, Findings: []validators.Finding{finding}}})
		if v.Reasoning != want {
			t.Errorf("%+v: %q", tt, v.Reasoning)
		}
	}
}
