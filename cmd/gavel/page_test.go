package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

var pageFiles sync.Mutex

// shownBetween returns the marks around a place in a page that shows output.
func shownBetween(place string) (begins, ends string) {
	return "<!-- " + place + ":begin -->\n```text\n", "```\n<!-- " + place + ":end -->"
}

// runDemo returns a demo's command line and output.
func runDemo(t *testing.T, args ...string) string {
	t.Helper()
	needsProgram(t)
	cmd := exec.Command("gavel", args...)
	cmd.Env = append(cli.WithoutSettings(os.Environ()), "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return "$ go run ./cmd/gavel " + strings.Join(args, " ") + "\n" + string(out)
}

// shows fails the test if a page does not show a text, apart from values that vary between runs. With -update it
// rewrites the page.
func shows(t *testing.T, file, printed string) {
	t.Helper()
	showsAt(t, file, "demo", printed)
}

// showsAt is shows for a page with several places.
func showsAt(t *testing.T, file, place, printed string) {
	t.Helper()
	want := new(exampleIDs).steady(printed)
	shownBegins, shownEnds := shownBetween(place)
	pageFiles.Lock() // several tests may update the same page
	defer pageFiles.Unlock()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := bytes.Cut(text, []byte(shownBegins))
	shown, after, ok2 := bytes.Cut(rest, []byte(shownEnds))
	if !ok1 || !ok2 {
		t.Fatalf("%s has no %q ... %q", file, shownBegins, shownEnds)
	}
	if string(shown) == want {
		return
	}
	if *update {
		page := string(before) + shownBegins + want + shownEnds + string(after)
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	t.Errorf("%s is stale; run: go test ./cmd/gavel -run %s -update\nit should show:\n%s", file, name, want)
}

// exampleIDs replaces ids by stable ones: the nth id that appears always becomes the same one.
type exampleIDs struct{ examples map[string]string }

// steady replaces values that vary between runs.
func (e *exampleIDs) steady(s string) string {
	s = anyID.ReplaceAllStringFunc(s, e.example)
	for pattern, by := range map[string]string{
		`gavel \S+ over MCP`: "gavel (devel) over MCP",
		`, store \S+`:        ", store gavel-demo/gavel.db",
		`, took \S+`:         ", took 20ms",
	} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, by)
	}
	return realigned(steadyTimes(s))
}

// example returns a UUIDv7 with about the time shown in pages.
func (e *exampleIDs) example(id string) string {
	kind, uuid, _ := strings.Cut(id, "-")
	if strings.HasPrefix(uuid, "00000000-") { // invented in the page
		return id
	}
	if got, ok := e.examples[id]; ok {
		return got
	}
	if e.examples == nil {
		e.examples = map[string]string{}
	}
	n := len(e.examples)
	at := exampleTime.UnixMilli() + int64(187_137*n)
	random := sha256.Sum256(fmt.Append(nil, "example id ", n))
	ms, r := fmt.Sprintf("%012x", at), hex.EncodeToString(random[:])
	e.examples[id] = fmt.Sprintf("%s-%s-%s-7%s-8%s-%s", kind, ms[:8], ms[8:], r[:3], r[3:6], r[6:18])
	return e.examples[id]
}

var (
	anyID       = regexp.MustCompile(`\b(wf|cp|dec|rev|run)-[0-9a-f]{8}-[0-9a-f-]{27}`)
	anyTime     = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	anyDuration = regexp.MustCompile(`^[0-9.]+[nµm]?s$`)
	columns     = regexp.MustCompile(` {2,}`)
)

// exampleTime is the time of the first id in a page.
var exampleTime = time.Date(2026, 3, 10, 9, 26, 40, 0, time.UTC)

// steadyTimes replaces times by example times. A command's times start at that of the id in its line, or of the
// first id in its output. Each later time is a little later. Future times become a day later.
func steadyTimes(s string) string {
	lines := strings.Split(s, "\n")
	began, named, steps := exampleTime, false, map[time.Time]int{}
	for i, line := range lines {
		if strings.HasPrefix(line, "$ ") {
			began, named, steps = exampleTime, false, map[time.Time]int{}
		}
		if id := anyID.FindString(line); id != "" && !strings.Contains(id, "-00000000-") && (!named || anyTime.MatchString(line)) {
			named = true
			_, uuid, _ := strings.Cut(id, "-")
			ms, _ := strconv.ParseInt(uuid[:8]+uuid[9:13], 16, 64) // valid, because anyID matched
			began = time.UnixMilli(ms).UTC()
		}
		lines[i] = anyTime.ReplaceAllStringFunc(line, func(text string) string {
			if t, err := time.Parse(time.RFC3339, text); err == nil && time.Until(t) > time.Hour {
				return began.Add(24 * time.Hour).Format(time.RFC3339)
			}
			at := began.Add(time.Duration(steps[began]) * 41 * time.Second)
			steps[began]++
			return at.Format(time.RFC3339)
		})
	}
	return strings.Join(lines, "\n")
}

// realigned formats tables anew. Durations below 3 s become 20ms, others 3s, and column widths follow.
func realigned(s string) string {
	var out, table []string
	end := func() {
		out = append(out, aligned(table)...)
		table = nil
	}
	for line := range strings.SplitSeq(s, "\n") {
		line = strings.TrimRight(line, " ")
		if strings.HasPrefix(line, " ") || !strings.Contains(line, "  ") {
			end()
			out = append(out, line)
			continue
		}
		table = append(table, line)
	}
	end()
	return strings.Join(out, "\n")
}

func aligned(table []string) []string {
	if len(table) == 0 {
		return nil
	}
	rows := make([][]string, len(table))
	for i, line := range table {
		rows[i] = columns.Split(line, -1)
		for j, cell := range rows[i] {
			if !anyDuration.MatchString(cell) {
				continue
			}
			rows[i][j] = "20ms"
			if took, err := time.ParseDuration(cell); err == nil && took >= 3*time.Second {
				rows[i][j] = "3s"
			}
		}
	}
	var b bytes.Buffer
	term.New(&b).Table(rows)
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}
