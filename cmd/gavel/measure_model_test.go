package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/llmtest"
	"github.com/gavel-mcp/gavel/prompts"
)

// smallSet writes a set of n cases that a model decides, and returns its path.
func smallSet(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	flow := `{"name": "flow", "initialState": "draft", "judgeConfig": {"useLLM": true, "criteria": ["The text is clear."]},
		"states": {"draft": {"transitions": {"submit": "done"}}, "done": {"final": true}}}`
	var cases strings.Builder
	for i := range n {
		fmt.Fprintf(&cases, `{"id": "c%d", "workflow": {"ref": "flow.json"}, "state": "draft", "action": "submit", "data": {"text": "The pump of unit %d was replaced and tested for an hour."}, "expect": {"outcome": %q}, "label": {"source": "human"}, "split": "test"}`+"\n",
			i, i, []string{"approve", "reject"}[i%2])
	}
	for name, text := range map[string]string{"flow.json": flow, "cases.jsonl": cases.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "cases.jsonl")
}

// evalRun runs gavel eval run with a provider.
func evalRun(t *testing.T, url string, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	code = run(t.Context(), append([]string{"eval", "run", "--llm-base-url", url, "--llm-model", "m", "--llm-structured", "json_schema"}, args...), strings.NewReader(""), &b, &b)
	return code, b.String()
}

// An inconsistent judge is detected: no answer comes from a cache.
func TestRepeatsAskAgain(t *testing.T) {
	t.Parallel()
	brain := func(q llmtest.Question) llmtest.Thought {
		if q.N%2 == 0 {
			return llmtest.Gullible(q)
		}
		return llmtest.Rejecter(q)
	}
	model := llmtest.New(llmtest.OpenAI(), brain)
	provider := httptest.NewServer(model)
	defer provider.Close()
	results, tape, cases := filepath.Join(t.TempDir(), "r.json"), filepath.Join(t.TempDir(), "tape.jsonl"), smallSet(t, 3)
	for i, from := range [][]string{{"live", "--cassette", tape}, {"record", "--cassette", tape}, {"replay", "--cassette", tape}} {
		code, out := evalRun(t, provider.URL, append([]string{"--repeat", "4", "--workers", "1", "--out", results, cases, "--mode"}, from...)...)
		if want := min(i+1, 2) * 12; code != term.ExitOK || model.Count() != want {
			t.Fatalf("%s: exit code %d, %d requests, want %d\n%s", from[0], code, model.Count(), want, out)
		}
		if _, err := os.Stat(tape); (err == nil) != (i > 0) {
			t.Errorf("%s: the cassette: %v", from[0], err)
		}
		if f := reportIn(t, results).Flips; f.Rate.K != 3 || f.Rate.N != 3 || f.MostRepeats != 4 {
			t.Errorf("%s: flips: %+v\n%s", from[0], f, out)
		}
	}
}

// A judge whose first answers are unreadable is still asked about every other case, and no principal's budget ends
// the measurement.
func TestCasesAreIndependent(t *testing.T) {
	t.Setenv("GAVEL_LLM_BUDGET", "5")
	model := llmtest.New(llmtest.OpenAI(), func(q llmtest.Question) llmtest.Thought {
		if q.N < 40 {
			return llmtest.Says("Looks good to me!")(q)
		}
		return llmtest.Gullible(q)
	})
	provider := httptest.NewServer(model)
	defer provider.Close()
	results := filepath.Join(t.TempDir(), "r.json")
	code, out := evalRun(t, provider.URL, "--mode", "live", "--workers", "1", "--out", results, smallSet(t, 30))
	// An unreadable answer is requested once more: 20 cases take the first 40 requests.
	if code != term.ExitOK || model.Count() != 50 {
		t.Fatalf("exit code %d, %d requests\n%s", code, model.Count(), out)
	}
	if r := reportIn(t, results); r.Unreadable.K != 20 || r.Confusion.ExpectApprove.Approve != 5 {
		t.Errorf("unreadable %+v, confusion %+v\n%s", r.Unreadable, r.Confusion, out)
	}
}

