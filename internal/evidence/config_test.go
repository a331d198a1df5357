package evidence_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/validators/document"
)

func parse(t testing.TB, text string) (evidence.Config, error) {
	t.Helper()
	doc, err := document.Parse("conf/gavel.yaml", []byte(text), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return evidence.ParseConfig(doc.Get("evidence"))
}

func TestParseConfig(t *testing.T) {
	t.Parallel()
	cfg, err := parse(t, `
evidence:
  sources:
    tests:
      description: "whether the tests pass"
      readOnly: true
      timeout: 2m
      maxOutput: 64KiB
      output: text
      same: ["/exitCode"]
      arguments: { sha: { pattern: "^[0-9a-f]{7,40}$", maxLength: 64, optional: false } }
      command: ["git", "cat-file", "-e", "{{sha}}^{commit}"]
      directory: ./project
      environment: [PATH, HOME]
      set: { CI: "1" }
    plain: { command: [make], maxOutput: 4096 }
    ticket:
      http: "https://tickets.example.com/api/tickets/{{ticket}}?fields={{fields}}"
      arguments: { ticket: {}, fields: { optional: true } }
      headers: { Accept: "application/json", Authorization: "Bearer ${TICKET_TOKEN}" }
      hosts: ["tickets.example.com", "cdn.example.com:8443"]
      accept: [200, 404]
      maxOutput: 1MiB
`)
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	want := evidence.Config{Dir: "conf", Sources: map[string]evidence.Source{
		"tests": {
			Description: "whether the tests pass", ReadOnly: &yes, Timeout: 2 * time.Minute, MaxOutput: 64 << 10, Output: evidence.OutputText,
			Same: []string{"/exitCode"}, Arguments: map[string]evidence.Argument{"sha": {Pattern: "^[0-9a-f]{7,40}$", MaxLength: 64}},
			Command: []string{"git", "cat-file", "-e", "{{sha}}^{commit}"}, Directory: "./project",
			Environment: []string{"PATH", "HOME"}, Set: map[string]string{"CI": "1"},
		},
		"plain": {Command: []string{"make"}, MaxOutput: 4096},
		"ticket": {
			HTTP: "https://tickets.example.com/api/tickets/{{ticket}}?fields={{fields}}", MaxOutput: 1 << 20,
			Arguments: map[string]evidence.Argument{"ticket": {}, "fields": {Optional: true}},
			Headers:   map[string]string{"Accept": "application/json", "Authorization": "Bearer ${TICKET_TOKEN}"},
			Hosts:     []string{"tickets.example.com", "cdn.example.com:8443"}, Accept: []int{200, 404},
		},
	}}
	if diff := cmp.Diff(want, cfg, cmpopts.IgnoreUnexported(evidence.Config{})); diff != "" {
		t.Error(diff)
	}
	m, err := evidence.New(cfg, evidence.Options{LookupEnv: func(string) (string, bool) { return "x", true }})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := m.Names(); !slices.Equal(got, []string{"plain", "tests", "ticket"}) {
		t.Errorf("names %q", got)
	}
	list := []evidence.Info{
		{Name: "plain", Kind: "command", Timeout: document.Milliseconds(30 * time.Second)},
		{Name: "tests", Kind: "command", Description: "whether the tests pass", ReadOnly: true, Arguments: want.Sources["tests"].Arguments, Timeout: document.Milliseconds(2 * time.Minute)},
		{Name: "ticket", Kind: "http", ReadOnly: true, Arguments: want.Sources["ticket"].Arguments, Timeout: document.Milliseconds(30 * time.Second)},
	}
	if diff := cmp.Diff(list, m.List()); diff != "" {
		t.Error(diff)
	}
}

func TestNoSection(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"other: 1", "evidence: {}", "evidence: {sources: {}}"} {
		cfg, err := parse(t, text)
		if err != nil || len(cfg.Sources) > 0 {
			t.Errorf("%q: %v, %v", text, cfg, err)
		}
		m, err := evidence.New(cfg, evidence.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Names()) > 0 || len(m.Warnings()) > 0 {
			t.Errorf("%q has sources %q", text, m.Names())
		}
		m.Close()
	}
}

