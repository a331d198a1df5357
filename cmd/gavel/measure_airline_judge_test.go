package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/internal/modules/measure/compare"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

var airlineAsked = regexp.MustCompile(`(?m)^(The step: |- c\d).*`)

// digestAirline identifies what a question asks: the step, the criteria and the documents, without the rules of the
// prompt and the gate's clock.
func digestAirline(q llmtest.Question) string {
	parts := airlineAsked.FindAllString(q.User, -1)
	for _, name := range []string{"evidence", "context", "data"} {
		parts = append(parts, q.Documents[name])
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(parts, "\n"))))
}

// judgeAirline judges the scored writes with the recorded searches as evidence. The model's answers are those in
// testdata/airline/answers.json, and every one of them is used.
func judgeAirline(t *testing.T, records []tauRecord, flights tauFlights) eval.Measurement {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "airline", "answers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct{ Answers map[string]json.RawMessage }
	if err := json.Unmarshal(text, &recorded); err != nil || len(recorded.Answers) == 0 {
		t.Fatalf("no recorded answers: %v", err)
	}
	dir, cases := t.TempDir(), []byte(nil)
	for _, c := range airlineCases(t, records, flights) {
		if c.Expect.Outcome == judge.Escalate { // it is not scored
			continue
		}
		c.Workflow = json.RawMessage(`{"ref": "airline.yaml"}`)
		line, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(append(cases, line...), '\n')
	}
	workflow, err := os.ReadFile(airlineWorkflow)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"airline.yaml": workflow, "cases.jsonl": cases} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	used := map[string]bool{}
	provider := httptest.NewServer(llmtest.New(llmtest.OpenAI(), func(q llmtest.Question) llmtest.Thought {
		key := digestAirline(q)
		if used[key] = true; recorded.Answers[key] == nil { // one worker: one question at a time
			t.Errorf("no answer is recorded to this question: %.300s", q.User)
		}
		return llmtest.Says(string(recorded.Answers[key]))(q)
	}))
	defer provider.Close()
	results := filepath.Join(dir, "results.json")
	code, out := evalRun(t, provider.URL, "--mode", "live", "--workers", "1", "--out", results, filepath.Join(dir, "cases.jsonl"))
	m, err := measure.ReadResults(results)
	if err != nil || len(used) != len(recorded.Answers) || t.Failed() {
		t.Fatalf("exit code %d, %v, %d of %d answers were used\n%s", code, err, len(used), len(recorded.Answers), out)
	}
	return m
}

// TestAirlineRecordedJudge measures the criteria of the airline workflow with a model's recorded answers, beside the
// simple rules and the gate without a model. testdata/airline/README.md shows the tables.
func TestAirlineRecordedJudge(t *testing.T) {
	t.Parallel()
	records := airlineRecords(t)
	in, file := openAirline(t, "trajectories.dev.jsonl")
	flights, err := readTauFlights(file, in)
	if err != nil {
		t.Fatal(err)
	}
	m := judgeAirline(t, records, flights)
	simple, gate, stopped, refused := map[string]bool{}, decideAirline(t, records, flights, true).refused, map[string]bool{}, map[string]bool{}
	for _, r := range records {
		simple[r.ID] = len(r.Validators.Deterministic) > 0
	}
	for _, r := range m.Results {
		refused[r.Case], stopped[r.Case] = r.Outcome == judge.Reject, r.Outcome != judge.Approve
		if gate[r.Case] && !refused[r.Case] {
			t.Errorf("%s: the gate refuses it without a model, but the outcome is %s", r.Case, r.Outcome)
		}
	}
	var page, list strings.Builder
	table := tabwriter.NewWriter(&page, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STRATUM\tWRITES\tJUDGED BY\tSTOPPED\tEXACT 95 %\tBY GROUP\tP\tREFUSED\tHELD")
	for _, stratum := range []string{stratumExecuted, stratumEnvironment} {
		_, simply, _ := airlineReport(t, records, stratum, simple)
		for _, right := range []judge.Outcome{judge.Reject, judge.Approve} {
			for _, by := range []struct {
				name             string
				stopped, refused map[string]bool
			}{{"simple rules", simple, simple}, {"gate", gate, gate}, {"gate and model", stopped, refused}} {
				cases, results, report := airlineReport(t, records, stratum, by.stopped)
				if cases = slices.DeleteFunc(cases, func(c eval.Case) bool { return c.Expect.Outcome != right }); len(cases) == 0 {
					continue
				}
				n := 0
				for _, c := range cases {
					if by.refused[c.ID] {
						n++
					}
				}
				compared := compare.Compare(cases, simply, results, eval.Options{})
				rate, k, beside := report.FalseRefuse, report.FalseRefuse.K, compared.Right
				if right == judge.Reject {
					rate, beside = report.FalseApprove, compared.FalseApprove
					k = rate.N - rate.K
				}
				_, intervals, _ := strings.Cut(airlineRate(k, rate), "(")
				exact, group, _ := strings.Cut(strings.TrimSuffix(intervals, ")"), "; by group ")
				fmt.Fprintf(table, "%s\t%s\t%s\t%d of %d\t%s\t%s\t%.2f\t%d\t%d\n", stratum, map[judge.Outcome]string{judge.Reject: "wrong", judge.Approve: "right"}[right],
					by.name, k, rate.N, exact, group, beside.P, n, k-n)
			}
		}
	}
	cases := tabwriter.NewWriter(&list, 0, 0, 2, ' ', 0)
	fmt.Fprintln(cases, "CASE\tSTRATUM\tWRITE IS\tMODEL\tWHY")
	for i, r := range m.Results {
		wrong := m.Cases[i].Expect.Outcome == judge.Reject
		if gate[r.Case] || !wrong && r.Outcome == judge.Approve {
			continue
		}
		outcome := map[judge.Outcome]string{judge.Reject: "refused", judge.Escalate: "held", judge.Approve: "approved"}[r.Outcome]
		fmt.Fprintf(cases, "%s\t%s\t%s\t%s\t%s\n", strings.TrimPrefix(r.Case, "airline-"), strings.ReplaceAll(m.Cases[i].Tags[0], "_", " "), map[bool]string{true: "wrong", false: "right"}[wrong], outcome, explainAirline(m, r))
	}
	_ = table.Flush() // a strings.Builder never fails
	_ = cases.Flush()
	readme := filepath.Join("..", "..", "testdata", "airline", "README.md")
	showsAt(t, readme, "judge", page.String())
	showsAt(t, readme, "caught", list.String())
}

// explainAirline says which criteria a model found not to be met, and in its words why, or how sure it was.
func explainAirline(m eval.Measurement, r eval.Result) string {
	var ids []string
	why := ""
	for _, v := range m.Views {
		for _, a := range v.Answers {
			for _, c := range a.Criteria {
				if v.Case == r.Case && c.Status != "met" {
					ids, why = append(ids, c.ID), cmp.Or(why, c.Says, c.Why)
				}
			}
		}
	}
	if len(ids) == 0 {
		return fmt.Sprintf("stated %.2f", *r.Stated)
	}
	return strings.Join(ids, ", ") + ": " + why
}
