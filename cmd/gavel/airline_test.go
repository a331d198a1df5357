package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
)

// airlineCases imports records.
func airlineCases(t *testing.T, records []eval.TauRecord) []eval.Case {
	t.Helper()
	cases, err := eval.TauCases(records, eval.TauOptions{Workflow: "../../testdata/workflows/airline.yaml", All: true})
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// airlineRecords reads the dev part, which is not part of the sources.
func airlineRecords(t *testing.T) []eval.TauRecord {
	t.Helper()
	file := filepath.Join("..", "..", "..", "shared", "data", "tau_airline", "transitions.dev.jsonl")
	in, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the recorded transitions are not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := eval.ReadTau(file, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func airlineBuilder() *caseBuilder {
	return &caseBuilder{set: goldenSet{file: map[string]string{}}, definitions: newDefinitionCache()}
}

// Whatever the labels say, the gate is asked the same question.
func TestAirlineLabelsNeverReachTheGate(t *testing.T) {
	t.Parallel()
	records := airlineRecords(t)
	cases, build := airlineCases(t, records), airlineBuilder()
	blind := slices.Clone(records)
	for i := range blind {
		blind[i] = eval.TauRecord{ID: records[i].ID, Group: records[i].Group, Transition: records[i].Transition}
		blind[i].Gold.Verdict = "another"
	}
	unlabelled := airlineCases(t, blind)
	for i, r := range records {
		question, err := build.build(cases[i])
		if err != nil {
			t.Fatal(r.ID, err)
		}
		again, err := build.build(unlabelled[i])
		if err != nil {
			t.Fatal(r.ID, err)
		}
		for _, q := range []*judge.Case{&question, &again} { // functions never compare equal
			q.Scrub, q.Mask, q.Scrubber, q.Digest = nil, nil, nil, nil
		}
		if !reflect.DeepEqual(question, again) {
			t.Errorf("%s: the question depends on the label", r.ID)
		}
		shown := fmt.Sprintf("%+v %s %s", question, cases[i].Context, r.Transition.Data)
		secrets := append([]string{r.Gold.Why, "in_gold", "trajectory_reward", "tool_error"}, r.Validators.Deterministic...)
		if r.Gold.ToolError != nil {
			secrets = append(secrets, *r.Gold.ToolError)
		}
		for _, s := range secrets {
			if strings.Contains(shown, s) {
				t.Errorf("%s: the question holds %q", r.ID, s)
			}
		}
	}
}

// airlineCount is one stratum: rejects and right writes, and how many of them were
// refused by the gate and by the simple rules.
type airlineCount struct{ rejects, gateStopped, simpleStopped, right, gateRefused, simpleRefused, other, gateOther int }

func (c *airlineCount) add(verdict string, gate, simple bool) {
	one := map[bool]int{true: 1}
	switch verdict {
	case "reject":
		c.rejects, c.gateStopped, c.simpleStopped = c.rejects+1, c.gateStopped+one[gate], c.simpleStopped+one[simple]
	case "approve":
		c.right, c.gateRefused, c.simpleRefused = c.right+1, c.gateRefused+one[gate], c.simpleRefused+one[simple]
	default:
		c.other, c.gateOther = c.other+1, c.gateOther+one[gate]
	}
}

func airlineRate(k, n int) string {
	exact := eval.ClopperPearson(k, n, 0.95)
	return fmt.Sprintf("%d of %d (exact %.3f to %.3f)", k, n, exact.Low, exact.High)
}

var airlineRule = regexp.MustCompile(`\bR\d\d\b`)

func TestAirlineGate(t *testing.T) {
	t.Parallel()
	records := airlineRecords(t)
	cases, build := airlineCases(t, records), airlineBuilder()
	decide := decideEval(plainSandbox(t), nil, evalCell{})
	strata, hits, unseen := map[string]*airlineCount{}, map[string]int{}, []string(nil)
	for i, r := range records {
		c := cases[i]
		question, err := build.build(c)
		if err != nil {
			t.Fatal(r.ID, err)
		}
		verdict, err := decide(t.Context(), c, question)
		if err != nil {
			t.Fatal(r.ID, err)
		}
		refused := verdict.Outcome != judge.Approve
		s := r.Stratum()
		if strata[s] == nil {
			strata[s] = &airlineCount{}
		}
		strata[s].add(r.Gold.Verdict, refused, len(r.Validators.Deterministic) > 0)
		said := fmt.Sprint(verdict.Findings)
		rules := slices.Compact(slices.Sorted(slices.Values(airlineRule.FindAllString(said, -1))))
		for _, rule := range rules {
			hits[rule+" "+cmp.Or(r.Gold.Verdict, "unscored")]++
		}
		switch {
		case refused && len(rules) == 0:
			t.Errorf("%s: refused without a rule: %s", r.ID, said)
		case r.Gold.Verdict == "reject" && !refused:
			unseen = append(unseen, fmt.Sprintf("%s (%s, %s)", r.ID, r.Transition.Action, s))
		case r.Gold.Verdict == "approve" && refused:
			t.Logf("right, and refused: %s by %v", r.ID, rules)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(strata)) {
		c := strata[s]
		t.Logf("%s: rejects stopped: gate %s; simple rules %s", s, airlineRate(c.gateStopped, c.rejects), airlineRate(c.simpleStopped, c.rejects))
		t.Logf("%s: right writes refused: gate %s; simple rules %s; others refused %d of %d", s, airlineRate(c.gateRefused, c.right), airlineRate(c.simpleRefused, c.right), c.gateOther, c.other)
		if c.gateStopped < c.simpleStopped || c.gateRefused > c.simpleRefused {
			t.Errorf("%s: the gate is worse than the simple rules: %+v", s, *c)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(hits)) {
		t.Logf("hits of %s: %d", rule, hits[rule])
	}
	t.Logf("wrong, and no rule sees it: %d\n%s", len(unseen), strings.Join(unseen, "\n"))
	if c := strata[eval.StratumExecuted]; c == nil || c.rejects == 0 || c.right == 0 {
		t.Error("no executed writes were judged")
	}
}
