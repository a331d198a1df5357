package main

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/fnv"
	"maps"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
	"github.com/gavel-mcp/gavel/validators/document"
)

var (
	goldenFolder   = filepath.Join("..", "..", "testdata", "golden")
	goldenCassette = filepath.Join(goldenFolder, "authored.cassette")
)

// goldenCases are those of the set, or those with one of the tags.
func goldenCases(t *testing.T, tags ...string) (cases []eval.Case) {
	t.Helper()
	set, err := readGolden(t.Context(), []string{goldenFolder}, nil, tags)
	if err != nil {
		t.Fatal(err)
	}
	for c, err := range set.all(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	return cases
}

// askedAbout finds the golden case that a question is about, by its data.
func askedAbout(t *testing.T) func(llmtest.Question) (eval.Case, bool) {
	t.Helper()
	known := map[string]eval.Case{}
	for _, c := range goldenCases(t) {
		known[documentKey(t, c.Data)] = c
	}
	return func(q llmtest.Question) (eval.Case, bool) {
		for _, doc := range q.Documents {
			if c, ok := known[documentKey(t, json.RawMessage(doc))]; ok {
				return c, true
			}
		}
		return eval.Case{}, false
	}
}

// authored is the judge whose answers are in the cassette: it looks the label up, and is
// wrong about some of the cases that should be approved. It is no model.
func authored(t *testing.T) llmtest.Brain {
	t.Helper()
	about := askedAbout(t)
	return func(q llmtest.Question) llmtest.Thought {
		if c, ok := about(q); ok {
			return authoredAnswer(q, c)
		}
		return llmtest.Says("no such case")(q)
	}
}

func documentKey(t *testing.T, doc json.RawMessage) string {
	t.Helper()
	if len(doc) == 0 {
		return "{}"
	}
	key, err := document.Canonical(doc)
	if err != nil {
		return ""
	}
	return string(key)
}

// lotOf is a number below n that a case always draws.
func lotOf(c eval.Case, n uint32) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.ID))
	return h.Sum32() % n
}

func authoredAnswer(q llmtest.Question, c eval.Case) llmtest.Thought {
	lot := lotOf(c, 20)
	var thought llmtest.Thought
	switch {
	case c.Expect.Outcome == judge.Escalate:
		return llmtest.Unsure(q)
	case c.Expect.Outcome == judge.Reject, lot == 0: // wrong about one in twenty
		thought = llmtest.Rejecter(q)
	default:
		thought = llmtest.Approver(q)
	}
	thought.Answer.Confidence = 0.8 + float64(lot)/100
	for i, known := range thought.Answer.Criteria {
		if status, ok := c.Expect.Criteria[known.ID]; ok && c.Expect.Outcome == judge.Reject && status == "not_met" {
			thought.Answer.Criteria[i].Status = llm.StatusNotMet
		}
	}
	return thought
}

// longestText is what an honest judge would quote: the beginning of the longest text.
func longestText(doc json.RawMessage) string {
	var fields map[string]any
	if err := json.Unmarshal(doc, &fields); err != nil {
		return ""
	}
	longest := ""
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if text, ok := fields[name].(string); ok && len(text) > len(longest) {
			longest = text
		}
	}
	if letters := []rune(longest); len(letters) > 60 {
		longest = string(letters[:60])
	}
	return longest
}

// runGolden runs the program over the golden set, as make eval does.
func runGolden(ctx context.Context, more ...string) (code int, out string) {
	var stdout, stderr bytes.Buffer
	code = run(ctx, append([]string{"eval", "run", "--llm-base-url", "http://127.0.0.1", "--llm-model", "authored", "--llm-structured", "json_schema", "--max-errors", "0", "--gates", filepath.Join(goldenFolder, "gates.yaml"), goldenFolder}, more...), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String() + stderr.String()
}

func exitOf(code int, _ string) int { return code }

// The golden set passes its gates from the cassette; with -update it is recorded anew from the
// authored judge, where the one that is there does not do: a recording holds its time and port.
func TestGoldenSetFromTheCassette(t *testing.T) {
	t.Parallel()
	if *update && exitOf(runGolden(t.Context(), "--cassette", goldenCassette)) != term.ExitOK {
		provider := httptest.NewServer(llmtest.New(llmtest.OpenAI(), authored(t)))
		defer provider.Close()
		if code, out := runGolden(t.Context(), "--mode", "record", "--cassette", goldenCassette, "--workers", "1", "--llm-base-url", provider.URL); code != term.ExitOK {
			t.Fatalf("exit code %d\n%s", code, out)
		}
	}
	code, out := runGolden(t.Context(), "--cassette", goldenCassette)
	if code != term.ExitOK || !strings.Contains(out, "labels are synthetic") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
