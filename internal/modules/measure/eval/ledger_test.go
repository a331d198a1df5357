package eval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/judge"
)

// drawRun draws cases and results with all possible fields.
func drawRun(t *rapid.T) (cases []Case, results []Result) {
	outcome := rapid.SampledFrom([]judge.Outcome{judge.Approve, judge.Reject, judge.Escalate})
	word := rapid.SampledFrom([]string{"", "a", "b", "injection"})
	status := rapid.SampledFrom([]string{"met", "not_met", "cannot_assess"})
	chance := rapid.Float64Range(0, 1)
	for i := range rapid.IntRange(1, 25).Draw(t, "cases") {
		c := Case{
			ID: fmt.Sprint("case-", i), Group: word.Draw(t, "group"), Tags: rapid.SliceOfN(word, 0, 3).Draw(t, "tags"),
			Workflow: json.RawMessage(rapid.SampledFrom([]string{`{"ref": "f.yaml#flow"}`, `{"ref":"g.yaml"}`, `{"name": "inline", "states": {}}`}).Draw(t, "workflow")),
			State:    word.Draw(t, "state"), Action: "go", Data: json.RawMessage(`{"text": "` + strings.Repeat("x", i) + `"}`), Context: json.RawMessage(`{"a": 1}`),
			Expect: Expect{Outcome: outcome.Draw(t, "right")}, Label: Label{Source: "synthetic"}, Split: rapid.SampledFrom([]Split{Cal, Test}).Draw(t, "split"),
			Notes: word.Draw(t, "notes"),
		}
		if rapid.Bool().Draw(t, "labelled") {
			c.Expect.Criteria = map[string]string{"c1": status.Draw(t, "c1"), "the text": status.Draw(t, "c2")}
			c.Expect.ViolationsAny = []string{"code-a"}
		}
		cases = append(cases, c)
		for n := range rapid.IntRange(0, 3).Draw(t, "repeats") {
			p := chance.Draw(t, "p")
			r := Result{
				Case: c.ID, Repeat: n, Outcome: outcome.Draw(t, "outcome"), Confidence: p, Approval: &p, Stated: &p, Reasoning: "because " + word.Draw(t, "why"),
				Unreadable: rapid.IntRange(0, 9).Draw(t, "unreadable") == 0, Codes: []string{rapid.SampledFrom([]string{"code-a", "code-b"}).Draw(t, "code")},
				DecidedBy: judge.LayerModel, Model: "m", PromptDigest: "p", CriteriaDigest: "c", Calls: 1,
				Criteria: []judge.CriterionVerdict{{ID: "c1", Text: "first", Status: status.Draw(t, "c1"), Evidence: "a quote"}, {ID: "c2", Text: "The text", Status: status.Draw(t, "c2")}, {ID: "c3"}},
			}
			if rapid.IntRange(0, 9).Draw(t, "failed") == 0 {
				r.Outcome, r.Failure = "", "model: config"
			}
			results = append(results, r)
		}
	}
	return cases, results
}

// ledgerOf returns a Ledger of them.
func ledgerOf(cases []Case, results []Result) *Ledger {
	var l Ledger
	for _, c := range cases {
		var of []Result
		for _, r := range results {
			if r.Case == c.ID {
				of = append(of, r)
			}
		}
		l.Add(c, of)
	}
	return &l
}

// No figure needs what a Ledger omits, neither directly nor after reading it from a file.
func TestLedgerLosesNoFigure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cases, results := drawRun(t)
		o := Options{Resamples: 20, Seed: 3, Unreadable: rapid.SampledFrom([]Policy{AsDecided, AsWrong, Excluded}).Draw(t, "policy")}
		l := ledgerOf(cases, results)
		var file bytes.Buffer
		if err := WriteJSON(&file, Measurement{Cases: l.Cases, Results: l.Results}); err != nil {
			t.Fatal(err)
		}
		read, err := ReadMeasurement(&file)
		if err != nil {
			t.Fatal(err)
		}
		want := Evaluate(cases, results, o)
		for name, got := range map[string]Report{"ledger": Evaluate(l.Cases, l.Results, o), "file": Evaluate(read.Cases, read.Results, o)} {
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s: %s", name, diff)
			}
		}
		flipped := append([]Result{}, results...)
		for i := range flipped {
			flipped[i].Outcome = judge.Approve
		}
		before := Calibrate(cases, results, "", "", o)
		after := Calibrate(l.Cases, l.Results, "", "", o)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("calibrate: %s", diff)
		}
		for _, c := range l.Cases {
			if c.Data != nil || c.Context != nil || len(c.Workflow) > 40 {
				t.Fatalf("kept: %s %s %s", c.Data, c.Context, c.Workflow)
			}
		}
	})
}

