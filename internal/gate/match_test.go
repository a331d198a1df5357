package gate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

// useShell returns a line in /p, which contains the folders src and lib.
func useShell(line string) gate.Use {
	u := gate.Use{
		Tool: gate.BuiltinShell, Working: "/p", Folders: []string{"/p"}, Home: "/home/ann",
		Script: shell.Read(line), Named: map[string][]gate.Path{},
	}
	for _, folder := range []string{"/", "/p", "/p/src", "/p/src/a", "/p/src/a/b", "/p/lib"} {
		path := []gate.Path{{Name: folder, Below: true, Roots: []string{"/p"}}}
		u.Named[folder], u.Named[strings.TrimPrefix(folder, "/p/")], u.Named[strings.TrimPrefix(folder, "/p/")+"/"] = path, path, path
	}
	u.Named["."] = u.Named["/p"]
	return u
}

// The results of comparing a use with a gate.
const (
	matches = "matches"
	unknown = "unknown"
	neutral = "neutral"
)

// mark compares a use with a gate that has one entry.
func mark(t testing.TB, builtin, when string, u gate.Use) string {
	t.Helper()
	if when != "" {
		when = ", when: [" + when + "]"
	}
	switch m := mustParse(t, "gates: [{tool: '"+builtin+"', workflow: w, states: s"+when+"}]").Match(u); {
	case len(m) == 0:
		return neutral
	case m[0].Unknown != "":
		return unknown
	}
	return matches
}

