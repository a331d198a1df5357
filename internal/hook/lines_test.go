package hook_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/hook"
	"github.com/gavel-mcp/gavel/internal/shell"
)

var updateLines = flag.Bool("update-lines", false, "write the table of docs/hooks-shell.md anew")

// linesPage holds the table of the lines behind the mark; what stands before is written by hand.
const (
	linesPage = "../../docs/hooks-shell.md"
	linesMark = "<!-- The rest is written by go test ./internal/hook -update-lines -->\n"
)

// whyNot says why a line passes.
var whyNot = map[string]string{
	"python-built":              "the language is not read, and the word does not stand in it",
	"perl":                      "the language is not read, and the word does not stand in it",
	"node-unlink":               "the language is not read, and the name does not stand in it",
	"python-remove":             "the language is not read, and the name does not stand in it",
	"python-before":             "programs in other languages are not read from files that were there before",
	"build-tool":                "the rules of build tools are not read: put the gate on `make`, or on the file",
	"makefile-of-before":        "the rules of build tools are not read: put the gate on `make`, or on the file",
	"package-script":            "the scripts of package managers are not read: put the gate on `npm`, or on the file",
	"startup-file":              "a shell's startup files are not read: put a gate on their paths",
	"hook-of-before":            "hooks of git that are there already are not read; writing one is",
	"linked-of-before":          "a program under another name: only a link or a copy in the same line is seen",
	"program-with-effect":       "another program with the same effect: name it in the gate",
	"send-pack":                 "another command with the same effect: name it in the gate",
	"fetch-from-the-other-side": "another command with the same effect: only credentials or rights at the remote bind it",
	"copied-objects":            "another way to the same effect: only credentials or rights at the remote bind it",
}

// inTheWay says why a line is stopped that does nothing.
var inTheWay = map[string]string{}

// line is a line of shell that tries to pass a gate.
type line struct {
	kind string // push, rm, other, none
	name string
	how  string
	text string
}

func readLines(t *testing.T) (lines []line) {
	t.Helper()
	for _, file := range []string{"lines", "lines_blind"} {
		a, err := txtar.ParseFile("../shell/testdata/" + file + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			head, how, _ := strings.Cut(f.Name, ": ")
			words := strings.Fields(head)
			if len(words) != 3 {
				t.Fatalf("%s: the name is not of three words and what it does", f.Name)
			}
			if words[0] != "earlier" {
				lines = append(lines, line{words[0], words[2], strings.TrimSuffix(how, "; not run"), string(f.Data)})
			}
		}
	}
	return lines
}

// How a line is seen.
const (
	seenParsed  = "the command"
	seenUnknown = "what cannot be known"
	seenCode    = "a name in code"
	seenEdit    = "a change of the file"
	seenNot     = ""
)

// TestLines reads lines that try to pass gates on git push and on rm, and writes how they end.
func TestLines(t *testing.T) {
	p := newProject(t)
	if err := os.WriteFile(filepath.Join(p, "victim"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gates := parseGates(t, `
- {tool: "builtin:shell", name: push, workflow: w, states: s, when: [{program: git, args: [push]}]}
- {tool: "builtin:shell", name: rm, workflow: w, states: s, when: [{program: rm}]}
- {tool: "builtin:edit", name: victim, workflow: w, states: s, when: [{path: victim}]}
`)
	before := map[string]string{ // what an earlier call wrote
		"tests.sh": "git push\n", "log": "\x7fELF\x00", "before.py": "import os\nos.system('git push')\n",
	}
	read := func(name string, _ int) ([]byte, error) {
		if text, ok := before[filepath.Base(name)]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}
	seen := func(l line) string {
		script := shell.Read(l.text, shell.Options{Folder: p, Home: filepath.Dir(p), ReadFile: read})
		by := seenNot
		for _, m := range gates.Match(hook.NewUse(hook.Event{Builtin: gate.BuiltinShell, Folder: p}, script)) {
			gate := strings.Fields(m.Gate.Tool)[1]
			switch {
			case l.kind != "none" && l.kind != "other" && gate != l.kind, l.kind == "none" && gate == "victim":
			case by != seenNot && by != seenUnknown:
			case strings.HasPrefix(m.Why, "The code"):
				by = seenCode
			case m.Why != "":
				by = seenUnknown
			case gate == "victim":
				by = seenEdit
			default:
				by = seenParsed
			}
		}
		return by
	}
	rows := map[string][]line{}
	attempts, harmless := 0, 0
	for _, l := range readLines(t) {
		by := seen(l)
		reasons, asked := whyNot, by == seenNot
		if l.kind == "none" {
			reasons, asked = inTheWay, by != seenNot
			harmless++
		} else {
			attempts++
		}
		if reason := reasons[l.name]; (reason != "") != asked {
			t.Errorf("%s (%s): seen as %q, and the reason is %q:\n%s", l.name, l.how, by, reason, l.text)
		}
		if l.kind == "none" && by == seenNot {
			by = "harmless"
		}
		rows[by] = append(rows[by], l)
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, "\n## The lines\n\nOf %d lines that push, remove or have the same effect:\n\n| caught as | lines |\n|---|---|\n", attempts)
	for _, by := range []string{seenParsed, seenEdit, seenUnknown, seenCode} {
		fmt.Fprintf(&page, "| %s | %d |\n", by, len(rows[by]))
	}
	fmt.Fprintf(&page, "| **not caught** | %d |\n\nOf %d harmless lines with the same words, %d are stopped.\n", len(rows[seenNot]), harmless, harmless-len(rows["harmless"]))
	for _, by := range []string{seenNot, seenCode, seenUnknown, seenEdit, seenParsed, "harmless"} {
		title, column, rule := "Caught as "+by, "", ""
		switch by {
		case seenNot:
			title, column, rule = "Not caught", " why |", "---|"
		case "harmless":
			title = "Harmless, and not stopped"
		}
		fmt.Fprintf(&page, "\n### %s\n\n| line | what it does |%s\n|---|---|%s\n", title, column, rule)
		for _, l := range rows[by] {
			fmt.Fprintf(&page, "| %s | %s |", quoteLine(l.text), escapeCell(l.how))
			if by == seenNot {
				fmt.Fprintf(&page, " %s |", whyNot[l.name])
			}
			page.WriteByte('\n')
		}
	}
	checkLinesPage(t, page.Bytes())
}

// quoteLine is a line in a cell of a table.
func quoteLine(text string) string {
	text = strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", " ⏎ ")
	text = strings.ReplaceAll(text, "\t", " ")
	if !strings.Contains(text, "`") {
		return escapeCell("`" + text + "`")
	}
	fence := "``"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return escapeCell(fence + " " + text + " " + fence)
}

func escapeCell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// checkLinesPage compares the generated part of the page, or writes it.
func checkLinesPage(t *testing.T, generated []byte) {
	t.Helper()
	page, err := os.ReadFile(linesPage)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := bytes.Cut(page, []byte(linesMark))
	if !ok {
		t.Fatalf("%s has no %s", linesPage, linesMark)
	}
	want := append(append(bytes.Clone(head), linesMark...), generated...)
	if bytes.Equal(page, want) {
		return
	}
	if !*updateLines {
		t.Errorf("%s differs from what the lines do; -update-lines writes it anew", linesPage)
		return
	}
	if err := os.WriteFile(linesPage, want, 0o600); err != nil {
		t.Fatal(err)
	}
}
