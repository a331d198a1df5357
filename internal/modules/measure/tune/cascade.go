package tune

import (
	"fmt"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

// Cascade compares a cascade of two models with the second model alone: the savings and the risk. It uses the
// cases of the split test whose groups did not take part in choosing the threshold.
type Cascade struct {
	// First certifies the threshold of the model that is asked first. Only its calibrated approvals can decide a
	// question.
	First Tuning `json:"first"`
	// Decided is the share of questions that the first model decides. Wrong is the rate of wrong approvals among these
	// decisions.
	Decided eval.Rate `json:"decided"`
	Wrong   eval.Rate `json:"wrong"`
	// Together is the rate of wrong approvals among all approvals of the cascade, Alone that of the second model alone.
	Together eval.Rate `json:"together"`
	Alone    eval.Rate `json:"alone"`
	// CostUSD is the cost of the cascade, AloneUSD that of the second model alone; each is nil if a cost is unknown.
	// Saved is the share of AloneUSD that the cascade saves; it is below 0 if the cascade costs more.
	CostUSD  *float64 `json:"costUSD,omitempty"`
	AloneUSD *float64 `json:"aloneUSD,omitempty"`
	Saved    *float64 `json:"saved,omitempty"`
}

// CompareCascade tunes the threshold (acceptAbove) of a model that is asked first, and compares the cascade with the
// second model alone. Both results must come from runs over the same cases.
func CompareCascade(cases []eval.Case, first, second []eval.Result, target float64, o eval.Options) (Cascade, error) {
	calibrated := make([]eval.Result, len(first))
	for i, r := range first {
		if calibrated[i] = r; r.Approval != nil && eval.LeansToApprove(&r) && r.Assurance != judge.AssuranceLLMCalibrated {
			calibrated[i].Approval = nil // it can decide nothing
		}
	}
	tuned, err := Tune(cases, calibrated, target, o)
	t := Cascade{First: tuned}
	if err != nil {
		return t, err
	}
	if tuned.Chosen == nil {
		t.First.Says = "not certifiable: the first model has no calibrated approval on the split cal, so it would decide nothing; run it again with --llm-calibration"
		return t, nil
	}
	o = o.WithDefaults()
	o.Splits = []eval.Split{eval.Test}
	unseen, _ := eval.DropSeen(cases)
	after := map[string]eval.Row{}
	key := func(r *eval.Result) string { return fmt.Sprint(r.Repeat, " ", r.Case) }
	for _, w := range eval.Join(unseen, second, o).Rows {
		after[key(w.Result)] = w
	}
	accepts := func(w eval.Row) bool {
		return w.Result.Approval != nil && eval.LeansToApprove(w.Result) && *w.Result.Approval >= *tuned.Chosen
	}
	approves := func(w eval.Row) bool { return after[key(w.Result)].Got == judge.Approve }
	cost, aloneCost := bill{}, bill{}
	var asked []eval.Row
	for _, w := range eval.Join(unseen, calibrated, o).Rows {
		then, ok := after[key(w.Result)]
		if !ok || w.Result.Calls == 0 && then.Result.Calls == 0 {
			continue // no model was asked
		}
		asked = append(asked, w)
		cost.add(w.Result)
		aloneCost.add(then.Result)
		if !accepts(w) {
			cost.add(then.Result)
		}
	}
	either := func(w eval.Row) bool { return accepts(w) || approves(w) }
	t.Decided = eval.RateOf(asked, o.Confidence, func(eval.Row) bool { return true }, accepts)
	t.Wrong = eval.RateOf(asked, o.Confidence, accepts, eval.Row.MustNot)
	t.Together = eval.RateOf(asked, o.Confidence, either, eval.Row.MustNot)
	t.Alone = eval.RateOf(asked, o.Confidence, approves, eval.Row.MustNot)
	t.CostUSD, t.AloneUSD = cost.total(), aloneCost.total()
	if t.CostUSD != nil && t.AloneUSD != nil && *t.AloneUSD > 0 {
		t.Saved = new(1 - *t.CostUSD / *t.AloneUSD)
	}
	return t, nil
}

// bill adds up costs. If one cost is unknown, so is the sum.
type bill struct {
	usd     float64
	unknown bool
}

func (b *bill) add(r *eval.Result) {
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

// Text formats the result for a terminal.
func (t Cascade) Text(align eval.Align) string {
	first := t.First.Text(align)
	if t.First.Chosen == nil {
		return first
	}
	usd := func(v *float64) string {
		if v == nil {
			return "unknown: set prices (--llm-for)"
		}
		return fmt.Sprintf("%.4f USD", *v)
	}
	saved := "-"
	if t.Saved != nil {
		saved = eval.FormatPercent(*t.Saved)
	}
	return first + fmt.Sprintf("\nAsked first with acceptAbove %.6g, on test:\n\n", *t.First.Chosen) + align([][]string{
		{"decided by the first", t.Decided.String(), ""},
		{"wrong among these", t.Wrong.String(), "at most " + eval.FormatPercent(t.Wrong.Upper)},
		{"wrong approvals, together", t.Together.String(), "at most " + eval.FormatPercent(t.Together.Upper)},
		{"wrong approvals, second alone", t.Alone.String(), "at most " + eval.FormatPercent(t.Alone.Upper)},
		{"cost, together", usd(t.CostUSD), "saved " + saved},
		{"cost, second alone", usd(t.AloneUSD), ""},
	})
}
