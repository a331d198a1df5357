package main

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/fnv"
	"maps"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/author"
	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

var (
	goldenFolder   = filepath.Join("..", "..", "testdata", "golden")
	goldenCassette = filepath.Join(goldenFolder, "authored.cassette")
)

// goldenCases returns the cases of the set, or those with one of the tags.
func goldenCases(t *testing.T, tags ...string) (cases []eval.Case) {
	t.Helper()
	set, err := measure.ReadGolden(t.Context(), []string{goldenFolder}, nil, tags)
	if err != nil {
		t.Fatal(err)
	}
	for c, err := range set.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	return cases
}

// askedAbout finds the golden case of a question by the documents that the question shows.
func askedAbout(t *testing.T) func(llmtest.Question) (eval.Case, bool) {
	t.Helper()
	set, err := measure.ReadGolden(t.Context(), []string{goldenFolder}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	known, builder := map[string]eval.Case{}, &measure.CaseBuilder{Set: set, Definitions: measure.NewDefinitionCache()}
	for _, c := range goldenCases(t) {
		question, err := builder.Build(c)
		if err != nil {
			t.Fatal(c.ID, err)
		}
		if len(c.Evidence) > 0 {
			evidence, err := json.Marshal(c.Evidence)
			if err != nil {
				t.Fatal(c.ID, err)
			}
			if err := author.SetEvidence(&question, evidence); err != nil {
				t.Fatal(c.ID, err)
			}
		}
		prompt, err := judge.Show(question)
		if err != nil {
			t.Fatal(c.ID, err)
		}
		known[documentsIn(prompt.User)] = c
	}
	return func(q llmtest.Question) (eval.Case, bool) {
		c, ok := known[documentsIn(q.User)]
		return c, ok
	}
}

var shownDocuments = regexp.MustCompile(`(?m)^<<\w+:(context|evidence|data)>>\n(.*)\n<<\w+:end>>`)

// documentsIn returns the documents of a prompt of any edition, without its random markers.
func documentsIn(prompt string) string {
	var out []string
	for _, m := range shownDocuments.FindAllStringSubmatch(prompt, -1) {
		out = append(out, m[1]+m[2])
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// authored is the judge whose answers are in the cassette. It is not a model: it looks the label up, and wrongly
// refuses some of the cases that should be approved.
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

// lotOf returns a number below n that is fixed for a case.
func lotOf(c eval.Case, n uint32) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.ID))
	return h.Sum32() % n
}

func authoredAnswer(q llmtest.Question, c eval.Case) llmtest.Thought {
	lot := lotOf(c, 20)
	var thought llmtest.Thought
	switch {
	case c.Expect.Outcome == judge.Escalate && len(c.Expect.Criteria) == 0:
		return llmtest.Unsure(q)
	case c.Expect.Outcome == judge.Escalate:
		return unsureOf(q, c)
	case c.Expect.Outcome == judge.Reject, lot == 0: // wrong for about one in twenty
		thought = llmtest.Rejecter(q)
	default:
		thought = quoteEvidence(q, llmtest.Approver(q))
	}
	thought.Answer.Confidence = 0.8 + float64(lot)/100
	for i, known := range thought.Answer.Criteria {
		if status, ok := c.Expect.Criteria[known.ID]; ok && c.Expect.Outcome == judge.Reject && status == "not_met" {
			thought.Answer.Criteria[i].Status = llm.StatusNotMet
		}
	}
	return thought
}

// unsureOf assesses all criteria except those whose label says otherwise.
func unsureOf(q llmtest.Question, c eval.Case) llmtest.Thought {
	thought := quoteEvidence(q, llmtest.Approver(q))
	thought.Answer.Approved, thought.Answer.Confidence, thought.Answer.Reasoning = false, 0.5, "It cannot be told."
	for i, known := range thought.Answer.Criteria {
		if c.Expect.Criteria[known.ID] == "cannot_assess" {
			thought.Answer.Criteria[i].Status, thought.Answer.Criteria[i].Evidence = llm.StatusCannotAssess, ""
		}
	}
	return thought
}

// quoteEvidence adds a quote from the beginning of the evidence to the criterion that demands one.
func quoteEvidence(q llmtest.Question, thought llmtest.Thought) llmtest.Thought {
	for i, c := range thought.Answer.Criteria {
		_, line, _ := strings.Cut(q.User, "\n- "+c.ID+": ")
		if line, _, _ = strings.Cut(line, "\n"); strings.Contains(line, "[quote: from evidence") {
			letters := []rune(q.Documents["evidence"])
			quote := string(letters[:min(len(letters), 200)])
			if whole := strings.LastIndex(quote, ","); whole > 40 { // a part of a number is not a valid quote
				quote = quote[:whole]
			}
			thought.Answer.Criteria[i].Evidence = quote
		}
	}
	return thought
}

// longestText returns what an honest judge would quote: the beginning of the longest text.
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

// runGolden runs the program over the golden set, like make eval.
func runGolden(ctx context.Context, more ...string) (code int, out string) {
	var stdout, stderr bytes.Buffer
	code = run(ctx, append([]string{"eval", "run", "--llm-base-url", "http://127.0.0.1", "--llm-model", "authored", "--llm-structured", "json_schema", "--max-errors", "0", "--gates", filepath.Join(goldenFolder, "gates.yaml"), goldenFolder}, more...), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String() + stderr.String()
}

func exitOf(code int, _ string) int { return code }

// The golden set passes its gates with the cassette. With -update it is recorded again from the authored judge if the
// present cassette fails: a recording contains its time and port.
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
