// Package suite runs users' tests of their workflows: given a start context, these actions with these
// data must lead to these decisions and states.
//
// It promises:
//
//   - A test passes exactly when the real engine, with the real layers, gives the expected results.
//   - A key that is not understood is an error.
//   - The reported coverage is that of the real run.
//   - Evidence and the model's answer come from the file, so a test uses nothing external.
//
// It must never decide anything itself, and never leave an instance in a shared store: the Opener must
// provide a separate store.
package suite

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/junit"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// MaxFile is the maximum size of a test file in bytes.
const MaxFile = 1 << 20

// File is one file of tests.
type File struct {
	Path string
	// Workflow is the definition's file, relative to the folder of Path.
	Workflow string
	Tests    []Test
}

// Definition returns the path of the workflow's file.
func (f File) Definition() string {
	if filepath.IsAbs(f.Workflow) {
		return f.Workflow
	}
	return filepath.Join(filepath.Dir(f.Path), f.Workflow)
}

// Test is one instance and the steps performed on it.
type Test struct {
	Name string
	Line int
	// Context is the start context. Start is the expected result of the start; nil expects that it is
	// approved.
	Context json.RawMessage
	Start   *Expect
	Who     engine.Principal
	Steps   []Step
}

// Step is one action.
type Step struct {
	Line   int
	Action string
	Data   json.RawMessage
	Who    engine.Principal // zero: the test's principal
	// Evidence by name; null, or an absent name, means unavailable.
	Evidence map[string]json.RawMessage
	// Model is the model's answer, nil if no model is configured.
	Model *Model
	// Precheck validates the action without performing it.
	Precheck bool
	// Review decides the pending review; nil for an action.
	Review *Review
	Expect Expect
}

// name returns a description of the step for messages.
func (s Step) name() string {
	if s.Review != nil {
		return "review"
	}
	return s.Action
}

// Review is a person's decision.
type Review struct {
	By       string
	Decision judge.Outcome // approve or reject
}

// Model is a model's answer, the same for every criterion.
type Model struct {
	Outcome    judge.Outcome // approve, reject, or escalate if it cannot assess
	Confidence float64
	// Unavailable: the model does not answer.
	Unavailable bool
}

// Expect is the expected decision; zero fields are not checked.
type Expect struct {
	Line      int
	Outcome   judge.Outcome
	State     string // after the step
	Complete  *bool
	DecidedBy judge.LayerName
	Assurance judge.Assurance
	// Codes must all be among those of the findings.
	Codes []string
	// Says must appear in the reasoning or a violation.
	Says string
	// Context lists keys of the context after the step, with their values.
	Context json.RawMessage
}

// Parse reads a file of tests in YAML or JSON. The error lists all problems with their lines.
func Parse(path string, doc []byte) (File, error) {
	root, err := document.Parse(path, doc, document.Limits{Bytes: MaxFile})
	if err != nil {
		return File{}, err
	}
	o := document.NewObject(root)
	f := File{Path: path, Workflow: o.String("workflow")}
	o.Require("workflow", "tests")
	_ = o.String("$schema") // for editors
	items := o.Items("tests")
	if n := o.Value("tests"); n != nil && n.Kind == document.Array && len(items) == 0 {
		o.Fail(n, "a test file needs at least one test")
	}
	names := map[string]bool{}
	for _, item := range items {
		t := readTest(o.Sub(item), item.Line)
		if names[t.Name] {
			o.Fail(item, "duplicate test name %q", t.Name)
		}
		names[t.Name] = true
		f.Tests = append(f.Tests, t)
	}
	o.Unknown()
	if err := o.Err(); err != nil {
		return File{}, err
	}
	return f, nil
}

func readTest(o *document.ObjectReader, line int) Test {
	t := Test{Name: o.String("name"), Line: line, Context: readObject(o, "context"), Who: readWho(o)}
	o.Require("name", "steps")
	if o.Has("start") {
		e := readExpect(o.Object("start"), o.Value("start").Line)
		t.Start = &e
	}
	for _, item := range o.Items("steps") {
		t.Steps = append(t.Steps, readStep(o.Sub(item), item.Line))
	}
	o.Unknown()
	return t
}

