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

func panelOf(rule PanelRule) Rubric {
	return Rubric{Panel: &Panel{Models: []string{"a", "b", "c"}, Rule: rule}}
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
		rule PanelRule
		said string
		want string // outcome and trouble
	}{
		{RuleAll, "yyy", "approve"},
		{RuleAll, "yyn", "escalate cannot_assess"},
		{RuleAll, "yy-", "escalate judge_unavailable"},
		{RuleAll, "yyx", "escalate judge_unreadable"},
		{RuleAll, "nnx", "escalate judge_unreadable"},
		{RuleAll, "nn-", "reject"},
		{RuleMajority, "yyy", "approve"},
		{RuleMajority, "yyn", "approve"},
		{RuleMajority, "yyx", "approve"},
		{RuleMajority, "yy-", "approve"},
		{RuleMajority, "ynn", "reject"},
		{RuleMajority, "nnx", "reject"},
		{RuleMajority, "ynu", "escalate cannot_assess"},
		{RuleMajority, "yn-", "escalate cannot_assess"},
		{RuleMajority, "y-x", "escalate judge_unreadable"},
		{RuleMajority, "y--", "escalate judge_unavailable"},
		{RuleMajority, "---", "escalate judge_unavailable"},
	} {
		op := combineVotes(panelOf(tt.rule), votesOf(tt.said))
		if got := strings.TrimSpace(string(op.Outcome) + " " + string(op.Trouble)); got != tt.want {
			t.Errorf("%s of %s: %s, want %s", tt.rule, tt.said, got, tt.want)
		}
		if sound, err := vetOpinion(LayerModel, op); err != nil || sound.Trouble != op.Trouble {
			t.Errorf("%s: %v %s", tt.said, err, sound.Reasoning)
		}
		if dissent := strings.Trim(tt.said, "y") != ""; op.Outcome == Approve && dissent != (len(op.Flags) == 1) {
			t.Errorf("%s: flags %q", tt.said, op.Flags)
		}
	}
}

// For every vote of a panel: an approval has more than half of the votes, a doubt is never left to the
// policy for outages, the order of the models changes nothing, and removing an approval never
// creates one.
func TestPanelProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		said := rapid.StringMatching(`[ynux-]{2,9}`).Draw(t, "said")
		n := len(said)
		models := make([]string, n)
		for i := range n {
			models[i] = fmt.Sprint(i)
		}
		rule := rapid.SampledFrom([]PanelRule{"", RuleAll, RuleMajority}).Draw(t, "rule")
		r := Rubric{Panel: &Panel{Models: models, Rule: rule}}
		if err := r.Panel.Validate(); err != nil {
			t.Fatal(err)
		}
		got := combineVotes(r, votesOf(said))
		if sound, err := vetOpinion(LayerModel, got); err != nil || sound.Trouble != got.Trouble {
			t.Fatalf("%v %s", err, sound.Reasoning)
		}
		behind := strings.Count(said, "y")
		if got.Outcome == Approve && (2*behind <= n || rule != RuleMajority && behind < n) {
			t.Fatalf("approved by %d of %d", behind, n)
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
