package shell_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// FuzzNeutralLineNeverPushes runs lines that are neutral to a gate on git push, with a git that records its calls. To
// run it by hand: go test -fuzz FuzzNeutralLineNeverPushes -fuzztime 10m ./internal/shell.
func FuzzNeutralLineNeverPushes(f *testing.F) {
	for _, r := range readTable(f) {
		if r.mark != "escape" {
			f.Add(r.line)
		}
	}
	box := newSandbox(f)
	f.Fuzz(func(t *testing.T, line string) {
		if len(line) > 2<<10 || mayLeave(line) || classify(t, line, "push") != "neutral" {
			return
		}
		if calls := box.run(t, line); strings.Contains(calls, "push\n") {
			t.Errorf("%q pushes", line)
		}
	})
}

// TestSandbox shows that the sandbox detects what the fuzz target looks for.
func TestSandbox(t *testing.T) {
	box := newSandbox(t)
	for line, want := range map[string]string{
		"git -C . --no-pager push origin": "push\n", "echo push | xargs git": "push\n", `perl -e 1; awk 'BEGIN { system("git push") }'`: "push\n",
		"git stash push": "", "echo git push": "", "exit 3": "",
	} {
		if got := box.run(t, line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// mayLeave reports whether a line may reach anything outside the sandbox: another folder, or other processes of the
// machine.
func mayLeave(line string) bool {
	for _, s := range []string{"..", "kill", "~", `\x2`, `\57`, `\05`, `\u`, `\U`, "PWD", "%b", "ulimit", "dev", "proc"} {
		if strings.Contains(strings.ReplaceAll(line, "/dev/null", ""), s) {
			return true
		}
	}
	rest := strings.NewReplacer("/dev/null", "", "./", "", "s/a/b/", "", "a/b", "").Replace(line)
	return strings.Contains(rest, "/")
}

// sandbox is an empty folder in which lines run. It has a few harmless programs and a git that records its calls.
// Lines run without privileges, and without a network if the system supports that.
type sandbox struct {
	bin, home, log string
	attributes     *syscall.SysProcAttr
}

const nobody = 65534

func newSandbox(t testing.TB) *sandbox {
	t.Helper()
	root := t.TempDir()
	b := &sandbox{bin: filepath.Join(root, "bin"), home: filepath.Join(root, "home"), log: filepath.Join(root, "log")}
	for at := root; strings.Contains(at, "TestSandbox") || strings.Contains(at, "Fuzz"); at = filepath.Dir(at) {
		must(t, os.Chmod(at, 0o755))
	}
	must(t, os.Mkdir(b.bin, 0o755))
	for _, tool := range []string{"awk", "base64", "bash", "cat", "cut", "env", "find", "head", "ls", "mkdir", "perl", "rev", "sed", "sh", "sort", "tail", "tee", "touch", "tr", "wc", "xargs"} {
		file, err := exec.LookPath(tool)
		if err != nil {
			if tool == "bash" {
				t.Skip("there is no bash")
			}
			continue
		}
		must(t, os.Symlink(file, filepath.Join(b.bin, tool)))
	}
	must(t, os.WriteFile(filepath.Join(b.bin, "git"), []byte(`#!/bin/sh
while :; do
	case $1 in
	-C | -c | --git-dir | --work-tree) shift 2 || exit ;;
	-*) shift ;;
	*) break ;;
	esac
done
[ "$1" = push ] && echo push >> '`+b.log+`'
exit 0
`), 0o755))
	must(t, os.WriteFile(b.log, nil, 0o666))
	must(t, os.Chmod(b.log, 0o666))
	spaces := uintptr(syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC)
	attributes := []*syscall.SysProcAttr{
		{Cloneflags: spaces | syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}},
		{},
	}
	if os.Getuid() == 0 {
		unprivileged := &syscall.Credential{Uid: nobody, Gid: nobody}
		attributes = []*syscall.SysProcAttr{{Cloneflags: spaces, Credential: unprivileged}, {Credential: unprivileged}}
	}
	for _, b.attributes = range attributes {
		b.attributes.Setpgid = true
		if b.try(t, "true") == nil {
			return b
		}
	}
	t.Skip("no line can be run without privileges here")
	return nil
}

// run runs a line and returns the recorded git calls.
func (b *sandbox) run(t testing.TB, line string) string {
	t.Helper()
	must(t, os.Truncate(b.log, 0))
	var status *exec.ExitError
	if err := b.try(t, line); err != nil && !errors.As(err, &status) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatal(err)
	}
	calls, err := os.ReadFile(b.log)
	must(t, err)
	return string(calls)
}

func (b *sandbox) try(t testing.TB, line string) error {
	t.Helper()
	if strings.Contains(line, "\x00") {
		return nil
	}
	must(t, os.RemoveAll(b.home))
	must(t, os.Mkdir(b.home, 0o777))
	must(t, os.Chmod(b.home, 0o777))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "bash"), "--norc", "--noprofile", "-c", `ulimit -c 0 -f 64 -t 1 -u 256; exec bash --norc --noprofile -c "$1"`, "_", line)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = b.home, []string{"PATH=" + b.bin, "HOME=" + b.home}, b.attributes
	cmd.WaitDelay = time.Second
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // processes that the line left running
	}
	return err
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal("line " + strconv.Quote(t.Name()) + ": " + err.Error())
	}
}
