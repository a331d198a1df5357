package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/modules/postgres/command"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// filledStore creates a store with histories of pingPong.
func filledStore(t *testing.T, instances, moves int) string {
	t.Helper()
	path := storeIn(t)
	sys, err := gavel.Open(t.Context(), gavel.Config{Store: path})
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close()
	if _, err := gavel.Define.Do(t.Context(), sys.As(gavel.Operator), engine.DefineRequest{Document: []byte(pingPong), Source: "test"}); err != nil {
		t.Fatal(err)
	}
	for range instances {
		s, err := gavel.Start.Do(t.Context(), sys.As(gavel.Operator), engine.StartRequest{Type: "ping-pong"})
		if err != nil {
			t.Fatal(err)
		}
		for n := range moves {
			if _, err := gavel.Advance.Do(t.Context(), sys.As(gavel.Operator), engine.AdvanceRequest{ID: s.ID, Action: []string{"go", "back"}[n%2], Key: fmt.Sprint(s.ID, n)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return path
}

// copyStore runs gavel store copy.
func copyStore(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), append([]string{"store", "copy"}, args...), strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// A copy that is repeatedly killed is complete in the end, and cannot be opened before.
func TestKilledCopyResumes(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	server := pgtest.Shared(t)
	const instances, moves = 60, 5
	from := filledStore(t, instances, moves)
	dir := t.TempDir()
	key := filepath.Join(dir, "store.key")
	database := server.NewDatabase(t)
	back := filepath.Join(dir, "back", "gavel.db")
	for _, args := range [][]string{{from, database, "--store-key", key}, {database, back, "--store-key", key}} {
		killed := 0
		for killed < *killRounds {
			child := exec.Command("gavel", append([]string{"store", "copy"}, args...)...)
			child.Env = cli.WithoutSettings(os.Environ())
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			timer := time.AfterFunc(rand.N(800*time.Millisecond), func() { _ = child.Process.Kill() })
			if err := child.Wait(); err == nil {
				break // the copy finished before the kill
			}
			timer.Stop()
			killed++
		}
		code, out, errs := copyStore(t, append(args, "--json")...)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		var result command.CopyResult
		if err := json.Unmarshal([]byte(out), &result); err != nil {
			t.Fatal(err)
		}
		if result.Rows["instances"] != instances || result.Rows["events"] != instances*(moves+1) || result.Position != instances*(moves+1) {
			t.Errorf("after %d kills: %s", killed, out)
		}
		t.Logf("%d kills, then %d rows written", killed, result.Written)
	}
	if code, out, errs := copyStore(t, from, back, "--json"); code != 0 || !strings.Contains(out, `"present": true`) {
		t.Errorf("there and back again it is another store: %s%s", out, errs)
	}
}

// A store that was tampered with is not copied.
func TestCopyOfTamperedStore(t *testing.T) {
	t.Parallel()
	from := filledStore(t, 1, 2)
	raw, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(raw, []byte(`"action":"back"`), []byte(`"action":"kcab"`), 1)
	if bytes.Equal(raw, changed) {
		t.Fatal("nothing was changed")
	}
	if err := os.WriteFile(from, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "to.db")
	code, _, errs := copyStore(t, from, to)
	if code != 1 || !strings.Contains(errs, "does not verify (1 break), so it was not copied") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
