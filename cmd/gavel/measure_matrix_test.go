package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/internal/modules/measure/report"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// Three models are three cells over the same cases.
func TestMatrix(t *testing.T) {
	t.Parallel()
	model := llmtest.New(llmtest.OpenAI(), func(q llmtest.Question) llmtest.Thought {
		if q.Model == "strict" {
			return llmtest.Rejecter(q)
		}
		return llmtest.Gullible(q)
	})
	provider := httptest.NewServer(model)
	defer provider.Close()
	dir := t.TempDir()
	gates := filepath.Join(dir, "gates.yaml")
	if err := os.WriteFile(gates, []byte("max_false_approve: 0.5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := func(name string) string { return filepath.Join(dir, name) }
	args := []string{"--model", "strict,easy,lax", "--prompt", "v4", "--mode", "record", "--cassette", out("tape.jsonl"), "--gates", gates}
	for _, name := range []string{"m.json", "m.html", "m.xml", "m.txt", "m.jsonl"} {
		args = append(args, "--out", out(name))
	}
	code, text := evalRun(t, provider.URL, append(args, smallSet(t, 40))...)
	if code != term.ExitBad || model.Count() != 120 {
		t.Fatalf("exit code %d, %d requests\n%s", code, model.Count(), text)
	}
	for _, want := range []string{
		"  strict transition/v4  passed  0.0 % (0 of 20)", "  lax transition/v4     FAILED  100.0 % (20 of 20)",
		"Against strict transition/v4", "  easy transition/v4  20                   0     1.000          1.000 to 1.000 ", "at 97.5 %; their intervals resample groups. All 2 together keep 95 % (Bonferroni).",
		"\nFAILED: 2 of 3 cells: easy transition/v4 (1 of 1 gates do not hold), lax transition/v4 (1 of 1 gates do not hold)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q\n%s", want, text)
		}
	}
	for name, wants := range map[string][]string{
		"m.html":  {"<title>Judges compared</title>", "other than strict transition/v4 (40)", "reject / approve / approve, right is reject", `<p class="kind">easy transition/v4</p>`},
		"m.xml":   {`name="easy transition/v4: gates" tests="2" failures="2"`, `name="strict transition/v4: cases" tests="40"`},
		"m.jsonl": {`{"cell":"easy transition/v4","case":"c39"`},
	} {
		raw, err := os.ReadFile(out(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(raw), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
	// The file can be read again, and each cell is a file of results.
	var again bytes.Buffer
	if code := run(t.Context(), []string{"eval", "report", out("m.json")}, strings.NewReader(""), &again, &again); code != term.ExitOK || !strings.HasSuffix(text, again.String()) {
		t.Errorf("exit code %d\n%s", code, cmp.Diff(text, again.String()))
	}
	f, err := os.Open(out("m.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := report.ReadMatrix(f)
	if err != nil || len(m.Cells) != 3 || m.Cells[1].Run.Results[0].Model != "easy" {
		t.Fatalf("%v: %+v", err, m.Cells)
	}
	// The cells share the budget, even if a model has another endpoint. Recorded answers serve fewer cells.
	other := llmtest.New(llmtest.OpenAI(), llmtest.Gullible)
	elsewhere := httptest.NewServer(other)
	defer elsewhere.Close()
	code, text = evalRun(t, provider.URL, "--model", "strict,easy@"+elsewhere.URL, "--mode", "live", "--max-calls", "50", "--workers", "1", smallSet(t, 40))
	if code != term.ExitUnknown || model.Count() != 145 || other.Count() != 25 || !strings.Contains(text, "FAILED: 2 of 2 cells: strict (not evaluated), easy (not evaluated)") || strings.Count(text, "Not evaluated: 15 of 40") != 1 {
		t.Errorf("exit code %d, %d requests\n%s", code, model.Count(), text)
	}
	code, text = evalRun(t, provider.URL, "--model", "easy,lax", "--mode", "replay", "--cassette", out("tape.jsonl"), smallSet(t, 40))
	if code != term.ExitOK || !strings.Contains(text, "\nPASSED: none of 2 cells is significantly worse than the first; no gate was given") {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// One model with one prompt is not a matrix, but the run uses that model.
func TestOneCellIsARun(t *testing.T) {
	t.Parallel()
	var asked []string
	provider := httptest.NewServer(llmtest.New(llmtest.OpenAI(), func(q llmtest.Question) llmtest.Thought {
		asked = append(asked, q.Model)
		return llmtest.Approver(q)
	}))
	defer provider.Close()
	cases := smallSet(t, 2)
	panel := `{"name": "flow", "initialState": "draft", "judgeConfig": {"useLLM": true, "criteria": ["The text is clear."], "panel": {"models": ["a", "b", "c"]}},
		"states": {"draft": {"transitions": {"submit": "done"}}, "done": {"final": true}}}`
	if err := os.WriteFile(filepath.Join(filepath.Dir(cases), "flow.json"), []byte(panel), 0o600); err != nil {
		t.Fatal(err)
	}
	code, text := evalRun(t, provider.URL, "--model", "other", "--prompt", "v4", "--mode", "live", "--workers", "1", cases)
	if code != term.ExitOK || !slices.Equal(asked, []string{"other", "other"}) || !strings.Contains(text, "model other, prompt transition/v4") {
		t.Errorf("exit code %d, asked %q\n%s", code, asked, text)
	}
	for _, wrong := range [][]string{
		{"--model", "a,b", "--structural"},
		{"--prompt", "v4", "--structural"},
		{"--model", "a,a"},
		{"--model", "a,a@http://127.0.0.1:9"},
		{"--model", "a@http://127.0.0.1:9,b"},
		{"--prompt", "v99"},
		{"--prompt", "v3", "--mode", "live"},
		{"--model", "a,b", "--baseline", "r.json"},
		{"--model", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "--cassette", "x.jsonl"},
	} {
		if code, text := evalRun(t, "http://127.0.0.1:9", append(wrong, "cases.jsonl")...); code != term.ExitUsage {
			t.Errorf("%v: exit code %d\n%s", wrong, code, text)
		}
	}
}

// A cell that is significantly worse than the first is a regression, even without gates.
func TestWorseCellIsARegression(t *testing.T) {
	t.Parallel()
	provider := httptest.NewServer(llmtest.New(llmtest.OpenAI(), func(q llmtest.Question) llmtest.Thought {
		if q.Model == "strict" {
			return llmtest.Rejecter(q)
		}
		return llmtest.Gullible(q)
	}))
	defer provider.Close()
	for models, want := range map[string]int{"strict,easy": term.ExitRegression, "easy,strict": term.ExitOK} {
		if code, text := evalRun(t, provider.URL, "--model", models, "--mode", "live", smallSet(t, 40)); code != want {
			t.Errorf("%s: exit code %d\n%s", models, code, text)
		}
	}
}
