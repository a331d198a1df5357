//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
)

// surroundings is a command that prints everything about its environment that can change a program's behaviour:
// the effect of a closed pipe, signals, files, limits, folder, terminal.
const surroundings = `set -u
{ yes 2>&1; echo "yes: $?" >&2; } | head -n 1 >/dev/null
umask; pwd; ulimit -a; env | sort
ls -l /dev/fd/ 2>/dev/null | wc -l; grep -E '^(Sig|Shd)(Blk|Ign|Pnd)' /proc/self/status 2>/dev/null
(: < /dev/tty) 2>&1; cat | wc -c; nice`

// lookAround is a workflow that requests the command's output as evidence.
const lookAround = `name: looking
initialState: a
states:
  a:
    transitions:
      go:
        target: b
        evidence: [{name: around, source: around}]
        validator: "(data, context, evidence) => ({valid: false, reason: 'seen'})"
  b: {final: true}
`

// The server fetches evidence first and the command line fetches it again later. A review is void if evidence has
// changed. So a command's output must not depend on which of them runs it.
func TestEvidenceIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	flow, config, script := filepath.Join(dir, "flow.yaml"), filepath.Join(dir, "gavel.yaml"), filepath.Join(dir, "around.sh")
	for file, text := range map[string]string{
		flow: lookAround, script: surroundings, config: "evidence: {sources: {around: {command: [sh, around.sh]}}}\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	store := storeIn(t)
	s := launch(t, "--store", store, "--definitions", flow, "--config", config, "--tool-names", "dotted")
	id := s.must("workflow.start", object{"type": "looking"}).field("id")
	s.call("workflow.advance", object{"id": id, "action": "go"})
	var history struct {
		Decisions []struct {
			Evidence []struct{ Content, Digest json.RawMessage }
		}
	}
	if err := json.Unmarshal(runGavel(t, "instances", "history", id, "--json", "--store", store), &history); err != nil {
		t.Fatal(err)
	}
	served := string(history.Decisions[len(history.Decisions)-1].Evidence[0].Content)

	// The command line runs in another folder, with an inherited open file, and ignores signals as under nohup.
	extra, err := os.Open(flow)
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	needsProgram(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `trap '' HUP INT QUIT USR1; exec gavel evidence fetch around --json --config "$0"`, config)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = os.TempDir(), cli.WithoutSettings(os.Environ()), []*os.File{extra, extra}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var fetched struct{ Content json.RawMessage }
	if err := json.Unmarshal(out, &fetched); err != nil {
		t.Fatal(err)
	}
	if pretty(t, served) != pretty(t, string(fetched.Content)) {
		t.Errorf("the server gets\n%s\nand the command line\n%s", pretty(t, served), pretty(t, string(fetched.Content)))
	}
	if want := fmt.Sprintf("yes: %d", 128+int(syscall.SIGPIPE)); !strings.Contains(served, want) {
		t.Errorf("a closed pipe does not end a command: no %q in %s", want, served)
	}
}

func pretty(t *testing.T, content string) string {
	t.Helper()
	var v struct{ Output string }
	if err := json.Unmarshal([]byte(content), &v); err != nil || v.Output == "" {
		t.Fatalf("content %s: %v", content, err)
	}
	return v.Output
}
