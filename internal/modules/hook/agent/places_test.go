package agent_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

// newProject creates a project with protected tests and other paths to them, and returns its folder.
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

// newUse returns the use that gates see, with the names looked up as on the client's machine.
func newUse(e agent.Event) gate.Use {
	e.Places = agent.FindPlaces(e)
	return agent.NewUse(e, shell.Read(e.Command))
}

// TestNamesOfFiles: a file is recognised by any of its names.
func TestNamesOfFiles(t *testing.T) {
	p := newProject(t)
	gates := parseGates(t, `
- {tool: "builtin:edit", name: tests, workflow: w, states: s, when: [{path: tests}]}
- {tool: "builtin:edit", name: keys, workflow: w, states: s, when: [{path: "~/.ssh/**"}]}
`)
	for _, c := range []struct {
		folder, name string
		want         string // of the matching gate
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
		{"", "src/new", "tests"},     // the link's target does not exist yet
		{"", "tests/out/a", "tests"}, // replaces a link in the folder
		{"", "short/out", "tests"},   // by another name
		{"", "deep/../a", "tests"},   // .. is applied after following the link
		{"", "deep/../../src/a", ""},
		{"", "no/such/../../tests", "tests"},
		{"", "loop/a", ""},
		{"", strings.Repeat("./", gate.MaxName) + "tests/a", "tests"},
		{"", "tests/" + strings.Repeat("a/", gate.MaxName), ""}, // too long for a file name
		{"", "TESTS/A", "tests"},
		{"", "~/.ssh/key", "keys"},
		{"", "key", "keys"},
		{"", "~", "keys"},
		{"", "~bob/.ssh/key", ""},
		{"", "", "tests"}, // the folder with everything in it
		{"", "/", "tests keys"},
		{"vendor/lib", "../../tests/a", "tests"}, // from an inner repository
		{"vendor/lib", "tests/a", "tests"},       // of the inner repository
		{"[odd]", "../tests/a", "tests"},
	} {
		u := newUse(agent.Event{Builtin: gate.BuiltinEdit, Folder: filepath.Join(p, c.folder), Paths: []string{c.name}})
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
		u := newUse(agent.Event{Builtin: gate.BuiltinShell, Folder: p, Command: c.line})
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
		if u := newUse(agent.Event{Folder: filepath.Join(p, c.folder)}); !slices.Equal(u.Folders, c.want) {
			t.Errorf("%q: %q, want %q", c.folder, u.Folders, c.want)
		}
	}
}

