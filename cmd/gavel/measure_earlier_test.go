package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/term"
)

// Cases and results of an earlier version can be read, and give the same figures as then. Its cassette asked with an
// edition of the prompt that is gone.
func TestEarlierEvaluation(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filepath.Join("..", "..", "testdata", "evaluation"))); err != nil {
		t.Fatal(err)
	}
	cases, before, after := filepath.Join(folder, "cases.jsonl"), filepath.Join(folder, "results.json"), filepath.Join(t.TempDir(), "results.json")
	gavel := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); code != term.ExitOK || stderr.Len() > 0 {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, stdout.String(), stderr.String())
		}
		return stdout.String()
	}
	gavel("eval", "report", before, "--out", after)
	figures := func(path string) map[string]any {
		t.Helper()
		text, err := os.ReadFile(path)
		var all map[string]any
		if err == nil {
			err = json.Unmarshal(text, &all)
		}
		if err != nil {
			t.Fatal(err)
		}
		about, _ := all["about"].(map[string]any)
		delete(about, "mode")
		delete(about, "sets")
		report, _ := all["report"].(map[string]any)
		delete(report, "incomplete") // not reported by that version
		options, _ := report["options"].(map[string]any)
		for _, key := range []string{"bins", "slices", "worst"} { // options of that version
			delete(options, key)
		}
		dropVarying(all)
		return all
	}
	was, is := figures(before), figures(after)
	for key := range was {
		if !reflect.DeepEqual(was[key], is[key]) {
			t.Errorf("%s:\n%v\nwas\n%v", key, is[key], was[key])
		}
	}
	lint, err := os.ReadFile(filepath.Join(folder, "lint.json"))
	if err != nil || gavel("eval", "lint", "--json", cases) != string(lint) {
		t.Errorf("eval lint says something else than %s (%v)", lint, err)
	}
	if out := gavel("eval", "compare", before, after); !strings.Contains(out, "14 pairs in 13 groups, 1 without a pair") || !strings.Contains(out, "0 new, 0 gone") {
		t.Errorf("%s", out)
	}
	if out := gavel("eval", "report", before); !strings.Contains(out, "14 scored of 15 (approve 7, reject 6, escalate 1) in 13 groups") || !strings.Contains(out, "14.3 % (1 of 7)") {
		t.Errorf("%s", out)
	}
}

// dropVarying removes figures that differ between versions: times, sentences, bounds of rates (which now count
// groups), figures of approvals (which are newer), and tokens and cost (which now include unusable answers).
func dropVarying(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"tookNs", "tookMs", "latency", "deterministic", "reasoning", "notes", "approvalConfidence", "promptTokens", "completionTokens", "costUSD"} {
			delete(v, key)
		}
		if _, isRate := v["k"]; isRate {
			for _, key := range []string{"draws", "low", "high", "upper"} {
				delete(v, key)
			}
		}
		for _, inner := range v {
			dropVarying(inner)
		}
	case []any:
		for _, inner := range v {
			dropVarying(inner)
		}
	}
}
