package eval

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/gavel-mcp/gavel/internal/junit"
	"github.com/gavel-mcp/gavel/judge"
)

// JUnit writes a report for a build server: a suite of the gates and one of the cases. A wrong outcome is a failure,
// and a case without an outcome is an error. A case that was escalated to a person unnecessarily is skipped.
func JUnit(w io.Writer, m Measurement) error {
	return junit.Write(w, junit.Report{Suites: m.junitSuites("")})
}

// junitSuites returns the suites of a run; cell is a prefix of their names.
func (m Measurement) junitSuites(cell string) []junit.Suite {
	gates, cases := junit.Suite{Name: cell + "gates"}, junit.Suite{Name: cell + "cases"}
	addGate := func(name string, passed bool, says string) {
		c := junit.Case{Name: visibleText(name), Class: cell + "gates"}
		if !passed {
			c.Failure = &junit.Words{Message: visibleText(says)}
		}
		gates.Cases = append(gates.Cases, c)
	}
	for _, g := range m.Gates {
		addGate(g.Name, g.Passed, g.Says)
	}
	if b := m.Baseline; b != nil {
		addGate("baseline", !b.Regression, b.Says)
	}
	first := firstResults(m.Results)
	for _, c := range m.Cases {
		if m.Report.Options.includesSplit(c.Split) {
			one := junitCaseOf(c, first[c.ID])
			one.Class = cell + one.Class
			cases.Cases = append(cases.Cases, one)
		}
	}
	return []junit.Suite{gates, cases}
}

// firstResults returns the first repeat of each case that did not fail.
func firstResults(results []Result) map[string]*Result {
	first := make(map[string]*Result, len(results))
	for i := range results {
		r := &results[i]
		if old := first[r.Case]; old == nil || isFailed(old) && !isFailed(r) || isFailed(old) == isFailed(r) && r.Repeat < old.Repeat {
			first[r.Case] = r
		}
	}
	return first
}

func junitCaseOf(c Case, r *Result) junit.Case {
	out := junit.Case{Name: visibleText(c.ID), Class: visibleText(workflowOf(&c) + "." + c.State + "." + c.Action)}
	if r == nil {
		out.Error = &junit.Words{Message: "there is no result"}
		return out
	}
	out.Time = fmt.Sprintf("%.6f", r.Took.Duration().Seconds())
	words := &junit.Words{Text: visibleText(r.Reasoning)}
	switch {
	case isFailed(r):
		words.Message, out.Error = visibleText(r.Failure), words
	case r.Outcome == c.Expect.Outcome:
	case r.Outcome == judge.Escalate:
		words.Message, out.Skipped = "left to a person; right is "+string(c.Expect.Outcome), words
	default:
		words.Message, out.Failure = fmt.Sprintf("%s; right is %s", r.Outcome, c.Expect.Outcome), words
	}
	return out
}

// visibleText removes what XML cannot hold and what hides or reorders text.
func visibleText(s string) string {
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
