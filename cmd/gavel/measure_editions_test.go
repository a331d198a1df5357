package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// The newest edition of the prompt asks the golden set's questions with a third fewer characters than the one before,
// as an endpoint that enforces the schema gets them.
func TestNewestPromptIsShorter(t *testing.T) {
	t.Parallel()
	set, err := measure.ReadGolden(t.Context(), []string{goldenFolder}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	builder := &measure.CaseBuilder{Set: set, Definitions: measure.NewDefinitionCache()}
	size := map[string]int{}
	for _, c := range goldenCases(t) {
		question, err := builder.Build(c)
		if err != nil {
			t.Fatal(c.ID, err)
		}
		for _, edition := range []string{"v3", "v4"} {
			question.Rubric.Prompt = edition
			prompt, err := judge.Show(question)
			if err != nil {
				t.Fatal(c.ID, err)
			}
			size[edition] += len(prompt.System) + len(prompt.User)
		}
	}
	t.Logf("v4 asks with %.1f %% of v3's characters", 100*float64(size["v4"])/float64(size["v3"]))
	if 3*size["v4"] > 2*size["v3"] {
		t.Errorf("v3 %d, v4 %d characters", size["v3"], size["v4"])
	}
}

// scriptedJudges are the judges with which the editions of the prompt are compared: two that know the labels, those that
// do not read, and three that answer as models behind a grammar or without one do.
func scriptedJudges(t *testing.T) []struct {
	name  string
	brain llmtest.Brain
} {
	t.Helper()
	return []struct {
		name  string
		brain llmtest.Brain
	}{
		{"authored", authored(t)},
		{"lenient", lenientJudge(t)},
		{"garbled", garbledJudge(t)},
		{"gullible", llmtest.Gullible},
		{"liar", llmtest.Liar},
		{"contradicting", llmtest.Contradicting},
		{"rejecter", llmtest.Rejecter},
		{"unsure", llmtest.Unsure},
		{"shortest", llmtest.Shortest},
		{"leaves out", llmtest.LeavesOut(authored(t))},
		{"backwards", llmtest.Backwards(authored(t))},
	}
}

// The page of the judge compares the two editions of the prompt, for each scripted judge, on the split dev of the golden
// set. Neither lets more wrong approvals through than the other.
func TestEditionsPage(t *testing.T) {
	if !storetest.Long() && !*update {
		t.Skip("takes half a minute; GAVEL_LONG=1 has the time")
	}
	t.Parallel()
	table := [][]string{{"JUDGE", "PROMPT", "RIGHT", "WRONG", "ESCALATED", "UNREADABLE", "ASKED", "ANSWERED"}}
	for _, scripted := range scriptedJudges(t) {
		wrong := map[string]int{}
		for _, edition := range []string{"v3", "v4"} {
			var asked, answered int
			model := llmtest.New(llmtest.OpenAI(), scripted.brain)
			provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked += countAsked(t, r)
				said := httptest.NewRecorder()
				model.ServeHTTP(said, r)
				answered += countAnswered(t, said.Body.Bytes())
				w.WriteHeader(said.Code)
				_, _ = w.Write(said.Body.Bytes())
			}))
			results := filepath.Join(t.TempDir(), "results.json")
			code, out := evalRun(t, provider.URL, "--mode", "record", "--cassette", filepath.Join(t.TempDir(), "tape"), "--split", "dev", "--prompt", edition,
				"--workers", "1", "--llm-rate", "0", "--llm-token-rate", "0", "--out", results, goldenFolder)
			provider.Close()
			if code != term.ExitOK {
				t.Fatalf("%s, %s: exit code %d\n%s", scripted.name, edition, code, out)
			}
			r := reportIn(t, results)
			wrong[edition] = r.FalseApprove.K
			n := r.Counts.Scored
			table = append(table, []string{
				scripted.name, edition, fmt.Sprint(r.FalseRefuse.N - r.FalseRefuse.K), fmt.Sprint(r.FalseApprove.K), fmt.Sprint(r.Escalation.K),
				fmt.Sprint(r.Unreadable.K), fmt.Sprint(asked / n), fmt.Sprint(answered / n),
			})
		}
		if wrong["v4"] > wrong["v3"] {
			t.Errorf("%s: with v4 %d wrong approvals, with v3 %d", scripted.name, wrong["v4"], wrong["v3"])
		}
	}
	showsAt(t, filepath.Join("..", "..", "docs", "judge.md"), "editions", term.Align(table))
}

// countAsked returns the characters of a request's messages and schema, and leaves the request as it is.
func countAsked(t *testing.T, r *http.Request) (n int) {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var asked struct {
		Messages []struct{ Content string }
		Format   struct {
			Schema struct{ Schema json.RawMessage } `json:"json_schema"`
		} `json:"response_format"`
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		t.Error(err)
	}
	for _, m := range asked.Messages {
		n += len(m.Content)
	}
	return n + len(asked.Format.Schema.Schema)
}

// countAnswered returns the characters of an answer.
func countAnswered(t *testing.T, body []byte) int {
	t.Helper()
	var said struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.Unmarshal(body, &said); err != nil || len(said.Choices) == 0 {
		t.Errorf("%v: %s", err, body)
		return 0
	}
	return len(said.Choices[0].Message.Content)
}
