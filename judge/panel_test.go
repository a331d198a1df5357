package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/judge/llm"
)

func panelOf(rule PanelRule, weights ...float64) Rubric {
	return Rubric{Panel: &Panel{Models: []string{"a", "b", "c"}, Rule: rule, Weights: weights}}
}

// votesOf turns y (approves), n (rejects), u (unsure), x (unreadable) and - (unavailable) into opinions.
func votesOf(said string) []Opinion {
	of := map[rune]Opinion{
		'y': in(model(0.9)), 'n': in(objects(LayerModel, 0.7, CodeCriterionNotMet)), 'u': in(troubled(TroubleCannotAssess)),
		'x': in(troubled(TroubleUnreadable)), '-': in(troubled(TroubleUnavailable)),
	}
	var out []Opinion
	for _, r := range said {
		out = append(out, of[r])
	}
	return out
}

func TestPanelRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule    PanelRule
		said    string
		weights []float64
		want    string // outcome and trouble
	}{
		{RuleAll, "yyy", nil, "approve"},
		{RuleAll, "yyn", nil, "escalate cannot_assess"},
		{RuleAll, "yy-", nil, "escalate judge_unavailable"},
		{RuleAll, "yyx", nil, "escalate judge_unreadable"},
		{RuleAll, "nnx", nil, "escalate judge_unreadable"},
		{RuleAll, "nn-", nil, "reject"},
		{RuleMajority, "yyy", nil, "approve"},
		{RuleMajority, "yyn", nil, "approve"},
		{RuleMajority, "yyx", nil, "approve"},
		{RuleMajority, "yy-", nil, "approve"},
		{RuleMajority, "ynn", nil, "reject"},
		{RuleMajority, "nnx", nil, "reject"},
		{RuleMajority, "ynu", nil, "escalate cannot_assess"},
		{RuleMajority, "yn-", nil, "escalate cannot_assess"},
		{RuleMajority, "y-x", nil, "escalate judge_unreadable"},
		{RuleMajority, "y--", nil, "escalate judge_unavailable"},
		{RuleMajority, "---", nil, "escalate judge_unavailable"},
		{RuleWeighted, "ynn", []float64{3, 1, 1}, "approve"},
		{RuleWeighted, "ynn", []float64{2, 1, 1}, "escalate cannot_assess"},
		{RuleWeighted, "nyy", []float64{3, 1, 1}, "reject"},
		{RuleWeighted, "-yy", []float64{3, 1, 1}, "escalate judge_unavailable"},
	} {
		op := combineVotes(panelOf(tt.rule, tt.weights...), votesOf(tt.said))
		if got := strings.TrimSpace(string(op.Outcome) + " " + string(op.Trouble)); got != tt.want {
			t.Errorf("%s %v of %s: %s, want %s", tt.rule, tt.weights, tt.said, got, tt.want)
		}
		if sound, err := vetOpinion(LayerModel, op); err != nil || sound.Trouble != op.Trouble {
			t.Errorf("%s: %v %s", tt.said, err, sound.Reasoning)
		}
		if dissent := strings.Trim(tt.said, "y") != ""; op.Outcome == Approve && dissent != (len(op.Flags) == 1) {
			t.Errorf("%s: flags %q", tt.said, op.Flags)
		}
	}
}

