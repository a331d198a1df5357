package eval

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/gavel-mcp/gavel/judge"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string      `xml:"name,attr"`
	Class   string      `xml:"classname,attr"`
	Time    string      `xml:"time,attr,omitempty"`
	Failure *junitWords `xml:"failure"`
	Error   *junitWords `xml:"error"`
	Skipped *junitWords `xml:"skipped"`
}

type junitWords struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes a report for a build server: a suite of the gates and one of the cases.
// A wrong outcome is a failure, a case of which nothing is known an error, and one that
// was left to a person although it needed none is skipped.
func JUnit(w io.Writer, m Measurement) error {
	gates, cases := junitSuite{Name: "gates"}, junitSuite{Name: "cases"}
	for _, g := range m.Gates {
		c := junitCase{Name: visible(g.Name), Class: "gates"}
		if !g.Passed {
			c.Failure = &junitWords{Message: visible(g.Says)}
		}
		gates.add(c)
	}
	if b := m.Baseline; b != nil {
		c := junitCase{Name: "baseline", Class: "gates"}
		if b.Regression {
			c.Failure = &junitWords{Message: visible(b.Says)}
		}
		gates.add(c)
	}
	first := firstResults(m.Results)
	for _, c := range m.Cases {
		if !m.Report.Options.takes(c.Split) {
			continue
		}
		cases.add(junitCaseOf(c, first[c.ID]))
	}
	all := junitSuites{}
	for _, s := range []junitSuite{gates, cases} {
		all.Tests, all.Failures, all.Errors, all.Skipped = all.Tests+s.Tests, all.Failures+s.Failures, all.Errors+s.Errors, all.Skipped+s.Skipped
		all.Suites = append(all.Suites, s)
	}
	out, err := xml.MarshalIndent(all, "", " ")
	if err != nil {
		return fmt.Errorf("eval: write the report: %w", err)
	}
	return written(w, xml.Header+string(out)+"\n")
}

// firstResults are what stands for each case: the first repeat that did not fail.
func firstResults(results []Result) map[string]*Result {
	first := make(map[string]*Result, len(results))
	for i := range results {
		r := &results[i]
		if old := first[r.Case]; old == nil || failed(old) && !failed(r) || failed(old) == failed(r) && r.Repeat < old.Repeat {
			first[r.Case] = r
		}
	}
	return first
}

func junitCaseOf(c Case, r *Result) junitCase {
	out := junitCase{Name: visible(c.ID), Class: visible(workflowOf(&c) + "." + c.State + "." + c.Action)}
	if r == nil {
		out.Error = &junitWords{Message: "there is no result"}
		return out
	}
	out.Time = fmt.Sprintf("%.6f", r.Took.Seconds())
	words := &junitWords{Text: visible(r.Reasoning)}
	switch {
	case failed(r):
		words.Message, out.Error = visible(r.Failure), words
	case r.Outcome == c.Expect.Outcome:
	case r.Outcome == judge.Escalate:
		words.Message, out.Skipped = "left to a person; right is "+string(c.Expect.Outcome), words
	default:
		words.Message, out.Failure = fmt.Sprintf("%s; right is %s", r.Outcome, c.Expect.Outcome), words
	}
	return out
}

func (s *junitSuite) add(c junitCase) {
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

// visible leaves out what XML cannot hold and what would hide or reorder text.
func visible(s string) string {
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
