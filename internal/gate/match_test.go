package gate_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

// command makes a command of words; one that begins with ? is not known.
func command(line string) (c shell.Command) {
	c.Folder.Known, c.Plain = true, true
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

func TestGatesOnFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		when, path string
		below      bool
		want       bool
	}{
		{"", "/x", false, true},
		{"{path: tests}", "/p/tests", false, true},
		{"{path: tests}", "/p/tests/a/b", false, true},
		{"{path: tests/}", "/p/tests/a", false, true},
		{"{path: ./tests//*}", "/p/tests/a", false, true},
		{"{path: ./tests//*}", "/p/tests/a/b", false, true}, // in a folder that matches
		{"{path: tests}", "/p/tests2", false, false},
		{"{path: tests}", "/tests", false, false},
		{"{path: tests}", "/p2/tests", false, false},
		{"{path: Tests}", "/P/tESTS/a", false, true},
		{"{path: a\u0301}", "/p/\u00e1", false, true}, // composed, and not
		{"{path: '*'}", "/p/a/b", false, true},
		{"{path: '?'}", "/p/ab/cd", false, false},
		{"{path: '.*'}", "/p/a/b", false, false},
		{"{path: '.*'}", "/p/.env", false, true},
		{"{path: '**/.*'}", "/p/a/.git/config", false, true},
		{"{path: '*.go'}", "/p/a/b.go", false, false},
		{"{path: '**/*.go'}", "/p/b.go", false, true},
		{"{path: 'a/**/b'}", "/p/a/b", false, true},
		{"{path: 'a/**/b'}", "/p/a/x/y/b", false, true},
		{"{path: 'a**b'}", "/p/a/b", false, false},
		{"{path: '{a,b}/c'}", "/p/b/c", false, true},
		{"{path: '[a-c]'}", "/p/B", false, true},
		{"{path: '[^a]'}", "/p/a", false, false},
		{"{path: '\\*'}", "/p/a", false, false},
		{"{path: '\\*'}", "/p/*", false, true},
		{"{path: .}", "/p/a", false, true},
		{"{path: .}", "/p", false, true},
		{"{path: .}", "/q", false, false},
		{"{path: '**'}", "/p/a", false, true},
		{"{path: '**'}", "/q", false, false},
		{"{path: /}", "/q", false, true},
		{"{path: '/**'}", "/q/a", false, true},
		{"{path: /etc}", "/etc/passwd", false, true},
		{"{path: /etc}", "/p/etc", false, false},
		{"{path: 'C:/x'}", "C:/X/y", false, true},
		{"{path: '~'}", "/home/ann/x", false, true},
		{"{path: '~/x'}", "/home/ann/x/y", false, true},
		{"{path: '~/x'}", "/home/bob/x", false, false},
		{"{path: tests}", "/p", true, true},
		{"{path: tests}", "/p", false, false},
		{"{path: tests}", "/", true, true},
		{"{path: tests}", "/q", true, false},
		{"{path: a/b/c}", "/p/a", true, true},
		{"{path: a/b/c}", "/p/b", true, false},
		{"{path: a/*/c}", "/p/a/x", true, true},
		{"{path: a/**/c}", "/p/a/x/y/z", true, true},
		{"{path: '**/c'}", "/p/x", true, true},
		{"{path: /etc/x}", "/", true, true},
		{"{path: '~/x'}", "/home", true, true},
		{"{path: '~/x'}", "/home/bob", true, false},
	} {
		u := gate.Use{Tool: gate.BuiltinEdit, Folders: []string{"/p"}, Home: "/home/ann", Paths: []gate.Path{{Name: c.path, Below: c.below}}}
		if got := matches(t, gate.BuiltinEdit, c.when, u); got != c.want {
			t.Errorf("edit %s, %s: %v", c.when, c.path, got)
		}
		u.Tool = gate.BuiltinRead // what is in a folder is not read with it
		if got := matches(t, gate.BuiltinRead, c.when, u); got != (c.want && !c.below) {
			t.Errorf("read %s, %s: %v", c.when, c.path, got)
		}
	}
}

func TestGatesOnHosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		when, url string
		want      bool
	}{
		{"", "https://a.org", true},
		{"{host: example.com}", "https://example.com", true},
		{"{host: Example.COM.}", "http://EXAMPLE.com.:8080/x?y#z", true},
		{"{host: example.com}", "https://user:pass@example.com/", true},
		{"{host: example.com}", "https://example.com@evil.org/", false},
		{"{host: example.com}", "https://evil.org/example.com", false},
		{"{host: example.com}", "https://example.com.evil.org", false},
		{"{host: example.com}", "https://notexample.com", false},
		{"{host: '*.example.com'}", "https://a.b.example.com", true},
		{"{host: '*.example.com'}", "https://example.com", false},
		{"{host: 127.0.0.1}", "http://127.0.0.1:80", true},
		{"{host: example.com}", "http://[::1]/", false},
		{"{host: example.com}", "https://ex\u00e4mple.org", true}, // may be written in another way
		{"{host: example.com}", "https://ex%61mple.com/", true},   // cannot be read
		{"{host: example.com}", "example.com/x", true},            // no address
		{"{host: example.com}", "", true},
	} {
		if got := matches(t, gate.BuiltinFetch, c.when, gate.Use{Tool: gate.BuiltinFetch, URL: c.url}); got != c.want {
			t.Errorf("%s, %s: %v", c.when, c.url, got)
		}
	}
}

// Of one line, each gate is about what it says.
func TestLinesBelongToGatesOnOtherTools(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		builtin, when, line string
		want                bool
	}{
		{gate.BuiltinEdit, "", "x >a", true},
		{gate.BuiltinEdit, "", "x a", false},
		{gate.BuiltinEdit, "", "x ?>$y", true},
		{gate.BuiltinEdit, "{path: tests}", "x >tests/a", true},
		{gate.BuiltinEdit, "{path: tests}", "x tests/a", false},
		{gate.BuiltinRead, "", "cat a", false},
		{gate.BuiltinRead, "{path: a}", "cat a", true},
		{gate.BuiltinRead, "{path: a}", "cat ?$x", false},
		{gate.BuiltinRead, "{path: src/f}", "ls src", false},
		{gate.BuiltinFetch, "", "curl a.org", true},
		{gate.BuiltinFetch, "", "curl ?$x", true},
		{gate.BuiltinFetch, "", "git clone https://a.org/b", true},
		{gate.BuiltinFetch, "", "git clone git@a.org:b", true},
		{gate.BuiltinFetch, "", "git commit --author=a@b.org", false},
		{gate.BuiltinFetch, "", "go test ./...", false},
		{gate.BuiltinFetch, "{host: a.org}", "x ?https://", true}, // https://$host
		{gate.BuiltinFetch, "{host: a.org}", "x --url=https://a.org", true},
		{gate.BuiltinFetch, "{host: a.org}", "x a.org:443/y", true},
		{gate.BuiltinFetch, "{host: a.org}", "curl b.org", false},
	} {
		if got := matches(t, c.builtin, c.when, useShell(c.line)); got != c.want {
			t.Errorf("%s %s, %s: %v", c.builtin, c.when, c.line, got)
		}
	}
	code := gate.Use{Tool: gate.BuiltinShell, Script: shell.Script{Commands: []shell.Command{{
		Words: []shell.Word{{Text: "python3", Known: true}, {Text: "-c", Known: true}, {Text: `import os; os.system("/usr/bin/git push https://a.org/x")`, Known: true}}, Folder: shell.Word{Known: true},
	}}}}
	for _, c := range []struct {
		builtin, when string
		want          bool
	}{
		{gate.BuiltinShell, "{program: git, args: [push]}", true},
		{gate.BuiltinShell, "{program: rm}", false},
		{gate.BuiltinFetch, "{host: a.org}", true},
		{gate.BuiltinFetch, "{host: b.org}", false},
	} {
		if got := matches(t, c.builtin, c.when, code); got != c.want {
			t.Errorf("%s %s, in code: %v", c.builtin, c.when, got)
		}
	}
	unknown := gate.Use{Tool: gate.BuiltinShell, Script: shell.Script{Unknown: []shell.Unknown{{Reason: "eval runs a text that is not known.", Program: true}}}}
	m := mustParse(t, `gates: [{tool: "builtin:shell", workflow: w, states: s, when: [{program: git}]}, {tool: "builtin:edit", workflow: w, states: s}, {tool: a__b, workflow: w, states: s}]`).Match(unknown)
	if len(m) != 1 || m[0].Why != "It cannot be seen what the line runs: eval runs a text that is not known." {
		t.Errorf("what cannot be read: %+v", m)
	}
}

