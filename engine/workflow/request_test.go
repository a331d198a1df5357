package workflow_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators"
)

// TestRemoteLintMatchesLocalLint checks that a definition parsed and linted in another process is the
// same and has the same issues with the same lines.
func TestRemoteLintMatchesLocalLint(t *testing.T) {
	for _, c := range lintCases {
		o := workflow.LintOptions{Compiler: compiler(), Owner: validators.Owner{ID: "agent:a"}, Models: c.models, Sources: c.sources}
		r := workflow.LintRequest{Source: "w.json", Document: []byte(c.doc), Models: o.Models, Sources: o.Sources}
		want, err := workflow.Parse(r.Source, r.Document)
		var wantIssues []workflow.Issue
		if pe := (*workflow.ParseError)(nil); errors.As(err, &pe) {
			wantIssues = pe.Issues
		} else if wantIssues, err = want.Lint(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		request, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, issues, err := r.ParseAnswer(workflow.AnswerLintRequest(request))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got != nil {
			if issues, err = got.FinishLint(t.Context(), o, issues); err != nil {
				t.Fatal(err)
			}
			if got.Hash != want.Hash || string(got.Document) != string(want.Document) {
				t.Errorf("%s: another definition: %s", c.name, got.Document)
			}
		}
		if !sameIssues(issues, wantIssues) {
			t.Errorf("%s:\ngot  %v\nwant %v", c.name, issues, wantIssues)
		}
	}
}

func sameIssues(a, b []workflow.Issue) bool {
	count := map[workflow.Issue]int{}
	for _, i := range a {
		count[i]++
	}
	for _, i := range b {
		count[i]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// TestParsedBelievesNothing checks that a forged answer of a worker cannot give a definition beyond
// the bounds, a document of another format, or an impossible issue.
func TestParsedBelievesNothing(t *testing.T) {
	const fine = `{"name":"w","initialState":"a","states":{"a":{"final":true}}}`
	r := workflow.LintRequest{Bounds: workflow.Bounds{States: 1}}
	for _, answer := range []string{
		"", "null", "{}", "[]", `{"document":{}}`, `{"document":{"name":"w"}}`, `{"document":"name: w"}`,
		`{"document":` + strings.Replace(fine, `"w"`, `"w","name":"v"`, 1) + `}`,
		`{"issues":[{"rule":"nonsense","severity":"error","message":"x"}]}`,
	} {
		if d, issues, err := r.ParseAnswer([]byte(answer)); err == nil {
			t.Errorf("%s: taken as %v, %v", answer, d, issues)
		}
	}
	d, issues, err := r.ParseAnswer([]byte(`{"document":` + fine + `,"lines":{"/states":-5},"issues":[{"rule":"size","severity":"warning","line":-1,"path":"/a","message":"a\u001b[2J` + strings.Repeat("x", 9000) + `"}]}`))
	if err != nil || d == nil || len(issues) != 1 {
		t.Fatalf("%v, %v, %v", d, issues, err)
	}
	if i := issues[0]; i.Severity != workflow.SeverityError || i.Line != 0 || strings.ContainsRune(i.Message, 0x1b) || len(i.Message) > 5000 {
		t.Errorf("taken as it came: %.80v", i)
	}
	const broken = `{"name":"w","initialState":"a","inputSchema":{"type":"nonsense"},"states":{"a":{"final":true}}}`
	if d, _, err = r.ParseAnswer([]byte(`{"document":` + broken + `,"lines":{"":0,"/inputSchema":-5}}`)); err != nil {
		t.Fatal(err)
	}
	issues, err = d.FinishLint(t.Context(), workflow.LintOptions{Compiler: compiler()}, nil)
	if err != nil || len(issues) != 1 || issues[0].Line != 0 {
		t.Errorf("lines that there cannot be: %v, %v", issues, err)
	}
	large := strings.Replace(fine, `"a":{"final":true}`, `"a":{"final":true},"b":{"final":true}`, 1)
	if d, issues, err := r.ParseAnswer([]byte(`{"document":` + large + `}`)); d != nil || len(issues) != 1 || err != nil {
		t.Errorf("beyond the bounds: %v, %v, %v", d, issues, err)
	}
}

// TestReadIsTotal checks that a malformed request gets an answer too.
func TestReadIsTotal(t *testing.T) {
	var answer map[string]any
	if err := json.Unmarshal(workflow.AnswerLintRequest([]byte("\xff")), &answer); err != nil || reflect.ValueOf(answer["issues"]).Len() != 1 {
		t.Errorf("%v, %v", answer, err)
	}
}
