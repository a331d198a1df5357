package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

const intake = `{"name": "intake", "initialState": "open", "judgeConfig": {"useLLM": true}, "states": {"open": {"transitions": {"file": {"target": "filed",
	"requiredFields": ["symptoms", "note"], "criteria": [
		{"text": "The note names who was called.", "when": "data.urgent === true"},
		{"text": "The note is polite.", "advisory": true},
		{"text": "The symptom has a date.", "each": "/data/symptoms"},
		{"text": "The note is thorough.", "scale": {"of": 5, "atLeast": 3, "grades": ["nothing", "little", "the main points", "nearly all", "all"]}}]}}},
	"filed": {"final": true}}}`

// What applies sometimes is asked only then, a list is asked item by item, a grade is compared by code, and advice does
// not block: through the sandbox, the judge, golden cases and the report.
func TestCriteriaWithTerms(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]string{}
	provider := httptest.NewServer(llmtest.New(llmtest.OpenAI(), func(q llmtest.Question) llmtest.Thought {
		mu.Lock()
		defer mu.Unlock()
		asked[q.Documents["data"]] = strings.Join(q.Criteria, " ")
		a := llm.Answer{Confidence: 0.95}
		for _, id := range q.Criteria {
			answer := llm.Criterion{ID: id, Status: llm.StatusMet, Evidence: "called the family and wrote it down"}
			switch {
			case id == "c2":
				answer = llm.Criterion{ID: id, Status: llm.StatusNotMet, Why: "It is curt."}
			case strings.HasPrefix(id, "c3_"):
				answer.Evidence = map[string]string{"c3_1": "a headache since last Monday", "c3_2": "a cough for two weeks now"}[id]
			case id == "c4":
				answer.Status, answer.Grade, answer.Evidence = llm.StatusGraded, 3, "wrote it down on Tuesday"
				if strings.Contains(q.Documents["data"], "little") {
					answer.Grade, answer.Why = 2, "It says little."
				}
			}
			a.Criteria = append(a.Criteria, answer)
		}
		return llmtest.Thought{Answer: a}
	}))
	defer provider.Close()
	dir := t.TempDir()
	const both = `["a headache since last Monday", "a cough for two weeks now"]`
	var cases strings.Builder
	for i, c := range []struct{ note, urgent, symptoms, outcome, criteria string }{
		{"We called the family and wrote it down on Tuesday.", "false", both, "approve", `"c2": "not_met", "c3": "met", "c4": "met"`},
		{"We called the family and wrote it down on Tuesday; urgent.", "true", both, "approve", `"c1": "met", "c3": "met"`},
		{"We called the family and wrote it down on Tuesday; little else.", "false", both, "reject", `"c4": "not_met"`},
		{"Many: we called the family and wrote it down on Tuesday.", "false", "[" + strings.TrimSuffix(strings.Repeat(`"a cough",`, 40), ",") + "]", "reject", ""},
	} {
		fmt.Fprintf(&cases, `{"id": "case%d", "workflow": {"ref": "intake.json"}, "state": "open", "action": "file", "data": {"note": %q, "urgent": %s, "symptoms": %s}, "expect": {"outcome": %q, "criteria": {%s}}, "label": {"source": "human"}, "split": "test"}`+"\n",
			i, c.note, c.urgent, c.symptoms, c.outcome, c.criteria)
	}
	for name, text := range map[string]string{"intake.json": intake, "cases.jsonl": cases.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out.html")
	code, text := evalRun(t, provider.URL, "--mode", "live", "--out", out, filepath.Join(dir, "cases.jsonl"))
	if code != term.ExitOK || !strings.Contains(text, "accuracy, three outcomes  100.0 %") {
		t.Errorf("exit code %d\n%s", code, text)
	}
	var got []string
	for _, ids := range asked {
		got = append(got, ids)
	}
	slices.Sort(got)
	if want := []string{"c1 c2 c3_1 c3_2 c4", "c2 c3_1 c3_2 c4", "c2 c3_1 c3_2 c4"}; !slices.Equal(got, want) {
		t.Errorf("asked %q", got)
	}
	page, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(page), "c3_2") || !strings.Contains(string(page), "has 40 items") {
		t.Errorf("%v: the report shows neither the items nor the refused list", err)
	}
}
