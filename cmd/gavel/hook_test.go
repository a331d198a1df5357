package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
)

const sessionPage = "../../docs/hooks.md"

// hookProject returns a folder with the files of the page.
func hookProject(t testing.TB) string {
	t.Helper()
	page, err := os.ReadFile(sessionPage)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range regexp.MustCompile("(?ms)^<!-- file: (\\S+) -->\n```yaml\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		if err := os.WriteFile(filepath.Join(dir, file[1]), []byte(file[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "check.sh"), []byte("test -e passes"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// claudeEvent returns an event as Claude Code writes it.
func claudeEvent(dir, name string, more map[string]any) []byte {
	e := map[string]any{
		"session_id": "7d3c", "transcript_path": "/x.jsonl", "cwd": dir, "permission_mode": "default", "hook_event_name": name,
	}
	for key, value := range more {
		e[key] = value
	}
	raw, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return raw
}

func claudeTool(dir, name, id, tool string, input map[string]any, more ...any) []byte {
	all := map[string]any{"tool_name": tool, "tool_use_id": id, "tool_input": input}
	if len(more) > 0 {
		all["tool_response"] = more[0]
	}
	return claudeEvent(dir, name, all)
}

// answerHere runs gavel hook in this process.
func answerHere(t testing.TB, input io.Reader, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	var out, err bytes.Buffer
	exit = run(t.Context(), append([]string{"hook"}, args...), input, &out, &err)
	return out.String(), err.String(), exit
}

// isDenied reports whether Claude Code treats the answer to a PreToolUse as a denial.
func isDenied(stdout string, exit int) bool {
	return exit == 2 || exit == 0 && strings.Contains(stdout, `"permissionDecision":"deny"`)
}

// The page shows a session with the answers of the real program.
func TestHookSession(t *testing.T) {
	t.Parallel()
	gavel, dir := program(t), hookProject(t)
	var page strings.Builder
	ids := regexp.MustCompile(`wf-[0-9a-f-]{36}`)
	step := 0
	say := func(what string) {
		step++
		fmt.Fprintf(&page, "\n%2d. %s\n", step, what)
	}
	clean := func(text string) string {
		return ids.ReplaceAllString(strings.ReplaceAll(text, dir, "/srv/app"), "wf-...")
	}
	ask := func(name string, more map[string]any) string {
		cmd := exec.CommandContext(t.Context(), gavel, "hook", "claude-code", "--config", filepath.Join(dir, "gavel.yaml"))
		cmd.Env, cmd.Stdin = cli.WithoutSettings(os.Environ()), bytes.NewReader(claudeEvent(dir, name, more))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || stderr.Len() > 0 {
			t.Fatalf("%s: %v\n%s", name, err, &stderr)
		}
		shown, _ := json.Marshal(more) //nolint:errchkjson // strings only
		fmt.Fprintf(&page, "    > %s %s\n", name, clean(string(shown)))
		fmt.Fprintf(&page, "    < %s\n", cmp.Or(clean(strings.TrimSpace(string(out))), "(nothing)"))
		return string(out)
	}
	tool := func(name, id, tool string, input map[string]any) map[string]any {
		return map[string]any{"tool_name": tool, "tool_use_id": id, "tool_input": input}
	}
	bash := func(name, id, command string) string {
		more := tool(name, id, "Bash", map[string]any{"command": command})
		if name == "PostToolUse" {
			more["tool_response"] = map[string]any{"stdout": "", "interrupted": false}
		}
		return ask(name, more)
	}
	must := func(out string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("step %d: %q is not in %s", step, part, out)
			}
		}
		if len(parts) == 0 && out != "" {
			t.Errorf("step %d is not neutral: %s", step, out)
		}
	}
	deny := `"permissionDecision":"deny"`

	say("The session begins, and with it the workflow.")
	must(ask("SessionStart", map[string]any{"source": "startup"}), `is in \"open\"`, "make test")
	say("The agent edits a file.")
	must(ask("PreToolUse", tool("", "toolu_1", "Edit", map[string]any{"file_path": filepath.Join(dir, "src", "app.py"), "old_string": "1", "new_string": "2"})))
	say("It pushes too early.")
	must(bash("PreToolUse", "toolu_2", "git push"), deny, "Next: run `make test`.")
	say("It runs the tests.")
	must(bash("PreToolUse", "toolu_3", "make test"))
	must(bash("PostToolUse", "toolu_3", "make test"), `is in \"tested\"`)
	say("It changes the sources after the test.")
	must(bash("PreToolUse", "toolu_4", "sed -i s/2/3/ src/app.py"), deny, "rework")
	say("It pushes. gavel runs the tests itself, and they fail.")
	must(bash("PreToolUse", "toolu_5", "git push"), deny, "tests")
	say("It pushes once they pass.")
	if err := os.WriteFile(filepath.Join(dir, "passes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	must(bash("PreToolUse", "toolu_6", "git push"))
	must(bash("PostToolUse", "toolu_6", "git push"), `is in \"out\"`)
	say("It says that it is done.")
	stopped := ask("Stop", map[string]any{"stop_hook_active": false})
	must(stopped, `"decision":"block"`, "announce", "text")
	say("It announces the release, with the tool workflow.advance, and is done.")
	s := launch(t, "--config", filepath.Join(dir, "gavel.yaml"))
	s.must("workflow.advance", map[string]any{"id": ids.FindString(stopped), "action": "announce", "data": map[string]any{"text": "1.4 is out."}})
	must(ask("Stop", map[string]any{"stop_hook_active": true}))

	text, err := os.ReadFile(sessionPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- session:begin -->\n", "<!-- session:end -->"
	head, rest, _ := strings.Cut(string(text), begin)
	_, tail, _ := strings.Cut(rest, end)
	if got := head + begin + "```text" + page.String() + "```\n" + end + tail; got != string(text) {
		if !*update {
			t.Fatalf("%s is stale; run: go test ./cmd/gavel -run TestHookSession -update", sessionPage)
		}
		if err := os.WriteFile(sessionPage, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Whatever fails around a hook, the client gets a denial in its own format.
func TestHookFailuresDeny(t *testing.T) {
	t.Parallel()
	event := func(dir string) io.Reader {
		return bytes.NewReader(claudeTool(dir, "PreToolUse", "toolu_1", "Bash", map[string]any{"command": "make test"}))
	}
	write := func(t *testing.T, dir, name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		args  []string
		input func(dir string) io.Reader // nil is a use with a gate
		harm  func(t *testing.T, dir string)
		want  string
	}{
		{name: "no JSON", input: func(string) io.Reader { return strings.NewReader(`{"hook_event_name":`) }, want: "cannot decode"},
		{name: "no input", input: func(string) io.Reader { return strings.NewReader("") }, want: "cannot decode"},
		{name: "an unknown event", input: func(dir string) io.Reader { return bytes.NewReader(claudeEvent(dir, "PreTeleport", nil)) }, want: `unknown hook event \"PreTeleport\"`},
		{name: "too much", input: func(string) io.Reader { return io.LimitReader(neverEnding('x'), 1<<30) }, want: "cannot decode"},
		{name: "an input that breaks", input: func(string) io.Reader { return io.MultiReader(strings.NewReader("{"), brokenReader{}) }, want: "cannot read the event"},
		{name: "an input that never ends", args: []string{"--limit", "2s"}, input: func(string) io.Reader { return waitingReader(t.Context().Done()) }, want: "time limit for hooks was exceeded"},
		{name: "no configuration", args: []string{"--config="}, want: "give --config FILE, or --server URL"},
		{name: "a configuration that is gone", harm: func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "gavel.yaml")) }, want: "gavel.yaml"},
		{name: "a configuration with a mistake", harm: func(t *testing.T, dir string) { write(t, dir, "gavel.yaml", "gates: [{tool: 'builtin:shel'}]") }, want: "gavel.yaml:1"},
		{name: "an unknown flag", args: []string{"--bogus"}, want: "--bogus"},
		{name: "a limit that is none", args: []string{"--limit=soon"}, want: "soon"},
		{name: "an unknown role", args: []string{"--role=king"}, want: "king"},
		{name: "a definition that is gone", harm: func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "release.yaml")) }, want: "release.yaml"},
		{name: "a definition with a mistake", harm: func(t *testing.T, dir string) {
			write(t, dir, "release.yaml", "name: release\ninitialState: opn\nstates: {open: {}}")
		}, want: "release.yaml"},
		{name: "a gate that does not fit", harm: func(t *testing.T, dir string) {
			write(t, dir, "release.yaml", "name: release\ninitialState: begun\nstates: {begun: {transitions: {go: end}}, end: {final: true}}")
		}, want: "there is none"},
		{name: "a store in memory", args: []string{"--store=memory"}, want: "outlives"},
		{name: "a store that is a folder", harm: func(t *testing.T, dir string) { write(t, dir, ".workflows/gavel.db/x", "") }, want: "is a folder"},
		{name: "a store that is none", harm: func(t *testing.T, dir string) {
			write(t, dir, ".workflows/gavel.db", strings.Repeat("no database ", 1000))
		}, want: "gavel.db"},
		{name: "a store that is gone", harm: func(t *testing.T, dir string) { write(t, dir, ".workflows/gavel.key", strings.Repeat("ab", 32)) }, want: "moved or deleted"},
		{name: "a server that is not there", args: []string{"--config=", "--server", "http://127.0.0.1:1"}, want: "could not be reached"},
		{name: "a token that is not there", args: []string{"--config=", "--server", "http://127.0.0.1:1", "--token-file", "none"}, want: "--token-file"},
		{name: "a token from stdin", args: []string{"--config=", "--server", "http://127.0.0.1:1", "--token-file", "-"}, want: "holds no token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := hookProject(t)
			if c.harm != nil {
				c.harm(t, dir)
			}
			input := event(dir)
			if c.input != nil {
				input = c.input(dir)
			}
			began := time.Now()
			out, stderr, exit := answerHere(t, input, append([]string{"claude-code", "--config", filepath.Join(dir, "gavel.yaml")}, c.args...)...)
			if !isDenied(out, exit) || !strings.Contains(out, c.want) {
				t.Errorf("exit %d\n%s\n%s", exit, out, stderr)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
			if c.input != nil {
				return
			}
			for again, blocks := range map[bool]bool{false: true, true: false} { // an agent that has informed its person may end
				stop := claudeEvent(dir, "Stop", map[string]any{"stop_hook_active": again})
				out, _, exit := answerHere(t, bytes.NewReader(stop), append([]string{"claude-code", "--config", filepath.Join(dir, "gavel.yaml")}, c.args...)...)
				if blocked := exit != 0 || strings.Contains(out, `"block"`); blocked && !blocks || !blocked && blocks && c.want != "there is none" {
					t.Errorf("a stop, again %t: exit %d, %s", again, exit, out)
				}
			}
		})
	}
	for _, client := range agent.Clients() {
		if _, stderr, exit := answerHere(t, strings.NewReader("{"), client); exit == 0 && stderr == "" {
			t.Errorf("%s: bad JSON with exit %d, %s", client, exit, stderr)
		}
	}
	if _, stderr, exit := answerHere(t, event("/"), "claud-code"); exit != 2 || !strings.Contains(stderr, "claude-code") {
		t.Errorf("a client that there is not: exit %d, %s", exit, stderr)
	}
}

