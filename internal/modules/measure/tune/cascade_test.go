package tune

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

// A first model that approves half of the cases, calibrated at 0.97, before one that approves exactly the right
// cases. Worked by hand: 200 cases in each split, in groups of two, half of them to be approved.
func TestTuneCascade(t *testing.T) {
	t.Parallel()
	build := func(wrong int, assurance judge.Assurance) (cases []eval.Case, first, second []eval.Result) {
		cheap, dear := 0.001, 0.01
		for _, split := range []eval.Split{eval.Cal, eval.Test} {
			for i := range 200 {
				id := fmt.Sprintf("%s-%03d", split, i)
				expect := judge.Approve
				if i%2 == 1 {
					expect = judge.Reject
				}
				cases = append(cases, eval.Case{ID: id, Group: fmt.Sprintf("%s-%03d", split, i/2), Split: split, Expect: eval.Expect{Outcome: expect}})
				says := func(approve bool, c float64, a judge.Assurance, cost *float64) eval.Result {
					r := eval.Result{Case: id, Outcome: judge.Reject, Confidence: c, Assurance: a, Calls: 1, CostUSD: cost}
					approval := 1 - c
					if approve {
						r.Outcome, approval = judge.Approve, c
					}
					r.Approval = &approval
					return r
				}
				fooled := split == eval.Test && i%2 == 1 && i < 2*wrong
				sure := 0.97
				if split == eval.Test && i%2 == 1 && i > 150 { // it approves some cases wrongly, but with low confidence, so they decide nothing
					fooled, sure = true, 0.6
				}
				first = append(first, says(i%2 == 0 || fooled, sure, assurance, &cheap))
				second = append(second, says(i%2 == 0, 0.8, judge.AssuranceLLM, &dear))
			}
		}
		return cases, first, second
	}
	cases, first, second := build(0, judge.AssuranceLLMCalibrated)
	got, err := CompareCascade(cases, first, second, 0.05, eval.Options{})
	if err != nil || got.First.Status != Certified || *got.First.Threshold != 0.97 {
		t.Fatalf("%v %+v", err, got.First)
	}
	if d := got.Decided; d.K != 100 || d.N != 200 || got.Wrong.K != 0 || got.Wrong.N != 100 || got.Wrong.Draws != 100 || got.Together.N != 100 || got.Alone.N != 100 {
		t.Errorf("%+v", got)
	}
	near(t, "cascade", *got.CostUSD, 200*0.001+100*0.01, 1e-9)
	near(t, "alone", *got.AloneUSD, 200*0.01, 1e-9)
	near(t, "saved", *got.Saved, 0.4, 1e-9)
	if text := got.Text(func(rows [][]string) string { return fmt.Sprint(rows) }); !strings.Contains(text, "50.0 %") || !strings.Contains(text, "40.0 %") {
		t.Error(text)
	}

	cases, first, second = build(20, judge.AssuranceLLMCalibrated)
	got, err = CompareCascade(cases, first, second, 0.05, eval.Options{})
	if err != nil || got.First.Status != Infeasible || got.Wrong.K != 20 || got.Together.K != 20 || got.Alone.K != 0 || got.Decided.K != 120 {
		t.Errorf("%v %+v", err, got)
	}
	cases, first, second = build(0, judge.AssuranceLLM)
	if got, err = CompareCascade(cases, first, second, 0.05, eval.Options{}); err != nil || got.First.Status != NotCertifiable || !strings.Contains(got.First.Says, "--llm-calibration") {
		t.Errorf("%v %+v", err, got)
	}
	cases, first, second = build(0, judge.AssuranceLLMCalibrated)
	second[250].CostUSD = nil
	if got, err = CompareCascade(cases, first, second, 0.05, eval.Options{}); err != nil || got.AloneUSD != nil || got.Saved != nil {
		t.Errorf("%v %+v", err, got)
	}
}
