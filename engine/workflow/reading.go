package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/gavel-mcp/gavel/validators/script"
)

// Reading is a definition that a stranger brought, to be parsed and linted in another
// process: Request goes there, Read answers it there, and Parsed takes the answer.
type Reading struct {
	// Source and Document are those of Parse.
	Source   string `json:"source"`
	Document []byte `json:"document"`
	// Bounds must be kept.
	Bounds Bounds `json:"bounds"`
	// Models and Sources are those of LintOptions.
	Models  []string `json:"models"`
	Sources []string `json:"sources"`
}

// report is the answer to a Reading: the definition as compact JSON, unless it does not
// parse, and what is wrong with it. Nothing was compiled.
type report struct {
	Document json.RawMessage `json:"document,omitempty"`
	Lines    map[string]int  `json:"lines,omitempty"`
	Issues   []Issue         `json:"issues,omitempty"`
}

// Request is the question as it travels.
func (r Reading) Request() ([]byte, error) { return json.Marshal(r) }

// Read answers a Request. It is what a sandbox's worker runs; it takes what time and
// memory the document costs, and any of it may be hostile.
func Read(request []byte) []byte {
	answer, err := json.Marshal(answerReading(request))
	if err != nil {
		panic(err) // only strings and numbers: the worker's end is the answer
	}
	return answer
}

func answerReading(request []byte) report {
	var r Reading
	if err := json.Unmarshal(request, &r); err != nil {
		return report{Issues: []Issue{{Rule: "syntax", Severity: SeverityError, Message: "the request is not readable"}}}
	}
	d, err := Parse(r.Source, r.Document)
	if pe := (*ParseError)(nil); errors.As(err, &pe) {
		return report{Issues: pe.Issues}
	}
	if issues := d.Exceeded(r.Bounds); len(issues) > 0 {
		return report{Issues: issues}
	}
	issues, err := d.lint(context.Background(), LintOptions{Models: r.Models, Sources: r.Sources}, nil)
	if err != nil {
		issues = []Issue{{Rule: "size", Severity: SeverityError, Message: err.Error()}}
	}
	return report{Document: d.Document, Lines: d.lines, Issues: issues}
}

// Parsed takes the answer to a Request: the definition, nil when it does not parse, with
// what Lint said without compiling anything. The answer may be a lie: the definition is
// read anew from JSON and held to the bounds, and issues are only those that there can be.
// The error says that it is no answer.
func (r Reading) Parsed(answer []byte) (*Definition, []Issue, error) {
	var from report
	if err := json.Unmarshal(answer, &from); err != nil {
		return nil, nil, fmt.Errorf("the answer about a definition is not readable: %w", err)
	}
	issues := knownIssues(from.Issues)
	if len(from.Document) == 0 {
		if len(issues) == 0 {
			return nil, nil, errors.New("the answer about a definition has neither the definition nor what is wrong with it")
		}
		return nil, issues, nil
	}
	d, err := Parse("definition.json", from.Document)
	if err != nil {
		return nil, nil, fmt.Errorf("the answer about a definition holds another: %w", err)
	}
	if exceeded := d.Exceeded(r.Bounds); len(exceeded) > 0 {
		return nil, exceeded, nil
	}
	maps.DeleteFunc(from.Lines, func(path string, line int) bool { return line < 1 })
	d.lines = from.Lines
	return d, issues, nil
}

// knownIssues are those issues that a rule can give, cut to what is shown.
func knownIssues(issues []Issue) []Issue {
	rules := map[string]Severity{}
	for _, r := range Rules() {
		rules[r.ID] = r.Severity
	}
	var out []Issue
	for _, i := range issues[:min(len(issues), (maxIssues+1)*len(rules))] {
		severity, ok := rules[i.Rule]
		if !ok {
			continue
		}
		out = append(out, Issue{
			Rule: i.Rule, Severity: severity, Path: script.Clean(i.Path, longestPath), Line: max(i.Line, 0), Message: script.Clean(i.Message, longestMessage),
		})
	}
	return out
}

// longestMessage is how long a message of another process may be, in bytes.
const longestMessage = 4 << 10

// LintParsed is Lint for a definition of Parsed: it compiles what is in it, and adds the
// issues that are known.
func (d *Definition) LintParsed(ctx context.Context, o LintOptions, known []Issue) ([]Issue, error) {
	problems, err := d.compile(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("lint workflow %q: %w", d.Name, err)
	}
	rules := compileRules()
	s := &subject{Definition: d, problems: problems, issues: known, ended: ctx.Err}
	return s.lint(ctx, rules[:])
}