// Each case is one source in a file, and the expected error. An invalid form is rejected both when it is parsed and
// when a program builds it.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	const http = `http: "https://h.example/"`
	for _, c := range []struct{ source, want string }{
		{`{comand: [x]}`, `conf/gavel.yaml:4:6: /evidence/sources/it/comand: unknown key "comand"; did you mean "command"?`},
		{`{}`, `a source needs exactly one of "command", "http", "upstream" and "transcript: true"`},
		{`{command: [x], ` + http + `}`, `a source needs exactly one of "command", "http", "upstream" and "transcript: true"`},
		{`{command: [x], upstream: {server: a, tool: b}}`, `a source needs exactly one of "command", "http", "upstream" and "transcript: true"`},
		{`{transcript: true, ` + http + `}`, `exactly one of`},
		{`{transcript: yes}`, `/transcript: expected a boolean`},
		{`{transcript: false}`, `exactly one of`},
		{`{transcript: true, output: json}`, `/output: "output" applies only to other sources`},
		{`{transcript: true, directory: x}`, `/directory: "directory" applies only to commands`},
		{`{transcript: true, arguments: {user: {}}}`, `/arguments/user: the argument is declared but not used`},
		{`{upstream: {server: a}}`, `tool`},
		{`{upstream: {server: a, tol: b}}`, `did you mean "tool"?`},
		{`{upstream: {server: a, tool: b}, output: none}`, `/output: the output of a tool must be text or json`},
		{`{upstream: {server: a, tool: b}, set: {A: b}}`, `/set: "set" applies only to commands`},
		{`{upstream: {server: a, tool: b}, accept: [200]}`, `/accept: "accept" applies only to addresses`},
		{`{upstream: {server: a, tool: b}, arguments: {"a-b": {}}}`, `/arguments/a-b: an argument's name`},
		{`{command: []}`, `must begin with a program`},
		{`{command: [""]}`, `must begin with a program`},
		{`{command: x}`, `/command: expected an array, got a string`},
		{`null`, `expected an object`},
		{`{command: [x], timeout: soon}`, `/timeout: a duration must be`},
		{`{command: [x], timeout: 30}`, `/timeout: expected a string`},
		{`{command: [x], timeout: -1s}`, `/timeout: a duration must be`},
		{`{command: [x], timeout: 11m}`, `/timeout: a timeout must be greater than 0 and at most 10m`},
		{`{command: [x], maxOutput: 2MiB}`, `/maxOutput: a size must be`},
		{`{command: [x], maxOutput: 0}`, `/maxOutput: a size must be`},
		{`{command: [x], maxOutput: 64KB}`, `/maxOutput: a size must be`},
		{`{command: [x], maxOutput: 1.5KiB}`, `/maxOutput: a size must be`},
		{`{command: [x], maxOutput: 9007199254740992}`, `/maxOutput: a size must be`},
		{`{command: [x], output: jsn}`, `/output: "output" must be one of "text", "json", "none"; did you mean "json"?`},
		{`{command: [x], same: [exitCode]}`, `/same/0: a JSON pointer begins with a slash`},
		{`{command: [x], same: ["/a~2"]}`, `/same/0: a JSON pointer`},
		{`{command: [x, "{{a}}"]}`, `the argument {{a}} is not declared`},
		{`{command: [x], arguments: {a: {}}}`, `/arguments/a: the argument is declared but not used`},
		{`{command: [x, "{{a}}"], arguments: {a: {patern: x}}}`, `did you mean "pattern"?`},
		{`{command: [x, "{{a}}"], arguments: {a: {pattern: "("}}}`, `/arguments/a/pattern: the pattern is not a Go regular expression`},
		{`{command: [x, "{{a}}"], arguments: {a: {pattern: "a)|(b"}}}`, `/arguments/a/pattern: the pattern is not a Go regular expression`},
		{`{command: [x, "{{a}}"], arguments: {a: {maxLength: 100000}}}`, `/arguments/a/maxLength: an argument may have at most`},
		{`{command: [x, "{{a}}"], arguments: {a: {maxLength: 0}}}`, `/arguments/a/maxLength: a length must be greater`},
		{`{command: [x, "{{a-b}}"]}`, `/command/1: {{ }} must hold`},
		{`{command: [x, "{{ a }}"]}`, `/command/1: {{ }} must hold`},
		{`{command: [x, "{{a"]}`, `/command/1: "{{" has no "}}"`},
		{`{command: [x, "{{a}}"], arguments: {a: {}, "b-c": {}}}`, `/arguments/b-c: an argument's name`},
		{`{command: ["{{a}}"], arguments: {a: {}}}`, `/command/0: an argument must not choose the program`},
		{`{command: [sh, -c, "echo {{a}}"], arguments: {a: {}}}`, `/command/2: an argument must not be part of code that "sh" runs`},
		{`{command: [/usr/bin/python3.12, -c, "print({{a}})"], arguments: {a: {}}}`, `code that "python3.12" runs`},
		{`{command: [docker, exec, box, bash, -lc, "{{a}}"], arguments: {a: {}}}`, `code that "bash" runs`},
		{`{command: ['C:\bin\cmd.exe', /C, "{{a}}"], arguments: {a: {}}}`, `code that "cmd" runs`},
		{`{command: [bash, -c, --, "{{a}}"], arguments: {a: {}}}`, `/command/3: an argument must not be part of code that "bash" runs`},
		{`{command: [bash, -c, -e, -o, pipefail, "{{a}}"], arguments: {a: {pattern: x}}}`, `code that "bash" runs`},
		{`{command: [sh, -ec, +e, -O, extglob, --, "{{a}}"], arguments: {a: {}}}`, `code that "sh" runs`},
		{`{command: [python3, "-c{{a}}"], arguments: {a: {}}}`, `code that "python3" runs`},
		{`{command: [python3, -I, "-Bc{{a}}"], arguments: {a: {pattern: x}}}`, `code that "python3" runs`},
		{`{command: [perl, "-ne{{a}}", file], arguments: {a: {}}}`, `code that "perl" runs`},
		{`{command: [perl, -E, "{{a}}"], arguments: {a: {}}}`, `code that "perl" runs`},
		{`{command: [perl, -e, "1;", -e, "{{a}}"], arguments: {a: {}}}`, `code that "perl" runs`},
		{`{command: [node, "--eval={{a}}"], arguments: {a: {}}}`, `code that "node" runs`},
		{`{command: [node, -p, "{{a}}"], arguments: {a: {}}}`, `code that "node" runs`},
		{`{command: [deno, eval, "{{a}}"], arguments: {a: {}}}`, `code that "deno" runs`},
		{`{command: [su, nobody, -c, "ls {{a}}"], arguments: {a: {}}}`, `code that "su" runs`},
		{`{command: [env, -S, "ls {{a}}"], arguments: {a: {}}}`, `code that "env" runs`},
		{`{command: [env, "--split-string=ls {{a}}"], arguments: {a: {}}}`, `code that "env" runs`},
		{`{command: [timeout, "5", env, "-Sls {{a}}"], arguments: {a: {}}}`, `code that "env" runs`},
		{`{command: ['C:\bin\PowerShell.EXE', -NoProfile, -Command, "{{a}}"], arguments: {a: {}}}`, `code that "powershell" runs`},
		{`{command: [sh, "{{a}}"], arguments: {a: {}}}`, `"sh" would run the file or module that an argument names`},
		{`{command: [env, python3, -B, -m, "{{a}}"], arguments: {a: {}}}`, `"python3" would run the file`},
		{`{command: [ssh, host, "ls {{a}}"], arguments: {a: {}}}`, `passes its arguments to a shell`},
		{`{command: [env, ssh, host, "test -f {{a}}"], arguments: {a: {}}}`, `passes its arguments to a shell`},
		{`{command: [timeout, "5", /usr/bin/ssh, -T, host, test, -f, "{{a}}"], arguments: {a: {}}}`, `passes its arguments to a shell`},
		{`{command: [watch, -n1, "{{a}}"], arguments: {a: {}}}`, `passes its arguments to a shell`},
		{`{command: [x], environment: ["A=1"]}`, `/environment/0: a variable has a name`},
		{`{command: [x], set: {"": "1"}}`, `/set/: a variable has a name`},
		{`{command: [x], set: {CI: 1}}`, `/set/CI: expected a string`},
		{`{command: [x], hosts: [a]}`, `/hosts: "hosts" applies only to addresses`},
		{`{command: [x], privateNetwork: true}`, `"privateNetwork" applies only to addresses`},
		{`{` + http + `, background: true}`, `/background: "background" applies only to commands`},
		{`{upstream: {server: a, tool: b}, background: true}`, `/background: "background" applies only to commands`},
		{`{command: [x], tree: y}`, `/tree: "tree" applies only to commands with background: true`},
		{`{` + http + `, directory: x}`, `/directory: "directory" applies only to commands`},
		{`{` + http + `, environment: []}`, `/environment: "environment" applies only to commands`},
		{`{http: "http://h.example/"}`, `/http: http:// is not encrypted`},
		{`{http: "ftp://h.example/"}`, `/http: the address must begin with https://`},
		{`{http: "h.example/x"}`, `/http: the address must begin with https://`},
		{`{http: "https:///x"}`, `/http: the address has no valid host`},
		{`{http: "https://h.example:x/"}`, `/http: the address has no valid host`},
		{`{http: "https://h.example:99999/"}`, `/http: the port`},
		{`{http: "https://u:p@h.example/"}`, `/http: the address contains credentials`},
		{`{http: "https://h.example/#x"}`, `/http: the address has a fragment`},
		{`{http: "https://h.example/a b"}`, `/http: the address contains a character`},
		{`{http: "https://hé.example/"}`, `/http: the address contains a character`},
		{`{http: "https://h.example\\@evil/"}`, `/http: the address contains a character`},
		{`{http: "https://h.example/a/../b"}`, `/http: the path has a`},
		{`{http: "https://h.example/%2e%2e/b"}`, `/http: the path has a`},
		{`{http: "https://h.example/%zz"}`, `/http: invalid percent-encoding in the path`},
		{`{http: "https://h.example/?a=%zz"}`, `/http: the query contains`},
		{`{http: "https://h.example/?a=1;b=2"}`, `/http: the query contains`},
		{`{http: "{{a}}://h.example/", arguments: {a: {}}}`, `/http: arguments may appear only in path segments`},
		{`{http: "https://{{a}}/", arguments: {a: {}}}`, `/http: arguments may appear only in path segments`},
		{`{http: "https://{{a}}@h.example/", arguments: {a: {}}}`, `/http: arguments may appear only in path segments`},
		{`{http: "https://h.example:{{a}}/", arguments: {a: {}}}`, `/http: arguments may appear only in path segments`},
		{`{http: "https://h.example/?{{a}}=1", arguments: {a: {}}}`, `/http: arguments may appear only in path segments`},
		{`{http: "https://h.example/?{{a}}", arguments: {a: {}}}`, `/http: arguments may appear only in path segments`},
		{`{http: "https://h.example/#{{a}}", arguments: {a: {}}}`, `/http: the address has a fragment`},
		{`{` + http + `, hosts: ["*.example"]}`, `/hosts/0: a host must be a name`},
		{`{` + http + `, hosts: ["https://a"]}`, `/hosts/0: a host must be a name`},
		{`{` + http + `, hosts: ["a/b"]}`, `/hosts/0: a host must be a name`},
		{`{` + http + `, hosts: [""]}`, `/hosts/0: a host must be a name`},
		{`{` + http + `, accept: [302]}`, `/accept/0: an accepted status`},
		{`{` + http + `, accept: ["200"]}`, `/accept/0: a status must be a number`},
		{`{` + http + `, headers: {"A B": x}}`, `/headers/A B: this is not a header name`},
		{`{` + http + `, headers: {host: x}}`, `/headers/host: this header cannot be set`},
		{`{` + http + `, headers: {X-A: "1", x-a: "2"}}`, `/headers/x-a: duplicate header in another spelling`},
		{`{` + http + `, headers: {A: "${B"}}`, `/headers/A: write an environment variable`},
		{`{` + http + `, headers: {A: "x\ny"}}`, `/headers/A: a header value must not`},
		{`{` + http + `, headers: {A: "{{b}}"}}`, `/headers/A: headers cannot contain arguments`},
	} {
		_, err := parse(t, "evidence:\n  sources:\n   it:\n    "+c.source+"\n")
		var all document.Errors
		if !errors.As(err, &all) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.source, err, c.want)
			continue
		}
		for _, i := range all {
			if i.Line != 4 || i.Source != "conf/gavel.yaml" {
				t.Errorf("%s: line %d of %q, want 4", c.source, i.Line, i.Source)
			}
		}
	}
}

