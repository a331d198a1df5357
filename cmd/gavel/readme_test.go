package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const (
	readmeFile  = "../../README.md"
	demoBegins  = "<!-- demo:begin -->\n```text\n"
	demoEnds    = "```\n<!-- demo:end -->"
	demoCommand = "$ go run ./cmd/gavel demo\n"
)

// What the README shows is what the demo prints.
func TestReadmeShowsTheDemo(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("gavel", "demo")
	cmd.Env = append(withoutSettings(os.Environ()), "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := demoCommand + steady(string(out))

	readme, err := os.ReadFile(readmeFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := bytes.Cut(readme, []byte(demoBegins))
	shown, after, ok2 := bytes.Cut(rest, []byte(demoEnds))
	if !ok1 || !ok2 {
		t.Fatalf("README.md has no %q ... %q", demoBegins, demoEnds)
	}
	if string(shown) == want {
		return
	}
	if *update {
		page := string(before) + demoBegins + want + demoEnds + string(after)
		if err := os.WriteFile(readmeFile, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("README.md is stale; run: go test ./cmd/gavel -run %s -update\nthe demo prints:\n%s", t.Name(), want)
}

// steady replaces what differs from run to run.
func steady(s string) string {
	for pattern, by := range map[string]string{
		`(wf|cp|dec)-[0-9a-f]{8}-[0-9a-f-]{27}`: "$1-01a1fc23-8bcb-7b58-8bdb-ccd806835455",
		`gavel \S+ over MCP`:                    "gavel (devel) over MCP",
		`store \S+`:                             "store gavel-demo/gavel.db",
	} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, by)
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}
