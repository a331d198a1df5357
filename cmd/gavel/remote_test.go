package main

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// reviewed is a workflow with a move that only a person can approve.
const reviewed = `{"name":"reviewed","initialState":"a","states":{
  "a":{"transitions":{"go":{"target":"b","risk":"high"},"on":"c"}},"b":{"final":true},"c":{"transitions":{"back":"a"}}}}`

// TestServerInsteadOfStore shows that commands print the same for a server as for its store.
func TestServerInsteadOfStore(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	s.must(s.owner, http.MethodPost, "/v1/definitions", reviewed)
	id := s.begin(s.agent, "reviewed")
	s.must(s.agent, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"on"}`)
	s.must(s.agent, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"back","data":{"n":1.50}}`)
	s.must(s.agent, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"go"}`)
	token := tokenFile(t, s.owner)
	there := []string{"--server", s.url, "--token-file", token}
	list := s.must(s.owner, http.MethodGet, "/v1/reviews", "")
	review, _ := list["reviews"].([]any)[0].(map[string]any)["reviewId"].(string)

	for _, command := range [][]string{
		{"instances", "list"},
		{"instances", "list", "--json", "--workflow", "reviewed", "--status", "running"},
		{"instances", "show", id},
		{"instances", "show", id, "--json", "--revision", "2"},
		{"instances", "history", id},
		{"instances", "history", id, "--json", "--limit", "2"},
		{"instances", "timeline", id, "--json"},
		{"history", "search", "--json", "--outcome", "escalate"},
		{"history", "search", "--text", "person"},
		{"history", "stats", "--json"},
		{"review", "list"},
		{"review", "list", "--json", "--status", "all"},
		{"review", "show", review, "--json"},
		{"graph", "--instance", id},
		{"graph", "reviewed", "--format", "dot", "--json"},
	} {
		here := runGavel(t, append(command[:len(command):len(command)], "--store", s.store)...)
		over := runGavel(t, append(command[:len(command):len(command)], there...)...)
		if !bytes.Equal(here, over) || len(here) == 0 {
			t.Errorf("gavel %s\nof the store:\n%s\nof the server:\n%s", strings.Join(command, " "), here, over)
		}
	}
	shown := string(runGavel(t, append([]string{"review", "show", review}, there...)...))
	if want := "gavel review approve " + review + " --reason '...' --server " + s.url + " --token-file " + token; !strings.Contains(shown, want) {
		t.Errorf("it does not say %q:\n%s", want, shown)
	}
	runGavel(t, append([]string{"instances", "undo", id}, there...)...)
	runGavel(t, append([]string{"instances", "redo", id}, there...)...)
	if out, code := gavelFails(t, nil, append([]string{"review", "approve", review, "--reason", "Late."}, there...)...); code != term.ExitBad {
		t.Errorf("a stale review: %d %s", code, out)
	}
	s.must(s.agent, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"go"}`)
	list = s.must(s.owner, http.MethodGet, "/v1/reviews", "")
	review, _ = list["reviews"].([]any)[0].(map[string]any)["reviewId"].(string)
	out := string(runGavel(t, append([]string{"review", "approve", review, "--reason", "Looked at it."}, there...)...))
	if !strings.Contains(out, "is in state b") {
		t.Errorf("an approval: %s", out)
	}
	row, _ := s.must(s.owner, http.MethodGet, "/v1/reviews?status=resolved", "")["reviews"].([]any)[0].(map[string]any)
	if row["by"] != "local:operator" || row["channel"] != "api" {
		t.Errorf("who decided is not who the token says: %v", row)
	}
}

// TestServerRefuses covers wrong server addresses and missing or invalid credentials.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	good := tokenFile(t, s.agent)
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
		says string
	}{
		"no token":           {nil, []string{"--server", s.url}, term.ExitUsage, "Send a token"},
		"a bad token":        {[]string{"GAVEL_TOKEN=gvl_bad"}, []string{"--server", s.url}, term.ExitUsage, "not valid"},
		"no server":          {nil, []string{"--server", "http://127.0.0.1:1", "--token-file", good}, term.ExitUnknown, "could not be reached"},
		"no address":         {nil, []string{"--server", "gavel.example", "--token-file", good}, term.ExitUsage, "must be like"},
		"plain elsewhere":    {nil, []string{"--server", "http://gavel.example", "--token-file", good}, term.ExitUsage, "plain HTTP"},
		"store for a server": {[]string{"GAVEL_SERVER=" + s.url}, []string{"--store", s.store}, term.ExitUsage, "both"},
		"store and server":   {nil, []string{"--server", s.url, "--store", s.store}, term.ExitUsage, "both"},
		"no file":            {nil, []string{"--server", s.url, "--token-file", good + "x"}, term.ExitUsage, "--token-file"},
		"two words in file":  {nil, []string{"--server", s.url, "--token-file", tokenFile(t, "two words")}, term.ExitUsage, "holds no token"},
		"two words":          {[]string{"GAVEL_TOKEN=two\nwords"}, []string{"--server", s.url}, term.ExitUsage, "GAVEL_TOKEN holds no token"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := gavelFails(t, c.env, append([]string{"instances", "list"}, c.args...)...)
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("%d, want %d and %q: %s", code, c.code, c.says, out)
			}
		})
	}
	if out, code := gavelFails(t, nil, "review", "approve", "rev-x", "--reason", "r", "--principal", "me", "--server", s.url, "--token-file", good); code != term.ExitUsage || !strings.Contains(out, "the token identifies the reviewer") {
		t.Errorf("another principal: %d %s", code, out)
	}
	// An agent's token may not approve reviews.
	if out, code := gavelFails(t, []string{"GAVEL_TOKEN=" + s.agent}, "review", "approve", "rev-x", "--reason", "r", "--server", s.url); code != term.ExitUsage || !strings.Contains(out, "may not") {
		t.Errorf("an agent approves: %d %s", code, out)
	}
}

// TestServerBeforeStoreOfEnvironment shows that --server overrides a store named only by the environment or the
// configuration file.
func TestServerBeforeStoreOfEnvironment(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	s.must(s.owner, http.MethodPost, "/v1/definitions", reviewed)
	id := s.begin(s.agent, "reviewed")
	settings := filepath.Join(t.TempDir(), "gavel.yaml")
	if err := os.WriteFile(settings, []byte("store: elsewhere.db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--server", s.url, "--token-file", tokenFile(t, s.owner)}
	for name, c := range map[string]struct {
		env, flags []string
	}{
		"the environment":      {[]string{"GAVEL_STORE=elsewhere.db"}, flags},
		"the file":             {[]string{"GAVEL_CONFIG=" + settings}, flags},
		"both in environment":  {[]string{"GAVEL_STORE=elsewhere.db", "GAVEL_SERVER=" + s.url, "GAVEL_TOKEN=" + s.owner}, nil},
		"nothing but a server": {nil, flags},
	} {
		cmd := exec.CommandContext(t.Context(), "gavel", append([]string{"instances", "show", id, "--json"}, c.flags...)...)
		cmd.Env = append(cli.WithoutSettings(os.Environ()), c.env...)
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte(id)) {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// gavelFails runs a command that must fail, and returns its output and exit code.
func gavelFails(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	needsProgram(t)
	cmd := exec.CommandContext(t.Context(), "gavel", args...)
	cmd.Env = append(cli.WithoutSettings(os.Environ()), env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("gavel %s succeeds: %s", strings.Join(args, " "), out)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
