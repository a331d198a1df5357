package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
)

// toolEvents creates the event that each client sends before it runs a line of shell, and before it edits a file, if
// the client sends that.
var toolEvents = map[string]struct {
	shell, edit func(dir, text string) map[string]any
}{
	"claude-code": {
		func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "PreToolUse", "session_id": "s", "cwd": dir, "tool_use_id": "t", "tool_name": "Bash", "tool_input": map[string]any{"command": text}}
		},
		func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "PreToolUse", "session_id": "s", "cwd": dir, "tool_use_id": "t", "tool_name": "Edit", "tool_input": map[string]any{"file_path": text, "old_string": "a", "new_string": "b"}}
		},
	},
	"codex": {
		func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "PreToolUse", "session_id": "s", "turn_id": "t", "cwd": dir, "model": "m", "permission_mode": "default", "tool_use_id": "t", "tool_name": "Bash", "tool_input": map[string]any{"command": text}}
		},
		func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "PreToolUse", "session_id": "s", "turn_id": "t", "cwd": dir, "model": "m", "permission_mode": "default", "tool_use_id": "t", "tool_name": "apply_patch", "tool_input": map[string]any{"command": "*** Begin Patch\n*** Update File: " + text + "\n@@\n-a\n+b\n*** End Patch\n"}}
		},
	},
	"copilot": {
		func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "PreToolUse", "session_id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": dir, "tool_name": "Bash", "tool_input": map[string]any{"command": text}}
		},
		func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "PreToolUse", "session_id": "s", "timestamp": "2026-01-01T00:00:00Z", "cwd": dir, "tool_name": "Write", "tool_input": map[string]any{"path": text, "file_text": "b"}}
		},
	},
	"cursor": {
		func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "preToolUse", "conversation_id": "s", "generation_id": "g", "workspace_roots": []string{dir}, "cwd": dir, "tool_use_id": "t", "tool_name": "Shell", "tool_input": map[string]any{"command": text}}
		},
		func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "preToolUse", "conversation_id": "s", "generation_id": "g", "workspace_roots": []string{dir}, "cwd": dir, "tool_use_id": "t", "tool_name": "Write", "tool_input": map[string]any{"file_path": text, "content": "b"}}
		},
	},
	"gemini": {
		func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "BeforeTool", "session_id": "s", "cwd": dir, "timestamp": "2026-01-01T00:00:00Z", "tool_name": "run_shell_command", "tool_input": map[string]any{"command": text}}
		},
		func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "BeforeTool", "session_id": "s", "cwd": dir, "timestamp": "2026-01-01T00:00:00Z", "tool_name": "write_file", "tool_input": map[string]any{"file_path": text, "content": "b"}}
		},
	},
	"kiro": {
		shell: func(dir, text string) map[string]any {
			return map[string]any{"hook_event_name": "preToolUse", "session_id": "s", "cwd": dir, "tool_name": "execute_bash", "tool_input": map[string]any{"command": text}}
		},
	},
	"opencode": {
		func(dir, text string) map[string]any {
			return map[string]any{"hook": "tool.execute.before", "directory": dir, "sessionID": "s", "callID": "t", "tool": "bash", "args": map[string]any{"command": text}}
		},
		func(dir, text string) map[string]any {
			return map[string]any{"hook": "tool.execute.before", "directory": dir, "sessionID": "s", "callID": "t", "tool": "write", "args": map[string]any{"filePath": text, "content": "b"}}
		},
	},
}

