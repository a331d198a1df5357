package eval

import (
	"fmt"

	"github.com/gavel-mcp/gavel/judge"
)

// CascadeTuning is what asking one model before another saves, and what it risks, on cases of the
// split test in groups that the threshold was not chosen on.
type CascadeTuning struct {
	// First certifies the threshold of the model that is asked first, on its calibrated approvals:
	// other answers decide nothing.
	First Tuning `json:"first"`
	// Decided is the share of the questions that it decides, Wrong how many of these approvals are
	// wrong.
	Decided Rate `json:"decided"`
	Wrong   Rate `json:"wrong"`
	// Together and Alone are the wrong ones among the approvals of the cascade, and of the second
	// model without it.
	Together Rate `json:"together"`
	Alone    Rate `json:"alone"`
	// CostUSD is what the cascade costs, AloneUSD the second model alone; nil when a cost is
	// unknown. Saved is the share that is saved, below 0 where it costs more.
	CostUSD  *float64 `json:"costUSD,omitempty"`
	AloneUSD *float64 `json:"aloneUSD,omitempty"`
	Saved    *float64 `json:"saved,omitempty"`
}

// TuneCascade tunes the threshold (acceptAbove) of a model asked first, and compares the cascade
// with the second model alone. The results are of runs over the same cases.
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

// bill adds up costs; one that is unknown makes the sum so.
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
