package judge_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
	"github.com/gavel-mcp/gavel/prompts"
	"github.com/gavel-mcp/gavel/validators/document"
)

// modelQuestion returns a gate around a scripted model, and the provider that counts its questions.
func modelQuestion(t testing.TB, brain llmtest.Brain) (*judge.Pipeline, *llmtest.Provider) {
	t.Helper()
	provider := llmtest.New(llmtest.OpenAI(), brain)
	return gateOver(t, provider, judge.ModelConfig{}), provider
}

func gateOver(t testing.TB, doer llm.Doer, cfg judge.ModelConfig) *judge.Pipeline {
	t.Helper()
	return pipeline(t, &runner{}, modelOver(t, doer, cfg))
}

func modelOver(t testing.TB, doer llm.Doer, cfg judge.ModelConfig) judge.Layer {
	t.Helper()
	client, err := llm.New(llm.Config{Models: []llm.Model{{Name: "m", ID: "m", BaseURL: "https://model.example/v1"}}, Doer: doer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	cfg.Completer = client
	layer, err := judge.NewModel(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func past(doc string) func(*judge.Case) {
	return func(c *judge.Case) {
		c.Context = document.ReadTrusted([]byte(doc))
		c.MaskedContext = c.Context
	}
}

func asksModel(criteria ...string) func(*judge.Case) {
	return func(c *judge.Case) {
		c.Rubric.UseLLM, c.Rubric.StrictMode, c.Rubric.Criteria = true, true, criteria
	}
}

// pointsAt returns a model that meets every criterion with the same evidence.
func pointsAt(evidence string) llmtest.Brain {
	return func(q llmtest.Question) llmtest.Thought {
		thought := llmtest.Gullible(q)
		for i := range thought.Answer.Criteria {
			thought.Answer.Criteria[i].Evidence = evidence
		}
		return thought
	}
}

// A move without data is judged on the context and the evidence. If there is no content at all, the
// model is not asked: the other layers decide, or the criteria are not met.
func TestMoveWithoutDataIsJudgedOnTheRest(t *testing.T) {
	t.Parallel()
	title := `{"title":"Buy milk and bread","count":2}`
	needs := func(a judge.Assurance) func(*judge.Case) {
		return func(c *judge.Case) { c.Rubric.RequireAssurance = a }
	}
	for _, tt := range []struct {
		name      string
		brain     llmtest.Brain
		change    []func(*judge.Case)
		outcome   judge.Outcome
		decidedBy judge.LayerName
		code      string
		asked     int
	}{
		{"the context is quoted", llmtest.Approver, []func(*judge.Case){data(`{}`), past(title)}, judge.Approve, judge.LayerModel, "", 1},
		{"the context is pointed at", pointsAt("/context/title"), []func(*judge.Case){data(`{}`), past(title), asksModel("The item says what to do")}, judge.Reject, judge.LayerModel, judge.CodeCannotAssess, 1},
		{"a number of the context is pointed at", pointsAt("#/context/count"), []func(*judge.Case){data(`{}`), past(title), asksModel("The item says what to do")}, judge.Reject, judge.LayerModel, judge.CodeCannotAssess, 1},
		{"nothing of the context is pointed at", pointsAt("/context/owner"), []func(*judge.Case){data(`{}`), past(title), asksModel("The item says what to do")}, judge.Reject, judge.LayerModel, judge.CodeCannotAssess, 1},
		{"a removal", llmtest.Approver, []func(*judge.Case){data(`{"count":null}`), past(title)}, judge.Approve, judge.LayerModel, "", 1},
		{"the model objects", llmtest.Rejecter, []func(*judge.Case){data(`{}`), past(title)}, judge.Reject, judge.LayerModel, judge.CodeModelObjection, 1},
		{"the model objects to a criterion", llmtest.Rejecter, []func(*judge.Case){data(`{}`), past(title), asksModel("The item says what to do")}, judge.Reject, judge.LayerModel, judge.CodeCriterionNotMet, 1},

		{"nothing at all", llmtest.Rejecter, []func(*judge.Case){data(`{}`)}, judge.Approve, judge.LayerTransition, "", 0},
		{"nothing but names", llmtest.Rejecter, []func(*judge.Case){data(`{}`), past(`{"a":{},"b":[null,""]}`)}, judge.Approve, judge.LayerTransition, "", 0},
		{"nothing at all, and a criterion", llmtest.Gullible, []func(*judge.Case){data(`{}`), asksModel("The item says what to do")}, judge.Reject, judge.LayerContent, judge.CodeCriterionNotMet, 0},
		{"nothing at all, and an assurance", llmtest.Gullible, []func(*judge.Case){data(`{}`), needs(judge.AssuranceLLM)}, judge.Reject, judge.ByPolicy, judge.CodeAssuranceTooLow, 0},
		{"nothing at all, and a risk", llmtest.Gullible, []func(*judge.Case){data(`{}`), func(c *judge.Case) { c.Rubric.Risk = judge.RiskHigh }}, judge.Reject, judge.ByPolicy, judge.CodeAssuranceTooLow, 0},
		{"data that say nothing", llmtest.Gullible, []func(*judge.Case){data(`{"comments":" ..."}`), asksModel("The item says what to do")}, judge.Reject, judge.LayerModel, judge.CodeCannotAssess, 1},
	} {
		gate, provider := modelQuestion(t, tt.brain)
		v, err := gate.Decide(t.Context(), newCase(append([]func(*judge.Case){asksModel()}, tt.change...)...))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if v.Outcome != tt.outcome || v.DecidedBy != tt.decidedBy || v.Code != tt.code || provider.Count() != tt.asked {
			t.Errorf("%s: %s by %s (%s) after %d questions: %s", tt.name, v.Outcome, v.DecidedBy, v.Code, provider.Count(), v.Reasoning)
		}
		if said := slices.ContainsFunc(v.Warnings, func(w string) bool { return strings.Contains(w, "model was not asked") }); said != (v.Outcome == judge.Approve && tt.asked == 0) {
			t.Errorf("%s: warnings %q", tt.name, v.Warnings)
		}
		if v.Code == judge.CodeAssuranceTooLow && !strings.Contains(v.Findings[0].Hint, "send data") {
			t.Errorf("%s: %+v", tt.name, v.Findings)
		}
	}
}

// The same without a configured model: a model that would not have been asked is not missed.
func TestMoveWithoutAnythingNeedsNoModel(t *testing.T) {
	t.Parallel()
	v, err := pipeline(t, &runner{}, nil).Decide(t.Context(), newCase(data(`{}`), asksModel()))
	if err != nil || v.Outcome != judge.Approve || v.Degraded || v.DecidedBy != judge.LayerTransition {
		t.Errorf("%+v, %v", v, err)
	}
}

// Fetched evidence is something to judge; evidence that could not be fetched is not.
func TestEvidenceIsSomethingToJudge(t *testing.T) {
	t.Parallel()
	for fetched, asked := range map[string]int{`{"passed":true,"suite":"the unit and integration tests"}`: 1, "": 0} {
		provider := llmtest.New(llmtest.OpenAI(), llmtest.Approver)
		p := fetching(t, &runner{}, modelOver(t, provider, judge.ModelConfig{}), func(context.Context, judge.EvidenceRequest) (judge.FetchResult, error) {
			if fetched == "" {
				return judge.FetchResult{Failure: judge.FailureUnavailable}, nil
			}
			return judge.FetchResult{Content: []byte(fetched)}, nil
		})
		c := newCase(data(`{}`), asksModel(), func(c *judge.Case) {
			c.Evidence = []judge.EvidenceRequest{{Name: "tests", Source: "ci"}}
		})
		if v := decideWith(t, p, c); v.Outcome != judge.Approve || provider.Count() != asked {
			t.Errorf("%q: %s (%s) after %d questions", fetched, v.Outcome, v.Reasoning, provider.Count())
		}
	}
}

// A calibration is bound to its prompt: one of another edition does not apply.
func TestCalibrationIsBoundToThePrompt(t *testing.T) {
	t.Parallel()
	c := newCase(asksModel("The comments say what was compared"))
	for _, tt := range []struct {
		calibrated   string
		groups       int
		assurance    judge.Assurance
		uncalibrated bool
	}{
		{prompts.TransitionV3, 100, judge.AssuranceLLM, false},
		{prompts.TransitionV4, 100, judge.AssuranceLLMCalibrated, false},
		{prompts.TransitionV4, 10, judge.AssuranceLLM, true},
	} {
		prompt, err := prompts.Render(tt.calibrated, prompts.Input{Criteria: []prompts.Criterion{{ID: "c1", Text: "Any."}}})
		if err != nil {
			t.Fatal(err)
		}
		calibrations, err := judge.NewCalibrations([]judge.Calibration{{
			Model: "m", PromptDigest: prompt.Digest, CriteriaDigest: judge.CriteriaDigest(c.Rubric),
			Platt: judge.Platt{A: -1}, N: 100,
			Approvals: &judge.ApprovalFit{N: 100, Groups: tt.groups, Mean: 0.9, Right: 0.9, RightLow: 0.82, ECE: 0.02},
		}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := gateOver(t, llmtest.New(llmtest.OpenAI(), llmtest.Approver), judge.ModelConfig{Calibrations: calibrations}).Decide(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		asked := v.Opinions[len(v.Opinions)-1].Model
		if v.Assurance != tt.assurance || asked.PromptID != prompts.TransitionV4 || (asked.Uncalibrated != "") != tt.uncalibrated {
			t.Errorf("%+v: %+v", tt, v)
		}
	}
}

// The rubric names the prompt, or else the configuration; an unknown name is rejected.
func TestPromptIsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ rubric, config, want string }{
		{"", "", prompts.TransitionV4},
		{"", "v3", prompts.TransitionV3},
		{"v4", "v3", prompts.TransitionV4},
	} {
		c := newCase(asksModel("The comments say what was compared"), func(c *judge.Case) { c.Rubric.Prompt = tt.rubric })
		v, err := gateOver(t, llmtest.New(llmtest.OpenAI(), llmtest.Approver), judge.ModelConfig{Prompt: tt.config}).Decide(t.Context(), c)
		if err != nil || v.Opinions[len(v.Opinions)-1].Model.PromptID != tt.want {
			t.Errorf("%+v: %+v, %v", tt, v, err)
		}
	}
	unknown := newCase(asksModel(), func(c *judge.Case) { c.Rubric.Prompt = "v0" })
	if _, err := gateOver(t, llmtest.New(llmtest.OpenAI(), llmtest.Approver), judge.ModelConfig{}).Decide(t.Context(), unknown); !errors.Is(err, judge.ErrCase) {
		t.Errorf("an unknown prompt of a rubric: %v", err)
	}
	if _, err := judge.NewModel(judge.ModelConfig{Completer: llm.CompleterFunc(nil), Prompt: "transition/v0"}); err == nil {
		t.Error("an unknown prompt is accepted")
	}
}
