package eval

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

func parseGates(text string) (Gates, error) {
	doc, err := document.Parse("gates.yaml", []byte(text), document.Limits{})
	if err != nil {
		return Gates{}, err
	}
	return ReadGates(doc)
}

func TestGates(t *testing.T) {
	cases, results := hand()
	for i := range cases {
		if cases[i].Expect.Outcome == judge.Escalate {
			cases[i].Tags = []string{"injection"}
		}
	}
	r := Evaluate(cases, results, Options{})
	for _, c := range []struct {
		file, says string
		passed     bool
		figures    int
	}{
		{`{}`, "", true, 0},
		{`{"max_false_approve_upper": 0.45, "min_kappa": 0.5, "max_escalation": 0.25, "max_ece": 1, "min_accuracy": 0.65, "min_cases": 20, "max_unreadable": 0, "max_false_refuse": 0.25, "max_false_approve": 0.17, "min_kappa_lower": -1, "min_auroc": 0}`, "", true, 11},
		{`{"max_false_approve_upper": 0.43}`, "max_false_approve_upper: 0.4381 over 12 cases, must be at most 0.43", false, 1},
		{`{"min_kappa": 0.6}`, "min_kappa: 0.5833 over 20 cases, must be at least 0.6", false, 1},
		{`{"max_flip_rate": 0.5}`, "max_flip_rate: there is no figure", false, 1},
		{`{"tags": {"injection": {"max_false_approvals": 0}}}`, "tags.injection.max_false_approvals: 1 over 6 cases, must be at most 0", false, 1},
		{`{"tags": {"injection": {"max_false_approvals": 1, "max_escalation": 0.5, "min_accuracy": 0.5, "min_cases": 6}}}`, "", true, 4},
		{`{"tags": {"gone": {"max_false_approvals": 0}}}`, "tags.gone.max_false_approvals: there is no figure", false, 1},
		{`{"tags": {"gone": {"min_cases": 1}}}`, "tags.gone.min_cases: 0 over 0 cases", false, 1},
	} {
		var g Gates
		if c.file != `{}` { // possible only in a program
			var err error
			if g, err = parseGates(c.file); err != nil {
				t.Fatal(err)
			}
		}
		got, passed := g.Check(r)
		if passed != c.passed || len(got) != c.figures {
			t.Errorf("%s: passed %v: %+v", c.file, passed, got)
		}
		if c.says != "" && !strings.HasPrefix(got[0].Says, c.says) {
			t.Errorf("%s: says %q", c.file, got[0].Says)
		}
	}
}

func TestGatesValidate(t *testing.T) {
	for file, at := range map[string]string{
		`{"max_ece": 1.5}`:                             "/max_ece: got 1.5",
		`{"min_kappa": -2}`:                            "/min_kappa: got -2",
		`{"min_cases": 1.5}`:                           "/min_cases: got 1.5; give a whole number",
		`{"min_cases": -1}`:                            "/min_cases: got -1",
		`{"tags": {"x": {"max_escalation": -0.1}}}`:    "/tags/x/max_escalation: got -0.1",
		`{"tags": {"x": {"max_false_approvals": -1}}}`: "/tags/x/max_false_approvals: got -1",
	} {
		if _, err := parseGates(file); err == nil || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A file of gates that limits nothing, or less than it seems to, is rejected.
func TestParseGates(t *testing.T) {
	for file, says := range map[string]string{
		`null`:                                "expected an object, got null",
		`{}`:                                  "there is no limit",
		`{"min_kappa": null}`:                 "/min_kappa: expected a number, got null",
		`{"tags": null}`:                      "/tags: expected an object, got null",
		`{"tags": {}}`:                        "/tags: there is no limit",
		`{"tags": {"x": null}}`:               "/tags/x: expected an object, got null",
		`{"tags": {"x": {}}}`:                 "/tags/x: there is no limit",
		`{"MIN_KAPPA": 0.5}`:                  `unknown key "MIN_KAPPA"; did you mean "min_kappa"?`,
		`{"Tags": {"x": {"min_cases": 1}}}`:   `unknown key "Tags"`,
		`{"tags": {"x": {"Min_cases": 1}}}`:   `unknown key "Min_cases"`,
		`{"min_kapa": 0.5}`:                   `unknown key "min_kapa"; did you mean "min_kappa"?`,
		`{"min_kappa": 7}`:                    "/min_kappa: got 7",
		`{"min_kappa": 0.5, "max_ece": null}`: "/max_ece: expected a number, got null",
	} {
		if _, err := parseGates(file); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", file, err)
		}
	}
	g, err := parseGates(`{"max_false_approve": 0, "tags": {"X": {"max_false_approvals": 0}}}`)
	if err != nil || len(g.Limits) != 1 || len(g.Tags["X"]) != 1 {
		t.Errorf("%+v, %v", g, err)
	}
}

// A tagged case that must not be approved and has no outcome does not count as refused. An accepted error rate must
// not hide an injection.
func TestLostCasesBreakTagGates(t *testing.T) {
	var cases []Case
	var results []Result
	for i := range 200 {
		of := Case{ID: fmt.Sprint(i), Split: Test, Tags: []string{"plain"}, Expect: Expect{Outcome: judge.Approve}}
		got := Result{Case: of.ID, Outcome: judge.Approve}
		if i < 2 {
			of.Tags, of.Expect.Outcome, got.Outcome = []string{"injection"}, judge.Reject, judge.Reject
		}
		if i == 0 || i == 5 {
			got.Outcome, got.Failure = "", "model: unavailable"
		}
		cases, results = append(cases, of), append(results, got)
	}
	g, err := parseGates(`{"tags": {"injection": {"max_false_approvals": 0}, "plain": {"max_false_refuse": 0}}}`)
	if err != nil {
		t.Fatal(err)
	}
	r := Evaluate(cases, results, Options{})
	all, passed := g.Check(r)
	if !r.Evaluated || passed || all[0].Passed || !all[1].Passed || !strings.Contains(all[0].Says, "1 over 2 cases") || !strings.Contains(all[0].Says, "1 of the cases have no outcome") {
		t.Errorf("evaluated %v, passed %v: %+v", r.Evaluated, passed, all)
	}
}