// postHook posts a body to a server and returns the status and the response.
func (s *served) postHook(token, path string, body []byte) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// isDeniedOverHTTP reports whether a client treats a response to a tool use as a denial. Kiro reads only the exit
// code.
func isDeniedOverHTTP(client string, status int, text string) bool {
	if client == "kiro" {
		return status == http.StatusForbidden
	}
	return status == http.StatusOK && agent.ReadAnswer(client, 0, []byte(text)) == agent.ReadDeny
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// A token for the hooks of a folder can post events of sessions there, and nothing else. No other token can post
// events.
func TestHookToken(t *testing.T) {
	t.Parallel()
	dir := hookProject(t)
	s := serveGavel(t, "--config", filepath.Join(dir, "gavel.yaml"))
	hooks := s.token("agent-hooks", "--principal", "local:agent", "--hooks", dir)
	const path = "/v1/hooks/claude-code"
	use := func(folder, project, line string) []byte {
		e := toolEvents["claude-code"].shell(folder, line)
		if project == "" {
			return encode(t, e)
		}
		return encode(t, map[string]any{"event": e, "project": project})
	}
	if status, text := s.postHook(hooks, path, claudeEvent(dir, "SessionStart", nil)); status != 200 || !strings.Contains(text, `is in \"open\"`) {
		t.Fatalf("a session: %d %s", status, text)
	}
	elsewhere := toolEvents["claude-code"].shell("/srv/worktree", "git push")
	elsewhere["tool_use_id"] = "toolu_elsewhere"
	for _, c := range []struct {
		name, token, path string
		body              []byte
		status            int
		want              string
	}{
		{"the agent's own token", s.agent, path, use(dir, "", "git push"), 403, "gavel token create NAME --hooks FOLDER"},
		{"the operator's", s.owner, path, use(dir, "", "git push"), 403, "gavel token create NAME --hooks FOLDER"},
		{"a folder below", hooks, path, use(dir+"/src/..", "", "git push"), 200, "Next: run `make test`."},
		{"another folder", hooks, path, use("/srv/other", "", "ls"), 200, "is for sessions in " + dir},
		{"a folder that begins alike", hooks, path, use(dir+"-2", "", "ls"), 200, "is for sessions in " + dir},
		{"out of the folder", hooks, path, use(dir+"/../x", "", "ls"), 200, "is for sessions in " + dir},
		{"relayed, of a project", hooks, path + "?form=answer", use("/tmp", dir, "git push"), 200, `"deny"`},
		{"relayed, of another project", hooks, path + "?form=answer", use(dir, "/srv/other", "ls"), 200, "is for sessions in " + dir},
		{"relayed, of a worktree", hooks, path + "?form=answer", encode(t, map[string]any{
			"event": elsewhere, "places": agent.Places{Projects: map[string]agent.Project{"/srv/worktree": {Root: dir, Repository: true}}},
		}), 200, "Next: run `make test`."},
		{"relayed, with the name of another project for its own", hooks, path + "?form=answer", encode(t, map[string]any{
			"event": toolEvents["claude-code"].shell(dir, "git push"), "places": agent.Places{Projects: map[string]agent.Project{dir: {Root: "/srv/other", Repository: true}}},
		}), 200, "the token of this hook is for " + dir},
		{"of another folder in its line", hooks, path, use(dir, "", "git -C /srv/other push"), 200, `"permissionDecision":"deny"`},
		{"relayed, of another version", hooks, path + "?form=answer", []byte(`{"event":{},"elsewhere":1}`), 400, "of the same version"},
		{"relayed by an older gavel", hooks, path + "?form=answer", encode(t, toolEvents["claude-code"].shell(dir, "ls")), 400, "of the same version"},
	} {
		if status, text := s.postHook(c.token, c.path, c.body); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
	}
	for _, at := range [][2]string{{"GET", "/v1/whoami"}, {"GET", "/v1/instances"}, {"POST", "/v1/instances"}, {"GET", "/v1/definitions"}, {"POST", "/mcp"}, {"GET", "/mcp"}, {"GET", "/metrics"}, {"GET", path}, {"PUT", path}, {"POST", "/v1/hooks"}} {
		body := ""
		if at[0] == "POST" {
			body = `{"type":"release"}`
		}
		if status, answer := s.ask(hooks, at[0], at[1], body); status != 403 || answer["code"] != "forbidden" {
			t.Errorf("%s %s with a token for hooks: %d %v", at[0], at[1], status, answer)
		}
	}
	if found := s.must(s.agent, http.MethodGet, "/v1/instances", ""); !strings.Contains(fmt.Sprint(found), "release") || strings.Contains(fmt.Sprint(found), "/srv/other") {
		t.Errorf("the workflows are %v", found)
	}
	if out := runGavel(t, "token", "list", "--store", s.store); !strings.Contains(string(out), "agent, hooks in "+dir) {
		t.Errorf("the list is %s", out)
	}
}

// An invalid body of an event is answered with a denial in the client's own format.
func TestHookBodies(t *testing.T) {
	t.Parallel()
	dir := hookProject(t)
	s := serveGavel(t, "--config", filepath.Join(dir, "gavel.yaml"))
	hooks := s.token("h", "--hooks", "/")
	for client, events := range toolEvents {
		fine := string(encode(t, events.shell(dir, "ls")))
		long := string(encode(t, events.shell(dir, strings.Repeat("x", 20<<20))))
		for name, body := range map[string]string{
			"20 MB":           long,
			"cut off":         fine[:len(fine)-1],
			"a duplicate key": strings.Replace(fine, "{", `{"cwd":"/a","cwd":"/b","directory":"/a","directory":"/b",`, 1),
			"an array":        "[" + fine + "]",
			"nothing":         "",
			"two values":      fine + fine,
			"NULs":            strings.Repeat("\x00", 100),
		} {
			status, text := s.postHook(hooks, "/v1/hooks/"+client, []byte(body))
			if !isDeniedOverHTTP(client, status, text) || !strings.Contains(text, "could not decide") {
				t.Errorf("%s, %s: %d %.300s", client, name, status, text)
			}
			if status, text := s.postHook(hooks, "/v1/hooks/"+client+"?form=answer", []byte(body)); status/100 != 4 || !strings.Contains(text, `"detail"`) {
				t.Errorf("%s, %s, relayed: %d %.300s", client, name, status, text)
			}
		}
		relayed := `{"event":` + fine + `,"event":` + fine + `}`
		if status, text := s.postHook(hooks, "/v1/hooks/"+client+"?form=answer", []byte(relayed)); status != 400 || !strings.Contains(text, "duplicate key") {
			t.Errorf("%s, a duplicate event: %d %s", client, status, text)
		}
	}
}

// hooks.onFailure decides about an unreadable event, even if the relay or the listener detects it.
func TestHookOnFailure(t *testing.T) {
	t.Parallel()
	dir := hookProject(t)
	config := filepath.Join(dir, "gavel.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	lenient := filepath.Join(dir, "lenient.yaml")
	if err := os.WriteFile(lenient, bytes.Replace(text, []byte("\nhooks:\n"), []byte("\nhooks:\n  onFailure: neutral\n"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	unknown := string(encode(t, map[string]any{"hook_event_name": "PreTeleport", "session_id": "s", "cwd": dir}))
	number := string(encode(t, map[string]any{"hook_event_name": "PreToolUse", "session_id": 7, "cwd": dir, "tool_name": "Bash", "tool_input": map[string]any{"command": "ls"}}))
	for file, denies := range map[string]bool{config: true, lenient: false} {
		s := serveGavel(t, "--config", file)
		token := filepath.Join(t.TempDir(), "token")
		hooks := s.token("h", "--hooks", "/")
		if err := os.WriteFile(token, []byte(hooks), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, input := range map[string]string{"an unknown event": unknown, "an id that is a number": number, "20 MB": strings.Repeat("x", 20<<20)} {
			status, text := s.postHook(hooks, "/v1/hooks/claude-code", []byte(input))
			if status != 200 || isDeniedOverHTTP("claude-code", status, text) != denies {
				t.Errorf("%s, %s: %d %.200s", file, name, status, text)
			}
			for place, args := range map[string][]string{"here": {"--config", file}, "relayed": {"--server", s.url, "--token-file", token}} {
				if name == "20 MB" && place == "relayed" { // it is not sent
					continue
				}
				out, stderr, exit := answerHere(t, strings.NewReader(input), append([]string{"claude-code"}, args...)...)
				if isDenied(out, exit) != denies || denies && !strings.Contains(out, "could not decide") || !denies && strings.Count(stderr, "cannot read an event") != 1 {
					t.Errorf("%s, %s, %s: exit %d, %.200s %.200s", file, name, place, exit, out, stderr)
				}
			}
		}
	}
}

// A relayed token that is not for hooks gives a denial with the next step.
func TestHookRelayWithoutRight(t *testing.T) {
	t.Parallel()
	dir := hookProject(t)
	s := serveGavel(t, "--config", filepath.Join(dir, "gavel.yaml"))
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(s.agent), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr, exit := answerHere(t, bytes.NewReader(encode(t, toolEvents["claude-code"].shell(dir, "ls"))), "claude-code", "--server", s.url, "--token-file", token)
	if !isDenied(out, exit) || !strings.Contains(out, "gavel hook install CLIENT --server URL") {
		t.Errorf("%d %s %s", exit, out, stderr)
	}
}

// gavel hook install creates the token that its hooks send to a server, once, and revokes it if it cannot be used.
func TestHookInstallMakesToken(t *testing.T) {
	t.Parallel()
	dir, home := hookProject(t), t.TempDir()
	s := serveGavel(t, "--config", filepath.Join(dir, "gavel.yaml"))
	run := func(input io.Reader, args ...string) (stdout, stderr string, err error) {
		cmd := exec.CommandContext(t.Context(), "gavel", args...)
		cmd.Dir, cmd.Stdin, cmd.Env = dir, input, append(cli.WithoutSettings(os.Environ()), "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, "config"), "XDG_DATA_HOME="+filepath.Join(home, "data"))
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err = cmd.Run()
		return out.String(), errs.String(), err
	}
	list := func(store string) string {
		t.Helper()
		return string(runGavel(t, "token", "list", "--store", store))
	}
	made := func() []string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(home, "config", "gavel", "*.token"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}

	install := []string{"hook", "install", "claude-code", "--server", s.url, "--yes"}
	if _, stderr, err := run(nil, install...); err == nil || !strings.Contains(stderr, "gavel token create hooks-claude-code --hooks "+dir+" --principal local:agent") {
		t.Errorf("without the server's store: %v %s", err, stderr)
	}
	other := filepath.Join(t.TempDir(), "gavel.db")
	runGavel(t, "token", "create", "x", "--store", other, "--out", filepath.Join(t.TempDir(), "x"))
	if _, stderr, err := run(nil, append(install, "--store", other)...); err == nil || !strings.Contains(stderr, "gavel token create hooks-claude-code") || strings.Contains(list(other), "hooks-claude-code") {
		t.Errorf("with another server's: %v %s\n%s", err, stderr, list(other))
	}
	if _, stderr, err := run(nil, "hook", "install", "claude-code", "--server", s.url, "--store", s.store); err == nil || strings.Contains(list(s.store), "hooks-claude-code") || len(made()) > 0 {
		t.Errorf("without a yes: %v %s\n%s %v", err, stderr, list(s.store), made())
	}
	for range 2 { // the second run has nothing to do
		if _, stderr, err := run(nil, append(install, "--store", s.store)...); err != nil {
			t.Fatal(err, stderr)
		}
	}
	files := made()
	if n := strings.Count(list(s.store), "agent, hooks in "+dir); n != 1 || len(files) != 1 {
		t.Fatalf("%d tokens, and the files %v\n%s", n, files, list(s.store))
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the token: %v %v", info, err)
	}
	push := claudeTool(dir, "PreToolUse", "toolu_1", "Bash", map[string]any{"command": "git push"})
	settings, err := os.ReadFile(filepath.Join(dir, ".claude", "settings.local.json"))
	if err != nil || !strings.Contains(string(settings), files[0]) {
		t.Errorf("the settings: %v %s", err, settings)
	}
	if stdout, stderr, err := run(bytes.NewReader(claudeEvent(dir, "SessionStart", nil)), "hook", "claude-code", "--server", s.url, "--token-file", files[0]); err != nil || !strings.Contains(stdout, "release") {
		t.Errorf("a session: %v %s %s", err, stdout, stderr)
	}
	if stdout, stderr, err := run(bytes.NewReader(push), "hook", "claude-code", "--server", s.url, "--token-file", files[0]); err != nil || !isDenied(stdout, 0) || !strings.Contains(stdout, "make test") {
		t.Errorf("a push: %v %s %s", err, stdout, stderr)
	}
	if _, stderr, err := run(nil, "hook", "uninstall", "claude-code", "--yes", "--store", s.store); err != nil || len(made()) != 0 || strings.Contains(list(s.store), "hooks-claude-code") {
		t.Errorf("the removal keeps the token: %v %s %v\n%s", err, stderr, made(), list(s.store))
	}
	if _, stderr, err := run(nil, append(install, "--store", s.store)...); err != nil || len(made()) != 1 {
		t.Fatal(err, stderr)
	}
	if _, stderr, err := run(nil, "hook", "uninstall", "claude-code", "--yes", "--store", other); err != nil || !strings.Contains(stderr, "gavel token revoke --forget") || !strings.Contains(list(s.store), "hooks-claude-code") {
		t.Errorf("a removal without the server's store: %v %s\n%s", err, stderr, list(s.store))
	}
	open := serveGavel(t, "--auth", "none", "--config", filepath.Join(dir, "gavel.yaml"))
	if _, stderr, err := run(nil, "hook", "install", "codex", "--server", open.url, "--yes"); err != nil || len(made()) != 0 {
		t.Errorf("a server without tokens: %v %s %v", err, stderr, made())
	}
}
