package gate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
)

// command makes a command of words; one that begins with ? is not known.
func command(line string) (c shell.Command) {
	c.Folder.Known = true
	for word := range strings.FieldsSeq(line) {
		text, unknown := strings.CutPrefix(word, "?")
		if target, writes := strings.CutPrefix(text, ">"); writes {
			c.Writes = append(c.Writes, shell.Word{Text: target, Known: !unknown})
			continue
		}
		c.Words = append(c.Words, shell.Word{Text: text, Known: !unknown})
	}
	return c
}

// useShell is a line of commands with ; between them, whose words name files of /p.
func useShell(line string) gate.Use {
	u := gate.Use{Tool: gate.BuiltinShell, Folders: []string{"/p"}, Home: "/home/ann", Named: map[string][]gate.Path{}}
	for part := range strings.SplitSeq(line, ";") {
		c := command(part)
		u.Script.Commands = append(u.Script.Commands, c)
		for _, w := range gate.FileWords(c) {
			name := w.Text
			if !strings.HasPrefix(name, "/") {
				name = "/p/" + strings.TrimSuffix(name, "/")
			}
			u.Named[w.Text] = []gate.Path{{Name: name, Below: slices.Contains([]string{"/", "src", "src/a", "src/a/b", "lib"}, w.Text)}}
		}
	}
	return u
}

// matches reports whether a gate with an entry is about a use.
func matches(t testing.TB, builtin, when string, u gate.Use) bool {
	t.Helper()
	if when != "" {
		when = ", when: [" + when + "]"
	}
	c := mustParse(t, "gates: [{tool: '"+builtin+"', workflow: w, states: s"+when+"}]")
	return len(c.Match(u)) > 0
}

func TestShellGates(t *testing.T) {
	t.Parallel()
	const push = "{program: git, args: [push]}"
	for _, c := range []struct {
		when, line string
		want       bool
	}{
		{"", "ls", true},
		{push, "git push", true},
		{push, "git status; git push origin main", true},
		{push, "/usr/bin/git push", true},
		{push, `C:\bin\Git.EXE push`, true},
		{push, "GIT push", true},
		{push, "gitk push", false},
		{push, "git pull", false},
		{push, "git PUSH", false},
		{push, "git -C x push", true},
		{push, "git subtree push", true},
		{push, "git config alias.x push", true},
		{push, "git ?$x", true},
		{push, "?$x push", true},
		{push, "?$x", true},
		{push, "git stash push", false},
		{push, "git commit -m push", false},
		{push, "git commit -m ?$x", false},
		{push, "git ?$x commit", true},
		{push, "echo git push", false},
		{"{program: git, args: [push, '--force*']}", "git push origin --force-with-lease", true},
		{"{program: git, args: [push, '--force*']}", "git push origin", false},
		{"{program: git, args: [push, '--force*']}", "git push ?$x", true},
		{"{program: git, args: [push, '--force*']}", "git stash push --force", false},
		{"{program: git, args: ['--force']}", "git commit ?$x", true},
		{"{program: [rm, 'un*']}", "unlink x", true},
		{"{program: [rm, 'un*']}", "mv x y", false},
		{"{program: rm, path: tests}", "rm -r tests", true},
		{"{program: rm, path: tests/**}", "rm -r tests", true},
		{"{program: rm, path: tests/**}", "rm src/a; cat tests/a", false},
		{"{program: rm, path: tests/**}", "rm ?$x", true},
		{"{program: rm, path: tests/**}", "rm ?/tests/a; rm /tests/a", true},
		{"{program: rm, path: 'src/*/tests'}", "rm src/", true},
		{"{program: rm, path: 'src/*/tests'}", "rm lib/", false},
		{"{program: rm, path: 'src/*/tests'}", "rm src/a/", true},
		{"{program: rm, path: 'src/*/tests'}", "rm src/f", false},
		{"{program: rm, path: 'src/*/tests'}", "rm src/a/b/", false},
		{"{program: rm, path: tests/**}", "rm /", true},
		{"{program: rm, path: '~/.ssh/**'}", "rm /home/ann/.ssh/id", true},
		{"{path: tests/**}", "x >tests/a", true},
		{"{path: tests/**}", "x --out=tests/a", true},
		{"{path: tests/**}", "x -otests/a", true},
		{"{path: tests/**}", "x -d @tests/a", true},
		{"{path: tests/**}", "x -d tests.txt", false},
		{"{path: tests/**}", "x ?>$x", true},
		{"{host: '*.example.com'}", "curl -s https://a.example.com/x", true},
		{"{host: example.com}", "curl example.com", true},
		{"{host: example.com}", "git clone git@example.com:a/b", true},
		{"{host: example.com}", "nc ?$x 80", true},
		{"{host: example.com}", "echo ?$x", false},
		{"{host: example.com}", "echo https://other.com", false},
	} {
		if got := matches(t, gate.BuiltinShell, c.when, useShell(c.line)); got != c.want {
			t.Errorf("%s, %s: %v", c.when, c.line, got)
		}
	}
}
