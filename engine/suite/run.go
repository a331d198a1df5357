package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Opener opens an engine over a new empty store. Its judge uses fetcher for evidence and model as the
// last layer. shut releases the engine.
type Opener func(fetcher judge.Fetcher, model judge.Layer) (e *engine.Engine, shut func() error, err error)

// Report is the result of a file of tests.
type Report struct {
	Path     string       `json:"path"`
	Workflow string       `json:"workflow"`
	Tests    []TestReport `json:"tests"`
	Coverage Coverage     `json:"coverage"`
}

// Failed counts the tests that failed.
func (r Report) Failed() int {
	n := 0
	for _, t := range r.Tests {
		if len(t.Problems) > 0 {
			n++
		}
	}
	return n
}

// TestReport is the result of a test.
type TestReport struct {
	Name     string                `json:"name"`
	Line     int                   `json:"line"`
	Steps    int                   `json:"steps"` // number of steps that ran
	Problems []Problem             `json:"problems"`
	Took     document.Milliseconds `json:"tookMs"`
}

// Problem is one difference from the expected result.
type Problem struct {
	Line    int    `json:"line"`
	Step    string `json:"step"` // such as "2 approve"
	Message string `json:"message"`
}

// author defines workflows and reads the results.
var author = engine.Principal{ID: "test:author", Role: engine.RoleOperator}

// defaultPrincipal performs the steps if a test names no principal.
var defaultPrincipal = engine.Principal{ID: "test:agent", Role: engine.RoleAgent}

// Run runs one file. The error means that it could not be run: the definition is invalid, or the engine
// failed.
func Run(ctx context.Context, f File, definition engine.DefineRequest, open Opener) (Report, error) {
	world := &stage{}
	e, shut, err := open(world, scriptedModel{world})
	if err != nil {
		return Report{}, err
	}
	r := Report{Path: f.Path, Tests: []TestReport{}}
	err = func() error {
		defined, err := e.Define(ctx, author, definition)
		if err != nil {
			return err
		}
		view, err := e.Describe(ctx, author, defined.Name, 0)
		if err != nil {
			return err
		}
		r.Workflow = defined.Name
		cover, err := newCoverage(view.Definition)
		if err != nil {
			return err
		}
		for _, t := range f.Tests {
			run := runner{ctx: ctx, engine: e, stage: world, test: t, workflow: defined.Name}
			if err := run.runAll(); err != nil {
				return fmt.Errorf("%s:%d: %s: %w", f.Path, t.Line, t.Name, err)
			}
			cover.add(run.seen)
			r.Tests = append(r.Tests, run.report)
		}
		r.Coverage = cover.result()
		return nil
	}()
	if cerr := shut(); err == nil {
		err = cerr
	}
	return r, err
}

type runner struct {
	ctx      context.Context //nolint:containedctx // it lives as long as one test
	engine   *engine.Engine
	stage    *stage
	test     Test
	workflow string
	report   TestReport
	seen     []engine.HistoryEntry
	at       string // the step, for messages
}

func (r *runner) runAll() error {
	begun := time.Now()
	r.report = TestReport{Name: r.test.Name, Line: r.test.Line, Problems: []Problem{}}
	defer func() { r.report.Took = document.Milliseconds(time.Since(begun)) }()
	who := r.test.Who
	if who.ID == "" {
		who = defaultPrincipal
	}
	r.at = "start"
	r.stage.step.Store(&Step{})
	started, err := r.engine.Start(r.ctx, who, engine.StartRequest{Type: r.workflow, Context: r.test.Context})
	if err != nil {
		return err
	}
	want := Expect{Line: r.test.Line, Outcome: judge.Approve}
	if r.test.Start != nil {
		want = *r.test.Start
	}
	r.compareDecision(want, started.Position, started.Decision)
	if started.ID == "" {
		if len(r.test.Steps) > 0 && len(r.report.Problems) == 0 {
			r.addProblem(r.test.Line, "the start was refused, so the steps did not run")
		}
		return nil
	}
	for i, s := range r.test.Steps {
		r.at = fmt.Sprintf("%d %s", i+1, s.name())
		if err := r.runStep(who, started.ID, s); err != nil {
			return err
		}
		r.report.Steps++
	}
	r.seen, err = engine.ReadWholeHistory(r.ctx, r.engine, author, started.ID)
	return err
}

func (r *runner) runStep(who engine.Principal, id string, s Step) error {
	if s.Who.ID != "" {
		who = s.Who
	}
	r.stage.step.Store(&s)
	if s.Review != nil {
		return r.runReview(id, s)
	}
	req := engine.AdvanceRequest{ID: id, Action: s.Action, Data: document.ReadTrusted(s.Data)}
	if s.Precheck {
		v, err := r.engine.Validate(r.ctx, who, req)
		if err != nil {
			return r.refusedRequest(s, err)
		}
		r.compareDecision(s.Expect, v.Position, v.Decision)
		return r.compareContext(s.Expect, id)
	}
	a, err := r.engine.Advance(r.ctx, who, req)
	if err != nil {
		return r.refusedRequest(s, err)
	}
	r.compareDecision(s.Expect, a.Position, a.Decision)
	return r.compareContext(s.Expect, id)
}

// runReview resolves the pending review of the instance.
func (r *runner) runReview(id string, s Step) error {
	open, err := r.engine.Reviews(r.ctx, author, engine.ReviewsRequest{Instance: id, Status: "open"})
	if err != nil {
		return err
	}
	if len(open.Reviews) == 0 {
		r.addProblem(s.Line, "no review is open; the previous step must end with the outcome escalate")
		return nil
	}
	by := engine.Principal{ID: s.Review.By, Role: engine.RoleReviewer}
	done, err := r.engine.Resolve(r.ctx, by, engine.ResolveRequest{ID: open.Reviews[0].ID, Decision: s.Review.Decision, Reason: "The test says so."})
	if err != nil {
		return r.refusedRequest(s, err)
	}
	r.compareDecision(s.Expect, done.Position, done.Decision)
	return r.compareContext(s.Expect, id)
}

