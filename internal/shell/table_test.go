package shell_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/shell"
)

// gates are those of the table: a program, and the arguments that it is about.
var gates = map[string][]string{"push": {"git", "push"}, "rm": {"rm"}, "test": {"make", "test"}}

// row is a line of the table, testdata/lines.txt.
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
		if len(cells) != 4 || gates[strings.TrimSpace(cells[1])] == nil {
			t.Fatalf("not a row: %s", text)
		}
		rows = append(rows, row{strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), cells[2], strings.NewReplacer("⏎", "\n", "⇥", "\t").Replace(cells[3])})
	}
	return rows
}

// classify reports whether a line matches a gate on a program, may match it, or is neutral.
func classify(s shell.Script, gate []string) string {
	mark := "neutral"
	for _, u := range s.Unknown {
		if u.Program || shell.MentionsProgram(u.Text, gate[0]) {
			mark = "unknown"
		}
	}
	for _, c := range s.Commands {
		switch one := classifyCommand(c, gate); one {
		case "matches":
			return one
		case "unknown":
			mark = one
		}
	}
	return mark
}

func classifyCommand(c shell.Command, gate []string) string {
	if c.Words[0].Known && strings.EqualFold(path.Base(c.Words[0].Text), gate[0]) {
		if mark := matchArguments(c.Words[1:], gate[1:]); mark != "neutral" {
			return mark
		}
	}
	texts := []string{c.Input}
	for _, w := range c.Words[1:] {
		texts = append(texts, w.Text)
	}
	if !c.Plain && slices.ContainsFunc(texts, func(text string) bool { return shell.MentionsProgram(text, gate[0]) }) {
		return "unknown"
	}
	return "neutral"
}

// matchArguments compares the arguments with those of a gate: git's subcommand is its first one, other
// programs have it anywhere.
func matchArguments(args []shell.Word, want []string) string {
	if len(want) == 0 {
		return "matches"
	}
	for i, w := range args {
		switch {
		case w.Text == want[0] && w.Known:
			return "matches"
		case !w.Known:
			return "unknown"
		case want[0] == "push" && i == 0:
			return "neutral"
		}
	}
	return "neutral"
}

// TestTable compares every line of the table with its mark. An escape is a line that passes though it
// runs the program: it is neutral.
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
		if got := classify(shell.Read(r.line), gates[r.gate]); got != want {
			t.Errorf("%s for %s, not %s (%s):\n%s\n%s", got, r.gate, r.mark, r.reason, r.line, say(shell.Read(r.line)))
		}
		if key := (row{gate: r.gate, line: r.line}); seen[key] {
			t.Errorf("duplicate row: %s", r.line)
		} else {
			seen[key] = true
		}
	}
}
