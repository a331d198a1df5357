package workflow_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

func TestRubricOfACase(t *testing.T) {
	base := judge.DefaultRubric()
	with := func(change func(*judge.Rubric)) judge.Rubric {
		r := base
		change(&r)
		return r
	}
	revision := func(s workflow.JudgeSettings) workflow.Overlay { return workflow.Overlay{Settings: s} }
	tighter := func(s workflow.JudgeSettings) workflow.Overlay {
		return workflow.Overlay{Settings: s, TightenOnly: true}
	}
	type settings = workflow.JudgeSettings
	for _, c := range []struct {
		name, judgeConfig, transition string
		overlays                      []workflow.Overlay
		want                          judge.Rubric
	}{
		{name: "absent means the defaults", want: base},
		{
			name: "judgeConfig", judgeConfig: `"enabled":false,"useLLM":true,"minConfidence":0.5,"mode":"shadow","requireAssurance":"llm","risk":"high","criteria":["one"],"model":"m","samples":3`,
			want: judge.Rubric{Samples: 3, UseLLM: true, MinConfidence: 0.5, Mode: judge.Shadow, OnJudgeUnavailable: "structural", RequireAssurance: "llm", Risk: "high", Criteria: []string{"one"}, Model: "m"},
		},
		{
			name: "strict escalates by default", judgeConfig: `"strictMode":true`,
			want: with(func(r *judge.Rubric) { r.StrictMode, r.OnJudgeUnavailable = true, judge.UnavailableEscalate }),
		},
		{
			name: "strict of the transition counts for the default", transition: `"strictMode":true`,
			want: with(func(r *judge.Rubric) { r.StrictMode, r.OnJudgeUnavailable = true, judge.UnavailableEscalate }),
		},
		{
			name: "an explicit policy stays", judgeConfig: `"strictMode":true,"onJudgeUnavailable":"reject"`,
			want: with(func(r *judge.Rubric) { r.StrictMode, r.OnJudgeUnavailable = true, judge.UnavailableReject }),
		},
		{
			name: "the transition overrides", judgeConfig: `"strictMode":true,"minConfidence":0.9,"useLLM":true,"risk":"high"`, transition: `"strictMode":false,"minConfidence":0.4,"useLLM":false,"risk":"normal"`,
			want: with(func(r *judge.Rubric) { r.MinConfidence = 0.4 }),
		},
		{
			name: "criteria add up, each once", judgeConfig: `"criteria":["one","two"]`, transition: `"criteria":["two","three"]`,
			want: with(func(r *judge.Rubric) { r.Criteria = []string{"one", "two", "three"} }),
		},
		{
			name: "content of a transition", judgeConfig: `"content":"reject"`, transition: `"content":"flag"`,
			want: base,
		},
		{name: "content of all", judgeConfig: `"content":"escalate"`, want: with(func(r *judge.Rubric) { r.Content = judge.ContentEscalate })},
		{
			name: "what proves a criterion goes with it", judgeConfig: `"criteria":[{"text":"one","basis":"evidence"},"two"]`, transition: `"criteria":["one",{"text":"two","proof":{"minWords":6,"figure":true,"pattern":"[0-9]+ passed","from":"/data/report"}}]`,
			want: with(func(r *judge.Rubric) {
				r.Criteria = []string{"one", "two"}
				r.Proofs = map[string]judge.Proof{"one": {Basis: judge.BasisEvidence}, "two": {MinWords: 6, Figure: true, Pattern: "[0-9]+ passed", From: "/data/report"}}
			}),
		},
		{
			name: "revisions apply in order", judgeConfig: `"minConfidence":0.5`,
			overlays: []workflow.Overlay{revision(settings{MinConfidence: new(0.6), UseLLM: new(true)}), revision(settings{MinConfidence: new(0.7)})},
			want:     with(func(r *judge.Rubric) { r.MinConfidence, r.UseLLM = 0.7, true }),
		},
		{
			name: "the transition overrides a revision", transition: `"minConfidence":0.3`,
			overlays: []workflow.Overlay{revision(settings{MinConfidence: new(0.6)})},
			want:     with(func(r *judge.Rubric) { r.MinConfidence = 0.3 }),
		},
		{
			name: "a tightening binds over the transition", transition: `"minConfidence":0.3,"strictMode":false,"enabled":false`,
			overlays: []workflow.Overlay{tighter(settings{MinConfidence: new(0.6), StrictMode: new(true), Enabled: new(true)})},
			want: with(func(r *judge.Rubric) {
				r.MinConfidence, r.StrictMode, r.OnJudgeUnavailable = 0.6, true, judge.UnavailableEscalate
			}),
		},
		{
			name: "a tightening never loosens", transition: `"minConfidence":0.9,"strictMode":true`,
			overlays: []workflow.Overlay{tighter(settings{
				MinConfidence: new(0.1), StrictMode: new(false), Enabled: new(false), UseLLM: new(true), Mode: new(judge.Shadow), OnJudgeUnavailable: new(judge.UnavailableStructural),
			})},
			want: with(func(r *judge.Rubric) {
				r.MinConfidence, r.StrictMode, r.OnJudgeUnavailable = 0.9, true, judge.UnavailableEscalate
			}),
		},
		{
			name: "a tightening may stand before a revision", overlays: []workflow.Overlay{tighter(settings{MinConfidence: new(0.9)}), revision(settings{MinConfidence: new(0.2)})},
			want: with(func(r *judge.Rubric) { r.MinConfidence = 0.9 }),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := `{"name":"w","initialState":"a","judgeConfig":{` + c.judgeConfig + `},"states":{"b":{"final":true},"a":{"transitions":{"go":{"target":"b"`
			if c.transition != "" {
				doc += "," + c.transition
			}
			d := parse(t, doc+`}}}}}`)
			got, err := d.Case(workflow.CaseInput{Operation: judge.Advance, State: "a", Action: "go", Role: "agent", Overlays: c.overlays})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Rubric); diff != "" {
				t.Errorf("rubric (-want +got):\n%s", diff)
			}
			if err := got.Rubric.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A start uses no model and requires nothing that only a transition can provide.
func TestRubricOfAStart(t *testing.T) {
	d := parse(t, `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},
		"judgeConfig":{"useLLM":true,"strictMode":true,"requireAssurance":"human","risk":"high","criteria":["one"],"model":"m","samples":5}}`)
	c, err := d.Case(workflow.CaseInput{Operation: judge.Start})
	if err != nil {
		t.Fatal(err)
	}
	want := judge.DefaultRubric()
	want.StrictMode, want.OnJudgeUnavailable = true, judge.UnavailableEscalate
	if diff := cmp.Diff(want, c.Rubric); diff != "" {
		t.Errorf("rubric (-want +got):\n%s", diff)
	}
	want.UseLLM, want.RequireAssurance, want.Risk, want.Criteria, want.Model, want.Samples = true, judge.AssuranceHuman, judge.RiskHigh, []string{"one"}, "m", 5
	if diff := cmp.Diff(want, d.Rubric(nil)); diff != "" {
		t.Errorf("the definition's own (-want +got):\n%s", diff)
	}
}

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
