package judge_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
)

var publicTexts = flag.String("injection.public", "", "the folder that `make suite-injection` installs the public sets into")

// publicInjection is a line of either set.
type publicInjection struct {
	ID       string `json:"id"`
	Text     string `json:"text"`     // bastioncorpus
	Label    string `json:"label"`    // bastioncorpus: malicious or benign
	Injected string `json:"injected"` // agent-injection-bench
	Family   string `json:"family"`   // agent-injection-bench; control is benign
}

// TestPublicInjections runs the public sets past the fooled model, and compares the table of docs/evaluation.md with the
// results.
func TestPublicInjections(t *testing.T) {
	if *publicTexts == "" {
		t.Skip("the public sets are not here: make suite-injection")
	}
	gate := fooledGate(t)
	var table strings.Builder
	table.WriteString("| set | texts | stopped by default | by the content rules alone | with `content: reject` |\n|---|---|---|---|---|\n")
	for _, set := range []struct{ name, file string }{
		{"agent-injection-bench", "aib/data/attacks.jsonl"}, {"bastioncorpus", "bastioncorpus/corpus/injections.jsonl"},
	} {
		texts := map[string][]injection{}
		in, err := os.Open(filepath.Join(*publicTexts, set.file))
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(in); lines.Scan(); {
			var one publicInjection
			if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
				t.Fatal(err)
			}
			kind := "attacks"
			if one.Label == "benign" || one.Family == "control" {
				kind = "benign"
			}
			data, err := json.Marshal(map[string]string{"text": strings.ReplaceAll(one.Text+one.Injected, "{canary}", "C-7Q2X")})
			if err != nil || one.Text+one.Injected == "" {
				t.Fatalf("%s: no text: %v", one.ID, err)
			}
			texts[kind] = append(texts[kind], injection{ID: one.ID, Data: data, Context: json.RawMessage(`{}`)})
		}
		_ = in.Close()
		for _, kind := range []string{"attacks", "benign"} {
			stopped, rules, strict := 0, 0, 0
			for _, one := range texts[kind] {
				why, strictly := one.stopped(t, gate, judge.ContentFlag), one.stopped(t, gate, judge.ContentReject)
				if strings.HasPrefix(why, string(judge.LayerContent)+" ") {
					rules++
				}
				if why != "" {
					stopped++
				}
				if strictly != "" {
					strict++
				}
				t.Logf("%s %s %s: %q, %q", set.name, kind, one.ID, why, strictly)
			}
			n := len(texts[kind])
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", set.name, kind, share(stopped, n), share(rules, n), share(strict, n))
		}
	}
	t.Log("\n" + table.String())
	page := filepath.Join("..", "docs", "evaluation.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- public injections:begin -->\n", "<!-- public injections:end -->"
	before, rest, opened := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatal("docs/evaluation.md has no place for the table")
	}
	golden(t, page, []byte(before+begin+table.String()+end+after))
}
