package term

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTerminalCleansForeignText(t *testing.T) {
	t.Parallel()
	type state string
	hostile := "a\x1b[31mred\x07\x00\u009b2J\u202eevil\u2066\r\nnext\xff"
	for name, print := range map[string]func(*Terminal){
		"string":  func(t *Terminal) { t.Printf("%s", hostile) },
		"error":   func(t *Terminal) { t.Printf("%v", errors.New(hostile)) },
		"named":   func(t *Terminal) { t.Printf("%s", state(hostile)) },
		"quoted":  func(t *Terminal) { t.Printf("%q", hostile) },
		"slice":   func(t *Terminal) { t.Printf("%v", []string{hostile}) },
		"styled":  func(t *Terminal) { t.Printf("%s", t.Red(hostile)) },
		"table":   func(t *Terminal) { t.Table([][]string{{"head", "x"}, {hostile, hostile}}) },
		"aligned": func(t *Terminal) { t.Text(Align([][]string{{"head", "x"}, {hostile, hostile}})) },
		"text":    func(t *Terminal) { t.Text(hostile) },
		"library": func(t *Terminal) { _, _ = t.Write([]byte(hostile)) },
		"json":    func(t *Terminal) { _ = t.JSON(map[string]string{hostile: hostile}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			print(New(&b))
			out := b.String()
			if !utf8.ValidString(out) {
				t.Errorf("not UTF-8: %q", out)
			}
			if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && isUnsafe(r) }); i >= 0 {
				t.Errorf("a character that a terminal obeys: %q", out)
			}
			if !strings.Contains(out, "red") || !strings.Contains(out, "evil") {
				t.Errorf("text was lost: %q", out)
			}
		})
	}
}

func TestOneLineStaysOneLine(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	New(&b).Printf("%s\n", "one\ntwo\tthree\r\nfour")
	if got := strings.Count(b.String(), "\n"); got != 1 {
		t.Errorf("%d lines: %q", got, b.String())
	}
}

func TestJSONMeansTheSame(t *testing.T) {
	t.Parallel()
	want := map[string]any{"k": "a\u009b\u202e\U000e0001 <&> é 漢 \u200d", "n": "\u2028"}
	var b bytes.Buffer
	if err := New(&b).JSON(want); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, want %q", k, got[k], v)
		}
	}
}

func TestColourIsForTerminalsOnly(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	plain := New(&b)
	plain.Printf("%s", plain.Red("x"))
	if b.String() != "x" {
		t.Errorf("colour on something that is no terminal: %q", b.String())
	}
	b.Reset()
	coloured := &Terminal{w: &errWriter{w: &b}, colour: true}
	coloured.Printf("%s", coloured.Red("x\x1b[2J"))
	if got := b.String(); got != "\x1b[31mx\\x1b[2J\x1b[0m" {
		t.Errorf("got %q", got)
	}
}

// On a terminal, outcomes are coloured in the columns that hold them and nowhere else, and columns stay aligned.
func TestOutcomesHaveColours(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"ACTION", "OUTCOME", "BY"}, {"approve", "reject", "a"}, {"x", "approved by ada", "b"}, {"y", "escalate \a", "c"}, {"z", "other", "d"}}
	var b bytes.Buffer
	coloured := &Terminal{w: &errWriter{w: &b}, colour: true}
	coloured.Table(rows)
	const want = "ACTION   OUTCOME          BY\n" +
		"approve  \x1b[31mreject\x1b[0m           a\n" +
		"x        \x1b[32mapproved by ada\x1b[0m  b\n" +
		"y        \x1b[33mescalate \\a\x1b[0m      c\n" +
		"z        other            d\n"
	if b.String() != want {
		t.Errorf("got\n%q\nwant\n%q", b.String(), want)
	}
	b.Reset()
	New(&b).Table(rows)
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("a pipe gets colours: %q", b.String())
	}
}