// refusedRequest turns an error that is the request's fault into a problem.
func (r *runner) refusedRequest(s Step, err error) error {
	switch engine.CodeOf(err) {
	case engine.CodeForbidden, engine.CodeInvalidArgument, engine.CodeInvalidData, engine.CodeTooLarge, engine.CodeUnknownInstance:
		r.addProblem(s.Line, "the request was rejected: %v", err)
		return nil
	default:
		return err
	}
}

func (r *runner) addProblem(line int, format string, args ...any) {
	r.report.Problems = append(r.report.Problems, Problem{Line: line, Step: r.at, Message: fmt.Sprintf(format, args...)})
}

// compareDecision compares a decision with the expected one.
func (r *runner) compareDecision(want Expect, pos engine.Position, d engine.Decision) {
	why := ""
	if d.Reasoning != "" {
		why = ": " + d.Reasoning
	}
	if want.Outcome != "" && want.Outcome != d.Outcome {
		r.addProblem(want.Line, "expected %s, got %s by %s%s", want.Outcome, d.Outcome, d.DecidedBy, why)
	}
	if want.State != "" && want.State != pos.State {
		r.addProblem(want.Line, "expected the state %q, got %q%s", want.State, pos.State, why)
	}
	if want.Complete != nil && *want.Complete != pos.Complete {
		r.addProblem(want.Line, "expected complete to be %v, got %v", *want.Complete, pos.Complete)
	}
	if want.DecidedBy != "" && want.DecidedBy != d.DecidedBy {
		r.addProblem(want.Line, "expected the decision by %q, got %q", want.DecidedBy, d.DecidedBy)
	}
	if want.Assurance != "" && want.Assurance != d.Assurance {
		r.addProblem(want.Line, "expected the assurance %q, got %q", want.Assurance, d.Assurance)
	}
	got := findingCodes(d.Findings)
	for _, code := range want.Codes {
		if !slices.Contains(got, code) {
			r.addProblem(want.Line, "expected a finding %q, got %s", code, joinList(got))
		}
	}
	if want.Says != "" && !strings.Contains(d.Reasoning+"\n"+strings.Join(d.Violations, "\n"), want.Says) {
		r.addProblem(want.Line, "expected the text %q, got: %s", want.Says, d.Reasoning)
	}
}

func (r *runner) compareContext(want Expect, id string) error {
	if want.Context == nil {
		return nil
	}
	status, err := r.engine.Status(r.ctx, author, id)
	if err != nil {
		return err
	}
	var keys, has map[string]json.RawMessage
	if err := json.Unmarshal(want.Context, &keys); err != nil {
		return fmt.Errorf("the expected context: %w", err)
	}
	if err := json.Unmarshal(status.Context, &has); err != nil {
		return fmt.Errorf("the context: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		got, ok := has[key]
		switch {
		case bytes.Equal(keys[key], []byte("null")) && !ok:
		case !ok:
			r.addProblem(want.Line, "expected %q in the context, it is missing", key)
		case !document.ReadTrusted(keys[key]).Equal(document.ReadTrusted(got)):
			r.addProblem(want.Line, "expected %q in the context to be %s, got %s", key, keys[key], got)
		}
	}
	return nil
}

func findingCodes(findings []validators.Finding) []string {
	var out []string
	for _, f := range findings {
		if !slices.Contains(out, f.Code) {
			out = append(out, f.Code)
		}
	}
	return out
}

func joinList(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// stage holds the evidence and the model that the file defines for the current step. Tests of a file run
// one after the other.
type stage struct{ step atomic.Pointer[Step] }

// Fetch implements judge.Fetcher with the evidence in the file.
func (s *stage) Fetch(_ context.Context, r judge.EvidenceRequest, _ bool) (judge.FetchResult, error) {
	if len(r.Missing) > 0 {
		return judge.FetchResult{Failure: judge.FailureArgument, Detail: "A field that the request needs is missing."}, nil
	}
	content, ok := s.step.Load().Evidence[r.Name]
	if !ok {
		return judge.FetchResult{Failure: judge.FailureUnavailable, Detail: "The test does not define this evidence."}, nil
	}
	return judge.FetchResult{Content: content}, nil
}

type scriptedModel struct{ stage *stage }

func (scriptedModel) Name() judge.LayerName { return judge.LayerModel }

func (m scriptedModel) Weigh(_ context.Context, _ judge.Case) (judge.Opinion, error) {
	answer := m.stage.step.Load().Model
	op := judge.Opinion{Layer: judge.LayerModel, Outcome: judge.Escalate, Confidence: 0.5, Assurance: judge.AssuranceNone}
	switch {
	case answer == nil:
		op.Trouble, op.Reasoning = judge.TroubleNotConfigured, "The test does not define a model."
	case answer.Unavailable:
		op.Trouble, op.Reasoning = judge.TroubleUnavailable, "The model of the test does not answer."
	case answer.Outcome == judge.Escalate:
		op.Trouble, op.Reasoning = judge.TroubleCannotAssess, "The model of the test cannot assess this."
	default:
		op.Outcome, op.Confidence, op.Assurance = answer.Outcome, answer.Confidence, judge.AssuranceLLM
		op.Reasoning = "As defined by the test."
	}
	return op, nil
}
