package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// Removals by gavel retain from an anchored store are signed and verify. Without the key it removes nothing.
func TestRetainSignsRemovals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &shop{t: t, gate: dir, store: filepath.Join(dir, "gavel.db")}
	agedStore(t, s.store)
	s.say("anchor", "keygen", "--key", "keys/a")
	s.say("anchor", "--key", "keys/a")

	cmd := exec.CommandContext(t.Context(), "gavel", "retain")
	cmd.Dir, cmd.Env = dir, append(cli.WithoutSettings(os.Environ()), "GAVEL_STORE=gavel.db")
	out, err := cmd.CombinedOutput()
	ended, ok := errors.AsType[*exec.ExitError](err)
	if !ok || ended.ExitCode() != term.ExitUnknown || !strings.Contains(string(out), "--anchor-key") {
		t.Errorf("without the key: %v\n%s", err, out)
	}
	if out := s.say("retain", "--dry-run"); !strings.Contains(out, "would remove 6 events of 2 histories") {
		t.Errorf("a dry run: %s", out)
	}
	if out := s.say("retain", "--anchor-key", "keys/a"); !strings.Contains(out, "removed 6 events of 2 histories") {
		t.Errorf("with the key: %s", out)
	}
	for _, step := range [][]string{{"verify"}, {"verify", "--public-key", "keys/a.pub"}, {"anchor", "--key", "keys/a"}, {"verify", "--public-key", "keys/a.pub"}} {
		if out := s.say(step...); step[0] == "verify" && !strings.Contains(out, "all as it was written") {
			t.Errorf("%v: %s", step, out)
		}
	}
}