// Texts are kept up to a limit; those of the worst outcomes are dropped last.
func TestLedgerKeepsTheWorstWords(t *testing.T) {
	var l Ledger
	n := 3 * maxWords / maxWord
	worst := map[string]bool{}
	for i := range n {
		c := golden(fmt.Sprint("case-", i), judge.Reject)
		r := Result{Case: c.ID, Outcome: judge.Reject, Confidence: 0.9, Reasoning: strings.Repeat("r", 2*maxWord)}
		switch {
		case i%97 == 0:
			r.Outcome, worst[c.ID] = judge.Approve, true
		case i%7 == 0:
			r.Outcome, r.Failure = "", FailureBuild
		}
		l.Add(c, []Result{r})
	}
	words := 0
	for _, r := range l.Results {
		words += len(r.Reasoning)
		if len(r.Reasoning) > maxWord+len("…") {
			t.Fatalf("%d bytes of %s", len(r.Reasoning), r.Case)
		}
		if worst[r.Case] && r.Reasoning == "" {
			t.Errorf("the words of %s, which was approved, are gone", r.Case)
		}
	}
	if words > maxWords || words < maxWords-2*maxWord || len(worst) < 20 {
		t.Errorf("%d bytes of words are kept, the bound is %d; %d worst", words, maxWords, len(worst))
	}
	if got := Evaluate(l.Cases, l.Results, Options{Resamples: 1}).FalseApprove.K; got != len(worst) {
		t.Errorf("%d false approvals, want %d", got, len(worst))
	}
}

// Views are kept up to a limit; those of the worst outcomes are dropped last. System prompts are kept once.
func TestLedgerKeepsTheWorstViews(t *testing.T) {
	var l Ledger
	n := MaxViews/maxViewText + 100
	for i := range n {
		c := golden(fmt.Sprint("case-", i), judge.Reject)
		c.Data = json.RawMessage(`{"text":"` + strings.Repeat("d", 2*maxViewText) + `"}`)
		r := Result{Case: c.ID, Outcome: judge.Reject, Asked: []Exchange{{System: "be strict", User: "is it so?", Answers: []string{"no"}}}}
		if i == 3 {
			r.Outcome = judge.Approve
		}
		l.Add(c, []Result{r})
	}
	views := l.Views()
	size := 0
	for _, v := range views {
		size += len(v.Documents[0].Text)
	}
	if size > MaxViews || size < MaxViews-3*maxViewText || len(views) == n {
		t.Errorf("%d views of %d with %d bytes are kept, the bound is %d", len(views), n, size, MaxViews)
	}
	if views[3].Case != "case-3" || views[3].Answers[0].Asked[0].User != "is it so?" || views[3].Answers[0].Asked[0].System != "" {
		t.Errorf("the view of the false approval is gone: %+v", views[3].Case)
	}
	if diff := cmp.Diff([]string{"be strict"}, l.SystemPrompts); diff != "" {
		t.Error(diff)
	}
	if l.Results[0].Asked != nil {
		t.Error("a result keeps what was asked")
	}
}

// An invalid digest in a file is ignored.
func TestDigestOfAFileIsChecked(t *testing.T) {
	c := golden("a", judge.Approve)
	want := digestOf(&c)
	for _, bad := range []string{"ab", "xx", strings.Repeat("ab", 40)} {
		c.Digest = bad
		if digestOf(&c) != want {
			t.Errorf("%q counts", bad)
		}
	}
}
