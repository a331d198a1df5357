package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// TestDemoEvidence compares what the demo prints with its page, and steps 2 to 4 of it
// with the README. The demo itself checks that it is right; see TestDemoChecksItself.
func TestDemoEvidence(t *testing.T) {
	t.Parallel()
	printed := runDemo(t, "demo", "evidence")
	shows(t, "../../docs/evidence.md", printed)

	command, rest, _ := strings.Cut(printed, "\n")
	_, steps, from := strings.Cut(rest, "\n 2. ")
	steps, _, to := strings.Cut(steps, "\n 5. ")
	if !from || !to {
		t.Fatalf("no steps 2 to 5:\n%s", printed)
	}
	shows(t, "../../README.md", command+"\n...\n 2. "+steps)
}

// The demo leaves nothing behind, also when it keeps the store elsewhere.
func TestDemoEvidenceCleansUp(t *testing.T) {
	t.Parallel()
	w, err := openWorkshop()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []mood{mended, gone, hanging, gone, broken, broken} {
		if err := w.become(to); err != nil {
			t.Errorf("become %s: %v", to, err)
		}
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(w.dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", w.dir, err)
	}
}

// The demo's two files are what a team would write: nothing is to be said of them.
func TestDemoEvidenceFilesAreClean(t *testing.T) {
	t.Parallel()
	root, err := document.Parse("gavel.yaml", testedChangeSources, document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := evidence.ParseConfig(root.Get("evidence"))
	if err != nil || len(cfg.Sources) != 1 {
		t.Fatalf("%d sources, %v", len(cfg.Sources), err)
	}
	d, err := workflow.Parse("tested-change.yaml", testedChange)
	if err != nil {
		t.Fatal(err)
	}
	issues, err := d.Lint(t.Context(), workflow.LintOptions{
		Compiler: plainSandbox(t), Owner: validators.Owner{ID: "test", Trusted: true}, Sources: []string{"tests-pass"},
	})
	if err != nil || len(issues) > 0 {
		t.Errorf("%v, %v", issues, err)
	}
}

func TestDemoTests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, shop string
		code       int
		want       []string
	}{
		{"broken", shops[broken], 1, []string{"--- PASS: TestPrice", "--- FAIL: TestTotal: total is 20, want 18", "FAIL\n"}},
		{"mended", shops[mended], 0, []string{"--- PASS: TestPrice", "--- PASS: TestTotal", "PASS\n"}},
		{"hanging", shops[hanging], 1, []string{"=== RUN   TestTotal"}},
		{"empty", "", 1, []string{"--- FAIL: TestPrice"}},
		{"none", "-", 2, []string{"no project"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), shopFile)
			if c.shop != "-" {
				if err := os.WriteFile(file, []byte(c.shop), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // what hangs ends at once
			var out bytes.Buffer
			if code := demoTests(ctx, file, &out); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing:\n%s", want, out.String())
				}
			}
		})
	}
}