// For every vote of a panel: an approval has more than half of the weight, a doubt is never left to the
// policy for outages, the order of the models changes nothing, and removing an approval never
// creates one.
func TestPanelProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		said := rapid.StringMatching(`[ynux-]{2,9}`).Draw(t, "said")
		n := len(said)
		models := make([]string, n)
		weights := make([]float64, n)
		for i := range n {
			models[i], weights[i] = fmt.Sprint(i), float64(rapid.IntRange(1, 4).Draw(t, "weight"))
		}
		rule := rapid.SampledFrom([]PanelRule{"", RuleAll, RuleMajority, RuleWeighted}).Draw(t, "rule")
		if rule != RuleWeighted {
			weights = nil
		}
		r := Rubric{Panel: &Panel{Models: models, Rule: rule, Weights: weights}}
		if err := r.Panel.Validate(); err != nil {
			t.Fatal(err)
		}
		got := combineVotes(r, votesOf(said))
		if sound, err := vetOpinion(LayerModel, got); err != nil || sound.Trouble != got.Trouble {
			t.Fatalf("%v %s", err, sound.Reasoning)
		}
		behind, all := 0.0, 0.0
		for i, w := range r.weights(n) {
			all += w
			if said[i] == 'y' {
				behind += w
			}
		}
		if got.Outcome == Approve && (2*behind <= all || rule != RuleMajority && rule != RuleWeighted && behind < all) {
			t.Fatalf("approved by %v of %v", behind, all)
		}
		if got.Trouble.isExternal() && strings.ContainsAny(said, "nu") {
			t.Fatal("a doubt is left to the policy for outages")
		}
		if rule == RuleAll {
			if same := combineVotes(Rubric{Samples: n}, votesOf(said)); same.Outcome != got.Outcome || same.Trouble != got.Trouble || same.Confidence != got.Confidence {
				t.Fatalf("samples come to %+v", same)
			}
		}
		order := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
			for i := range n {
				_ = yield(i)
			}
		})).Draw(t, "order")
		mixed := Rubric{Panel: &Panel{Rule: rule}}
		var other strings.Builder
		for _, i := range order {
			other.WriteByte(said[i])
			mixed.Panel.Models = append(mixed.Panel.Models, models[i])
			if weights != nil {
				mixed.Panel.Weights = append(mixed.Panel.Weights, weights[i])
			}
		}
		if again := combineVotes(mixed, votesOf(other.String())); again.Outcome != got.Outcome || again.Trouble != got.Trouble {
			t.Fatalf("in another order %s %s", again.Outcome, again.Trouble)
		}
		at := rapid.IntRange(0, n-1).Draw(t, "at")
		worse := said[:at] + string(rapid.SampledFrom([]byte("nux-")).Draw(t, "worse")) + said[at+1:]
		if said[at] == 'y' && got.Outcome != Approve && combineVotes(r, votesOf(worse)).Outcome == Approve {
			t.Fatal("one approval fewer approves")
		}
	})
}

func TestPanelValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		panel Panel
		says  string
	}{
		{Panel{Models: []string{"a", "b"}}, ""},
		{Panel{Models: []string{"a"}}, "name 2 to 9"},
		{Panel{Models: []string{"a", "a"}}, "twice"},
		{Panel{Models: []string{"a", ""}}, "empty"},
		{Panel{Models: []string{"a", "b"}, Rule: "most"}, "unknown"},
		{Panel{Models: []string{"a", "b"}, Weights: []float64{1, 2}}, "apply only with"},
		{Panel{Models: []string{"a", "b"}, Rule: RuleWeighted}, "0 numbers for 2"},
		{Panel{Models: []string{"a", "b"}, Rule: RuleWeighted, Weights: []float64{1, 0}}, "above 0"},
	} {
		if err := tt.panel.Validate(); (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v, want %q", tt.panel, err, tt.says)
		}
	}
}

// The members of a panel are asked in parallel and independently: a failing member is not replaced,
// and the record has the answer and cost of each.
func TestPanelAsksEachModelItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := reviewCase(func(c *Case) { c.Rubric.Panel = &Panel{Models: []string{"a", "b", "c"}, Rule: RuleMajority} })
		ids := idsOf(t, c)
		m := &teller{tell: func(_ context.Context, req llm.Request) (llm.Reply, error) {
			<-time.After(time.Second)
			if !req.Alone {
				t.Errorf("%s may be replaced", req.Model)
			}
			if req.Model == "b" {
				return llm.Reply{}, &llm.Error{Class: llm.ClassNetwork, Calls: 1}
			}
			return replyOf(req, approving(ids)), nil
		}}
		op := opine(t, newModel(t, ModelConfig{Completer: m}), c)
		if op.Outcome != Approve || op.Model.Model != "a + b + c" || op.Model.Samples != 3 || op.Model.Agreeing != 2 || op.Model.Failure != "network" || op.Model.Calls != 3 {
			t.Errorf("%+v %+v", op, op.Model)
		}
		var said []string
		for _, v := range op.Model.Votes {
			said = append(said, fmt.Sprint(v.Model, v.Outcome, v.Trouble, v.Calls, v.CostUSD != nil, v.Took.Duration()))
		}
		if got := strings.Join(said, "; "); got != "aapprove1 true 1s; bescalatejudge_unavailable1 false 1s; capprove1 true 1s" {
			t.Error(got)
		}
	})
}
