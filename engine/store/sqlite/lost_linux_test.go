package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// On read-only media, a store without a log is read in place, and one with a log from a temporary copy. If no copy
// can be made, the error names the unread log.
func TestReadOnlyMedia(t *testing.T) {
	needNamespaces(t)
	quiet, busy := newPath(t), newPath(t)
	s, _ := writtenStore(t, quiet)
	copyOpen(t, quiet, busy)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ path, temp, want string }{
		"without a log":           {quiet, "ok", "<nil>"},
		"without a log, no room":  {quiet, "none", "<nil>"},
		"with a log":              {busy, "ok", "<nil>"},
		"with a log, and no room": {busy, "none", sqlite.ErrUnreadLog.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			got := lines(t, spawn(t, "read on read-only media", tt.path, tt.temp, namespaced(true)))
			if why, ok := got["mount"]; ok {
				t.Skipf("no mount here: %s", why)
			}
			if !strings.Contains(got["read"], tt.want) {
				t.Errorf("got %q, want %q", got["read"], tt.want)
			}
			if tt.want != "<nil>" && !strings.Contains(got["read"], tt.path+"-wal") {
				t.Errorf("the log is not named: %q", got["read"])
			}
			if got["left"] != "0" {
				t.Errorf("%s temporary files are left", got["left"])
			}
		})
	}
}

// copyOpen copies a store that is open, with its log.
func copyOpen(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(from + suffix)
		if err == nil {
			err = os.WriteFile(to+suffix, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func readOnReadOnlyMedia(cfg sqlite.Config, out io.Writer) {
	dir := filepath.Dir(cfg.Path)
	err := syscall.Mount(dir, dir, "", syscall.MS_BIND, "")
	if err == nil {
		err = syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	}
	temp, tempErr := os.MkdirTemp("", "media-*")
	if err := errors.Join(err, tempErr); err != nil {
		say(out, "mount", err)
		return
	}
	defer os.RemoveAll(temp)
	use := temp
	if os.Getenv(childName) == "none" {
		use = filepath.Join(temp, "none")
	}
	_ = os.Setenv("TMPDIR", use)
	say(out, "read", func() error {
		s, err := sqlite.OpenToRead(context.Background(), cfg.Path)
		if err != nil {
			return err
		}
		for n := range 20 {
			if _, err := s.Load(context.Background(), storetest.ID(n)); err != nil {
				return err
			}
		}
		return s.Close()
	}())
	left, _ := os.ReadDir(temp)
	fmt.Fprintf(out, "left: %d\n", len(left))
}
