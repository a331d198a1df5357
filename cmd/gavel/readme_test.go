package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/module"
)

const readme = "../../README.md"

// README is short.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	if n := len(strings.Fields(pages(t)[readme])); n > 700 {
		t.Errorf("README has %d words, more than 700", n)
	}
}

// newcomer is somebody who has only README: a fresh HOME, and a folder.
type newcomer struct {
	t            *testing.T
	folder, home string
	environ      []string
}

func newNewcomer(t *testing.T) *newcomer {
	t.Helper()
	needsProgram(t)
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	n := &newcomer{t: t, folder: t.TempDir(), home: t.TempDir()}
	n.environ = append(cli.WithoutSettings(os.Environ()), "HOME="+n.home, "XDG_DATA_HOME="+n.home, "XDG_CONFIG_HOME="+n.home, "NO_COLOR=1")
	return n
}

// section returns README's text below a heading, without subheadings of the same level.
func section(t *testing.T, title string) string {
	t.Helper()
	_, text, ok := strings.Cut(pages(t)[readme], "\n## "+title+"\n")
	if !ok {
		t.Fatalf("README has no section %q", title)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// quoted returns the first block of a section in a language.
func quoted(t *testing.T, text, language string) string {
	t.Helper()
	for _, m := range codeBlock.FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			return m[2]
		}
	}
	t.Fatalf("no block of %s in:\n%s", language, text)
	return ""
}

// types runs the lines of a shell block, with answers on standard input, and returns what they print.
func (n *newcomer) types(lines, input string) string {
	n.t.Helper()
	cmd := exec.Command("bash", "--norc", "-e", "-c", lines)
	cmd.Dir, cmd.Env, cmd.Stdin = n.folder, n.environ, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s: %v\n%s", lines, err, out)
	}
	return string(out)
}

// opens runs the command that opens the console, follows its link, and stops it.
func (n *newcomer) opens(line string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "--norc", "-c", "exec "+line) //nolint:gosec // README's
	cmd.Dir, cmd.Env = n.folder, n.environ
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	link, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		n.t.Fatalf("%s prints no link: %v", line, err)
	}
	jar, _ := cookiejar.New(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSpace(link), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	res, err := (&http.Client{Jar: jar}).Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(text), "document-review") {
		n.t.Errorf("the console shows %d, %v:\n%s", res.StatusCode, err, text)
	}
	if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
		n.t.Errorf("%s ends with %v", line, err)
	}
}

// TestReadme types what README says about any client, an own workflow and the record. It acts as the client that finds
// the configuration there: it starts the configured server in another folder, and is refused until it does what the
// workflow requires.
func TestReadme(t *testing.T) {
	t.Parallel()
	n := newNewcomer(t)
	client := section(t, "Any MCP client in three minutes")
	printed := n.types(quoted(t, client, "sh"), "")
	typed := regexp.MustCompile("type `([^`]*)`").FindStringSubmatch(client)
	if typed == nil || !strings.Contains(printed, "\n  "+typed[1]+"\n") {
		t.Errorf("README says to type %q; gavel init printed:\n%s", typed, printed)
	}

	raw, err := os.ReadFile(filepath.Join(n.folder, ".mcp.json"))
	if err != nil {
		t.Fatal(err)
	}
	var found clientConfig
	if err := json.Unmarshal(raw, &found); err != nil {
		t.Fatal(err)
	}
	server := found.MCPServers["gavel"]
	if server.Type != "stdio" || len(server.Args) == 0 || server.Args[0] != "mcp" {
		t.Fatalf("%+v", server)
	}
	if out, err := exec.CommandContext(t.Context(), server.Command, "version").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", server.Command, err, out)
	}
	elsewhere := &newcomer{t: t, folder: t.TempDir(), environ: n.environ}
	put(t, filepath.Join(elsewhere.folder, "calls"), `workflow.list {}
workflow.start {"type":"document-review"}
workflow.advance {"id":"$ID","action":"approve"}
workflow.advance {"id":"$ID","action":"submit","data":{"documentId":"DOC-7"}}
workflow.advance {"id":"$ID","action":"submit","data":{"documentId":"DOC-7","reviewer":"ada"}}
workflow.advance {"id":"$ID","action":"approve","data":{"comments":"LGTM"}}
workflow.advance {"id":"$ID","action":"approve","data":{"comments":"Checked sections 1 to 4."}}
`)
	answers := strings.Split(elsewhere.types("play calls "+strings.Join(server.Args[1:], " "), ""), "\n")
	for i, want := range []string{
		`"document-review"`, `"state":"draft"`, `"state":"draft"`, `reviewer`, `"state":"reviewing"`, strings.TrimSpace(quoted(t, client, "text")), `"complete":true`,
	} {
		if !strings.Contains(answers[i], want) {
			t.Errorf("answer %d is not about %s: %s", i+1, want, answers[i])
		}
	}
	if left, _ := filepath.Glob(filepath.Join(elsewhere.folder, "*")); len(left) != 1 {
		t.Errorf("the client's folder has %v", left)
	}

	own := section(t, "Your own workflow")
	for _, file := range fileBlock.FindAllStringSubmatch(own, -1) {
		put(t, filepath.Join(n.folder, filepath.FromSlash(file[1])), file[2])
	}
	if printed = n.types(quoted(t, own, "sh"), "check orderId=A-1 amount=500\ncheck orderId=A-1 amount=50\npay\n"); !strings.Contains(printed, "Between 0 and 100.") ||
		!strings.Contains(printed, "in state paid (success), complete") {
		t.Errorf("the own workflow:\n%s", printed)
	}

	after := quoted(t, section(t, "What the agent did"), "sh")
	id := regexp.MustCompile(`wf-[0-9a-f-]{36}`).FindString(n.types("gavel instances list", ""))
	open, after, cut := strings.Cut(after, "\n")
	if !cut || !strings.HasPrefix(open, "gavel ui ") {
		t.Fatalf("README does not begin with gavel ui, but with %q", open)
	}
	printed = n.types(strings.ReplaceAll(after, "ID", id), "")
	if module.IsRegistered("console") {
		n.opens(open)
	}
	for _, want := range []string{"document-review v1  approved  complete", "Say in a sentence", "all as it was written"} {
		if !strings.Contains(printed, want) {
			t.Errorf("no %q in:\n%s", want, printed)
		}
	}
}
