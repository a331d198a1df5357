package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/cli"
)

// If the disk is full or the store is locked, the agent gets a denial in time.
func TestHookStoreFaultsDeny(t *testing.T) {
	t.Parallel()
	gavel := program(t)
	ask := func(dir, id, shell string) (string, int) {
		t.Helper()
		line := shell + ` exec "$0" hook claude-code --config "$1" --limit 3s`
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line, gavel, filepath.Join(dir, "gavel.yaml"))
		cmd.Env = cli.WithoutSettings(os.Environ())
		cmd.Stdin = bytes.NewReader(claudeTool(dir, "PreToolUse", id, "Bash", map[string]any{"command": "make test"}))
		out, _ := cmd.Output() // the exit code says more
		return string(out), cmd.ProcessState.ExitCode()
	}
	begin := func() string {
		dir := hookProject(t)
		if out, _, exit := answerHere(t, bytes.NewReader(claudeEvent(dir, "SessionStart", nil)), "claude-code", "--config", filepath.Join(dir, "gavel.yaml")); exit != 0 || !strings.Contains(out, "is in") {
			t.Fatalf("exit %d: %s", exit, out)
		}
		return dir
	}
	full := begin()
	if out, exit := ask(full, "toolu_1", "ulimit -f 0;"); !isDenied(out, exit) || !strings.Contains(out, "could not decide") {
		t.Errorf("a full disk: exit %d, %s", exit, out)
	}
	if out, exit := ask(full, "toolu_2", ""); exit != 0 || out != "" {
		t.Errorf("once there is room: exit %d, %s", exit, out)
	}
	held := begin()
	db, err := rawStore(filepath.Join(held, ".workflows", "gavel.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	lock, err := db.Conn(t.Context())
	if err == nil {
		_, err = lock.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	out, exit := ask(held, "toolu_1", "")
	if took := time.Since(began); !isDenied(out, exit) || took > 3*time.Second {
		t.Errorf("a store that is held: exit %d after %v, %s", exit, took, out)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}