func TestShellGates(t *testing.T) {
	t.Parallel()
	const push = "{program: git, args: [push]}"
	const force = "{program: git, args: [push, '--force*']}"
	for _, c := range []struct{ when, line, want string }{
		{"", "ls", matches},
		{push, "git push", matches},
		{push, "git status; git push origin main", matches},
		{push, "/usr/bin/git push", matches},
		{push, `'C:\bin\Git.EXE' push`, matches},
		{push, "GIT push", matches},
		{push, "gitk push", neutral},
		{push, "git pull", neutral},
		{push, "git -C x push", matches},
		{push, "git subtree push", matches},
		{push, "git config alias.x push", matches},
		{push, "git $x", unknown},
		{push, "$x push", unknown},
		{push, "$x", unknown},
		{push, "git stash push", neutral},
		{push, "git commit -m push", neutral},
		{push, "git commit -m $x", neutral},
		{push, "git $x commit", unknown},
		{push, "echo git push", neutral},
		{push, "perl -e 'exec @ARGV' git push", unknown},
		{push, "ssh-agent git push", unknown},
		{push, "echo git push | awk '{system($0)}'", unknown},
		{push, "git submodule foreach 'git push'", unknown},
		{push, "git -c core.x='git push' status", unknown},
		{push, "make test", neutral},
		{push, "source .venv/bin/activate && pytest", neutral},
		{force, "git push origin --force-with-lease", matches},
		{force, "git push origin", neutral},
		{force, "git push $x", unknown},
		{force, "git stash push --force", neutral},
		{"{program: git, args: ['--force']}", "git commit $x", unknown},
		{"{program: [rm, 'un*']}", "unlink x", matches},
		{"{program: [rm, 'un*']}", "mv x y", neutral},
		{"{program: rm, path: tests}", "rm -r tests", matches},
		{"{program: rm, path: tests/**}", "rm -r tests", matches},
		{"{program: rm, path: tests/**}", "rm src/a; cat tests/a", neutral},
		{"{program: rm, path: tests/**}", "rm $x", unknown},
		{"{program: rm, path: tests/**}", "rm te*", unknown},
		{"{program: rm, path: tests/**}", "rm tests/*", matches},
		{"{program: rm, path: tests/**}", "rm src/*.o", neutral},
		{"{program: rm, path: tests/**}", "rm -r src/*", neutral},
		{"{program: rm, path: '**/*_test.go'}", "rm *.py", neutral},
		{"{program: rm, path: '**/*_test.go'}", "rm -r *.py", unknown},
		{"{program: rm, path: '**/*_test.go'}", "rm src/a*", unknown},
		{"{program: rm, path: .env}", "rm .e*", matches},
		{"{program: rm, path: 'src/*/tests'}", "rm -r src/", unknown},
		{"{program: rm, path: 'src/*/tests'}", "rm src/", neutral},
		{"{program: rm, path: 'src/*/tests'}", "rm -r lib/", neutral},
		{"{program: rm, path: 'src/*/tests'}", "rm -r src/a/", unknown},
		{"{program: rm, path: 'src/*/tests'}", "rm -r src/f", neutral},
		{"{program: rm, path: 'src/*/tests'}", "rm -r src/a/b/", neutral},
		{"{program: rm, path: tests/**}", "rm -r /", unknown},
		{"{program: rm, path: '~/.ssh/**'}", "rm /home/ann/.ssh/id", matches},
		{"{program: rm, path: '~/.ssh/**'}", "rm ~/.ssh/id", matches},
		{"{path: tests/**}", "x >tests/a", matches},
		{"{path: tests/**}", "x --out=tests/a", matches},
		{"{path: tests/**}", "x -otests/a", matches},
		{"{path: tests/**}", "x -d @tests/a", matches},
		{"{path: tests/**}", "x -d tests.txt", neutral},
		{"{path: tests/**}", "x >$x", unknown},
		{"{host: '*.example.com'}", "curl -s https://a.example.com/x", matches},
		{"{host: example.com}", "curl example.com", matches},
		{"{host: example.com}", "git clone git@example.com:a/b", matches},
		{"{host: example.com}", "nc $x 80", unknown},
		{"{host: example.com}", "echo $x", neutral},
		{"{host: example.com}", "echo https://other.com", neutral},
		{"{host: example.com}", "exec 3<>/dev/tcp/example.com/80", unknown},
		{"{host: example.com}", "curl -x proxy.org https://a.org", unknown},
		{"{host: example.com}", "curl --connect-to ::a.org https://x.org", unknown},
	} {
		if got := mark(t, gate.BuiltinShell, c.when, useShell(c.line)); got != c.want {
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
		{"{path: ./tests//*}", "/p/tests/a/b", false, true}, // inside a folder that matches
		{"{path: tests}", "/p/tests2", false, false},
		{"{path: tests}", "/tests", false, false},
		{"{path: tests}", "/p2/tests", false, false},
		{"{path: Tests}", "/P/tESTS/a", false, true},
		{"{path: a\u0301}", "/p/\u00e1", false, true}, // composed and decomposed
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
		u := gate.Use{Tool: gate.BuiltinEdit, Folders: []string{"/p"}, Home: "/home/ann", Paths: []gate.Path{{Name: c.path, Below: c.below, Roots: []string{}}}}
		if got := mark(t, gate.BuiltinEdit, c.when, u) == matches; got != c.want {
			t.Errorf("edit %s, %s: %v", c.when, c.path, got)
		}
		u.Tool = gate.BuiltinRead // reading a folder does not read its content
		if got := mark(t, gate.BuiltinRead, c.when, u) == matches; got != (c.want && !c.below) {
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
		{"{host: example.com}", "https://ex\u00e4mple.org", true}, // may have another spelling
		{"{host: example.com}", "https://ex%61mple.com/", true},   // cannot be parsed
		{"{host: example.com}", "example.com/x", true},            // not a URL
		{"{host: example.com}", "", true},
	} {
		if got := mark(t, gate.BuiltinFetch, c.when, gate.Use{Tool: gate.BuiltinFetch, URL: c.url}) == matches; got != c.want {
			t.Errorf("%s, %s: %v", c.when, c.url, got)
		}
	}
}

// One line may belong to gates on several tools; each gate checks only the parts that it covers.
func TestLinesBelongToGatesOnOtherTools(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ builtin, when, line, want string }{
		{gate.BuiltinEdit, "", "x >a", matches},
		{gate.BuiltinEdit, "", "x a", neutral},
		{gate.BuiltinEdit, "", "x >$y", unknown},
		{gate.BuiltinEdit, "{path: tests}", "x >tests/a", matches},
		{gate.BuiltinEdit, "{path: tests}", "x tests/a", neutral},
		{gate.BuiltinEdit, "{path: tests}", "git stash; black .; git pull", neutral},
		{gate.BuiltinEdit, "{path: tests}", `python3 -c "open('tests/a', 'w')"`, unknown},
		{gate.BuiltinEdit, "{path: tests}", "$x", unknown},
		{gate.BuiltinRead, "", "cat a", neutral},
		{gate.BuiltinRead, "{path: a}", "cat a", matches},
		{gate.BuiltinRead, "{path: a}", "cat $x", unknown},
		{gate.BuiltinRead, "{path: a}", "echo $x", neutral},
		{gate.BuiltinRead, "{path: .env}", "cat .env*", matches},
		{gate.BuiltinRead, "{path: .env}", "cat .en?", matches},
		{gate.BuiltinRead, "{path: .env}", "cat *.py", neutral},
		{gate.BuiltinRead, "{path: .env}", "cat < .env", matches},
		{gate.BuiltinRead, "{path: .env}", "git show HEAD:.env", matches},
		{gate.BuiltinRead, "{path: .env}", "cp .env x; ls", matches},
		{gate.BuiltinRead, "{path: .env}", "tar cf x.tar .env", matches},
		{gate.BuiltinRead, "{path: src/f}", "ls src", neutral},
		{gate.BuiltinFetch, "", "curl a.org", matches},
		{gate.BuiltinFetch, "", "curl $x", unknown},
		{gate.BuiltinFetch, "", "git clone https://a.org/b", matches},
		{gate.BuiltinFetch, "", "git clone git@a.org:b", matches},
		{gate.BuiltinFetch, "", "git commit --author=a@b.org", neutral},
		{gate.BuiltinFetch, "", "go test ./...", neutral},
		{gate.BuiltinFetch, "{host: a.org}", "x https://$host", unknown},
		{gate.BuiltinFetch, "{host: a.org}", "x --url=https://a.org", matches},
		{gate.BuiltinFetch, "{host: a.org}", "x a.org:443/y", matches},
		{gate.BuiltinFetch, "{host: a.org}", "curl b.org", neutral},
		{gate.BuiltinFetch, "{host: a.org}", `python3 -c 'get("https://a.org/x")'`, matches},
		{gate.BuiltinFetch, "{host: b.org}", `python3 -c 'get("https://a.org/x")'`, neutral},
		{gate.BuiltinShell, "{program: git}", `python3 -c 'import os; os.system("/usr/bin/git push")'`, unknown},
		{gate.BuiltinShell, "{program: rm}", `python3 -c 'import os; os.system("/usr/bin/git push")'`, neutral},
	} {
		if got := mark(t, c.builtin, c.when, useShell(c.line)); got != c.want {
			t.Errorf("%s %s, %s: %v", c.builtin, c.when, c.line, got)
		}
	}
}

// Only a line that is exactly the gate's command shows how that command ended.
func TestIsConclusive(t *testing.T) {
	t.Parallel()
	cfg := mustParse(t, `gates: [{tool: "builtin:shell", workflow: w, states: s, success: x, when: [{program: make, args: [test]}, {program: git, args: [tag, "v*"]}]}]`)
	for line, want := range map[string]bool{
		"make test": true, "make -s -j4 test": true, "make test -k": true, "make clean test": true, "cd sub && make test": true, "make test > log 2>&1": true,
		"set -o pipefail && make test 2>&1 | tail -20": true, "set -o pipefail; make test | tail": true,
		"git tag v1": true, "git tag -a v1 -m 'Words of a release'": true,
		"make -n test": false, "make test SHELL=true": false, "make test SHELL:=true": false, "make test .SHELLFLAGS=-nc": false, "make -sn test": false, "make --dry test": false, "make test $x": false, "make -i test": false, "make -f other test": false,
		"make test || true": false, "make test; true": false, "make test | tail": false, "make test &": false, "! make test": false,
		"false && make test": false, "true && make test": false, "if false; then make test; fi": false, "f() { make test; }; f": false,
		"PATH=.:$PATH make test": false, "MAKEFLAGS=-n make test": false, "make test && make test": false, "echo $(make test)": false,
		"git tag -d v1": false, "git tag -l 'v*'": false,
	} {
		u := useShell(line)
		m := cfg.Match(u)
		if len(m) != 1 {
			t.Errorf("%s: %d matches", line, len(m))
			continue
		}
		if got := m[0].IsConclusive(u); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// A pattern relative to the project's folder matches nothing outside of it, and ignores case.
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
			return len(cfg.Match(gate.Use{Tool: gate.BuiltinEdit, Folders: []string{folder}, Paths: []gate.Path{{Name: path, Roots: []string{}}}})) > 0
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

// Every valid pattern can be matched, and one relative to the project's folder matches nothing outside of it.
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
			return len(cfg.Match(gate.Use{Tool: gate.BuiltinEdit, Folders: []string{"/p/q"}, Home: "/h", Paths: []gate.Path{{Name: path, Below: below, Roots: []string{}}}})) > 0
		}
		edit("/p/q/" + name)
		if !strings.HasPrefix(pattern, "/") && !strings.HasPrefix(pattern, "~") && !strings.Contains(pattern, ":") && edit("/p/r/"+strings.ReplaceAll(name, "..", "")) {
			t.Errorf("%q matches %q outside", pattern, name)
		}
	})
}
