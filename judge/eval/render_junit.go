package eval

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"unicode"

	"github.com/gavel-mcp/gavel/judge"
)

type junitCount struct{ tests, failures, errors, skipped int }

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
//
// Cases are written one by one: they are counted first, since the head says how many.
func JUnit(w io.Writer, m Measurement) error {
	suites := []struct {
		name  string
		cases iter.Seq[junitCase]
	}{{"gates", m.junitGates()}, {"cases", m.junitCases()}}
	counts, all := make([]junitCount, len(suites)), junitCount{}
	for i, s := range suites {
		for c := range s.cases {
			counts[i].add(c)
			all.add(c)
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return fmt.Errorf("eval: write the report: %w", err)
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", " ")
	root := all.start("testsuites", "")
	err := enc.EncodeToken(root)
	for i, s := range suites {
		head := counts[i].start("testsuite", s.name)
		err = errors.Join(err, enc.EncodeToken(head))
		for c := range s.cases {
			if err == nil {
				err = enc.EncodeElement(c, xml.StartElement{Name: xml.Name{Local: "testcase"}})
			}
		}
		err = errors.Join(err, enc.EncodeToken(head.End()))
	}
	if err = errors.Join(err, enc.EncodeToken(root.End()), enc.Flush()); err != nil {
		return fmt.Errorf("eval: write the report: %w", err)
	}
	return writeText(w, "\n")
}

func (m Measurement) junitGates() iter.Seq[junitCase] {
	return func(yield func(junitCase) bool) {
		for _, g := range m.Gates {
			c := junitCase{Name: visibleText(g.Name), Class: "gates"}
			if !g.Passed {
				c.Failure = &junitWords{Message: visibleText(g.Says)}
			}
			if !yield(c) {
				return
			}
		}
		if b := m.Baseline; b != nil {
			c := junitCase{Name: "baseline", Class: "gates"}
			if b.Regression {
				c.Failure = &junitWords{Message: visibleText(b.Says)}
			}
			yield(c)
		}
	}
}

func (m Measurement) junitCases() iter.Seq[junitCase] {
	first := firstResults(m.Results)
	return func(yield func(junitCase) bool) {
		for _, c := range m.Cases {
			if m.Report.Options.includesSplit(c.Split) && !yield(junitCaseOf(c, first[c.ID])) {
				return
			}
		}
	}
}

// firstResults picks the first repeat of each case that did not fail.
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

func junitCaseOf(c Case, r *Result) junitCase {
	out := junitCase{Name: visibleText(c.ID), Class: visibleText(workflowOf(&c) + "." + c.State + "." + c.Action)}
	if r == nil {
		out.Error = &junitWords{Message: "there is no result"}
		return out
	}
	out.Time = fmt.Sprintf("%.6f", r.Took.Seconds())
	words := &junitWords{Text: visibleText(r.Reasoning)}
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

func (n *junitCount) add(c junitCase) {
	n.tests++
	switch {
	case c.Failure != nil:
		n.failures++
	case c.Error != nil:
		n.errors++
	case c.Skipped != nil:
		n.skipped++
	}
}

func (n *junitCount) start(element, name string) xml.StartElement {
	e := xml.StartElement{Name: xml.Name{Local: element}}
	attr := func(key, value string) {
		e.Attr = append(e.Attr, xml.Attr{Name: xml.Name{Local: key}, Value: value})
	}
	if name != "" {
		attr("name", name)
	}
	attr("tests", strconv.Itoa(n.tests))
	attr("failures", strconv.Itoa(n.failures))
	attr("errors", strconv.Itoa(n.errors))
	attr("skipped", strconv.Itoa(n.skipped))
	return e
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
