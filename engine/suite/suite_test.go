package suite_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/suite"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

func open(fetcher judge.Fetcher, model judge.Layer) (*engine.Engine, func() error, error) {
	compiler := validators.NewCompiler(enginetest.Pool(), validators.Options{})
	pipeline, err := judge.New(judge.Config{Compiler: compiler, Fetcher: fetcher, Model: model})
	if err != nil {
		return nil, nil, err
	}
	store := memory.New()
	e, err := engine.New(engine.Config{
		Store: store, Judge: pipeline, Compiler: compiler, ReviewPath: true,
		Digester: enginetest.Digester, Models: []string{"test"},
	})
	return e, store.Close, err
}

const flow = `{"name":"review","initialState":"draft","states":{
	"draft":{"transitions":{"submit":{"target":"reviewing","requiredFields":["documentId"]}}},
	"reviewing":{"transitions":{
		"approve":{"target":"approved","validator":"(d, c, e) => ({valid: (d.comments || '').length >= 5, confidence: 1, reason: 'too short'})",
			"evidence":[{"name":"ci","source":"ci"}],"useLLM":true,"strictMode":true,"criteria":["it is good"]},
		"reject":{"target":"draft","notBy":"submit"}}},
	"approved":{"final":true,"outcome":"success"}}}`

func run(t *testing.T, tests string) (suite.Report, error) {
	t.Helper()
	f, err := suite.Parse("x.test.yaml", []byte("workflow: flow.json\ntests:\n"+tests))
	if err != nil {
		t.Fatal(err)
	}
	return suite.Run(t.Context(), f, engine.DefineRequest{Document: []byte(flow)}, open)
}

