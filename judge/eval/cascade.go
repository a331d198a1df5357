package eval

import (
	"fmt"

	"github.com/gavel-mcp/gavel/judge"
)

// CascadeTuning compares a cascade of two models with the second model alone: the savings and the risk. It uses the
// cases of the split test whose groups did not take part in choosing the threshold.
type CascadeTuning struct {
	// First certifies the threshold of the model that is asked first. Only its calibrated approvals can decide.
	First Tuning `json:"first"`
	// Decided is the share of the questions that the first model decides. Wrong is the rate of wrong ones among these
	// approvals.
	Decided Rate `json:"decided"`
	Wrong   Rate `json:"wrong"`
	// Together is the rate of wrong ones among the approvals of the cascade, Alone among those of the second model
	// without it.
	Together Rate `json:"together"`
	Alone    Rate `json:"alone"`
	// CostUSD is the cost of the cascade, AloneUSD that of the second model alone; nil if a cost is unknown. Saved is
	// the share of AloneUSD that the cascade saves, below 0 if it costs more.
	CostUSD  *float64 `json:"costUSD,omitempty"`
	AloneUSD *float64 `json:"aloneUSD,omitempty"`
	Saved    *float64 `json:"saved,omitempty"`
}

// TuneCascade tunes the threshold (acceptAbove) of a model that is asked first, and compares the cascade with the
// second model alone. Both results must come from runs over the same cases.
func TuneCascade(cases []Case, first, second []Result, target float64, o Options) (CascadeTuning, error) {
	calibrated := make([]Result, len(first))
	for i, r := range first {
		if calibrated[i] = r; r.Approval != nil && leansToApprove(&r) && r.Assurance != judge.AssuranceLLMCalibrated {
			calibrated[i].Approval = nil // it decides nothing
		}
	}
	tuned, err := Tune(cases, calibrated, target, o)
	t := CascadeTuning{First: tuned}
	if err != nil {
		return t, err
	}
	if tuned.Chosen == nil {
		t.First.Says = "not certifiable: the first model has no calibrated approval on the split cal, so it would decide nothing; run it again with --llm-calibration"
		return t, nil
	}
	o = o.withDefaults()
	o.Splits = []Split{Test}
	unseen, _ := dropSeen(cases)
	after := map[string]row{}
	key := func(r *Result) string { return fmt.Sprint(r.Repeat, " ", r.Case) }
	for _, w := range joinResults(unseen, second, o).rows {
		after[key(w.r)] = w
	}
	var decided, wrong, together, alone tally
	cost, aloneCost := bill{}, bill{}
	for _, w := range joinResults(unseen, calibrated, o).rows {
		then, ok := after[key(w.r)]
		if !ok || w.r.Calls == 0 && then.r.Calls == 0 {
			continue // no model was asked
		}
		accepts := w.r.Approval != nil && leansToApprove(w.r) && *w.r.Approval >= *tuned.Chosen
		decided.add(w.group, accepts)
		cost.add(w.r)
		aloneCost.add(then.r)
		approves := then.got == judge.Approve
		if approves {
			alone.add(w.group, w.mustNot())
		}
		if accepts {
			wrong.add(w.group, w.mustNot())
		} else {
			cost.add(then.r)
		}
		if accepts || approves {
			together.add(w.group, w.mustNot())
		}
	}
	t.Decided, t.Wrong, t.Together, t.Alone = decided.rate(o.Confidence), wrong.rate(o.Confidence), together.rate(o.Confidence), alone.rate(o.Confidence)
	t.CostUSD, t.AloneUSD = cost.total(), aloneCost.total()
	if t.CostUSD != nil && t.AloneUSD != nil {
		t.Saved = ratioOf(*t.AloneUSD-*t.CostUSD, *t.AloneUSD)
	}
	return t, nil
}

// bill adds up costs. If one is unknown, so is the sum.
type bill struct {
	usd     float64
	unknown bool
}

func (b *bill) add(r *Result) {
	switch {
	case r.CostUSD != nil:
		b.usd += *r.CostUSD
	case r.Calls > 0:
		b.unknown = true
	}
}

func (b bill) total() *float64 {
	if b.unknown {
		return nil
	}
	return &b.usd
}
