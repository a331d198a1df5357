package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// isolatedChild runs the roles that need namespaces, and reports whether role is one.
func isolatedChild(role string, cfg sqlite.Config, out io.Writer) bool {
	switch role {
	case "write once":
		writeOnce(cfg, out)
	case "fill the disk":
		fillDisk(cfg, out)
	case "run out of files":
		runOutOfFiles(cfg, out)
	case "read on read-only media":
		readOnReadOnlyMedia(cfg, out)
	default:
		return false
	}
	return true
}

// namespaced runs a child in its own namespaces. There it may mount file systems (as the superuser of that
// namespace), or has only the rights that file modes grant.
func namespaced(superuser bool) func(*exec.Cmd) {
	id := 1000
	if superuser {
		id = 0
	}
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: id, HostID: os.Getegid(), Size: 1}},
		}
	}
}

// needNamespaces skips a test if the kernel does not allow this user to create namespaces.
func needNamespaces(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/true")
	namespaced(true)(cmd)
	if err := cmd.Run(); err != nil {
		t.Skipf("user namespaces cannot be had here: %v", err)
	}
}

// lines returns the output of a child, keyed by the word before the first colon.
func lines(t *testing.T, p process) map[string]string {
	t.Helper()
	text, err := io.ReadAll(p.acks)
	if err := errors.Join(err, p.Wait()); err != nil {
		t.Fatalf("%v\n%s", err, p.stderr)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		what, said, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		out[what] = said
	}
	return out
}

func say(out io.Writer, what string, err error) { fmt.Fprintf(out, "%s: %v\n", what, err) }

func writeOnce(cfg sqlite.Config, out io.Writer) {
	s, err := sqlite.Open(context.Background(), cfg)
	if say(out, "open", err); err != nil {
		return
	}
	say(out, "write", s.Commit(context.Background(), storetest.Start(orphan{}, storetest.ID(1), `{}`)))
	say(out, "close", s.Close())
}

// fillDisk writes to a store on a file system of 2 MiB until it is full, frees some space and continues.
func fillDisk(cfg sqlite.Config, out io.Writer) {
	ctx, dir := context.Background(), filepath.Dir(cfg.Path)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		say(out, "mount", err)
		return
	}
	filler := filepath.Join(dir, "filler")
	say(out, "filler", os.WriteFile(filler, make([]byte, 512<<10), 0o600))
	s, err := sqlite.Open(ctx, cfg)
	if say(out, "open", err); err != nil {
		return
	}
	var last record.Instance
	big := `{"a":"` + strings.Repeat("x", 50<<10) + `"}`
	for n := 0; err == nil && n < 100; n++ {
		c := storetest.Start(orphan{}, storetest.ID(n), big)
		if err = s.Commit(ctx, c); err == nil {
			last = c.Next
		}
	}
	say(out, "full", err)
	got, err := s.Load(ctx, last.ID)
	if err == nil && got.Head != last.Head {
		err = errors.New("another head")
	}
	say(out, "read", err)
	say(out, "room", os.Remove(filler))
	say(out, "write", s.Commit(ctx, storetest.Advance(orphan{}, last, "reviewing", `{"n":1}`)))
	say(out, "close", s.Close())
}

func fdatasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