func readStep(o *document.ObjectReader, line int) Step {
	s := Step{
		Line: line, Action: o.String("action"), Data: readObject(o, "data"), Who: readWho(o),
		Precheck: o.Bool("precheck"), Model: readModel(o), Review: readReview(o),
	}
	switch {
	case s.Review == nil:
		o.Require("action")
	case o.Has("action"):
		o.Fail(o.Value("review"), "a step is either an action or a review; split it into two steps")
	}
	o.Require("expect")
	if o.Has("evidence") {
		s.Evidence = map[string]json.RawMessage{}
	}
	for _, m := range o.Entries("evidence") {
		if m.Value.Kind != document.Null {
			s.Evidence[m.Key] = m.Value.JSON()
		}
	}
	if o.Has("expect") {
		s.Expect = readExpect(o.Object("expect"), o.Value("expect").Line)
	}
	o.Unknown()
	return s
}

// readObject returns a JSON object as it was written, nil if absent.
func readObject(o *document.ObjectReader, key string) json.RawMessage {
	if o.Object(key).Node() == nil {
		return nil
	}
	return o.Raw(key)
}

func readWho(o *document.ObjectReader) engine.Principal {
	role := o.Enum("role", string(engine.RoleAgent), string(engine.RoleReviewer), string(engine.RoleOperator))
	p := engine.Principal{ID: o.String("principal"), Role: engine.Role(role)}
	if p.ID != "" && p.Role == "" {
		p.Role = engine.RoleAgent
	}
	if p.ID == "" && p.Role != "" {
		p.ID = "test:" + role
	}
	return p
}

func readReview(o *document.ObjectReader) *Review {
	if !o.Has("review") {
		return nil
	}
	r := o.Object("review")
	out := &Review{By: r.String("by"), Decision: judge.Outcome(r.Enum("decision", "approve", "reject"))}
	if r.Node() != nil {
		r.Require("by", "decision")
	}
	r.Unknown()
	return out
}

func readModel(o *document.ObjectReader) *Model {
	if !o.Has("model") {
		return nil
	}
	m := o.Object("model")
	out := &Model{Outcome: judge.Outcome(m.Enum("outcome", "approve", "reject", "escalate")), Unavailable: m.Bool("unavailable"), Confidence: 0.95}
	if c := m.FloatPtr("confidence"); c != nil {
		out.Confidence = *c
		if !(*c >= 0 && *c <= 1) {
			m.Fail(m.Value("confidence"), "confidence must be 0 to 1")
		}
	}
	if m.Node() != nil && out.Outcome == "" && !out.Unavailable {
		m.Require("outcome")
	}
	m.Unknown()
	return out
}

func readExpect(o *document.ObjectReader, line int) Expect {
	e := Expect{
		Line: line, Outcome: judge.Outcome(o.Enum("outcome", "approve", "reject", "escalate")), State: o.String("state"),
		Complete: o.BoolPtr("complete"), DecidedBy: judge.LayerName(o.String("decidedBy")), Assurance: judge.Assurance(o.String("assurance")),
		Codes: o.OneOrMore("codes"), Says: o.String("says"), Context: readObject(o, "context"),
	}
	if n := o.Node(); n != nil && len(n.Members) == 0 {
		o.Fail(n, "expect is empty; give at least an outcome or a state")
	}
	o.Unknown()
	return e
}

// WriteJUnit writes reports as JUnit XML. If least, a percentage, is above 0, each suite ends with an
// extra case that fails if fewer of the transitions were made.
func WriteJUnit(w io.Writer, reports []Report, least float64) error {
	var all junit.Report
	var total time.Duration
	for _, r := range reports {
		s := junit.Suite{Name: r.Workflow, File: r.Path}
		var took time.Duration
		for _, t := range r.Tests {
			took += t.Took.Duration()
			c := junit.Case{Name: t.Name, Class: r.Workflow, File: r.Path, Line: t.Line, Time: formatSeconds(t.Took.Duration())}
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

// coverageCase returns the case that compares the coverage with least.
func coverageCase(r Report, least float64) junit.Case {
	c := junit.Case{Name: "coverage", Class: r.Workflow, File: r.Path, Line: 1, Time: formatSeconds(0)}
	if made := r.Coverage.Transitions; made.Percent() < least {
		c.Failure = &junit.Words{
			Message: fmt.Sprintf("%.0f %% of the transitions were made, but %v %% are required", made.Percent(), least),
			Text:    "not made: " + strings.Join(made.Missing, ", "),
		}
	}
	return c
}

func formatSeconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
