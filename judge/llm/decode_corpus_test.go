package llm_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// completionCase is one recorded answer with the expected result.
type completionCase struct {
	Name string `json:"name"`
	llm.Exchange
	Expect struct {
		Approved   *bool     `json:"approved"`
		Confidence *float64  `json:"confidence"`
		Error      llm.Class `json:"error"`
		Lenient    *bool     `json:"lenient"`
		Criteria   *int      `json:"criteria"`
		RetryMs    *int64    `json:"retryAfterMs"`
		Param      *string   `json:"param"`
	} `json:"expect"`
	Note string `json:"note"`
}

// TestCorpus reads the shared collection of recorded answers, if present.
func TestCorpus(t *testing.T) {
	t.Parallel()
	cases := readCases(t, filepath.Join("..", "..", "..", "shared", "corpus", "judge_completions.json"))
	if len(cases) < 81 {
		t.Fatalf("only %d cases", len(cases))
	}
	decodeAll(t, cases)
}

// TestCompletions reads this project's own collection.
func TestCompletions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "completions", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, file := range files {
		cases := readCases(t, file)
		total += len(cases)
		decodeAll(t, cases)
	}
	if total < 60 {
		t.Errorf("only %d cases", total)
	}
}

func readCases(t testing.TB, path string) []completionCase {
	t.Helper()
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("it is not here")
	} else if err != nil {
		t.Fatal(err)
	}
	var cases []completionCase
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return cases
}

func decodeAll(t *testing.T, cases []completionCase) {
	t.Helper()
	names := map[string]bool{}
	for _, c := range cases {
		if names[c.Name] {
			t.Errorf("%s is listed twice", c.Name)
		}
		names[c.Name] = true
		t.Run(c.Name, func(t *testing.T) { c.check(t) })
	}
}

func (c completionCase) check(t *testing.T) {
	t.Helper()
	answer, lenient, err := llm.Decode(c.Exchange)
	want := c.Expect
	if want.Error != "" {
		var fail *llm.Error
		if !errors.As(err, &fail) || fail.Class != want.Error {
			t.Fatalf("got %+v, %v; want %s (%s)", answer, err, want.Error, c.Note)
		}
		if fail.Message == "" {
			t.Error("it does not say what happened")
		}
		if want.RetryMs != nil && fail.RetryAfter.Milliseconds() != *want.RetryMs {
			t.Errorf("retry after %v, want %d ms", fail.RetryAfter, *want.RetryMs)
		}
		if want.Param != nil && fail.Param != *want.Param {
			t.Errorf("about %q, want %q", fail.Param, *want.Param)
		}
		return
	}
	if err != nil {
		t.Fatalf("%v (%s)", err, c.Note)
	}
	if want.Approved == nil || answer.Approved != *want.Approved || want.Confidence == nil || answer.Confidence != *want.Confidence {
		t.Fatalf("got %+v (%s)", answer, c.Note)
	}
	if want.Lenient != nil && lenient != *want.Lenient {
		t.Errorf("lenient is %t", lenient)
	}
	if want.Criteria != nil && len(answer.Criteria) != *want.Criteria {
		t.Errorf("%d criteria", len(answer.Criteria))
	}
}

// A failure that the case can cause is never attributed to the endpoint, however the endpoint words it. Links
// in a message are not mistaken for parameters.
func TestModerationIsBlamedOnTheCase(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]llm.Exchange{
		"OpenRouter":        {Status: 403, Body: `{"error":{"code":403,"message":"Your input was flagged","metadata":{"reasons":["violence"],"flagged_input":"x"}}}`},
		"OpenRouter in 200": {Status: 200, Body: `{"error":{"code":403,"message":"Your input was flagged"}}`},
		"xAI":               {Status: 403, Body: `{"code":"forbidden","error":"Content violates usage guidelines."}`},
		"a wall":            {Status: 403, Body: `<html><title>Request blocked</title></html>`},
		"OpenAI":            {Status: 400, Body: `{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy. See https://platform.example/docs/guides/reasoning#advice","code":"invalid_prompt"}}`},
		"a link":            {Status: 400, Body: `{"error":{"message":"Invalid message. See https://docs.example/tools/seed"}}`},
	} {
		_, _, err := llm.Decode(x)
		if class := llm.ClassOf(err); !class.Traits().FromCase || class == llm.ClassMalformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, x := range map[string]llm.Exchange{
		"key":    {Status: 403, Body: `{"error":{"message":"This key may not use this model","type":"permission_error"}}`},
		"region": {Status: 403, Body: `{"error":{"message":"Country, region, or territory not supported"}}`},
	} {
		if _, _, err := llm.Decode(x); llm.ClassOf(err) != llm.ClassAuth {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An envelope that contradicts itself contains no verdict.
func TestContradictingEnvelopes(t *testing.T) {
	t.Parallel()
	const verdict = `"message":{"content":"{\"approved\":true,\"confidence\":1}"}`
	for name, body := range map[string]string{
		"error twice":  `{"error":null,"error":{"message":"no"},"choices":[{` + verdict + `}]}`,
		"finish twice": `{"choices":[{"finish_reason":"stop","finish_reason":"content_filter",` + verdict + `}]}`,
	} {
		if answer, _, err := llm.Decode(llm.Exchange{Status: 200, Body: body}); err == nil {
			t.Errorf("%s: %+v", name, answer)
		}
	}
}
