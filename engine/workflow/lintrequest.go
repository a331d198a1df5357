package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/gavel-mcp/gavel/validators/script"
)

// LintRequest asks another process to parse and lint a stranger's definition: Encode
// gives the request, AnswerLintRequest answers it there, ParseAnswer checks the answer.
type LintRequest struct {
	// Source and Document are those of Parse.
	Source   string `json:"source"`
	Document []byte `json:"document"`
	// Bounds must be kept.
	Bounds Bounds `json:"bounds"`
	// Models and Sources are those of LintOptions.
	Models  []string `json:"models"`
	Sources []string `json:"sources"`
}

// lintAnswer answers a LintRequest: the definition as compact JSON, unless it does not
// parse, and what is wrong with it. Nothing was compiled.
type lintAnswer struct {
	Document json.RawMessage `json:"document,omitempty"`
	Lines    map[string]int  `json:"lines,omitempty"`
	Issues   []Issue         `json:"issues,omitempty"`
}

// Encode returns the request for AnswerLintRequest.
func (r LintRequest) Encode() ([]byte, error) { return json.Marshal(r) }

// AnswerLintRequest runs in a sandbox's worker: a hostile document may cost any time and
// memory.
func AnswerLintRequest(request []byte) []byte {
	answer, err := json.Marshal(answerRequest(request))
	if err != nil {
		panic(err) // only strings and numbers: the worker's end is the answer
	}
	return answer
}

func answerRequest(request []byte) lintAnswer {
	var r LintRequest
	if err := json.Unmarshal(request, &r); err != nil {
		return lintAnswer{Issues: []Issue{{Rule: "syntax", Severity: SeverityError, Message: "unreadable lint request"}}}
	}
	d, err := Parse(r.Source, r.Document)
	if pe := (*ParseError)(nil); errors.As(err, &pe) {
		return lintAnswer{Issues: pe.Issues}
	}
	if issues := d.CheckBounds(r.Bounds); len(issues) > 0 {
		return lintAnswer{Issues: issues}
	}
	issues, err := d.lintProblems(context.Background(), LintOptions{Models: r.Models, Sources: r.Sources}, nil)
	if err != nil {
		issues = []Issue{{Rule: "size", Severity: SeverityError, Message: err.Error()}}
	}
	return lintAnswer{Document: d.Document, Lines: d.lines, Issues: issues}
}

// ParseAnswer returns the definition, nil when it does not parse, with the issues of Lint
// found without compiling. The answer is not trusted: the definition is parsed again and
// held to the bounds, and issues of unknown rules are dropped. The error means that it is
// not an answer.
func (r LintRequest) ParseAnswer(answer []byte) (*Definition, []Issue, error) {
	var from lintAnswer
	if err := json.Unmarshal(answer, &from); err != nil {
		return nil, nil, fmt.Errorf("unreadable answer to a lint request: %w", err)
	}
	issues := filterIssues(from.Issues)
	if len(from.Document) == 0 {
		if len(issues) == 0 {
			return nil, nil, errors.New("the answer to a lint request holds neither a definition nor issues")
		}
		return nil, issues, nil
	}
	d, err := Parse("definition.json", from.Document)
	if err != nil {
		return nil, nil, fmt.Errorf("the answer to a lint request holds an invalid definition: %w", err)
	}
	if exceeded := d.CheckBounds(r.Bounds); len(exceeded) > 0 {
		return nil, exceeded, nil
	}
	maps.DeleteFunc(from.Lines, func(path string, line int) bool { return line < 1 })
	d.lines = from.Lines
	return d, issues, nil
}

// filterIssues keeps the issues of known rules, cut to what is shown.
func filterIssues(issues []Issue) []Issue {
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
			Rule: i.Rule, Severity: severity, Path: script.Clean(i.Path, maxPath), Line: max(i.Line, 0), Message: script.Clean(i.Message, maxMessage),
		})
	}
	return out
}

// maxMessage is how long a message of another process may be, in bytes.
const maxMessage = 4 << 10

// FinishLint is Lint for a definition from ParseAnswer: it compiles schemas and scripts
// and adds their issues to the known ones.
func (d *Definition) FinishLint(ctx context.Context, o LintOptions, known []Issue) ([]Issue, error) {
	problems, err := d.compile(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("lint workflow %q: %w", d.Name, err)
	}
	rules := listCompileRules()
	s := &linter{Definition: d, problems: problems, issues: known, ended: ctx.Err}
	return s.runRules(ctx, rules[:])
}
