//go:build unix

package evidence_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/judge"
)

// Whoever fetches is killed, and can end nothing any more: what hangs is ended all the
// same, the command by the kernel, and all that it has started by the watcher.
func TestKilledWhileFetching(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"gate", "gate alone"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if mode == "gate alone" && runtime.GOOS != "linux" {
				t.Skip("only Linux ends a command by itself")
			}
			file := filepath.Join(t.TempDir(), "pid")
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			gate := exec.CommandContext(t.Context(), self)
			gate.Env = []string{helperMode + "=" + mode + "=" + file}
			if err := gate.Start(); err != nil {
				t.Fatal(err)
			}
			awaitFile(t, file+".on")
			if err := gate.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = gate.Wait()
			wantGone(t, file+".command")
			if mode == "gate" {
				wantGone(t, file)
			} else {
				end(t, file) // as the documentation says
			}
		})
	}
}

// awaitFile waits until there is a number in a file.
func awaitFile(t *testing.T, file string) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); <-time.After(10 * time.Millisecond) {
		if text, err := os.ReadFile(file); err == nil && len(text) > 0 {
			return
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	t.Fatalf("nothing came into %s", file)
}

// A watcher that is gone, or that was never there, changes no result.
func TestWatcherIsGone(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		watcher string
		kill    bool
	}{"killed between two fetches": {self, true}, "not there": {filepath.Join(t.TempDir(), "gone"), false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := manager(t, evidence.Options{Watcher: c.watcher}, map[string]evidence.Source{"it": this(t, "print=fine")})
			for range 3 {
				if r := result(t, fetch(t, m, `{}`)); *r.Output != "fine" {
					t.Errorf("output %q", *r.Output)
				}
				if pid := evidence.WatcherPID(m); (pid != 0) != c.kill {
					t.Errorf("the watcher is process %d", pid)
				} else if c.kill {
					p, err := os.FindProcess(pid)
					if err != nil || p.Kill() != nil {
						t.Fatalf("the watcher %d cannot be killed: %v", pid, err)
					}
				}
			}
			m.Close()
			if _, err := m.Fetch(t.Context(), judge.EvidenceRequest{Source: "it"}, false); err == nil {
				t.Error("fetched after the end")
			}
		})
	}
}

// What is told and taken back is not ended when the line is cut: the number may be
// another's by then.
func TestWatchEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	var pids []int
	for range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env, cmd.SysProcAttr = []string{helperMode + "=hang"}, ownSession()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		pids = append(pids, cmd.Process.Pid)
	}
	file := func(pid int) string {
		name := filepath.Join(t.TempDir(), "pid")
		if err := os.WriteFile(name, []byte(strconv.Itoa(pid)), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	left, back := strconv.Itoa(pids[0]), strconv.Itoa(pids[1])
	evidence.FollowLine(strings.NewReader("+" + left + "\nnonsense\n0\n+0\n+" + back + "\n-" + back + "\n"))
	wantGone(t, file(pids[0]))
	if defunct(pids[1]) {
		t.Error("a group was ended that had been taken back")
	}
	end(t, file(pids[1]))
}