// Arguments in positions where they are not code.
func TestArgumentsOutsideCodeAreAccepted(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{
		{"sh", "test-commit.sh", "{{a}}"},
		{"sh", "-c", `grep -- "$1" notes`, "sh", "{{a}}"},
		{"bash", "-o", "pipefail", "-c", `run "$1" | tail`, "bash", "{{a}}"},
		{"bash", "-c", "--", `run "$1"`, "bash", "{{a}}"},
		{"python3", "-c", "import sys", "{{a}}"},
		{"python3", "-m", "pytest", "-q", "{{a}}"},
		{"python3", "tool.py", "-e", "{{a}}"},
		{"node", "tool.js", "--env={{a}}", "-r{{a}}"},
		{"env", "CI=1", "go", "test", "-run={{a}}", "-race", "{{a}}"},
		{"env", "CI={{a}}", "go", "test"},
		{"docker", "run", "--rm", "-e", "SHA={{a}}", "python", "pytest", "{{a}}"},
		{"git", "cat-file", "-e", "{{a}}^{commit}"},
		{"timeout", "5", "make", "-e", "NAME={{a}}"},
	} {
		cfg := evidence.Config{Sources: map[string]evidence.Source{"it": {Command: command, Arguments: map[string]evidence.Argument{"a": {}}}}}
		m, err := evidence.New(cfg, evidence.Options{})
		if err != nil {
			t.Errorf("%q: %v", command, err)
			continue
		}
		m.Close()
	}
	for _, command := range [][]string{{"ssh", "host", "test", "-f", "{{a}}"}, {"sh", "{{a}}"}} {
		cfg := evidence.Config{Sources: map[string]evidence.Source{"it": {Command: command, Arguments: map[string]evidence.Argument{"a": {Pattern: "[a-z]+"}}}}}
		m, err := evidence.New(cfg, evidence.Options{})
		if err != nil {
			t.Errorf("%q with a pattern: %v", command, err)
			continue
		}
		m.Close()
	}
}