func FuzzClean(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b]0;title\x07\u202e\xc3\x28")
	f.Fuzz(func(t *testing.T, s string) {
		out := Clean(s)
		if !utf8.ValidString(out) || strings.IndexFunc(out, isUnsafe) >= 0 {
			t.Errorf("clean(%q) = %q", s, out)
		}
		if Clean(out) != out {
			t.Errorf("clean is not stable for %q", s)
		}
		raw, err := json.Marshal(strings.ToValidUTF8(s, "?"))
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if json.Unmarshal(raw, &before) != nil || json.Unmarshal([]byte(EscapeJSON(string(raw))), &after) != nil || before != after {
			t.Errorf("escapeJSON changed %q to %q", before, after)
		}
	})
}

// A narrow terminal wraps the widest column; a file gets each row on one line.
func TestTableFitsTheTerminal(t *testing.T) {
	t.Parallel()
	widths := []int{17, 60, 30}
	for _, c := range []struct {
		words []int
		width int
		want  map[int]int
	}{
		{[]int{17, 8, 9}, 111, map[int]int{}},
		{[]int{17, 8, 9}, 80, map[int]int{2: 29}},
		{[]int{17, 8, 9}, 40, map[int]int{2: 9, 3: 10}},
		{[]int{17, 8, 9}, 35, map[int]int{1: 14, 2: 8, 3: 9}}, // breaks a word because that helps
		{[]int{17, 8, 9}, 20, map[int]int{2: 8, 3: 9}},        // does not, because it would not help
		{[]int{17, 40, 9}, 60, map[int]int{2: 30, 3: 9}},
	} {
		limits := map[int]int{}
		for _, config := range wrapColumns(widths, c.words, c.width) {
			limits[config.Number] = config.WidthMax
		}
		if !maps.Equal(limits, c.want) {
			t.Errorf("columns of %v with words of %v are limited to %v on %d, not to %v", widths, c.words, limits, c.width, c.want)
		}
	}
	var b bytes.Buffer
	long := strings.Repeat("word ", 60) + "end"
	New(&b).Table([][]string{{"A", "B", "C"}, {"漢字", long, ""}, {"x", "y", "z"}})
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 4 || lines[1] != "漢字  "+long || !strings.HasPrefix(lines[2], "x     y  ") || lines[0] != strings.TrimRight(lines[0], " ") {
		t.Errorf("a file gets\n%s", b.String())
	}
	const aligned = "  kept     0\n  漢字\n  dropped  12\n"
	if got := Align([][]string{{"  kept", "0", ""}, {"  漢字", "", ""}, {"  dropped", "12", ""}}); got != aligned {
		t.Errorf("a report gets\n%s", got)
	}
}

// A terminal that is too narrow for whole words omits as few spare columns as possible.
func TestNarrowTerminalsOmitColumns(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"WHEN", "A", "B", "REASON"}, {"1m ago", "aaaaaaaaaa", "bbbbbbbbbb", "some words here"}, {"2m ago", "a", "b", "more"}}
	for width, want := range map[int]string{0: "WHEN A B REASON", 60: "WHEN A B REASON", 36: "WHEN A B REASON", 35: "WHEN A REASON", 22: "WHEN REASON", 5: "WHEN REASON"} {
		got, left := omitColumns(rows, width, []string{"C", "B", "A"})
		if heads := strings.Join(got[0], " "); heads != want || len(left) != len(rows[0])-len(got[0]) || len(got[2]) != len(got[0]) {
			t.Errorf("at %d columns a table has %q and does without %q, want %q", width, heads, left, want)
		}
	}
}

func TestTheLastLineIsTheVerdict(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	code := New(&b).PrintError(&ExitError{Code: ExitBad, Err: errors.New("the file has mistakes"), Hint: "fix them", Lines: []string{"f:1: one"}})
	if want := "f:1: one\n  hint: fix them\ngavel: the file has mistakes\n"; b.String() != want || code != ExitBad {
		t.Errorf("got %q", b.String())
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	if got := Count(1, "history") + ", " + Count(2, "history") + ", " + Count(int64(0), "event") + ", " + Count(2, "day") + ", " + Count(3, "loss"); got != "1 history, 2 histories, 0 events, 2 days, 3 losses" {
		t.Error(got)
	}
}
