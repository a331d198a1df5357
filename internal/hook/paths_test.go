package hook_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/hook"
	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

// newProject makes a project with protected tests and ways around them, and returns its folder.
func newProject(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links are a right there")
	}
	root := t.TempDir()
	t.Setenv("HOME", filepath.Join(root, "home"))
	for _, folder := range []string{"home/.ssh", "real/.git", "real/tests/deep", "real/src/sub", "real/[odd]", "real/vendor/lib/.git"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"p": "real", "real/short": "tests", "real/src/file": "../tests/a", "real/src/new": "../tests/not-yet", "real/tests/out": "../src",
		"real/absolute": filepath.Join(root, "p", "tests"), "real/loop": "loop", "real/deep": "tests/deep", "real/key": "../home/.ssh/key",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(root, "p")
}

func parseGates(t *testing.T, text string) gate.Config {
	t.Helper()
	root, err := document.Parse("gates.yaml", []byte(text), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := gate.ParseConfig(root)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A file is found by whatever name it is called.
func TestNamesOfFiles(t *testing.T) {
	p := newProject(t)
	gates := parseGates(t, `
- {tool: "builtin:edit", name: tests, workflow: w, states: s, when: [{path: tests}]}
- {tool: "builtin:edit", name: keys, workflow: w, states: s, when: [{path: "~/.ssh/**"}]}
`)
	for _, c := range []struct {
		folder, name string
		want         string // of the gate
	}{
		{"", "tests/a", "tests"},
		{"", "tests/new/file", "tests"},
		{"", "src/a", ""},
		{"", "tests2", ""},
		{"", " tests/a", "tests"},
		{"", "\uFEFFtests/a\n", "tests"},
		{"", p + "/tests/a", "tests"},
		{"", "../real/tests/a", "tests"},
		{"", "../p/src/../tests/a", "tests"},
		{"src/sub", "../../tests/a", "tests"},
		{"src/sub", "tests/a", ""},
		{"", "short/a", "tests"},
		{"", "short/new/file", "tests"},
		{"", "absolute/a", "tests"},
		{"", "src/file", "tests"},
		{"", "src/new", "tests"},     // where the link leads there is no file yet
		{"", "tests/out/a", "tests"}, // what a link in the folder is replaced by
		{"", "short/out", "tests"},   // under another name
		{"", "deep/../a", "tests"},   // .. leaves what the link leads to
		{"", "deep/../../src/a", ""},
		{"", "no/such/../../tests", "tests"},
		{"", "loop/a", ""},
		{"", strings.Repeat("./", gate.MaxName) + "tests/a", "tests"},
		{"", "tests/" + strings.Repeat("a/", gate.MaxName), ""}, // no name of a file
		{"", "TESTS/A", "tests"},
		{"", "~/.ssh/key", "keys"},
		{"", "key", "keys"},
		{"", "~", "keys"},
		{"", "~bob/.ssh/key", ""},
		{"", "", "tests"}, // the folder, with all in it
		{"", "/", "tests keys"},
		{"vendor/lib", "../../tests/a", "tests"}, // from a repository inside
		{"vendor/lib", "tests/a", "tests"},       // of that repository
		{"[odd]", "../tests/a", "tests"},
	} {
		u := hook.NewUse(hook.Event{Builtin: gate.BuiltinEdit, Folder: filepath.Join(p, c.folder), Paths: []string{c.name}}, shell.Script{})
		got := ""
		for _, m := range gates.Match(u) {
			if got != "" {
				got += " "
			}
			got += m.Gate.Tool[len("builtin:edit "):]
		}
		if got != c.want {
			t.Errorf("%s in %q: %q, want %q, of %v in %v", c.name, c.folder, got, c.want, u.Paths, u.Folders)
		}
	}
}

func TestNamesInALine(t *testing.T) {
	p := newProject(t)
	gates := parseGates(t, `[{tool: "builtin:edit", workflow: w, states: s, when: [{path: tests}]}]`)
	for _, c := range []struct {
		line string
		want bool
	}{
		{"echo x > tests/a", true},
		{"echo x > short/a", true},
		{"echo x > src/a", false},
		{`echo x > "$out"`, true},
		{"cat tests/a", false},
	} {
		u := hook.NewUse(hook.Event{Builtin: gate.BuiltinShell, Folder: p}, shell.Read(c.line))
		if got := len(gates.Match(u)) > 0; got != c.want {
			t.Errorf("%s: %v, of %v", c.line, got, u.Named)
		}
	}
}

func TestFoldersOfProjects(t *testing.T) {
	p := newProject(t)
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(real, "vendor/lib")
	for _, c := range []struct {
		folder string
		want   []string
	}{
		{"", []string{real}}, {"src/sub", []string{real}}, {"no/such", []string{real}}, {"vendor/lib/x", []string{inside, real}}, {"../home", []string{filepath.Join(filepath.Dir(real), "home")}},
	} {
		if u := hook.NewUse(hook.Event{Folder: filepath.Join(p, c.folder)}, shell.Script{}); !slices.Equal(u.Folders, c.want) {
			t.Errorf("%q: %q, want %q", c.folder, u.Folders, c.want)
		}
	}
}

// A program is known by the file that a link leads to, too.
func TestLinkedPrograms(t *testing.T) {
	p := newProject(t)
	if err := os.Symlink("/usr/bin/git", filepath.Join(p, "g")); err != nil {
		t.Fatal(err)
	}
	gates := parseGates(t, `[{tool: "builtin:shell", workflow: w, states: s, when: [{program: git, args: [push]}]}]`)
	for line, want := range map[string]bool{"./g push": true, "cd src && ../g push": true, "./short push": false} {
		u := hook.NewUse(hook.Event{Builtin: gate.BuiltinShell, Folder: p}, shell.Read(line))
		if got := len(gates.Match(u)) > 0; got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// The table of the page is what gates match.
func TestMatchesOfThePage(t *testing.T) {
	p := newProject(t)
	page, err := os.ReadFile("../../docs/hooks-gates.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- matches:begin -->")
	table, _, _ = strings.Cut(table, "<!-- matches:end -->")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if len(rows) < 10 {
		t.Fatalf("%d rows", len(rows))
	}
	builtin := map[string]string{"edit": gate.BuiltinEdit, "read": gate.BuiltinRead, "fetch": gate.BuiltinFetch}
	code := func(cell string) (list []string) {
		for i, text := range strings.Split(strings.ReplaceAll(cell, "\x00", "|"), "`") {
			if i%2 == 1 {
				list = append(list, text)
			}
		}
		return list
	}
	for _, row := range rows[2:] {
		cells := strings.Split(strings.ReplaceAll(row, `\|`, "\x00"), "|")
		gates := parseGates(t, "[{tool: '"+code(cells[1])[0]+"', workflow: w, states: s, when: ["+code(cells[2])[0]+"]}]")
		check := func(line string, want bool) {
			e := hook.Event{Builtin: gate.BuiltinShell, Folder: p, Command: line}
			word, rest, _ := strings.Cut(line, " ")
			if b := builtin[word]; b != "" {
				e = hook.Event{Builtin: b, Folder: p, Paths: []string{rest}, URL: rest}
			}
			u := hook.NewUse(e, shell.Read(e.Command))
			if got := len(gates.Match(u)) > 0; got != want {
				t.Errorf("%s, %s: %v", cells[2], line, got)
			}
		}
		for _, line := range code(cells[3]) {
			check(line, true)
		}
		for _, line := range code(cells[4]) {
			check(line, false)
		}
	}
}
