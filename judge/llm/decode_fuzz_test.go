package llm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// FuzzDecode: no body makes the decoder panic, and the decoder finds an approval only if a second, independent
// and stricter reader finds one too.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "completions", "*.json"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		for _, c := range readCases(f, file) {
			f.Add(c.Status, c.Body, c.Nonce, c.Headers["retry-after"])
		}
	}
	f.Fuzz(func(t *testing.T, status int, body, nonce, retry string) {
		answer, _, err := llm.Decode(llm.Exchange{Status: status, Body: body, Nonce: nonce, Headers: map[string]string{"retry-after": retry}})
		if err != nil {
			var fail *llm.Error
			if !errors.As(err, &fail) || fail.Class == "" || fail.RetryAfter < 0 || len(fail.Message) > 1500 {
				t.Fatalf("%#v", err)
			}
			return
		}
		if answer.Confidence < 0 || answer.Confidence > 1 || status < 200 || status > 299 {
			t.Fatalf("status %d: %+v", status, answer)
		}
		if answer.Approved && !oracle(body, nonce) {
			t.Fatalf("an approval in %q", body)
		}
	})
}

// FuzzContent uses arbitrary text as the model's answer.
func FuzzContent(f *testing.F) {
	for _, seed := range []string{
		`{"approved":true,"confidence":0.9}`, "```json\n{\"approved\":true,\"confidence\":0.9}\n```", `{"approved":true,"Approved":false,"confidence":1}`,
		`{"criteria":{"c1":{"evidence":"q","status":"met","why":""}},"confidence":1}`, `{"criteria":{"c1":{"grade":3}},"confidence":1}`, `{"criteria":{},"confidence":1}`,
		`<think>{"approved":true,"confidence":1}`, `[{"approved":true,"confidence":"0.5"}]`, `{"v":{"approved":true,"confidence":1}}`, `{{{{`, `"{"`,
		`{"approved":false,"confidence":1}{"approved":true,"confidence":1}`, `<|channel|>final<|message|>{"approved":true,"confidence":1}`,
	} {
		f.Add(seed, "", "stop")
		f.Add(seed, "N1", "length")
	}
	f.Fuzz(func(t *testing.T, content, nonce, finish string) {
		body, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"content": content}, "finish_reason": finish}}})
		if err != nil {
			t.Skip()
		}
		answer, _, err := llm.Decode(llm.Exchange{Status: 200, Body: string(body), Nonce: nonce})
		if err == nil && answer.Approved && !oracle(string(body), nonce) {
			t.Fatalf("an approval in %q", content)
		}
	})
}

// oracle reads strictly and by other means. It requires an object in the model's text that encoding/json reads
// as an approval: each deciding key exactly once, in one spelling, and no object with the opposite result. It
// does not recognise thinking or choices, so it may find too many approvals, but never too few.
func oracle(body, nonce string) bool {
	var texts []string
	collect(body, &texts, 0)
	for _, text := range texts {
		for at := range text {
			if text[at] != '{' {
				continue
			}
			dec := json.NewDecoder(strings.NewReader(text[at:]))
			var raw json.RawMessage
			if dec.Decode(&raw) == nil && approval(raw, nonce) {
				return true
			}
		}
	}
	return false
}

// collect returns the document and all its strings.
func collect(doc string, out *[]string, depth int) {
	*out = append(*out, doc)
	if depth > 3 {
		return
	}
	dec := json.NewDecoder(strings.NewReader(strings.TrimPrefix(strings.TrimSpace(doc), "\ufeff")))
	joined := ""
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) || err != nil {
			break
		}
		if s, ok := token.(string); ok {
			*out = append(*out, s)
			joined += s
		}
	}
	*out = append(*out, joined, strings.ReplaceAll(joined, "text", "")) // texts may be split into parts
}

func approval(raw json.RawMessage, nonce string) bool {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	seen := map[string]int{}
	values := map[string]json.RawMessage{}
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return false
		}
		var v json.RawMessage
		if dec.Decode(&v) != nil {
			return false
		}
		for _, known := range []string{"approved", "confidence", "violations", "nonce", "criteria"} {
			if strings.EqualFold(name, known) {
				seen[known]++
				if name == known {
					values[known] = v
				}
			}
		}
	}
	keyed := seen["approved"] == 0 && seen["criteria"] == 1 && allMet(values["criteria"])
	if seen["approved"] != 1 && !keyed || seen["confidence"] != 1 || seen["violations"] > 1 {
		return false
	}
	if s := string(values["approved"]); !keyed && s != "true" && s != `"true"` {
		return false
	}
	var f float64
	if json.Unmarshal(bytes.Trim(values["confidence"], `"`), &f) != nil || f < 0 || f > 1 {
		return false
	}
	if nonce != "" {
		var got string
		if seen["nonce"] != 1 || json.Unmarshal(values["nonce"], &got) != nil || got != nonce {
			return false
		}
	}
	return true
}

// allMet reports whether criteria are an object of answers, and each is met or graded.
func allMet(raw json.RawMessage) bool {
	var criteria map[string]map[string]any
	if json.Unmarshal(raw, &criteria) != nil || len(criteria) == 0 {
		return false
	}
	for _, c := range criteria {
		if _, graded := c["grade"]; c["status"] != "met" && !graded {
			return false
		}
	}
	return true
}

func TestDecodingIsLinear(t *testing.T) { //nolint:paralleltest // counts allocations
	allocs := func(n int) float64 {
		body, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"content": strings.Repeat("{", n)}}}})
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(3, func() { _, _, _ = llm.Decode(llm.Exchange{Status: 200, Body: string(body)}) })
	}
	if small, large := allocs(1000), allocs(100_000); large > 10*small+200 {
		t.Errorf("%v allocations for a thousand braces, %v for a hundred thousand", small, large)
	}
}
