package judge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// maxConcurrentSamples limits the concurrent questions of one case, so that its samples do not use up the caller's
// share of an endpoint.
const maxConcurrentSamples = 2

// askVotes asks each model of the rubric, each with its own marker and nonce, and returns after all have
// answered. busy means that some could not be asked now. An error means that the context ended or
// the question could not be written.
func (m *modelLayer) askVotes(ctx context.Context, c Case) (ops []Opinion, busy *BusyError, err error) {
	models, panel, began := c.Rubric.Models(), c.Rubric.Panel != nil, time.Now()
	n := len(models)
	ops, errs := make([]Opinion, n), make([]error, n)
	var wg sync.WaitGroup
	panics := make([]any, n)
	atOnce := maxConcurrentSamples
	if panel {
		atOnce = n // usually at different endpoints
	}
	c.Rubric.Panel = nil
	slots := make(chan struct{}, atOnce)
	for i, model := range models {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			defer func() { panics[i] = recover() }()
			of := modelQuestion{sample: i, began: began}
			if panel {
				of.sample, of.alone = 0, true // each model is asked once, without a replacement
			}
			one, asked := c, time.Now()
			one.Rubric.Model = model
			ops[i], errs[i] = m.askModel(ctx, one, of)
			ops[i].Took = document.Milliseconds(time.Since(asked))
		})
	}
	wg.Wait()
	for i := range n {
		if panics[i] != nil {
			panic(panics[i]) // in the caller's goroutine, which can recover it
		}
		if errs[i] != nil && !errors.As(errs[i], &busy) {
			return nil, nil, errs[i]
		}
	}
	return ops, busy, nil
}

// combineVotes settles several answers: samples of one model, which must all approve, or the votes of a
// panel under its rule. If more than half reject, the result is a rejection. Any other split cannot be
// assessed.
//
// A missing answer is not an approval. If all must approve, an unreadable answer makes the result
// unreadable. An unavailable answer makes it unavailable only if all others approve. Otherwise a failed
// call would hide a doubt that another model expressed, and the policy for an unavailable judge could allow
// the move.
func combineVotes(r Rubric, ops []Opinion) Opinion {
	if len(ops) == 1 {
		return ops[0]
	}
	votes := make(map[Outcome][]Opinion)
	for _, op := range ops {
		if op.isJudgement() {
			votes[op.Outcome] = append(votes[op.Outcome], op)
		}
	}
	approve, reject, unsure := votes[Approve], votes[Reject], votes[Escalate]
	needsAll := r.Panel == nil || cmp.Or(r.Panel.Rule, RuleAll) == RuleAll
	approved := len(approve) == len(ops) || !needsAll && 2*len(approve) > len(ops)
	doubted := len(reject)+len(unsure) > 0
	op, troubled := findTrouble(ops)
	switch {
	case troubled && !approved && (!doubted || needsAll && !op.Trouble.isExternal()):
		return op.withSampleTotals(ops, 0)
	case approved:
		op := averageMajority(approve, ops)
		if others := len(ops) - len(approve); others > 0 {
			op.Flags = append(slices.Clone(op.Flags), fmt.Sprintf("%d of %d models did not agree to this.", others, len(ops)))
		}
		return op
	case 2*len(reject) > len(ops):
		return averageMajority(reject, ops)
	}
	// The first answer that does not approve gives the reason.
	op = slices.Concat(reject, unsure)[0]
	reasoning := op.Reasoning
	if len(unsure) < len(ops) {
		who := "The model was asked %d times and did not agree with itself"
		if r.Panel != nil {
			who = "%d models were asked and did not agree"
		}
		reasoning = joinSentences(fmt.Sprintf(who+": %d for, %d against, %d undecided.",
			len(ops), len(approve), len(reject), len(ops)-len(approve)-len(reject)), reasoning)
	}
	open := unjudgedOpinion(TroubleCannotAssess, reasoning, *op.Model)
	open.Model.Calibration = ""
	open.Findings, open.Suggestions = op.Findings, op.Suggestions
	return open.withSampleTotals(ops, max(len(approve), len(reject), len(unsure)))
}

func findTrouble(ops []Opinion) (Opinion, bool) {
	first := -1
	wait := document.Milliseconds(0)
	for i, op := range ops {
		if op.isJudgement() {
			continue
		}
		wait = max(wait, op.RetryAfter)
		if first < 0 || ops[first].Trouble.isExternal() && !op.Trouble.isExternal() {
			first = i
		}
	}
	if first < 0 {
		return Opinion{}, false
	}
	op := ops[first]
	op.RetryAfter = wait
	return op, true
}

// averageMajority returns the opinion of the majority. Its confidence is the majority's average, but
// at most what the number of agreeing answers supports (Laplace's rule of succession).
func averageMajority(majority, all []Opinion) Opinion {
	op := majority[0]
	sum, calibrated := 0.0, true
	for _, one := range majority {
		sum += one.Confidence
		calibrated = calibrated && one.Assurance == AssuranceLLMCalibrated
	}
	op.Confidence = roundConfidence(min(sharedConfidence(len(majority), len(all)), sum/float64(len(majority))))
	model := *op.Model
	op.Model = &model
	if !calibrated {
		op.Model.Calibration = ""
		if op.Assurance == AssuranceLLMCalibrated {
			op.Assurance = AssuranceLLM
		}
	}
	return op.withSampleTotals(all, len(majority))
}

// withSampleTotals records the total cost of all samples and how many agree.
func (op Opinion) withSampleTotals(all []Opinion, agreeing int) Opinion {
	model := *op.Model
	model.Samples, model.Agreeing = len(all), agreeing
	model.Calls, model.CacheHit = 0, true
	stated := 0.0
	for _, one := range all {
		a := one.Model
		model.Calls += a.Calls
		model.CacheHit = model.CacheHit && a.CacheHit
		stated += a.Stated
		model.Lenient, model.Reasked = model.Lenient || a.Lenient, model.Reasked || a.Reasked
		model.Shared = model.Shared || a.Shared
		if model.Failure == "" {
			model.Failure, model.Detail = a.Failure, a.Detail
		}
	}
	model.Stated = stated / float64(len(all))
	model.PromptTokens = sumSamples(all, func(a *ModelRecord) *int { return a.PromptTokens })
	model.CompletionTokens = sumSamples(all, func(a *ModelRecord) *int { return a.CompletionTokens })
	model.CachedTokens = sumSamples(all, func(a *ModelRecord) *int { return a.CachedTokens })
	model.CostUSD = sumSamples(all, func(a *ModelRecord) *float64 { return a.CostUSD })
	op.Model = &model
	return op
}

// sumSamples adds up a value over the samples that made a call; nil if one of them lacks it.
func sumSamples[N int | float64](all []Opinion, of func(*ModelRecord) *N) *N {
	var sum *N
	for _, op := range all {
		if op.Model.Calls == 0 {
			continue
		}
		n := of(op.Model)
		if n == nil {
			return nil
		}
		if sum == nil {
			sum = new(N)
		}
		*sum += *n
	}
	return sum
}
