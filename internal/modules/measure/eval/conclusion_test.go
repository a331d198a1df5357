package eval

import (
	"strings"
	"testing"
)

func TestConclude(t *testing.T) {
	held, broken := GateResult{Name: "min_cases", Passed: true}, GateResult{Name: "max_escalation"}
	better, worse := &BaselineResult{Compared: true, Says: "no significant regression"}, &BaselineResult{Compared: true, Regression: true, Says: "regression: 8 new"}
	for _, c := range []struct {
		m      Measurement
		status Status
		says   string
	}{
		{Measurement{Report: Report{Evaluated: true}}, StatusPassed, "PASSED: no gate was given"},
		{Measurement{Report: Report{Evaluated: true}, Gates: []GateResult{held}, Baseline: better}, StatusPassed, "PASSED: the gate holds; no significant regression"},
		{Measurement{Report: Report{Evaluated: true}, Gates: []GateResult{held, held}}, StatusPassed, "PASSED: all 2 gates hold"},
		{Measurement{Report: Report{Evaluated: true}, Gates: []GateResult{held, broken}, Baseline: worse}, StatusGateFailed, "FAILED: 1 of 2 gates do not hold: max_escalation"},
		{Measurement{Report: Report{Evaluated: true}, Gates: []GateResult{held}, Baseline: worse}, StatusRegression, "FAILED: regression: 8 new; the gate holds"},
		{Measurement{Report: Report{Evaluated: true, Incomplete: true, Counts: Counts{FailedResults: 1, Results: 4}}, Gates: []GateResult{held}}, StatusIncomplete, "FAILED: incomplete: 1 of 4 results"},
		{Measurement{Report: Report{NotEvaluated: "there are no cases"}, Gates: []GateResult{broken}}, StatusNotEvaluated, "FAILED: not evaluated: there are no cases"},
		{Measurement{Report: Report{Evaluated: true}, Baseline: &BaselineResult{Says: "not compared"}}, StatusNotEvaluated, "FAILED: not compared"},
	} {
		if got := c.m.Conclude(); got.Status != c.status || !strings.HasPrefix(got.Says, c.says) {
			t.Errorf("got %+v, want %s, %q", got, c.status, c.says)
		}
	}
}
