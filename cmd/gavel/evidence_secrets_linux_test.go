package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
)

// A command that fetches evidence gets the named variables only. It cannot read gavel's other variables through
// /proc. Root could, so the test switches to another user if it runs as root.
func TestCommandsCannotReadTheEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, self := filepath.Join(dir, "gavel.yaml"), filepath.Join(dir, "gavel")
	text := `evidence: {sources: {peek: {command: [sh, -c, 'tr "\0" "\n" < /proc/$PPID/environ; cat /proc/$PPID/mem; echo "status $?"; ls /proc/$PPID/fd'], directory: /}}}`
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil { //nolint:gosec // read by another user
		t.Fatal(err)
	}
	copied, err := exec.CommandContext(t.Context(), "cp", "-L", program(t), self).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, copied)
	}
	for _, path := range []string{self, dir, filepath.Dir(dir)} {
		if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), self, "evidence", "fetch", "peek", "--config", config)
	cmd.Dir, cmd.Env = "/", append(cli.WithoutSettings(os.Environ()), "LLM_API_KEY=sk-very-secret")
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.Contains(string(out), "sk-very-secret") || !strings.Contains(string(out), "status 1") || strings.Count(string(out), "ermission denied") < 2 {
		t.Errorf("the command sees %s", out)
	}
}
