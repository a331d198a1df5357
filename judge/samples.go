package judge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// samplesAtOnce is how many questions of one case are on their way at once, so that the
// samples of one case do not fill the places that an endpoint has for their caller.
const samplesAtOnce = 2

// askSamples asks the model n times, independently: every question has a marker and a nonce
// of its own. It returns when all have answered. busy says that some could not be asked
// now; the error means that the context ended or that the question could not be written.
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

// combineSamples is what several answers come to together. Only if all approve is it an
// approval; most must reject for a rejection; anything else cannot be assessed.
//
// A sample that was unreadable makes all so. One that could not be had does so only
// beside approvals: a doubt that a model has voiced must not be forgotten because
// another call failed, for then the policy for an absent judge could let it pass.
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
	reasoning := troubleMessage(TroubleCannotAssess)
	if len(unsure) < len(ops) {
		reasoning = fmt.Sprintf("The model was asked %d times and did not agree with itself: %d for, %d against, %d undecided.",
			len(ops), len(approve), len(reject), len(ops)-len(approve)-len(reject))
	}
	open := noJudgement(TroubleCannotAssess, reasoning, *op.Model)
	open.Model.Calibration = ""
	open.Findings, open.Suggestions = op.Findings, op.Suggestions
	return open.withSampleTotals(ops, max(len(approve), len(reject), len(unsure)))
}

// troubleAmong returns the opinion whose trouble is that of all, if there is one.
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

// averageMajority is the opinion of the majority among all. Its confidence is what the
// majority's comes to on average, and never more than what so many of so many say
// (Laplace's rule of succession).
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

// withSampleTotals is op with the record of all samples: what they cost together, and how
// many agree.
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
	model.PromptTokens = sumSamples(all, func(a *Asked) *int { return a.PromptTokens })
	model.CompletionTokens = sumSamples(all, func(a *Asked) *int { return a.CompletionTokens })
	model.CachedTokens = sumSamples(all, func(a *Asked) *int { return a.CachedTokens })
	model.CostUSD = sumSamples(all, func(a *Asked) *float64 { return a.CostUSD })
	op.Model = &model
	return op
}

// sumSamples adds up what is known of all samples that made a call; nil when of one it is
// not known.
func sumSamples[N int | float64](all []Opinion, of func(*Asked) *N) *N {
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
