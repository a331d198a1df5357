package shell_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

// gates are the gates of the table, as entries of a configuration.
var gates = map[string]string{
	"push": "{program: git, args: [push]}",
	"rm":   "{program: rm}",
	"test": "{program: make, args: [test]}",
}

// row is a line of the table in testdata/lines.txt.
type row struct {
	mark, gate, reason, line string
}

func readTable(t testing.TB) (rows []row) {
	t.Helper()
	data, err := os.ReadFile("testdata/lines.txt")
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(data)) {
		text = strings.TrimSuffix(text, "\n")
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		cells := strings.SplitN(text, " | ", 4)
		if len(cells) != 4 || gates[strings.TrimSpace(cells[1])] == "" {
			t.Fatalf("not a row: %s", text)
		}
		rows = append(rows, row{strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), cells[2], strings.NewReplacer("⏎", "\n", "⇥", "\t").Replace(cells[3])})
	}
	return rows
}

// classify reports whether a line matches a gate of the table, may match it, or is neutral.
func classify(t testing.TB, line, name string) string {
	t.Helper()
	root, err := document.Parse("gates.yaml", []byte("[{tool: 'builtin:shell', workflow: w, states: s, when: ["+gates[name]+"]}]"), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := gate.ParseConfig(root)
	if err != nil {
		t.Fatal(err)
	}
	switch m := config.Match(gate.Use{Tool: gate.BuiltinShell, Working: "/p", Folders: []string{"/p"}, Script: shell.Read(line)}); {
	case len(m) == 0:
		return "neutral"
	case m[0].Unknown != "":
		return "unknown"
	}
	return "matches"
}

// TestTable compares every line of the table with its mark. An escape is a line that runs the program but is neutral,
// so it passes.
func TestTable(t *testing.T) {
	rows := readTable(t)
	if len(rows) < 300 {
		t.Errorf("%d rows", len(rows))
	}
	seen := map[row]bool{}
	for _, r := range rows {
		want := r.mark
		if want == "escape" {
			want = "neutral"
		}
		if got := classify(t, r.line, r.gate); got != want {
			t.Errorf("%s for %s, not %s (%s):\n%s\n%s", got, r.gate, r.mark, r.reason, r.line, say(shell.Read(r.line)))
		}
		if key := (row{gate: r.gate, line: r.line}); seen[key] {
			t.Errorf("duplicate row: %s", r.line)
		} else {
			seen[key] = true
		}
	}
}

var update = flag.Bool("update", false, "write the escapes into docs/hooks.md")

// TestEscapesOfThePage compares the documented list of known escapes with the table.
func TestEscapesOfThePage(t *testing.T) {
	const page, begin, end = "../../docs/hooks.md", "<!-- escapes:begin -->\n", "<!-- escapes:end -->"
	var b strings.Builder
	b.WriteString("| line | why it passes |\n|---|---|\n")
	for _, r := range readTable(t) {
		if r.mark == "escape" {
			b.WriteString("| `" + strings.NewReplacer("\n", " ⏎ ", "|", `\|`).Replace(r.line) + "` | " + r.reason + " |\n")
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), begin)
	_, tail, ok := strings.Cut(rest, end)
	if got := head + begin + b.String() + end + tail; !ok || got != string(text) {
		if !*update {
			t.Fatalf("%s is stale; run: go test ./internal/shell -run TestEscapesOfThePage -update", page)
		}
		if err := os.WriteFile(page, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