func TestAll(t *testing.T) {
	r, err := run(t, `
- name: the whole way
  steps:
  - {action: submit, data: {documentId: D-1}, expect: {outcome: approve, state: reviewing, context: {documentId: D-1, other: null}}}
  - {action: approve, precheck: true, data: {comments: Read it all.}, evidence: {ci: {ok: true}}, model: {outcome: approve}, expect: {outcome: approve, state: reviewing}}
  - {action: approve, data: {comments: no}, evidence: {ci: {ok: true}}, expect: {outcome: reject, codes: validator_rejected, says: too short, state: reviewing, decidedBy: script}}
  - {action: approve, data: {comments: Read it all.}, expect: {outcome: reject, codes: [evidence_missing]}}
  - {action: approve, data: {comments: Read it all.}, evidence: {ci: 1}, model: {unavailable: true}, expect: {outcome: escalate, codes: [judge_unavailable]}}
  - {action: approve, data: {comments: Read it twice.}, evidence: {ci: 1}, model: {outcome: reject, confidence: 0.7}, expect: {outcome: reject, decidedBy: model}}
  - {action: approve, data: {comments: Read it all now.}, evidence: {ci: 1}, model: {outcome: approve, confidence: 0.9}, expect: {outcome: approve, state: approved, complete: true, assurance: llm}}
- name: who submits does not reject
  steps:
  - {action: submit, data: {documentId: D-1}, expect: {state: reviewing}}
  - {action: reject, expect: {outcome: reject, codes: not_by}}
  - {action: reject, role: operator, expect: {state: draft}}
  - {action: submit, expect: {outcome: reject, codes: [required_field], state: draft}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range r.Tests {
		for _, p := range test.Problems {
			t.Errorf("%s: line %d, step %s: %s", test.Name, p.Line, p.Step, p.Message)
		}
	}
	c := r.Coverage
	if c.States.Percent() != 100 || c.Transitions.Percent() != 100 || c.Validators.Percent() != 100 || c.Refusals.Percent() != 100 || c.States.All != 3 || c.Transitions.All != 3 || c.Validators.All != 2 || c.Refusals.All != 2 {
		t.Errorf("%+v", c)
	}
}

// A person decides pending reviews, so that every transition can be made.
func TestStepsReview(t *testing.T) {
	r, err := run(t, `
- name: the model is away, and a person decides
  steps:
  - {action: submit, data: {documentId: D-1}, expect: {state: reviewing}}
  - {action: approve, data: {comments: Read it all.}, evidence: {ci: 1}, model: {unavailable: true}, expect: {outcome: escalate, state: reviewing}}
  - {review: {by: ada, decision: reject}, expect: {outcome: reject, state: reviewing}}
  - {action: approve, data: {comments: Read it twice.}, evidence: {ci: 1}, model: {unavailable: true}, expect: {outcome: escalate}}
  - {review: {by: ada, decision: approve}, evidence: {ci: 1}, expect: {outcome: approve, state: approved, complete: true, assurance: human}}
`)
	if err != nil || r.Failed() != 0 || r.Tests[0].Steps != 5 {
		t.Errorf("%+v, %v", r.Tests, err)
	}
	if missing := strings.Join(r.Coverage.Transitions.Missing, " "); missing != "reviewing.reject" {
		t.Errorf("not made: %s", missing)
	}
	for step, says := range map[string]string{
		`{review: {by: ada, decision: approve}, expect: {state: draft}}`: "no review is open",
	} {
		if r, err := run(t, "- name: one\n  steps:\n  - "+step+"\n"); err != nil || len(r.Tests[0].Problems) != 1 || !strings.Contains(r.Tests[0].Problems[0].Message, says) || r.Tests[0].Problems[0].Step != "1 review" {
			t.Errorf("%s: %+v, %v", step, r.Tests, err)
		}
	}
	// The principal that asked for the move must not decide it.
	r, err = run(t, `
- name: two
  principal: ada
  steps:
  - {action: submit, data: {documentId: D-1}, expect: {state: reviewing}}
  - {action: approve, data: {comments: Read it all.}, evidence: {ci: 1}, model: {unavailable: true}, expect: {outcome: escalate}}
  - {review: {by: ada, decision: approve}, evidence: {ci: 1}, expect: {state: approved}}
`)
	if err != nil || len(r.Tests[0].Problems) != 1 || !strings.Contains(r.Tests[0].Problems[0].Message, "the request was rejected") {
		t.Errorf("%+v, %v", r.Tests, err)
	}
}

// Every difference from the file is a problem with its line.
func TestDifferencesAreReported(t *testing.T) {
	for name, c := range map[string]struct{ step, says string }{
		"outcome":          {`{action: submit, expect: {outcome: approve}}`, "expected approve, got reject by fields"},
		"state":            {`{action: submit, data: {documentId: 1}, expect: {state: draft}}`, `expected the state "draft", got "reviewing"`},
		"code":             {`{action: submit, expect: {codes: [schema]}}`, `expected a finding "schema", got required_field`},
		"no code":          {`{action: submit, data: {documentId: 1}, expect: {codes: [schema]}}`, "got none"},
		"words":            {`{action: submit, expect: {says: banana}}`, `expected the text "banana"`},
		"complete":         {`{action: submit, expect: {complete: true}}`, "expected complete to be true"},
		"decided by":       {`{action: submit, expect: {decidedBy: model}}`, `the decision by "model", got "fields"`},
		"assurance":        {`{action: submit, expect: {assurance: llm}}`, `got "structural"`},
		"context":          {`{action: submit, data: {documentId: 1}, expect: {context: {documentId: 2}}}`, "to be 2, got 1"},
		"absent context":   {`{action: submit, data: {documentId: 1}, expect: {context: {x: 2}}}`, "it is missing"},
		"too large a list": {`{action: submit, data: {documentId: [1.0]}, expect: {context: {documentId: [2]}}}`, "got [1.0]"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := run(t, "- name: one\n  steps:\n  - "+c.step+"\n")
			if err != nil {
				t.Fatal(err)
			}
			p := r.Tests[0].Problems
			if len(p) != 1 || !strings.Contains(p[0].Message, c.says) || p[0].Line != 5 || p[0].Step != "1 submit" || r.Failed() != 1 {
				t.Errorf("%+v", p)
			}
		})
	}
	r, err := run(t, "- name: one\n  start: {outcome: reject}\n  steps: []\n")
	if err != nil || len(r.Tests[0].Problems) != 1 || len(r.Coverage.Transitions.Missing) != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ doc, says string }{
		"unknown key":           {"workflow: w\ntests:\n- name: a\n  stepps: []\n", "did you mean \"steps\""},
		"no workflow":           {"tests:\n- {name: a, steps: []}\n", "workflow"},
		"no tests":              {"workflow: w\ntests: []\n", "at least one"},
		"twice":                 {"workflow: w\ntests:\n- {name: a, steps: []}\n- {name: a, steps: []}\n", "duplicate test name"},
		"no expectation":        {"workflow: w\ntests:\n- name: a\n  steps:\n  - {action: x}\n", "expect"},
		"an empty one":          {"workflow: w\ntests:\n- name: a\n  steps:\n  - {action: x, expect: {}}\n", "expect is empty"},
		"unknown outcome":       {"workflow: w\ntests:\n- name: a\n  steps:\n  - {action: x, expect: {outcome: ok}}\n", "approve"},
		"model of nothing":      {"workflow: w\ntests:\n- name: a\n  steps:\n  - {action: x, model: {}, expect: {state: b}}\n", "outcome"},
		"too sure a model":      {"workflow: w\ntests:\n- name: a\n  steps:\n  - {action: x, model: {outcome: approve, confidence: 2}, expect: {state: b}}\n", "0 to 1"},
		"a review of nothing":   {"workflow: w\ntests:\n- name: a\n  steps:\n  - {review: {by: x}, expect: {state: b}}\n", "decision"},
		"a review by nobody":    {"workflow: w\ntests:\n- name: a\n  steps:\n  - {review: {decision: approve}, expect: {state: b}}\n", "by"},
		"a review that is a no": {"workflow: w\ntests:\n- name: a\n  steps:\n  - {review: {by: x, decision: escalate}, expect: {state: b}}\n", "approve"},
		"a review and a move":   {"workflow: w\ntests:\n- name: a\n  steps:\n  - {action: x, review: {by: x, decision: approve}, expect: {state: b}}\n", "two steps"},
		"data that is text":     {"workflow: w\ntests:\n- name: a\n  steps:\n  - {action: x, data: no, expect: {state: b}}\n", "object"},
	} {
		_, err := suite.Parse("x.test.yaml", []byte(c.doc))
		var all document.Errors
		if !errors.As(err, &all) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRunReportsWhyItFailed(t *testing.T) {
	f, err := suite.Parse("a/x.test.yaml", []byte("workflow: ../flow.json\ntests:\n- {name: a, steps: []}\n"))
	if err != nil || f.Definition() != "flow.json" {
		t.Fatalf("%v, %s", err, f.Definition())
	}
	if _, err := suite.Run(t.Context(), f, engine.DefineRequest{Document: []byte(`{"name":"w"}`)}, open); engine.CodeOf(err) != engine.CodeInvalidDefinition {
		t.Errorf("%v", err)
	}
	failing := errors.New("no engine")
	if _, err := suite.Run(t.Context(), f, engine.DefineRequest{Document: []byte(flow)}, func(judge.Fetcher, judge.Layer) (*engine.Engine, func() error, error) { return nil, nil, failing }); !errors.Is(err, failing) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := suite.Run(ctx, f, engine.DefineRequest{Document: []byte(flow)}, open); err == nil {
		t.Error("no error although it was cancelled")
	}
}

func TestWriteJUnit(t *testing.T) {
	r, err := run(t, "- name: good\n  steps:\n  - {action: submit, data: {documentId: 1}, expect: {state: reviewing}}\n- name: \"bad <&>\"\n  steps:\n  - {action: submit, expect: {state: reviewing}}\n")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := suite.WriteJUnit(&b, []suite.Report{r}, 0); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Cases []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	cases := got.Suites[0].Cases
	if got.Tests != 2 || got.Failures != 1 || cases[0].Failure != nil || cases[1].Name != "bad <&>" || !strings.Contains(cases[1].Failure.Message, "reviewing") {
		t.Errorf("%s", b.String())
	}
}

// Insufficient coverage is a separate case, so that a build server shows why it failed.
func TestWriteJUnitCoverage(t *testing.T) {
	r, err := run(t, "- name: good\n  steps:\n  - {action: submit, data: {documentId: 1}, expect: {state: reviewing}}\n")
	if err != nil {
		t.Fatal(err)
	}
	made := r.Coverage.Transitions.Percent()
	if made <= 0 || made >= 100 {
		t.Fatalf("%v %% were made", made)
	}
	for least, failures := range map[float64]string{0: `tests="1" failures="0"`, made: `tests="2" failures="0"`, 100: `tests="2" failures="1"`} {
		var b strings.Builder
		if err := suite.WriteJUnit(&b, []suite.Report{r}, least); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); strings.Count(got, failures) != 2 || strings.Contains(got, "are required") != (least == 100) || strings.Contains(got, r.Coverage.Transitions.Missing[0]) != (least == 100) {
			t.Errorf("%v: %s", least, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("workflow: w\ntests:\n- name: a\n  steps:\n  - {action: x, data: {a: 1}, evidence: {e: null}, model: {outcome: approve}, expect: {outcome: reject, codes: a}}\n"))
	f.Add([]byte(`{"workflow":"w","tests":[{"name":"a","context":{},"start":{"outcome":"reject"},"steps":[]}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		file, err := suite.Parse("x.yaml", doc)
		if err != nil {
			return
		}
		for _, test := range file.Tests {
			for _, s := range test.Steps {
				if s.Data != nil && !json.Valid(s.Data) {
					t.Errorf("data %s", s.Data)
				}
			}
		}
	})
}
