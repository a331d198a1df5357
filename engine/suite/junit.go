package suite

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// The elements of a JUnit report, as continuous integration reads it.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		File     string      `xml:"file,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		ClassName string        `xml:"classname,attr"`
		File      string        `xml:"file,attr"`
		Line      int           `xml:"line,attr"`
		Time      string        `xml:"time,attr"`
		Failure   *junitFailure `xml:"failure,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes reports as JUnit XML. With least above 0, which is a percentage, each
// suite ends with a case of its own that fails when fewer of the transitions were made.
func WriteJUnit(w io.Writer, reports []Report, least float64) error {
	var all junitSuites
	var total time.Duration
	for _, r := range reports {
		s := junitSuite{Name: xmlText(r.Workflow), File: xmlText(r.Path), Tests: len(r.Tests), Failures: r.Failed()}
		var took time.Duration
		for _, t := range r.Tests {
			took += t.Took
			c := junitCase{Name: xmlText(t.Name), ClassName: xmlText(r.Workflow), File: xmlText(r.Path), Line: t.Line, Time: formatSeconds(t.Took)}
			if len(t.Problems) > 0 {
				var b strings.Builder
				for _, p := range t.Problems {
					fmt.Fprintf(&b, "%s:%d: %s: %s\n", r.Path, p.Line, p.Step, p.Message)
				}
				c.Failure = &junitFailure{Message: xmlText(t.Problems[0].Message), Text: xmlText(b.String())}
			}
			s.Cases = append(s.Cases, c)
		}
		if least > 0 {
			s.addCoverage(r, least)
		}
		s.Time = formatSeconds(took)
		total += took
		all.Tests += s.Tests
		all.Failures += s.Failures
		all.Suites = append(all.Suites, s)
	}
	all.Time = formatSeconds(total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// addCoverage adds what the coverage is held against.
func (s *junitSuite) addCoverage(r Report, least float64) {
	c := junitCase{Name: "coverage", ClassName: s.Name, File: s.File, Line: 1, Time: formatSeconds(0)}
	s.Tests++
	if made := r.Coverage.Transitions; made.Percent() < least {
		s.Failures++
		c.Failure = &junitFailure{
			Message: fmt.Sprintf("%.0f %% of the transitions were made, %v %% are asked for", made.Percent(), least),
			Text:    xmlText("not made: " + strings.Join(made.Missing, ", ")),
		}
	}
	s.Cases = append(s.Cases, c)
}

func formatSeconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// xmlText leaves out what XML cannot hold.
func xmlText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r >= ' ' && r != '\uFFFE' && r != '\uFFFF' {
			return r
		}
		return -1
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
