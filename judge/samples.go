package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// samplesAtOnce limits the concurrent questions of one case, so that its samples do not
// fill its caller's places at an endpoint.
const samplesAtOnce = 2

// askSamples asks n times, each with its own marker and nonce, and returns when all
// have answered. busy says that some could not be asked now; an error, that the context
// ended or the question could not be written.
func (m *modelLayer) askSamples(ctx context.Context, c Case, n int) (ops []Opinion, busy *BusyError, err error) {
	ops, errs := make([]Opinion, n), make([]error, n)
	var wg sync.WaitGroup
	panics := make([]any, n)
	slots := make(chan struct{}, samplesAtOnce)
	for i := range n {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			defer func() { panics[i] = recover() }()
			ops[i], errs[i] = m.askModel(ctx, c, i)
		})
	}
	wg.Wait()
	for i := range n {
		if panics[i] != nil {
			panic(panics[i]) // where the caller can recover it
		}
		if errs[i] != nil && !errors.As(errs[i], &busy) {
			return nil, nil, errs[i]
		}
	}
	return ops, busy, nil
}

// combineSamples approves only if all samples approve and rejects only if most reject;
// anything else cannot be assessed.
//
// An unreadable sample makes all of them so. An unavailable one does so only next to
// approvals: a doubt that a model has voiced must not be forgotten because another call
// failed, or the policy for an absent judge could allow the move.
func combineSamples(ops []Opinion) Opinion {
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
	doubted := len(reject)+len(unsure) > 0
	if op, ok := troubleAmong(ops); ok && !(op.Trouble.isExternal() && doubted) {
		return op.withSampleTotals(ops, 0)
	}
	switch {
	case len(approve) == len(ops):
		return averageMajority(approve, ops)
	case 2*len(reject) > len(ops):
		return averageMajority(reject, ops)
	}
	// Whoever does not approve says why.
	op := slices.Concat(reject, unsure)[0]
	reasoning := op.Reasoning
	if len(unsure) < len(ops) {
		reasoning = joinSentences(fmt.Sprintf("The model was asked %d times and did not agree with itself: %d for, %d against, %d undecided.",
			len(ops), len(approve), len(reject), len(ops)-len(approve)-len(reject)), reasoning)
	}
	open := noJudgement(TroubleCannotAssess, reasoning, *op.Model)
	open.Model.Calibration = ""
	open.Findings, open.Suggestions = op.Findings, op.Suggestions
	return open.withSampleTotals(ops, max(len(approve), len(reject), len(unsure)))
}

func troubleAmong(ops []Opinion) (Opinion, bool) {
	first := -1
	wait := time.Duration(0)
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

// averageMajority is the opinion of the majority. Its confidence is the majority's
// average, and at most what so many of so many say (Laplace's rule of succession).
func averageMajority(majority, all []Opinion) Opinion {
	op := majority[0]
	sum, calibrated := 0.0, true
	for _, one := range majority {
		sum += one.Confidence
		calibrated = calibrated && one.Assurance == AssuranceLLMCalibrated
	}
	k, n := float64(len(majority)), float64(len(all))
	op.Confidence = roundConfidence(min((k+1)/(n+2), sum/k))
	model := *op.Model
	op.Model = &model
	if !calibrated {
		op.Assurance, op.Model.Calibration = AssuranceLLM, ""
	}
	return op.withSampleTotals(all, len(majority))
}

// withSampleTotals records the cost of all samples and how many agree.
func (op Opinion) withSampleTotals(all []Opinion, agreeing int) Opinion {
	model := *op.Model
	model.Samples, model.Agreeing = len(all), agreeing
	model.Calls, model.CacheHit = 0, true
	stated := 0.0
	for _, one := range all {
		a := one.Model
		stated += a.Stated
		model.Calls += a.Calls
		model.CacheHit = model.CacheHit && a.CacheHit
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

// sumSamples adds up samples that made a call; nil when one of them is unknown.
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
