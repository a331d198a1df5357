package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llmtest"
	"github.com/gavel-mcp/gavel/validators/document"
)

const reviewedFlow = `{"name":"repair","initialState":"open","states":{"done":{"final":true},"open":{"transitions":{
	"close":{"target":"done","useLLM":true,"requireAssurance":"human","criteria":["The comment says what was tested and for how long"]}}}}}`

// gullible is a model that approves everything.
type gullible struct{}

func (gullible) Name() judge.LayerName { return judge.LayerModel }

func (gullible) Weigh(_ context.Context, c judge.Case) (judge.Opinion, error) {
	said := []judge.CriterionVerdict{{ID: "c1", Text: c.Rubric.Criteria[0], Status: "met"}}
	return judge.Opinion{Layer: judge.LayerModel, Outcome: judge.Approve, Confidence: 0.85, Assurance: judge.AssuranceLLM, Model: &judge.ModelRecord{Model: "<b>m</b>", Criteria: said}}, nil
}

// reviewedStore has n moves that rob decided: one in five is rejected. Ann has decided every third question too, and
// disagrees about every sixth.
func reviewedStore(t *testing.T, n int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "s.db")
	sys, err := gavel.Open(t.Context(), gavel.Config{Store: file, Model: func(judge.Memory) (judge.Layer, error) { return gullible{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	agent, operator := engine.Principal{ID: "agent", Role: engine.RoleAgent}, engine.Principal{ID: "op", Role: engine.RoleOperator}
	if _, err := sys.Engine.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(reviewedFlow)}); err != nil {
		t.Fatal(err)
	}
	decide := func(by string, unit int, how judge.Outcome) {
		t.Helper()
		started, err := sys.Engine.Start(t.Context(), agent, engine.StartRequest{Type: "repair"})
		if err != nil {
			t.Fatal(err)
		}
		data := document.ReadTrusted(fmt.Appendf(nil, `{"unit":%d,"text":"The pump was replaced and tested for an hour."}`, unit))
		asked, err := sys.Engine.Advance(t.Context(), agent, engine.AdvanceRequest{ID: started.ID, Action: "close", Data: data})
		if err != nil || asked.Review == nil {
			t.Fatalf("%v: %+v", err, asked)
		}
		if _, err := sys.Engine.Resolve(t.Context(), engine.Principal{ID: by, Role: engine.RoleReviewer}, engine.ResolveRequest{ID: asked.Review.ID, Decision: how, Reason: "c1 or not"}); err != nil {
			t.Fatal(err)
		}
	}
	for unit := range n {
		how, other := judge.Approve, judge.Reject
		if unit%5 == 0 {
			how, other = other, how
		}
		decide("rob", unit, how)
		switch {
		case unit%6 == 0:
			decide("ann", unit, other)
		case unit%3 == 0:
			decide("ann", unit, how)
		}
	}
	if err := sys.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// Decisions of persons feed every command that measures: run, calibrate, tune and agree.
func TestLabelsFromHistoryFeedTheMeasurements(t *testing.T) {
	t.Parallel()
	store, dir := reviewedStore(t, 150), t.TempDir()
	gavel := func(code int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if got := run(t.Context(), args, strings.NewReader(""), &out, &errs); got != code {
			t.Fatalf("%q: exit code %d, want %d\n%s%s", args, got, code, out.String(), errs.String())
		}
		return out.String()
	}
	file, results := filepath.Join(dir, "cases.jsonl"), filepath.Join(dir, "results.json")
	text := gavel(term.ExitOK, "eval", "import", "history", "--store", store, "--since", "90d", "--label-files", filepath.Join(dir, "labels"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	right := map[eval.Split][2]int{} // approvals that are right, and all
	for golden, err := range eval.ReadCases(file, strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		n := right[golden.Split]
		if n[1]++; golden.Expect.Outcome == judge.Approve {
			n[0]++
		}
		right[golden.Split] = n
	}
	if all := right[eval.Dev][1] + right[eval.Cal][1] + right[eval.Test][1]; all != 150+25 {
		t.Errorf("%d cases of 150 questions, with 25 disagreements", all)
	}
	if issues := gavel(term.ExitBad, "eval", "lint", file); strings.Count(issues, "[contradictory-label]") != 25 || !strings.Contains(issues, " 25 issues;") {
		t.Errorf("%s", issues)
	}

	provider := httptest.NewServer(llmtest.New(llmtest.OpenAI(), llmtest.Gullible))
	defer provider.Close()
	if code, out := evalRun(t, provider.URL, "--mode", "live", "--out", results, file); code != term.ExitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	var fitted bytes.Buffer
	run(t.Context(), []string{"eval", "calibrate", results, "--out", filepath.Join(dir, "calibration.json")}, strings.NewReader(""), &fitted, &fitted)
	cal, test := right[eval.Cal], right[eval.Test]
	for _, want := range []string{fmt.Sprintf("%d of %d approvals right on cal", cal[0], cal[1]), fmt.Sprintf("on test %d of %d approvals right", test[0], test[1])} {
		if !strings.Contains(fitted.String(), want) {
			t.Errorf("eval calibrate says not %q:\n%s", want, fitted.String())
		}
	}
	if tuned := gavel(term.ExitBad, "eval", "tune", results, "--target-risk", "0.05"); !strings.Contains(tuned, "infeasible") {
		t.Errorf("%s", tuned)
	}
	agreed := gavel(term.ExitBad, "eval", "agree", file, "--labels", filepath.Join(dir, "labels", "rob.labels"), "--labels", filepath.Join(dir, "labels", "ann.labels"))
	for _, want := range []string{"rob and ann have both labelled 50 of 150 cases", "50.0 % (25 of 50)"} {
		if !strings.Contains(agreed, want) {
			t.Errorf("eval agree says not %q:\n%s", want, agreed)
		}
	}
	// The model approved everything. Rob approved 120 of 150, and Ann 25 of 50.
	compared := gavel(term.ExitOK, "judge", "agreement", "--store", store)
	for _, want := range []string{"200 decisions of persons", "same outcome", "72.5 % (145 of 200)", "rob", "80.0 % (120 of 150)", "repair close: The comment says"} {
		if !strings.Contains(compared, want) {
			t.Errorf("judge agreement says not %q:\n%s", want, compared)
		}
	}
	if files, err := filepath.Glob(filepath.Join(dir, "labels", "*")); err != nil || len(files) != 2 || !slices.ContainsFunc(files, func(f string) bool { return filepath.Base(f) == "ann.labels" }) {
		t.Errorf("%v, %v", files, err)
	}
}
