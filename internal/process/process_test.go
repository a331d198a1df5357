//go:build unix

package process

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if Watch(os.Args, os.Stdin) {
		return
	}
	goleak.VerifyTestMain(m)
}

// run runs a shell script and returns its output.
func run(t *testing.T, ctx context.Context, w *Watcher, script string) string { //nolint:revive // t is what it belongs to
	t.Helper()
	cmd, err := Command(ctx, "sh", []string{"sh", "-c", script}, Environment(nil, map[string]string{"SET": "yes"}, os.LookupEnv))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.WaitDelay = &out, time.Second
	ended, err := Start(cmd, w)
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	return out.String()
}

// A watcher that has died or never started affects no result.
func TestWatcherDied(t *testing.T) {
	for name, c := range map[string]struct {
		watcher string
		kill    bool
	}{"killed between two commands": {os.Args[0], true}, "not there": {filepath.Join(t.TempDir(), "gone"), false}} {
		t.Run(name, func(t *testing.T) {
			w := NewWatcher(c.watcher)
			for range 3 {
				if got := run(t, t.Context(), w, "echo fine"); got != "fine\n" {
					t.Errorf("output %q", got)
				}
				if (w.cmd != nil) != c.kill {
					t.Errorf("the watcher is %v", w.cmd)
				} else if c.kill {
					if err := w.cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.Close()
		})
	}
}

// A process group that was removed is not killed when the line closes, because its id may have been reused.
func TestWatchEndsRemainingGroups(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pids []string
	var ended []<-chan struct{}
	for range 2 {
		cmd, err := Command(ctx, "sleep", []string{"sleep", "300"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		end, err := Start(cmd, nil)
		if err != nil {
			t.Fatal(err)
		}
		pids, ended = append(pids, strconv.Itoa(cmd.Process.Pid)), append(ended, end)
	}
	watchGroups(strings.NewReader("+" + pids[0] + "\nnonsense\n0\n+0\n+" + pids[1] + "\n-" + pids[1] + "\n"))
	<-ended[0]
	select {
	case <-ended[1]:
		t.Error("a group was ended that had been taken back")
	default:
	}
	cancel()
	<-ended[1]
}

// The environment consists of the named and set variables. A grandchild ends with the program, and a program that is
// asked to end may still write output.
func TestRun(t *testing.T) {
	t.Setenv("GAVEL_TEST_SECRET", "secret")
	if got := run(t, t.Context(), nil, "env"); strings.Contains(got, "SECRET") || !strings.Contains(got, "SET=yes") || !strings.Contains(got, "PATH=") {
		t.Errorf("the environment is %q", got)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(run(t, t.Context(), nil, "sleep 300 >/dev/null 2>&1 & echo $!")))
	if err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil && !isDefunct(pid); <-time.After(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("process %d still runs", pid)
		}
	}
	cmd, err := Command(t.Context(), "sh", []string{"sh", "-c", "trap 'exit 7' TERM; echo ready; sleep 300 & wait"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	ended, err := Start(cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := r.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := Terminate(cmd); err != nil {
		t.Error(err)
	}
	<-ended
	r.Close()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d", code)
	}
	if _, err := Command(t.Context(), "gavel-has-no-such-program", []string{"x"}, nil); err == nil || !strings.Contains(Explain(err), "does not exist") {
		t.Error(err)
	}
}

// isDefunct reports whether a process has ended but its parent has not waited for it.
func isDefunct(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(after, "Z")
}
