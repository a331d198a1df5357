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

// TestFromAnEmptyFolder types the section Start of README into an empty folder. Then it acts as the MCP client that
// finds the configuration there: it starts the configured server in another folder, and is refused until it does what
// the workflow requires.
func TestFromAnEmptyFolder(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	folder, elsewhere := t.TempDir(), t.TempDir()
	environ := append(cli.WithoutSettings(os.Environ()), "HOME="+elsewhere, "XDG_DATA_HOME="+elsewhere)
	run := func(dir, program string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Env, cmd.Stdin = dir, environ, strings.NewReader("submit documentId=DOC-7 reviewer=ada\n:quit\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	_, section, _ := strings.Cut(pages(t)["../../README.md"], "## Start\n")
	typed := 0
	for line := range strings.Lines(codeBlock.FindStringSubmatch(section)[2]) {
		if args := words(line); len(args) > 0 {
			run(folder, args[0], args[1:]...)
			typed++
		}
	}
	if typed != 3 {
		t.Errorf("%d commands were typed", typed)
	}

	raw, err := os.ReadFile(filepath.Join(folder, ".mcp.json"))
	if err != nil {
		t.Fatal(err)
	}
	var found clientConfig
	if err := json.Unmarshal(raw, &found); err != nil {
		t.Fatal(err)
	}
	server := found.MCPServers["gavel"]
	program, err := exec.LookPath("gavel")
	if err != nil {
		t.Fatal(err)
	}
	if server.Type != "stdio" || !sameFile(server.Command, program) || len(server.Args) == 0 || server.Args[0] != "mcp" {
		t.Fatalf("%+v", server)
	}
	put(t, filepath.Join(elsewhere, "calls"), `workflow.list {}
workflow.start {"type":"document-review"}
workflow.advance {"id":"$ID","action":"approve"}
workflow.advance {"id":"$ID","action":"submit","data":{"documentId":"DOC-7"}}
workflow.advance {"id":"$ID","action":"submit","data":{"documentId":"DOC-7","reviewer":"ada"}}
workflow.advance {"id":"$ID","action":"approve","data":{"comments":"LGTM"}}
workflow.advance {"id":"$ID","action":"approve","data":{"comments":"Checked sections 1 to 4."}}
workflow.judge.config {"name":"document-review","enabled":false}
`)
	// play is an MCP client that starts gavel mcp with these arguments.
	answers := strings.Split(run(elsewhere, "play", append([]string{"calls"}, server.Args[1:]...)...), "\n")
	for i, want := range []string{
		`"document-review"`, `"state":"draft"`, `"state":"draft"`, `reviewer`, `"state":"reviewing"`, "Say in a sentence", `"complete":true`, "forbidden",
	} {
		if !strings.Contains(answers[i], want) {
			t.Errorf("answer %d is not about %s: %s", i+1, want, answers[i])
		}
	}
	if list := run(folder, "gavel", "instances", "list", "--store", ".workflows/gavel.db"); !strings.Contains(list, "document-review v1  approved  complete") {
		t.Errorf("the store of the folder:\n%s", list)
	}
	if left, _ := filepath.Glob(filepath.Join(elsewhere, "*")); len(left) != 1 {
		t.Errorf("the client's folder has %v", left)
	}
}

func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	other, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(one, other)
}

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

// TestSnippetOfReadme starts the server that README tells clients to start. A move that needs a person waits, and the
// settings of that snippet find it.
func TestSnippetOfReadme(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	folder := t.TempDir()
	var snippet clientConfig
	if err := json.Unmarshal([]byte(blocks(t, "../../README.md", "json")[0]), &snippet); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(folder, "gavel.yaml")
	args := strings.Fields(strings.ReplaceAll(strings.Join(snippet.MCPServers["gavel"].Args, " "), "/path/to/gavel.yaml", settings))
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