type neverEnding byte

func (b neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

type waitingReader <-chan struct{}

func (r waitingReader) Read([]byte) (int, error) {
	<-r
	return 0, io.EOF
}

// gavel serve gives the same answers over HTTP, for the principal of the token, and gavel hook --server relays to it.
func TestHooksOverHTTP(t *testing.T) {
	t.Parallel()
	dir := hookProject(t)
	s := serveGavel(t, "--config", filepath.Join(dir, "gavel.yaml"))
	post := s.postHook
	agent := s.token("agent-hooks", "--principal", "local:agent", "--hooks", dir)
	other := s.token("other-hooks", "--hooks", dir)
	push := claudeTool(dir, "PreToolUse", "toolu_1", "Bash", map[string]any{"command": "git push"})
	const path = "/v1/hooks/claude-code"
	for _, c := range []struct {
		name, token, path string
		body              []byte
		status            int
		want              string
	}{
		{"nobody", "", path, push, 401, ""},
		{"an unknown client", agent, "/v1/hooks/claud", push, 404, "claude-code"},
		{"a session", agent, path, claudeEvent(dir, "SessionStart", map[string]any{"source": "startup"}), 200, `is in \"open\"`},
		{"too early", agent, path, push, 200, `"permissionDecision":"deny"`},
		{"no JSON", agent, path, []byte("{"), 200, `"decision":"block"`},
		{"another principal's", other, path, push, 200, `"permissionDecision":"deny"`},
		{"a stop", agent, path, claudeEvent(dir, "Stop", map[string]any{"stop_hook_active": false}), 200, `"decision":"block"`},
	} {
		if status, text := post(c.token, c.path, c.body); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
	}
	if status, text := post(agent, path, claudeTool(dir, "PreToolUse", "toolu_2", "Bash", map[string]any{"command": "ls"})); status != 200 || text != "" {
		t.Errorf("neutral: %d %s", status, text)
	}
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(agent), 0o600); err != nil {
		t.Fatal(err)
	}
	relay := []string{"claude-code", "--server", s.url, "--token-file", token}
	if out, stderr, exit := answerHere(t, bytes.NewReader(push), relay...); exit != 0 || !isDenied(out, exit) || !strings.Contains(out, "Next: run `make test`.") {
		t.Errorf("relayed: %d %s %s", exit, out, stderr)
	}
	if out, stderr, exit := answerHere(t, bytes.NewReader(claudeTool(dir, "PreToolUse", "toolu_2", "Bash", map[string]any{"command": "ls"})), relay...); exit != 0 || out != "" {
		t.Errorf("relayed: %d %s %s", exit, out, stderr)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.owner)
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	figures, err := io.ReadAll(resp.Body)
	if want := `gavel_hooks_answered_total{client="claude-code",verdict="deny"} 3`; err != nil || !strings.Contains(string(figures), want) {
		t.Errorf("%s is not in the figures: %v", want, err)
	}
	s.stop()
	if out, _, exit := answerHere(t, bytes.NewReader(push), relay...); !isDenied(out, exit) || !strings.Contains(out, "could not be reached") {
		t.Errorf("without its server: %d %s", exit, out)
	}
}
