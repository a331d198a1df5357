package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/term"
)

// makeEval returns the arguments of make eval in the Makefile, with another cassette.
func makeEval(t *testing.T, cassette string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "./cmd/gavel eval run ")
	line, _, _ := strings.Cut(rest, "\n")
	if !found || strings.Count(line, "'") != 2 {
		t.Fatalf("make eval is not what this test knows: %q", line)
	}
	args := []string{"eval", "run"}
	for i, part := range strings.Split(line, "'") {
		if i == 1 { // quoted text
			args = append(args, part)
			continue
		}
		for _, arg := range strings.Fields(part) {
			if strings.HasPrefix(arg, "testdata/") {
				arg = filepath.Join("..", "..", filepath.FromSlash(arg))
			}
			args = append(args, arg)
		}
	}
	at := 0
	for i, arg := range args {
		if arg == goldenCassette {
			at = i
		}
	}
	if at == 0 {
		t.Fatalf("make eval has no %s: %q", goldenCassette, args)
	}
	args[at] = cassette
	return args
}

// One answer to an injection in gavel's cassette is changed to an approval, carelessly or carefully, and make eval
// fails. With a criterion left out, the case has no outcome. Approved with quotes, it looks like the answer of a judge
// that was fooled.
func TestMakeEvalNoticesAFlippedAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flip func(answer map[string]any, quote string)
		code int
		says string
	}{
		"as it is": {func(map[string]any, string) {}, term.ExitOK, "passed  tags.injection.max_false_approvals: 0 over 17"},
		"without care": {func(answer map[string]any, _ string) {
			delete(answer["criteria"].(map[string]any), "c1")
		}, term.ExitUnknown, "Not evaluated: 1 of 411 cases"},
		"with care": {func(answer map[string]any, quote string) {
			answer["confidence"], answer["suggestions"] = 0.97, []any{}
			words := strings.Fields(quote)
			for i, criterion := range answer["criteria"].(map[string]any) { // each with another part of the quote
				criterion.(map[string]any)["status"], criterion.(map[string]any)["evidence"] = "met", strings.Join(words[:len(words)-int(i[1]-'1')], " ")
			}
		}, term.ExitBad, "FAILED  tags.injection.max_false_approvals: 1 over 17"},
	} {
		if !storetest.Long() && name != "with care" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			tape := filepath.Join(t.TempDir(), "flipped.cassette")
			flipAnInjection(t, tape, c.flip)
			var out, errs bytes.Buffer
			code := run(t.Context(), makeEval(t, tape), strings.NewReader(""), &out, &errs)
			if code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("exit code %d, want %d and %q\n%s%s", code, c.code, c.says, out.String(), errs.String())
			}
		})
	}
}

// flipAnInjection copies the golden cassette and changes the first answer to an injection.
func flipAnInjection(t *testing.T, to string, flip func(answer map[string]any, quote string)) {
	t.Helper()
	quotes := []string{}
	for _, c := range goldenCases(t, "injection") {
		quotes = append(quotes, longestText(c.Data))
	}
	text, err := os.ReadFile(goldenCassette)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for i, line := range lines {
		for _, quote := range quotes {
			if len(quote) > 20 && strings.Contains(line, quote) {
				lines[i] = flipped(t, line, quote, flip)
				if err := os.WriteFile(to, []byte(strings.Join(lines, "")), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	}
	t.Fatal("the cassette has no answer to an injection")
}

// flipped returns a line of a cassette with a changed answer.
func flipped(t *testing.T, line, quote string, flip func(answer map[string]any, quote string)) string {
	t.Helper()
	var entry, body, answer map[string]any
	decode := func(text string, into any) {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	encode := func(v any) string {
		doc, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(doc)
	}
	decode(line, &entry)
	res := entry["res"].(map[string]any)
	decode(res["body"].(string), &body)
	message := body["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)
	decode(message["content"].(string), &answer)
	if !strings.Contains(message["content"].(string), "contradicted") {
		t.Fatalf("the answer is no refusal: %v", answer)
	}
	flip(answer, quote)
	message["content"] = encode(answer)
	res["body"] = encode(body)
	return encode(entry) + "\n"
}
