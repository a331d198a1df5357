package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/author"
	"github.com/gavel-mcp/gavel/internal/term"
)

// The tests of gavel's own workflows pass and cover every refusal by a validator. The JUnit report matches the
// table.
func TestSuites(t *testing.T) {
	t.Parallel()
	junit := filepath.Join(t.TempDir(), "report.xml")
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"test", "--json", "--junit", junit, "--min-coverage", "60", filepath.Join("..", "..", "testdata", "suites")}, strings.NewReader(""), &out, &errs)
	if code != term.ExitOK {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	var report author.TestReport
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Files) < 2 || report.Tests < 40 || report.Failed != 0 {
		t.Errorf("%d files, %d tests, %d failed", len(report.Files), report.Tests, report.Failed)
	}
	for _, f := range report.Files {
		if v := f.Coverage.Validators; v.Reached != v.All || v.All == 0 {
			t.Errorf("%s: validators %d of %d; not reached: %v", f.Path, v.Reached, v.All, v.Missing)
		}
	}
	text, err := os.ReadFile(junit)
	if err != nil {
		t.Fatal(err)
	}
	var suites struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Cases []struct {
				Name string `xml:"name,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &suites); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range suites.Suites {
		n += len(s.Cases)
	}
	// In addition to the tests, each file has a case that compares its coverage with the limit.
	if want := report.Tests + len(report.Files); suites.Tests != want || n != want || suites.Failures != 0 || len(suites.Suites) != len(report.Files) {
		t.Errorf("JUnit has %d tests in %d cases, %d failures, %d suites", suites.Tests, n, suites.Failures, len(suites.Suites))
	}
}

// With --watch, a changed workflow is tested again even if its test file is unchanged.
func TestSuitesAreWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flow := filepath.Join(dir, "flow.json")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(flow, `{"name": "flow", "initialState": "a", "states": {"a": {"transitions": {"go": {"target": "b"}}}, "b": {"final": true}}}`)
	write(filepath.Join(dir, "flow.test.yaml"), "workflow: flow.json\ntests:\n- name: it goes\n  steps:\n  - {action: go, expect: {state: b}}\n")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	shown, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, []string{"test", "--watch", dir}, strings.NewReader(""), out, io.Discard)
		_ = out.Close() // closing a pipe
		ended <- code
	}()
	lines := bufio.NewScanner(shown)
	once := func() (all []string) {
		for lines.Scan() {
			if all = append(all, lines.Text()); strings.HasPrefix(lines.Text(), "Watching ") {
				return all
			}
		}
		t.Fatalf("it ended: %q, %v", all, lines.Err())
		return nil
	}
	if first := once(); !slices.Contains(first, "1 passed, 0 failed") {
		t.Errorf("at first: %q", first)
	}
	write(flow, `{"name": "flow", "initialState": "a", "states": {"a": {"transitions": {"go": {"target": "b", "requiredFields": ["x"]}}}, "b": {"final": true}}}`)
	// A file is written in two steps, so a run in between may see an empty file.
	var again []string
	for !slices.Contains(again, "0 passed, 1 failed") {
		again = once()
	}
	stop()
	for lines.Scan() { // remaining output, until it exits
		continue
	}
	if code := <-ended; code != term.ExitOK {
		t.Errorf("stopped by hand: exit code %d", code)
	}
}
