package judge_test

import (
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// The answers of an endpoint written for the Generic DFA server.
const (
	wholeApproval = `{"approved": true, "confidence": 0.95, "reasoning": "The comments name the table that was compared.", "violations": [], "suggestions": []}`
	wholeRefusal  = `{"approved": false, "confidence": 0.95, "reasoning": "Approval without comments lacks accountability. This creates no audit trail.",
		"violations": ["It does not say what was reviewed", "It names no findings"], "suggestions": ["Add detailed approval comments", "Include review findings"]}`
)

// The words of a refusing model reach the agent in every form. An approval without criteria counts only
// if none are defined; otherwise the agent learns why it does not count.
func TestWordsOfARefusalReachTheAgent(t *testing.T) {
	t.Parallel()
	unsure := `{"criteria":{"c1":{"evidence":"","status":"not_shown","why":"The table is not named"}},"injection_suspected":false,"suggestions":["Name the table"],"confidence":0.9}`
	for _, tt := range []struct {
		name, answer string
		criteria     []string
		rung         llm.Rung
		outcome      judge.Outcome
		code         string
		confidence   float64
		says         []string // in the reasoning, the violations or the suggestions
	}{
		{
			"a refusal as a whole", wholeRefusal, nil, "", judge.Reject, judge.CodeModelObjection, 0.86,
			[]string{"lacks accountability", "does not say what was reviewed", "It names no findings", "Add detailed approval comments"},
		},
		{
			"a refusal as a whole, with stated criteria", wholeRefusal,
			[]string{"The comments name the table"},
			"", judge.Reject, judge.CodeModelObjection, 0.86,
			[]string{"lacks accountability", "It names no findings", "Include review findings"},
		},
		{"a refusal as a whole, where a nonce is asked for", wholeRefusal, nil, llm.RungPrompt, judge.Reject, judge.CodeModelObjection, 0.86, []string{"lacks accountability"}},
		{"a refusal with no more than reasons", `{"approved": false, "confidence": 0.9, "reasoning": "Nobody looked at it."}`, nil, "", judge.Reject, judge.CodeModelObjection, 0.82, []string{"Nobody looked at it."}},
		{"an approval as a whole", wholeApproval, nil, "", judge.Approve, "", 0.86, []string{"name the table"}},
		{"an approval as a whole, with stated criteria", wholeApproval, []string{"The comments name the table"}, "", judge.Reject, judge.CodeJudgeUnreadable, 0.5, []string{"did not answer every criterion"}},
		{"an approval as a whole without a reason", `{"approved": true, "confidence": 0.95}`, nil, "", judge.Reject, judge.CodeJudgeUnreadable, 0.5, []string{"contradicts itself"}},
		{"an approval as a whole, where a nonce is asked for", wholeApproval, nil, llm.RungPrompt, judge.Reject, judge.CodeJudgeUnreadable, 0.5, nil},
		{"an approval with an empty list of criteria", `{"criteria": [], ` + wholeApproval[1:], nil, "", judge.Approve, "", 0.86, []string{"name the table"}},
		{"an empty list of criteria, with stated criteria", `{"criteria": [], ` + wholeApproval[1:], []string{"The comments name the table"}, "", judge.Reject, judge.CodeJudgeUnreadable, 0.5, []string{"did not answer every criterion"}},
		{"an approval with violations", `{"approved": true, "confidence": 0.95, "reasoning": "Fine.", "violations": ["Nothing was compared"]}`, nil, "", judge.Reject, judge.CodeJudgeUnreadable, 0.5, nil},
		{
			"a refusal that cannot assess", unsure,
			[]string{"The comments name the table"},
			"", judge.Reject, judge.CodeCannotAssess, 0.5,
			[]string{"The table is not named", "Name the table"},
		},
	} {
		client, err := llm.New(llm.Config{
			Models: []llm.Model{{Name: "m", ID: "m", BaseURL: "https://model.example/v1", Rung: tt.rung}},
			Doer:   llmtest.New(llmtest.OpenAI(), llmtest.Says(tt.answer)),
		})
		if err != nil {
			t.Fatal(err)
		}
		layer, err := judge.NewModel(judge.ModelConfig{Completer: client})
		if err != nil {
			t.Fatal(err)
		}
		v := decideWith(t, pipeline(t, &runner{}, layer), newCase(asksModel(tt.criteria...)))
		if v.Outcome != tt.outcome || v.Code != tt.code || v.Confidence != tt.confidence || v.Outcome == judge.Approve && v.Assurance != judge.AssuranceLLM {
			t.Errorf("%s: %s (%s), confidence %v, assurance %s: %s", tt.name, v.Outcome, v.Code, v.Confidence, v.Assurance, v.Reasoning)
		}
		words := v.Reasoning + "\n" + strings.Join(v.Violations(), "\n") + "\n" + strings.Join(v.Suggestions, "\n")
		for _, want := range tt.says {
			if !strings.Contains(words, want) {
				t.Errorf("%s: %q is not in\n%s", tt.name, want, words)
			}
		}
		client.Close()
	}
}

// A low confidence names the judge as the cause. A value below a threshold never looks as if it reached
// it, and 0.1 + 0.7 reaches 0.8.
func TestLowConfidenceNamesTheJudge(t *testing.T) {
	t.Parallel()
	states := func(confidence float64) llmtest.Brain {
		return func(q llmtest.Question) llmtest.Thought {
			thought := llmtest.Approver(q)
			thought.Answer.Confidence = confidence
			return thought
		}
	}
	for stated, want := range map[float64]string{0.8: "0.74", 0.8749: "0.79", 0.87: "0.79", 0.875: ""} {
		gate, _ := modelQuestion(t, states(stated))
		v := decideWith(t, gate, newCase(asksModel()))
		if (v.Outcome == judge.Approve) != (want == "") {
			t.Errorf("stated %v: %s with %v", stated, v.Outcome, v.Confidence)
		}
		if want == "" {
			continue
		}
		for _, text := range []string{"The data is not the problem", "its confidence is only " + want + ", shrunk", "Ask a person"} {
			if v.Code != judge.CodeLowConfidence || !strings.Contains(v.Reasoning, text) {
				t.Errorf("stated %v: %q is not in %s", stated, text, v.Reasoning)
			}
		}
		if strings.Contains(v.Reasoning, "more convincing") || strings.Contains(v.Reasoning, "0.8") {
			t.Errorf("stated %v: %s", stated, v.Reasoning)
		}
	}
	tenth, seven := 0.1, 0.7
	c := newCase(validated("() => ({valid: true, confidence: 0.1 + 0.7})"), func(c *judge.Case) { c.Rubric.StrictMode = true })
	v := decideWith(t, pipeline(t, replies(agrees(tenth+seven)), nil), c)
	if v.Outcome != judge.Approve || v.Confidence != 0.8 {
		t.Errorf("0.1 + 0.7: %s with %v", v.Outcome, v.Confidence)
	}
	for c, want := range map[float64]string{0: "0.00", 0.8: "0.80", 0.796: "0.79", 0.799999: "0.79", 0.7999999: "0.80", 0.29: "0.29", 0.57: "0.57", 1: "1.00", 0.892: "0.89"} {
		if got := judge.FormatConfidence(c); got != want {
			t.Errorf("%v: %s", c, got)
		}
	}
	if got := judge.StatedFor(0.8); got != "0.875" {
		t.Errorf("0.8 needs %s", got)
	}
}
