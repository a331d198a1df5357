package workflow_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// examples are the definitions that come with the program.
func examples(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, pattern := range []string{"*.json", "*.yaml"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "workflows", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			doc, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.Base(f)] = doc
		}
	}
	if len(out) < 7 {
		t.Fatalf("only %d examples found", len(out))
	}
	return out
}

func TestExamplesParse(t *testing.T) {
	for name, doc := range examples(t) {
		d, err := workflow.Parse(name, doc)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		again, err := workflow.Parse(d.Name, d.Document)
		if err != nil {
			t.Errorf("%s: its own document does not parse: %v", name, err)
		} else if again.Hash != d.Hash {
			t.Errorf("%s: hash %s became %s", name, d.Hash, again.Hash)
		}
	}
}
