//go:build unix

package evidence_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// If the fetching process is killed and can end nothing itself, the kernel ends the command, and the watcher ends the
// command's child processes.
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
				end(t, file) // the documented way
			}
		})
	}
}

// awaitFile waits until a file has content.
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