func TestNamesOfSources(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a b", "a/b", "é", strings.Repeat("x", 65)} {
		if _, err := evidence.New(evidence.Config{Sources: map[string]evidence.Source{name: {Command: []string{"x"}}}}, evidence.Options{}); err == nil || !strings.Contains(err.Error(), "a source's name") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A missing variable is reported with its line, and the values of set variables are never shown.
func TestVariablesOfHeaders(t *testing.T) {
	t.Parallel()
	cfg, err := parse(t, `evidence:
  sources:
    ticket:
      http: "https://h.example/"
      headers:
        Accept: text/plain
        Authorization: "Bearer ${TOKEN}"
        X-Key: "${BAD}"
`)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"BAD": "s3cret\r\nX-Evil: 1"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	for range 2 {
		_, err = evidence.New(cfg, evidence.Options{LookupEnv: lookup})
		want := `conf/gavel.yaml:7:24: /evidence/sources/ticket/headers/Authorization: the environment variable TOKEN is not set`
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ":8:16: ") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want %s", err, want)
		}
		env["TOKEN"] = "" // counts as not set
	}
	maps.Copy(env, map[string]string{"TOKEN": "t", "BAD": "fine"})
	m, err := evidence.New(cfg, evidence.Options{LookupEnv: lookup})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// A configuration built by a program obeys the same rules.
func TestConfigOfAProgram(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source evidence.Source
		want   string
	}{
		{evidence.Source{}, `/evidence/sources/it: a source needs exactly one of`},
		{evidence.Source{Command: []string{"x"}, Output: "xml"}, `/evidence/sources/it/output: the output must be`},
		{evidence.Source{Command: []string{"x"}, Timeout: -1}, `/evidence/sources/it/timeout: `},
		{evidence.Source{Command: []string{"x"}, MaxOutput: -1}, `/evidence/sources/it/maxOutput: `},
		{evidence.Source{Command: []string{"x", "a\x00b"}}, `/evidence/sources/it/command/1: an argument of a command must not contain NUL`},
		{evidence.Source{Command: []string{"x"}, Set: map[string]string{"A": "\x00"}}, `/evidence/sources/it/set/A: a variable must not contain NUL`},
	} {
		_, err := evidence.New(evidence.Config{Sources: map[string]evidence.Source{"it": c.source}}, evidence.Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
