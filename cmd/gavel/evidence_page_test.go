package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gavel accepts the files in the evidence page exactly as written.
func TestEvidencePageIsClean(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blocks := fileBlock.FindAllStringSubmatch(pages(t)["../../docs/evidence.md"], -1)
	if len(blocks) != 2 {
		t.Fatalf("%d files on the page", len(blocks))
	}
	for _, b := range blocks {
		file := filepath.Join(dir, b[1])
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := []string{"--config", filepath.Join(dir, "gavel.yaml")}
	if out := runGavel(t, append([]string{"lint", "--strict", filepath.Join(dir, "flows")}, config...)...); len(out) > 0 {
		t.Errorf("lint: %s", out)
	}
	if out := runGavel(t, append([]string{"evidence", "list"}, config...)...); !strings.Contains(string(out), "tests-pass") {
		t.Errorf("list: %s", out)
	}
}
