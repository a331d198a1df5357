package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store/sqlite"
)

// leftBehind copies what a crash now would leave of a store, and returns its number of instances.
func leftBehind(t *testing.T, path string) int64 {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "gavel.db")
	for _, suffix := range []string{"", "-wal", "-journal"} {
		b, err := os.ReadFile(path + suffix)
		if err != nil && suffix != "" {
			continue
		}
		if err != nil {
			t.Errorf("there is no store: %v", err)
			return 0
		}
		if err := os.WriteFile(copied+suffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := sqlite.Inspect(t.Context(), copied)
	if err != nil {
		t.Error(err)
	}
	return c.Instances
}

// At every moment of a restore, either the old or the new store is in place. A failed restore leaves everything as it
// was.
func TestRestoreLeavesOneOfTheTwo(t *testing.T) {
	const older, newer = 3, 2
	backup := filepath.Join(t.TempDir(), "backup.db")
	filled(t, backup, newer)
	var steps []string
	try := func(fail string, look func(target string)) (string, error) {
		target := newPath(t)
		filled(t, target, older)
		req := sqlite.RestoreRequest{From: backup, To: target, Replace: true, Now: time.Now()}
		_, err := sqlite.Restore(t.Context(), sqlite.Watched(req, func(step string) error {
			look(target)
			if step == fail {
				return errBoom
			}
			steps = append(steps, step)
			return nil
		}))
		return target, err
	}
	target, err := try("", func(target string) {
		if n := leftBehind(t, target); n != older {
			t.Errorf("before the last step: %d instances, want %d", n, older)
		}
	})
	if err != nil || leftBehind(t, target) != newer {
		t.Fatalf("restored: %v", err)
	}
	all := slices.Clone(steps)
	if len(all) < 3 || all[len(all)-1] != "rename" {
		t.Fatalf("the steps are %q", all)
	}
	for _, fail := range all {
		target, err := try(fail, func(string) {})
		if !errors.Is(err, errBoom) {
			t.Errorf("%s: %v", fail, err)
		}
		if n := leftBehind(t, target); n != older {
			t.Errorf("%s failed: %d instances, want %d", fail, n, older)
		}
		if got := names(t, target); len(got) != 1 {
			t.Errorf("%s failed: left behind %q", fail, got)
		}
	}
}

// A log without its database is also put back.
func TestFailedRestorePutsTheFilesBack(t *testing.T) {
	backup := filepath.Join(t.TempDir(), "backup.db")
	filled(t, backup, 2)
	files := map[string]string{"": "", "-wal": "a log", "-shm": "an index"}
	for _, fail := range []string{"keep -shm", "sync", "clear -wal", "clear -shm", "rename"} {
		target := newPath(t)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			t.Fatal(err)
		}
		for suffix, content := range files {
			if err := os.WriteFile(target+suffix, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		req := sqlite.RestoreRequest{From: backup, To: target, Replace: true, Now: time.Now()}
		_, err := sqlite.Restore(t.Context(), sqlite.Watched(req, func(step string) error {
			if step == fail {
				return errBoom
			}
			return nil
		}))
		if !errors.Is(err, errBoom) {
			t.Errorf("%s: %v", fail, err)
		}
		for suffix, want := range files {
			if got, err := os.ReadFile(target + suffix); err != nil || string(got) != want {
				t.Errorf("%s failed: %q: %d bytes, %v", fail, suffix, len(got), err)
			}
		}
		if got := names(t, target); len(got) != len(files) {
			t.Errorf("%s failed: left behind %q", fail, got)
		}
	}
}

var errBoom = errors.New("boom")
