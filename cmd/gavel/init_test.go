package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/author"
	"github.com/gavel-mcp/gavel/internal/cli"
)

// Each client's configuration contains a command line that gavel can parse, and names the file that gavel init
// writes.
func TestClientConfigurations(t *testing.T) {
	t.Parallel()
	for name, c := range author.MCPClients() {
		text := c.Text("/bin/gavel", []string{"mcp", "--config", `C:\a "b"\gavel.yaml`})
		var found clientConfig
		if name == "codex" {
			lines := strings.Split(text, "\n")
			var args []string
			if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[2], "args = ")), &args); err != nil || lines[0] != "[mcp_servers.gavel]" || lines[1] != `command = "/bin/gavel"` {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
			parsesStrict(t, args)
			continue
		}
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
		server := found.MCPServers["gavel"]
		if name == "vscode" {
			server = found.Servers["gavel"]
		}
		if server.Command != "/bin/gavel" {
			t.Errorf("%s: %s", name, text)
		}
		parsesStrict(t, server.Args)
	}
}

// parsesStrict is parses for a command line that is not from a page: it reads no file.
func parsesStrict(t *testing.T, args []string) {
	t.Helper()
	if len(args) < 3 || args[0] != "mcp" || args[1] != "--config" || args[2] != `C:\a "b"\gavel.yaml` {
		t.Errorf("arguments %q", args)
		return
	}
	parses(t, append([]string{"mcp"}, args[3:]...))
}

// TestSnippetForClients starts the server that the page on clients tells them to start. A move that needs a person
// waits, and the settings of that snippet find it.
func TestSnippetForClients(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	folder := t.TempDir()
	var snippet clientConfig
	if err := json.Unmarshal([]byte(blocks(t, "../../docs/clients.md", "json")[0]), &snippet); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(folder, "gavel.yaml")
	args := strings.Fields(strings.ReplaceAll(strings.Join(snippet.MCPServers["gavel"].Args, " "), "/home/me/gavel.yaml", settings))
	put(t, filepath.Join(folder, "calls"), `workflow.start {"type":"careful-ops"}
workflow.advance {"id":"$ID","action":"plan","data":{"goal":"Three copies.","command":"kubectl scale deployment/web --replicas=3","undo":"The same with 2."}}
workflow.advance {"id":"$ID","action":"approve"}
`)
	run := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Env = folder, cli.WithoutSettings(os.Environ())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("gavel", "init", "--template", "careful-ops")
	if out := run("play", append([]string{"calls"}, args[1:]...)...); !strings.Contains(out, `"outcome":"escalate"`) {
		t.Errorf("the move does not wait for a person:\n%s", out)
	}
	if out := run("gavel", "review", "list", "--config", settings); !strings.Contains(out, "planned -> approved") {
		t.Errorf("the review is not listed:\n%s", out)
	}
}
