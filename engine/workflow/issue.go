package workflow

import (
	"fmt"
	"slices"
	"strings"
)

// Severity of an Issue.
type Severity string

// Errors block define and load; warnings are returned with the definition.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Issue is one thing that Parse or Lint found wrong.
type Issue struct {
	// Rule is a stable id such as "unknown-target".
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// Path is a JSON pointer into the definition, Line 1-based (0 when unknown).
	Path    string `json:"path"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// String is the issue on one line: where, what, and the rule in brackets.
func (i Issue) String() string {
	var b strings.Builder
	if i.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", i.Line)
	}
	if i.Path != "" {
		b.WriteString(i.Path)
		b.WriteString(": ")
	}
	fmt.Fprintf(&b, "%s [%s]", i.Message, i.Rule)
	return b.String()
}

// ParseError is a document that is not a definition, with everything wrong in it.
type ParseError struct {
	// Source is the document's name as given to Parse.
	Source string
	// Issues are in the order of their lines; at least one.
	Issues []Issue
}

// Error lists every issue, one per line when there are several.
func (e *ParseError) Error() string {
	var b strings.Builder
	if e.Source != "" {
		b.WriteString(e.Source)
		b.WriteString(": ")
	}
	if len(e.Issues) != 1 {
		fmt.Fprintf(&b, "%d problems:\n  ", len(e.Issues))
	}
	for n, i := range e.Issues {
		if n > 0 {
			b.WriteString("\n  ")
		}
		b.WriteString(i.String())
	}
	return b.String()
}

// sortIssues orders by line, then as found.
func sortIssues(issues []Issue) {
	slices.SortStableFunc(issues, func(a, b Issue) int { return a.Line - b.Line })
}