// A model that is overloaded for a while has not answered, so the case is asked again. One case without an answer
// makes the run incomplete, with a separate exit code.
func TestInstrumentFailuresAreNoAnswers(t *testing.T) {
	t.Parallel()
	overloaded := llmtest.Always(llmtest.Response{Status: 503, Header: map[string]string{"Retry-After-Ms": "20"}, Body: `{"error":{"message":"overloaded"}}`})
	for name, c := range map[string]struct {
		personality llmtest.Personality
		code        int
		says        string
	}{
		"for a while": {llmtest.Then(7, overloaded, llmtest.OpenAI()), term.ExitOK, "4 scored of 4"},
		"for one case": {func(q llmtest.Question, think func() llmtest.Thought) llmtest.Response {
			if strings.Contains(q.User, "unit 2 ") {
				return overloaded(q, think)
			}
			return llmtest.OpenAI()(q, think)
		}, term.ExitIncomplete, "Incomplete: 1 of 4 results have no outcome"},
	} {
		provider := httptest.NewServer(llmtest.New(c.personality, llmtest.Gullible))
		tape, cases := filepath.Join(t.TempDir(), "tape.jsonl"), smallSet(t, 4)
		for _, mode := range []string{"record", "replay"} { // a recording replays with its retries
			code, out := evalRun(t, provider.URL, "--mode", mode, "--cassette", tape, "--workers", "1", "--max-errors", "25%", cases)
			if code != c.code || !strings.Contains(out, c.says) || !strings.Contains(out, "0 unreadable") || strings.Contains(out, "misconfigured") {
				t.Errorf("%s, %s: exit code %d\n%s", name, mode, code, out)
			}
		}
		provider.Close()
	}
}

// A run's budget limits calls and money; later cases are not evaluated.
func TestBudgetsOfARun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args  []string
		calls int
		says  string
	}{
		{[]string{"--max-calls", "3"}, 3, "budget spent: 3 calls"},
		// An answer of the scripted model has 800 tokens in and 100 out: 0.001 USD.
		{[]string{"--llm-price-in", "1", "--llm-price-out", "2", "--max-cost", "0.0035"}, 4, "budget spent: 0.0035 USD"},
	} {
		model := llmtest.New(llmtest.OpenAI(), llmtest.Gullible)
		provider := httptest.NewServer(model)
		code, out := evalRun(t, provider.URL, append(c.args, "--mode", "live", "--workers", "1", smallSet(t, 8))...)
		provider.Close()
		if code != term.ExitUnknown || model.Count() != c.calls || !strings.Contains(out, c.says) {
			t.Errorf("%v: exit code %d, %d requests\n%s", c.args, code, model.Count(), out)
		}
	}
}

// A measurement ignores the cassette settings in the environment, which are for the gate. --mode decides, and its
// default sends nothing.
func TestModeOverridesTheEnvironment(t *testing.T) {
	model := llmtest.New(llmtest.OpenAI(), llmtest.Gullible)
	provider := httptest.NewServer(model)
	defer provider.Close()
	cases, tape := smallSet(t, 2), filepath.Join(t.TempDir(), "tape.jsonl")

	t.Setenv("GAVEL_LLM_CASSETTE_MODE", "replay")
	if code, out := evalRun(t, provider.URL, "--mode", "record", "--cassette", tape, cases); code != term.ExitOK || model.Count() != 2 {
		t.Fatalf("record: exit code %d, %d requests\n%s", code, model.Count(), out)
	}
	for _, environment := range []string{"record", "record-missing", "live"} {
		t.Setenv("GAVEL_LLM_CASSETTE_MODE", environment)
		before, err := os.ReadFile(tape)
		if err != nil {
			t.Fatal(err)
		}
		code, out := evalRun(t, provider.URL, "--cassette", tape, smallSet(t, 4))
		after, err := os.ReadFile(tape)
		if err != nil {
			t.Fatal(err)
		}
		if code != term.ExitUnknown || !strings.Contains(out, "2 of 4 cases have no outcome") || !bytes.Equal(before, after) {
			t.Errorf("replay while the environment says %s: exit code %d\n%s", environment, code, out)
		}
	}
	if model.Count() != 2 {
		t.Errorf("replaying sent %d requests", model.Count()-2)
	}
	t.Setenv("GAVEL_LLM_CASSETTE_MODE", "replay")
	t.Setenv("GAVEL_LLM_CASSETTE", tape)
	if code, out := evalRun(t, provider.URL, "--mode", "live", cases); code != term.ExitOK || model.Count() != 4 {
		t.Errorf("live: exit code %d, %d requests\n%s", code, model.Count(), out)
	}
	if code, out := evalRun(t, provider.URL, "--mode", "record-missing", "--cassette", tape, smallSet(t, 5)); code != term.ExitOK || model.Count() != 7 {
		t.Errorf("record-missing: exit code %d, %d requests\n%s", code, model.Count(), out)
	}
}

