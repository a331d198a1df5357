package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// overconfidentSet writes n cases, two thirds of them to fit on and the rest to report. Its judge approves all of
// them. Its approvals are right more often the higher its confidence is, but always less often than the confidence
// states.
func overconfidentSet(t *testing.T, n int) (path string, brain llmtest.Brain) {
	t.Helper()
	path = smallSet(t, 1)
	var cases strings.Builder
	sure := make([]float64, n)
	for i := range n {
		// In ten cases, the share of right answers rises with the stated confidence.
		sure[i] = []float64{0.6, 0.8, 0.95}[i%3]
		right, split := "reject", "cal"
		if i/3%10 < []int{3, 5, 7}[i%3] {
			right = "approve"
		}
		if i >= n*2/3 {
			split = "test"
		}
		fmt.Fprintf(&cases, `{"id": "c%d", "workflow": {"ref": "flow.json"}, "state": "draft", "action": "submit", "data": {"unit": %d, "text": "The pump was replaced and tested for an hour."}, "expect": {"outcome": %q}, "label": {"source": "human"}, "split": %q}`+"\n", i, i, right, split)
	}
	if err := os.WriteFile(path, []byte(cases.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func(q llmtest.Question) llmtest.Thought {
		thought := llmtest.Gullible(q)
		for _, text := range q.Documents {
			var doc struct{ Unit *int }
			if json.Unmarshal([]byte(text), &doc) == nil && doc.Unit != nil {
				thought.Answer.Confidence = sure[*doc.Unit]
			}
		}
		return thought
	}
}

// eval run judges with the calibration that eval calibrate fitted: for the same recorded answers, the confidences
// come close to the shares that are right.
func TestFittedCalibrationIsUsed(t *testing.T) {
	t.Parallel()
	cases, brain := overconfidentSet(t, 450)
	provider := httptest.NewServer(llmtest.New(llmtest.OpenAI(), brain))
	defer provider.Close()
	dir := t.TempDir()
	tape, results := filepath.Join(dir, "tape.jsonl"), filepath.Join(dir, "results.json")
	if code, out := evalRun(t, provider.URL, "--mode", "record", "--cassette", tape, "--out", results, cases); code != term.ExitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	plain := filepath.Join(dir, "plain.json")
	if code, out := evalRun(t, provider.URL, "--split", "test", "--cassette", tape, "--out", plain, cases); code != term.ExitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	before := reportIn(t, plain)
	file, fitted := filepath.Join(dir, "calibrated.json"), filepath.Join(dir, "fitted.json")
	var b bytes.Buffer
	if code := run(t.Context(), []string{"eval", "calibrate", results, "--date", "2026-01-15", "--out", file}, strings.NewReader(""), &b, &b); code != term.ExitOK {
		t.Fatalf("exit code %d\n%s", code, b.String())
	}
	if !strings.Contains(b.String(), "150 of 300 approvals right on cal, in 300 groups") || !strings.Contains(b.String(), "on test 75 of 150 approvals right in 150 groups: confidence 0.783 before, 0.5") || !strings.Contains(b.String(), "good enough: approvals count") {
		t.Error(b.String())
	}
	code, out := evalRun(t, provider.URL, "--split", "test", "--cassette", tape, "--llm-calibration", file, "--out", fitted, cases)
	if code != term.ExitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	after := reportIn(t, fitted)
	if got := after.Cost.Assurance; len(got) != 1 || got[0] != (eval.Tally{Name: string(judge.AssuranceLLMCalibrated), Count: 150}) {
		t.Errorf("assurances %v", got)
	}
	if says := judgedWith(t, provider.URL, tape, cases, unmeasured(t, file)); says != string(judge.AssuranceLLM) {
		t.Errorf("a calibration that nobody measured on approvals counts as %s", says)
	}
	if after.Probability.ECE > 0.06 || after.Probability.ECE >= before.Probability.ECE || *after.Probability.Brier.Value >= *before.Probability.Brier.Value {
		t.Errorf("ECE %v, shrunk %v; Brier %v, shrunk %v", after.Probability.ECE, before.Probability.ECE, *after.Probability.Brier.Value, *before.Probability.Brier.Value)
	}
}

// unmeasured returns the calibration file as earlier versions wrote it.
func unmeasured(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	delete(all["calibrations"].([]any)[0].(map[string]any), "approvals")
	if text, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// judgedWith returns the single assurance of the test cases judged with a calibration. It requires a message on why
// the calibration is not applied.
func judgedWith(t *testing.T, provider, tape, cases, calibration string) string {
	t.Helper()
	results := filepath.Join(t.TempDir(), "results.json")
	code, out := evalRun(t, provider, "--split", "test", "--cassette", tape, "--llm-calibration", calibration, "--out", results, cases)
	if code != term.ExitOK || !strings.Contains(out, "is not applied: its fit on approvals was not measured") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	all := reportIn(t, results).Cost.Assurance
	if len(all) != 1 || all[0].Count != 150 {
		t.Fatalf("assurances %v", all)
	}
	return all[0].Name
}
