package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Where pages show what a demo prints.
const (
	demoBegins = "<!-- demo:begin -->\n```text\n"
	demoEnds   = "```\n<!-- demo:end -->"
)

// What the README shows is what the demo prints.
func TestReadmeShowsTheDemo(t *testing.T) {
	t.Parallel()
	showsDemo(t, "../../README.md", "demo")
}

// showsDemo fails when a page does not show what a demo prints; with -update it does
// afterwards.
func showsDemo(t *testing.T, file string, args ...string) {
	t.Helper()
	cmd := exec.Command("gavel", args...)
	cmd.Env = append(withoutSettings(os.Environ()), "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "$ go run ./cmd/gavel " + strings.Join(args, " ") + "\n" + steady(string(out))

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := bytes.Cut(text, []byte(demoBegins))
	shown, after, ok2 := bytes.Cut(rest, []byte(demoEnds))
	if !ok1 || !ok2 {
		t.Fatalf("%s has no %q ... %q", file, demoBegins, demoEnds)
	}
	if string(shown) == want {
		return
	}
	if *update {
		page := string(before) + demoBegins + want + demoEnds + string(after)
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s is stale; run: go test ./cmd/gavel -run %s -update\nthe demo prints:\n%s", file, t.Name(), want)
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
	lines := strings.Split(steadyTimes(s), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// fetchedLine is a line of the table of what was fetched, with when and how long.
var fetchedLine = regexp.MustCompile(`^(.* )(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)( +)([0-9.]+[nµm]?s)( +)(.*)$`)

// steadyTimes gives every fetch the same time, and has it take 20 ms, or 3 s when it
// took more than one. The columns stay as wide as their headers and those values are.
func steadyTimes(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if head, rest, ok := strings.Cut(line, "TOOK"); ok && strings.Contains(head, "FETCHED") {
			lines[i] = head + "TOOK  " + strings.TrimLeft(rest, " ")
		}
		m := fetchedLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		took, err := time.ParseDuration(m[4])
		if err != nil {
			continue
		}
		text := "20ms"
		if took >= time.Second {
			text = "3s"
		}
		lines[i] = fmt.Sprintf("%s2026-01-02T03:04:05Z  %-4s  %s", m[1], text, m[6])
	}
	return strings.Join(lines, "\n")
}