// A principal's rate limit for the model applies to moves only: a measurement asks as fast as the endpoint answers.
func TestEvaluationHasNoShare(t *testing.T) {
	t.Parallel()
	provider := httptest.NewServer(llmtest.New(llmtest.OpenAI(), llmtest.Approver))
	defer provider.Close()
	results := filepath.Join(t.TempDir(), "r.json")
	code, out := evalRun(t, provider.URL, "--llm-rate", "2", "--llm-token-rate", "10", "--mode", "live", "--max-errors", "0", "--out", results, smallSet(t, 20))
	if code != term.ExitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
}

// If a prompt edition is requested, the model gets it and it is recorded, whatever the definition names and whichever
// is the newest.
func TestPromptOfARun(t *testing.T) {
	t.Parallel()
	asked := map[string]bool{}
	provider := httptest.NewServer(llmtest.New(llmtest.OpenAI(), func(q llmtest.Question) llmtest.Thought {
		asked[q.System] = true
		return llmtest.Gullible(q)
	}))
	defer provider.Close()
	dir, cases := t.TempDir(), smallSet(t, 3)
	results, tape := filepath.Join(dir, "r.json"), filepath.Join(dir, "tape.jsonl")
	for _, id := range prompts.RecordedIDs() {
		clear(asked)
		p := mustRender(t, id)
		for _, args := range [][]string{{"--mode", "record", "--prompt", filepath.Base(id)}, {"--mode", "replay", "--prompt", id}, {"--mode", "replay"}} {
			code, out := evalRun(t, provider.URL, append(args, "--workers", "1", "--cassette", tape, "--out", results, cases)...)
			if code != term.ExitOK || len(asked) != 1 || !asked[p.System] || !strings.Contains(out, p.Digest) || strings.Contains(out, "not used") {
				t.Errorf("%v: exit code %d, %d prompts asked\n%s", args, code, len(asked), out)
			}
		}
	}
	if code, out := evalRun(t, provider.URL, "--mode", "live", "--prompt", "v0", cases); code != term.ExitUsage || !strings.Contains(out, "use "+strings.Join(prompts.RecordedIDs(), " or ")) {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// A run that is stopped reports what was judged, and continues from its cassette.
func TestStoppedRunResumes(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	model := llmtest.New(func(q llmtest.Question, think func() llmtest.Thought) llmtest.Response {
		if strings.Contains(q.User, "unit 3 ") {
			stop()
		}
		return llmtest.OpenAI()(q, think)
	}, llmtest.Approver)
	provider := httptest.NewServer(model)
	defer provider.Close()
	dir, cases := t.TempDir(), smallSet(t, 8)
	tape, lines := filepath.Join(dir, "tape.jsonl"), filepath.Join(dir, "r.jsonl")
	args := []string{"eval", "run", "--llm-base-url", provider.URL, "--llm-model", "m", "--llm-structured", "json_schema", "--mode", "record-missing", "--cassette", tape, "--workers", "1", "--out", lines, cases}
	var out bytes.Buffer
	code := run(ctx, args, strings.NewReader(""), &out, &out)
	raw, err := os.ReadFile(lines)
	done := bytes.Count(raw, []byte("\n"))
	if says := fmt.Sprintf("The run was stopped after %d of 8 cases.", done); code != term.ExitUnknown || !strings.Contains(out.String(), says) || !strings.HasSuffix(out.String(), "more than 1 %\n") {
		t.Fatalf("exit code %d\n%s", code, out.String())
	}
	if err != nil || done < 1 || done > 3 || !bytes.Contains(raw, []byte(`"answers":["{\"criteria\":{`)) {
		t.Fatalf("%v: %s", err, raw)
	}
	before := model.Count() // the fourth answer may have been recorded
	out.Reset()
	if code = run(t.Context(), args, strings.NewReader(""), &out, &out); code != term.ExitOK || model.Count()-before > 5 || model.Count()-before < 4 {
		t.Errorf("exit code %d, %d requests\n%s", code, model.Count()-before, out.String())
	}
}

func mustRender(t *testing.T, id string) prompts.Prompt {
	t.Helper()
	p, err := prompts.Render(id, prompts.Input{Criteria: []prompts.Criterion{{ID: "c1", Text: "The text is clear."}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
