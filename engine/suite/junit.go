package suite

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/internal/junit"
)

// WriteJUnit writes reports as JUnit XML. With least above 0, which is a percentage, each
// suite ends with a case of its own that fails when fewer of the transitions were made.
func WriteJUnit(w io.Writer, reports []Report, least float64) error {
	var all junit.Report
	var total time.Duration
	for _, r := range reports {
		s := junit.Suite{Name: r.Workflow, File: r.Path}
		var took time.Duration
		for _, t := range r.Tests {
			took += t.Took
			c := junit.Case{Name: t.Name, Class: r.Workflow, File: r.Path, Line: t.Line, Time: formatSeconds(t.Took)}
			if len(t.Problems) > 0 {
				var b strings.Builder
				for _, p := range t.Problems {
					fmt.Fprintf(&b, "%s:%d: %s: %s\n", r.Path, p.Line, p.Step, p.Message)
				}
				c.Failure = &junit.Words{Message: t.Problems[0].Message, Text: b.String()}
			}
			s.Cases = append(s.Cases, c)
		}
		if least > 0 {
			s.Cases = append(s.Cases, coverageCase(r, least))
		}
		s.Time = formatSeconds(took)
		total += took
		all.Suites = append(all.Suites, s)
	}
	all.Time = formatSeconds(total)
	return junit.Write(w, all)
}

// coverageCase is what the coverage is held against.
func coverageCase(r Report, least float64) junit.Case {
	c := junit.Case{Name: "coverage", Class: r.Workflow, File: r.Path, Line: 1, Time: formatSeconds(0)}
	if made := r.Coverage.Transitions; made.Percent() < least {
		c.Failure = &junit.Words{
			Message: fmt.Sprintf("%.0f %% of the transitions were made, %v %% are asked for", made.Percent(), least),
			Text:    "not made: " + strings.Join(made.Missing, ", "),
		}
	}
	return c
}

func formatSeconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
