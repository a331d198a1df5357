package eval

import (
	"fmt"
	"strings"
)

// Status is the overall result of a run.
type Status string

// The statuses. If several apply, the first one in this list counts.
const (
	StatusNotEvaluated Status = "not_evaluated" // too much is missing for the figures to be meaningful
	StatusGateFailed   Status = "gate_failed"
	StatusRegression   Status = "regression" // significantly worse than the baseline
	StatusIncomplete   Status = "incomplete" // some cases have no outcome
	StatusPassed       Status = "passed"
)

// Conclusion is the last line of a report: whether the run passed, and which gates held.
type Conclusion struct {
	Status Status `json:"status"`
	Says   string `json:"says"` // begins with PASSED or FAILED
}

// Conclude summarises a run.
func (m Measurement) Conclude() Conclusion {
	failed := func(s Status, format string, args ...any) Conclusion {
		return Conclusion{s, "FAILED: " + fmt.Sprintf(format, args...)}
	}
	gates, broken := m.describeGates()
	switch b, c := m.Baseline, m.Report.Counts; {
	case !m.Report.Evaluated:
		return failed(StatusNotEvaluated, "not evaluated: %s", m.Report.NotEvaluated)
	case b != nil && !b.Compared:
		return failed(StatusNotEvaluated, "%s", b.Says)
	case broken:
		return failed(StatusGateFailed, "%s", gates)
	case b != nil && b.Regression:
		return failed(StatusRegression, "%s; %s", b.Says, gates)
	case m.Report.Incomplete:
		return failed(StatusIncomplete, "incomplete: %d of %d results have no outcome, and %d cases no result; %s", c.FailedResults, c.Results, c.Missing, gates)
	}
	if m.Baseline != nil {
		gates += "; " + m.Baseline.Says
	}
	return Conclusion{StatusPassed, "PASSED: " + gates}
}

func (m Measurement) describeGates() (says string, broken bool) {
	var names []string
	for _, g := range m.Gates {
		if !g.Passed {
			names = append(names, OneLine(g.Name))
		}
	}
	switch n := len(m.Gates); {
	case n == 0:
		return "no gate was given (--gates FILE)", false
	case len(names) > 0:
		return fmt.Sprintf("%d of %d gates do not hold: %s", len(names), n, strings.Join(names, ", ")), true
	case n == 1:
		return "the gate holds", false
	default:
		return fmt.Sprintf("all %d gates hold", n), false
	}
}
