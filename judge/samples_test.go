package judge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// in gives an opinion the record of one call.
func in(op Opinion) Opinion {
	one := 1
	op.Model = &ModelRecord{Model: "m", Stated: 0.9, Calls: 1, PromptTokens: &one}
	return op
}

func TestConsensus(t *testing.T) {
	t.Parallel()
	yes, sure := in(model(0.85)), in(calibrated(0.95))
	no := in(objects(LayerModel, 0.7, CodeCriterionNotMet))
	unsure := in(troubled(TroubleCannotAssess))
	unreadable, away := in(troubled(TroubleUnreadable)), in(troubled(TroubleUnavailable))
	unsure.Findings = no.Findings
	sure.Model.Calibration = "sha256:x"
	type said struct {
		Outcome   Outcome
		Trouble   Trouble
		C         float64
		Assurance Assurance
		Agreeing  int
	}
	open := func(agreeing int) said {
		return said{Escalate, TroubleCannotAssess, 0.5, AssuranceNone, agreeing}
	}
	for _, tt := range []struct {
		name string
		ops  []Opinion
		want said
	}{
		{"three approve", []Opinion{yes, yes, yes}, said{Approve, "", 0.8, AssuranceLLM, 3}},
		{"nine approve", slices.Repeat([]Opinion{yes}, 9), said{Approve, "", 0.85, AssuranceLLM, 9}},
		{"nine approve, calibrated", slices.Repeat([]Opinion{sure}, 9), said{Approve, "", 0.909091, AssuranceLLMCalibrated, 9}},
		{"all approve, one not calibrated", append(slices.Repeat([]Opinion{sure}, 8), yes), said{Approve, "", 0.909091, AssuranceLLM, 9}},
		{"two of three approve", []Opinion{yes, no, yes}, open(2)},
		{"eight of nine approve", append(slices.Repeat([]Opinion{yes}, 8), unsure), open(8)},
		{"two of three reject", []Opinion{no, yes, no}, said{Reject, "", 0.6, AssuranceLLM, 2}},
		{"three reject", []Opinion{no, no, no}, said{Reject, "", 0.7, AssuranceLLM, 3}},
		{"one of each", []Opinion{yes, no, unsure}, open(1)},
		{"none can assess", []Opinion{unsure, unsure, unsure}, open(3)},
		{"two cannot assess", []Opinion{yes, unsure, unsure}, open(2)},
		{"one is unreadable", []Opinion{no, unreadable, no}, said{Escalate, TroubleUnreadable, 0.5, AssuranceNone, 0}},
		{"one is away", []Opinion{yes, yes, away}, said{Escalate, TroubleUnavailable, 0.5, AssuranceNone, 0}},
		{"a no beside one that is away", []Opinion{yes, away, no}, open(1)},
		{"a doubt beside two that are away", []Opinion{away, unsure, away}, open(1)},
		{"most reject, one is away", []Opinion{no, away, no}, said{Reject, "", 0.6, AssuranceLLM, 2}},
		{"a no, one away, one unreadable", []Opinion{no, away, unreadable}, said{Escalate, TroubleUnreadable, 0.5, AssuranceNone, 0}},
		{"all are away", []Opinion{away, away, away}, said{Escalate, TroubleUnavailable, 0.5, AssuranceNone, 0}},
		{"unreadable beats away", []Opinion{away, yes, unreadable}, said{Escalate, TroubleUnreadable, 0.5, AssuranceNone, 0}},
	} {
		op := combineVotes(Rubric{}, tt.ops)
		if diff := cmp.Diff(tt.want, said{op.Outcome, op.Trouble, op.Confidence, op.Assurance, op.Model.Agreeing}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if n := len(tt.ops); op.Model.Samples != n || op.Model.Calls != n || *op.Model.PromptTokens != n {
			t.Errorf("%s: record %+v", tt.name, op.Model)
		}
		if sound, err := vetOpinion(LayerModel, op); err != nil || sound.Trouble != op.Trouble {
			t.Errorf("%s: %v %s", tt.name, err, sound.Reasoning)
		}
		if op.Outcome != Approve && op.isJudgement() && len(op.Findings) == 0 {
			t.Errorf("%s: nothing is found", tt.name)
		}
		if op.Trouble.isExternal() && op.RetryAfter.Duration() != 7*time.Second {
			t.Errorf("%s: again after %v", tt.name, op.RetryAfter)
		}
	}
	if op := combineVotes(Rubric{}, []Opinion{yes}); op.Model != yes.Model || op.Model.Samples != 0 {
		t.Errorf("one alone: %+v", op.Model)
	}
	if got := combineVotes(Rubric{}, []Opinion{yes, no, yes}).Reasoning; !strings.Contains(got, "2 for, 1 against, 0 undecided") {
		t.Error(got)
	}
	if yes.Model.Samples != 0 || no.Model.Samples != 0 {
		t.Error("a sample's own record changed")
	}
}

// The costs of samples are added up; if one is unknown, the sum is unknown.
func TestSamplesCost(t *testing.T) {
	t.Parallel()
	sample := func(calls int, tokens ...int) Opinion {
		op := model(0.9)
		op.Model = &ModelRecord{Calls: calls, CacheHit: calls == 0, Reasked: calls > 1, Stated: 1}
		if len(tokens) > 0 {
			cost := float64(tokens[0]) / 1000
			op.Model.PromptTokens, op.Model.CompletionTokens, op.Model.CachedTokens, op.Model.CostUSD = &tokens[0], &tokens[0], &tokens[0], &cost
		}
		return op
	}
	got := combineVotes(Rubric{}, []Opinion{sample(1, 10), sample(2, 30), sample(0)}).Model
	if got.Calls != 3 || *got.PromptTokens != 40 || *got.CompletionTokens != 40 || *got.CachedTokens != 40 || math.Abs(*got.CostUSD-0.04) > 1e-12 || got.CacheHit || !got.Reasked || got.Stated != 1 {
		t.Errorf("%+v", got)
	}
	if got = combineVotes(Rubric{}, []Opinion{sample(1, 10), sample(1), sample(1, 30)}).Model; got.PromptTokens != nil || got.CostUSD != nil || got.Calls != 3 {
		t.Errorf("%+v", got)
	}
	if got = combineVotes(Rubric{}, []Opinion{sample(0), sample(0), sample(0, 5)}).Model; got.PromptTokens != nil || !got.CacheHit {
		t.Errorf("%+v", got)
	}
}

// The record has the failure of a sample even if the others settle the case.
func TestSamplesRecordAFailure(t *testing.T) {
	t.Parallel()
	no, away, unreadable := in(objects(LayerModel, 0.7, "x")), in(troubled(TroubleUnavailable)), in(troubled(TroubleUnreadable))
	away.Model.Failure, away.Model.Detail = "timeout", "took too long"
	unreadable.Model.Failure = "refusal"
	if got := combineVotes(Rubric{}, []Opinion{no, away, no}).Model; got.Failure != "timeout" || got.Detail != "took too long" {
		t.Errorf("%+v", got)
	}
	if got := combineVotes(Rubric{}, []Opinion{away, unreadable, no}).Model; got.Failure != "refusal" || got.Detail != "" {
		t.Errorf("%+v", got)
	}
}

// Samples are asked two at a time (an endpoint rejects a caller that asks for more at once), each
// with a separate marker, nonce and key.
func TestSamplesAreIndependent(t *testing.T) {
	t.Parallel()
	c := reviewCase(func(c *Case) { c.Rubric.Samples = 3 })
	ids := idsOf(t, c)
	var together sync.WaitGroup
	together.Add(2)
	var begun, underWay, most atomic.Int32
	m := &teller{tell: func(_ context.Context, req llm.Request) (llm.Reply, error) {
		most.Store(max(most.Load(), underWay.Add(1)))
		defer underWay.Add(-1)
		if begun.Add(1) <= 2 {
			together.Done()
			together.Wait() // two are in progress
		}
		return replyOf(req, approving(ids)), nil
	}}
	op := opine(t, newModel(t, ModelConfig{Completer: m}), c)
	if op.Outcome != Approve || op.Confidence != 0.8 || op.Model.Samples != 3 || op.Model.Agreeing != 3 || op.Model.Calls != 3 {
		t.Errorf("%+v %+v", op, op.Model)
	}
	if most.Load() > maxConcurrentSamples {
		t.Errorf("%d at once", most.Load())
	}
	for _, of := range []func(llm.Request) string{
		func(r llm.Request) string { return r.Nonce },
		func(r llm.Request) string { return r.Key },
		func(r llm.Request) string { return r.User },
	} {
		seen := map[string]bool{}
		for _, req := range m.asked {
			seen[of(req)] = true
		}
		if len(seen) != 3 {
			t.Errorf("%d different ones of 3", len(seen))
		}
	}
}

func TestSamplesAndTheBudget(t *testing.T) {
	t.Parallel()
	c := reviewCase(func(c *Case) { c.Rubric.Samples = 3 })
	layer := newModel(t, ModelConfig{Completer: tells(approving(idsOf(t, c))), Budget: 5})
	if op := opine(t, layer, c); op.Outcome != Approve {
		t.Fatalf("%+v", op)
	}
	if op, err := layer.Weigh(t.Context(), c); !errors.Is(err, ErrBusy) {
		t.Errorf("%+v, %v", op, err)
	}
	c.Rubric.Samples = 1
	if op := opine(t, layer, c); op.Outcome != Approve {
		t.Errorf("two are left: %+v", op)
	}
}

// The caller can recover a panic of one sample.
func TestSamplesPanic(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	m := &teller{tell: func(context.Context, llm.Request) (llm.Reply, error) { panic(boom) }}
	defer func() {
		if got := recover(); got != boom { //nolint:errorlint // exactly this panic
			t.Errorf("recovered %v", got)
		}
	}()
	_, _ = newModel(t, ModelConfig{Completer: m}).Weigh(t.Context(), reviewCase(func(c *Case) { c.Rubric.Samples = 3 }))
}

// Another sample never turns a result that was not an approval into one.
func TestSamplesNeverLoosen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Custom(func(t *rapid.T) Opinion {
			switch rapid.IntRange(0, 4).Draw(t, "says") {
			case 0:
				return in(objects(LayerModel, rapid.Float64Range(0, 1).Draw(t, "c"), "x"))
			case 1:
				return in(troubled(rapid.SampledFrom([]Trouble{TroubleCannotAssess, TroubleUnreadable, TroubleUnavailable}).Draw(t, "trouble")))
			}
			return in(model(rapid.Float64Range(0, 1).Draw(t, "c")))
		})
		ops := rapid.SliceOfN(draw, 3, 9).Draw(t, "samples")
		got := combineVotes(Rubric{}, ops)
		if sound, err := vetOpinion(LayerModel, got); err != nil || sound.Trouble != got.Trouble {
			t.Fatalf("%v %s", err, sound.Reasoning)
		}
		lowest := 1.0
		for _, op := range ops {
			lowest = min(lowest, op.Confidence)
			if got.Outcome == Approve && op.Outcome != Approve {
				t.Fatalf("approved although a sample says %s", op.Outcome)
			}
			if got.Trouble.isExternal() && op.isJudgement() && op.Outcome != Approve {
				t.Fatalf("a doubt is forgotten: %+v", got)
			}
			if op.Trouble == TroubleUnreadable && got.Trouble != TroubleUnreadable {
				t.Fatalf("unreadable became %q", got.Trouble)
			}
		}
		highest := slices.MaxFunc(ops, func(a, b Opinion) int { return int(1e6 * (a.Confidence - b.Confidence)) }).Confidence
		if got.Outcome == Approve && got.Confidence > highest+1e-5 {
			t.Fatal(fmt.Sprint("surer than the surest: ", got.Confidence, highest))
		}
	})
}
