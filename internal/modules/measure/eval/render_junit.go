package eval

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/gavel-mcp/gavel/internal/junit"
	"github.com/gavel-mcp/gavel/judge"
)

// JUnit writes a report for a build server: for each run a suite of the gates and one of the cases. A wrong outcome is
// a failure, and a case without an outcome is an error. A case that was escalated to a person unnecessarily is skipped.
func JUnit(w io.Writer, runs ...Cell) error {
	var r junit.Report
	for _, c := range runs {
		name := ""
		if c.Name != "" {
			name = VisibleText(c.Name) + ": "
		}
		r.Suites = append(r.Suites, c.Run.junitSuites(name)...)
	}
	return junit.Write(w, r)
}

// junitSuites returns the suites of a run; cell is a prefix of their names.
func (m Measurement) junitSuites(cell string) []junit.Suite {
	gates, cases := junit.Suite{Name: cell + "gates"}, junit.Suite{Name: cell + "cases"}
	addGate := func(name string, passed bool, says string) {
		c := junit.Case{Name: VisibleText(name), Class: cell + "gates"}
		if !passed {
			c.Failure = &junit.Words{Message: VisibleText(says)}
		}
		gates.Cases = append(gates.Cases, c)
	}
	for _, g := range m.Gates {
		addGate(g.Name, g.Passed, g.Says)
	}
	if b := m.Baseline; b != nil {
		addGate("baseline", !b.Regression, b.Says)
	}
	first := FirstResults(m.Results)
	for _, c := range m.Cases {
		if m.Report.Options.IncludesSplit(c.Split) {
			one := junitCaseOf(c, first[c.ID])
			one.Class = cell + one.Class
			cases.Cases = append(cases.Cases, one)
		}
	}
	return []junit.Suite{gates, cases}
}

// FirstResults returns the first repeat of each case that did not fail.
func FirstResults(results []Result) map[string]*Result {
	first := make(map[string]*Result, len(results))
	for i := range results {
		r := &results[i]
		if old := first[r.Case]; old == nil || IsFailed(old) && !IsFailed(r) || IsFailed(old) == IsFailed(r) && r.Repeat < old.Repeat {
			first[r.Case] = r
		}
	}
	return first
}

func junitCaseOf(c Case, r *Result) junit.Case {
	out := junit.Case{Name: VisibleText(c.ID), Class: VisibleText(WorkflowOf(&c) + "." + c.State + "." + c.Action)}
	if r == nil {
		out.Error = &junit.Words{Message: "there is no result"}
		return out
	}
	out.Time = fmt.Sprintf("%.6f", r.Took.Duration().Seconds())
	words := &junit.Words{Text: VisibleText(r.Reasoning)}
	switch {
	case IsFailed(r):
		words.Message, out.Error = VisibleText(r.Failure), words
	case r.Outcome == c.Expect.Outcome:
	case r.Outcome == judge.Escalate:
		words.Message, out.Skipped = "left to a person; right is "+string(c.Expect.Outcome), words
	default:
		words.Message, out.Failure = fmt.Sprintf("%s; right is %s", r.Outcome, c.Expect.Outcome), words
	}
	return out
}

// VisibleText removes what XML cannot hold and what hides or reorders text.
func VisibleText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf) || r == 0xFFFE || r == 0xFFFF {
			return -1
		}
		return r
	}, s)
}