// A pattern from the project's folder on matches nothing outside of it, and its case counts for nothing.
func TestPatternsStayInside(t *testing.T) {
	t.Parallel()
	part := rapid.SampledFrom([]string{"a", "B", "ab", ".x", "*", "?", "**", "a*", "[ab]", "{a,B}", "*.x"})
	name := rapid.SampledFrom([]string{"a", "B", "ab", ".x", "p", "c.x"})
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		join := func(g *rapid.Generator[string], label string) string {
			return strings.Join(rapid.SliceOfN(g, 1, 4).Draw(t, label), "/")
		}
		pattern := join(part, "pattern")
		file := join(name, "file")
		cfg := mustParse(outer, "gates: [{tool: 'builtin:edit', workflow: w, states: s, when: [{path: '"+pattern+"'}]}]")
		edit := func(folder, path string) bool {
			return len(cfg.Match(gate.Use{Tool: gate.BuiltinEdit, Folders: []string{folder}, Paths: []gate.Path{{Name: path}}})) > 0
		}
		if edit("/p/q", "/"+file) || edit("/p/q", "/p/"+file) || edit("/p/q", "/p/q"+file) {
			t.Fatalf("%s matches %s outside", pattern, file)
		}
		inside := edit("/p/q", "/p/q/"+file)
		if inside != edit("/p/q", "/P/Q/"+strings.ToUpper(file)) || inside != edit("/", "/"+file) {
			t.Fatalf("%s, %s: case or folder counts", pattern, file)
		}
		if inside && !edit("/p/q", "/p/q/"+file+"/more") {
			t.Fatalf("%s matches %s and not what is in it", pattern, file)
		}
	})
}

// Whatever is a pattern reads, and one from the project's folder on matches nothing outside of it.
func FuzzPatterns(f *testing.F) {
	for _, pattern := range []string{"tests/**", "**/*_test.go", "{a,b}/[^c]?", `\*`, "~/x", "/etc", "./a//b/", "a[", "C:/x", "..", "ß/İ"} {
		f.Add(pattern, "a/b", true)
	}
	f.Fuzz(func(t *testing.T, pattern, name string, below bool) {
		quoted, err := json.Marshal(pattern)
		if err != nil {
			t.Fatal(err)
		}
		root, err := document.Parse("gates.json", []byte(`[{"tool": "builtin:edit", "workflow": "w", "states": "s", "when": [{"path": `+string(quoted)+`}]}]`), document.Limits{})
		if err != nil {
			return
		}
		cfg, err := gate.ParseConfig(root)
		if err != nil {
			return
		}
		edit := func(path string) bool {
			return len(cfg.Match(gate.Use{Tool: gate.BuiltinEdit, Folders: []string{"/p/q"}, Home: "/h", Paths: []gate.Path{{Name: path, Below: below}}})) > 0
		}
		edit("/p/q/" + name)
		if !strings.HasPrefix(pattern, "/") && !strings.HasPrefix(pattern, "~") && !strings.Contains(pattern, ":") && edit("/p/r/"+strings.ReplaceAll(name, "..", "")) {
			t.Errorf("%q matches %q outside", pattern, name)
		}
	})
}