// TestLinkedPrograms: a program is also recognised by the target of its link.
func TestLinkedPrograms(t *testing.T) {
	p := newProject(t)
	if err := os.Symlink("/usr/bin/git", filepath.Join(p, "g")); err != nil {
		t.Fatal(err)
	}
	gates := parseGates(t, `[{tool: "builtin:shell", workflow: w, states: s, when: [{program: git, args: [push]}]}]`)
	for line, want := range map[string]bool{"./g push": true, "cd src && ../g push": true, "./short push": false} {
		u := newUse(agent.Event{Builtin: gate.BuiltinShell, Folder: p, Command: line})
		if got := len(gates.Match(u)) > 0; got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// hooksPage contains tables that tests check.
const hooksPage = "../../../../docs/hooks.md"

// readTable returns the cells of a table of the page, each as the list of its texts in backquotes.
func readTable(t *testing.T, name string) (rows [][][]string) {
	t.Helper()
	page, err := os.ReadFile(hooksPage)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- "+name+":begin -->")
	table, _, _ = strings.Cut(table, "<!-- "+name+":end -->")
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for _, line := range lines[min(2, len(lines)):] {
		var cells [][]string
		for cell := range strings.SplitSeq(strings.ReplaceAll(line, `\|`, "\x00"), "|") {
			var texts []string
			for i, text := range strings.Split(strings.ReplaceAll(cell, "\x00", "|"), "`") {
				if i%2 == 1 {
					texts = append(texts, text)
				}
			}
			cells = append(cells, texts)
		}
		rows = append(rows, cells)
	}
	return rows
}

// useOf converts an entry of a table: a shell line, or the use of another tool (edit FILE).
func useOf(project, entry string) gate.Use {
	builtin := map[string]string{"edit": gate.BuiltinEdit, "read": gate.BuiltinRead, "fetch": gate.BuiltinFetch}
	if word, rest, _ := strings.Cut(entry, " "); builtin[word] != "" {
		return newUse(agent.Event{Builtin: builtin[word], Folder: project, Paths: []string{rest}, URL: rest})
	}
	return newUse(agent.Event{Builtin: gate.BuiltinShell, Folder: project, Command: entry})
}

// TestMatchesOfThePage compares the table on the page with what gates match.
func TestMatchesOfThePage(t *testing.T) {
	p := newProject(t)
	rows := readTable(t, "matches")
	if len(rows) < 10 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, cells := range rows {
		gates := parseGates(t, "[{tool: '"+cells[1][0]+"', workflow: w, states: s, when: ["+cells[2][0]+"]}]")
		for i, want := range []string{"matches", "unknown", "neutral"} {
			for _, entry := range cells[3+i] {
				got := "neutral"
				if m := gates.Match(useOf(p, entry)); len(m) > 0 && m[0].Unknown != "" {
					got = "unknown"
				} else if len(m) > 0 {
					got = "matches"
				}
				if got != want {
					t.Errorf("%s, %s: %s, want %s", cells[2][0], entry, got, want)
				}
			}
		}
	}
}

// TestSettlesOfThePage compares the table on the page with the lines that settle a gate.
func TestSettlesOfThePage(t *testing.T) {
	p := newProject(t)
	gates := parseGates(t, `[{tool: "builtin:shell", workflow: w, states: s, success: x, when: [{program: make, args: [test]}]}]`)
	rows := readTable(t, "settles")
	if len(rows) != 2 {
		t.Fatalf("%d rows", len(rows))
	}
	for i, want := range []bool{true, false} {
		for _, line := range rows[i][1] {
			u := useOf(p, line)
			if m := gates.Match(u); len(m) != 1 || m[0].IsConclusive(u) != want {
				t.Errorf("%s: want %v of %d matches", line, want, len(m))
			}
		}
	}
}

// TestWorktrees: worktrees of one repository are one project, and patterns start in the file's own
// worktree.
func TestWorktrees(t *testing.T) {
	p := newProject(t)
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(real), "beside")
	admin := filepath.Join(real, ".git", "worktrees", "beside")
	for _, folder := range []string{filepath.Join(beside, "tests"), admin} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(beside, ".git"), "gitdir: "+admin+"\n")
	write(filepath.Join(admin, "gitdir"), filepath.Join(beside, ".git")+"\n")
	gates := parseGates(t, `[{tool: "builtin:edit", workflow: w, states: s, when: [{path: tests}]}]`)
	for _, e := range []agent.Event{
		{Builtin: gate.BuiltinEdit, Folder: p, Paths: []string{beside + "/tests/a"}},
		{Builtin: gate.BuiltinShell, Folder: p, Command: "sed -i s/a/b/ " + beside + "/tests/a"},
		{Builtin: gate.BuiltinShell, Folder: p, Command: "cd " + beside + " && sed -i s/a/b/ tests/a"},
		{Builtin: gate.BuiltinShell, Folder: "/tmp", Command: "echo x > " + beside + "/tests/a"},
		{Builtin: gate.BuiltinShell, Folder: beside, Command: "git -C . rm tests/a"},
	} {
		if m := gates.Match(newUse(e)); len(m) != 1 || m[0].Unknown != "" {
			t.Errorf("%s %s: %+v", e.Command, e.Paths, m)
		}
	}
	find := func(folder string) agent.Project {
		return agent.FindPlaces(agent.Event{Folder: folder}).Projects[folder]
	}
	if got := find(beside); got.Root != real || !got.Repository {
		t.Errorf("the project of a worktree: %+v", got)
	}
	write(filepath.Join(admin, "gitdir"), "/elsewhere/.git\n") // the repository does not list it
	if got := find(beside); got.Root != beside {
		t.Errorf("a folder that only claims to be a worktree: %+v", got)
	}
	if err := os.Remove(filepath.Join(beside, ".git")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(beside, ".git")); err != nil {
		t.Fatal(err)
	}
	if got := find(beside); got.Root != beside {
		t.Errorf("a link in the place of .git: %+v", got)
	}
}
