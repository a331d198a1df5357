package workflow_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

func TestJudgeSettingsWithAndWithout(t *testing.T) {
	full := workflow.JudgeSettings{
		Enabled: new(true), UseLLM: new(true), StrictMode: new(true), MinConfidence: new(0.9), Mode: new(judge.Shadow),
		OnJudgeUnavailable: new(judge.UnavailableReject), RequireAssurance: new(judge.AssuranceLLM), Risk: new(judge.RiskHigh),
		Criteria: []string{"one"}, Model: new("m"), Samples: new(3),
	}
	none := workflow.JudgeSettings{}
	for name, c := range map[string]struct{ got, want workflow.JudgeSettings }{
		"nothing given changes nothing": {full.With(none), full},
		"everything given":              {none.With(full), full},
		"one field":                     {full.With(workflow.JudgeSettings{MinConfidence: new(0.1)}).With(workflow.JudgeSettings{MinConfidence: new(0.9)}), full},
		"everything taken out":          {full.Without(full), none},
		"nothing taken out":             {full.Without(none), full},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
