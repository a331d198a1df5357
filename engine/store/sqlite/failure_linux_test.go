package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/store/sqlite"
)

// A full disk is reported and loses nothing; the store continues once there is space.
func TestFullDisk(t *testing.T) {
	needNamespaces(t)
	path := filepath.Join(t.TempDir(), "gavel.db")
	got := lines(t, spawn(t, "fill the disk", path, "", namespaced(true)))
	if why, ok := got["mount"]; ok {
		t.Skipf("a small file system cannot be had here: %s", why)
	}
	if full := got["full"]; !strings.Contains(full, sqlite.ErrDiskFull.Error()) || !strings.Contains(full, path) {
		t.Errorf("the full disk: %q", full)
	}
	for _, what := range []string{"filler", "open", "read", "room", "write", "close"} {
		if got[what] != "<nil>" {
			t.Errorf("%s: %q", what, got[what])
		}
	}
}

// A file and a directory that this user may not write to are reported as such, even if the tests run as the
// superuser, to whom modes do not apply.
func TestNoRightToWrite(t *testing.T) {
	needNamespaces(t)
	for name, tt := range map[string]struct {
		target func(path string) string
		mode   os.FileMode
	}{
		"a file":               {func(path string) string { return path }, 0o400},
		"a directory":          {filepath.Dir, 0o500},
		"a file without right": {func(path string) string { return path }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "d", "gavel.db")
			if err := openAt(t, path).Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(tt.target(path), tt.mode); err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(tt.target(path), 0o700) //nolint:gosec // so that it can be removed
			got := lines(t, spawn(t, "write once", path, "", namespaced(false)))
			said := got["open"]
			if said == "<nil>" {
				said = got["write"]
			}
			if !strings.Contains(said, sqlite.ErrReadOnly.Error()) || !strings.Contains(said, path) {
				t.Errorf("open: %q, write: %q", got["open"], got["write"])
			}
		})
	}
}
