package chain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

var jsonBlock = regexp.MustCompile("(?s)```json\n(.*?)```")

// TestPageShowsTheSeed compares docs/chains.md with the definitions that TestSeedRuns runs: complete
// examples must equal one of them, and excerpts must be contained in them.
func TestPageShowsTheSeed(t *testing.T) {
	page, err := os.ReadFile("../../../docs/chains.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/seed/*.json")
	if err != nil {
		t.Fatal(err)
	}
	seed := map[string]bool{} // every value in a definition, and every member of an object
	for _, file := range files {
		doc, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var visit func(any)
		visit = func(v any) {
			seed[marshal(v)] = true
			switch v := v.(type) {
			case map[string]any:
				for key, inner := range v {
					visit(inner)
					seed[marshal(map[string]any{key: inner})] = true
				}
			case []any:
				for _, inner := range v {
					visit(inner)
				}
			}
		}
		visit(decodeJSON(doc))
	}
	var whole []string
	for _, block := range jsonBlock.FindAllSubmatch(page, -1) {
		if _, err := document.ReadJSON(block[1], document.Limits{}); err != nil {
			t.Fatalf("%v\n%s", err, block[1])
		}
		value, _ := decodeJSON(json.RawMessage(block[1])).(map[string]any)
		if !seed[marshal(value)] {
			t.Errorf("no example of testdata/seed has this, so nothing runs it:\n%s", block[1])
		}
		if name, ok := value["name"].(string); ok {
			whole = append(whole, name)
		}
	}
	if want := []string{"daily_site_check", "form_test_workflow", "compare_sites"}; !slices.Equal(whole, want) {
		t.Errorf("the page shows %q, want %q", whole, want)
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n# (\\S+)\n(.*?)```")

// TestPageShowsAState checks that both parsers accept the example of a state that starts a chain.
func TestPageShowsAState(t *testing.T) {
	page, err := os.ReadFile("../../../docs/chains.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, block := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
		blocks[block[1]] = block[2]
	}
	w, err := workflow.Parse("build.yaml", []byte(blocks["flows/build.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse("clean-up.yaml", []byte(blocks["chains/clean-up.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	if issues := CheckEntries([]*workflow.Definition{w}, map[string]*Definition{d.Name: d}); len(issues) > 0 {
		t.Errorf("%v", issues)
	}
	if o := findOnEnter(w.States["ERROR"]); o == nil || w.States["ERROR"].Transitions[o.OnSuccess] == nil || w.States["ERROR"].Transitions[o.OnFailure] == nil {
		t.Errorf("%+v", o)
	}
}
