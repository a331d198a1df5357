package workflow_test

import (
	"io/fs"
	"path"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/testdata"
	"github.com/gavel-mcp/gavel/validators"
)

// examples are the definitions that come with the program.
func examples(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	files, err := fs.Glob(testdata.Workflows, "workflows/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if out[path.Base(f)], err = testdata.Workflows.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	if len(out) < 7 {
		t.Fatalf("only %d examples found", len(out))
	}
	return out
}

func TestExamplesAreClean(t *testing.T) {
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
		for _, trusted := range []bool{true, false} {
			issues, err := d.Lint(t.Context(), workflow.LintOptions{Compiler: compiler(), Owner: validators.Owner{ID: "test", Trusted: trusted}, Models: []string{"any"}})
			issues = slices.DeleteFunc(issues, func(i workflow.Issue) bool {
				return i.Severity == workflow.SeverityNote || !trusted && i.Rule == "evidence-not-operator"
			})
			if err != nil || len(issues) > 0 {
				t.Errorf("%s: %v, %v", name, issues, err)
			}
		}
	}
}
