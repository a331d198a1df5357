package filelock_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/internal/filelock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Only one of many processes holds the lock at a time, even if each removes the file afterwards.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	var all sync.WaitGroup
	var holders, most atomic.Int64 // guarded by the lock, which the race detector does not know
	for range 50 {
		all.Go(func() {
			l, err := filelock.Acquire(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Remove()
			most.Store(max(most.Load(), holders.Add(1)))
			if held, err := filelock.IsHeld(path); !held || err != nil {
				t.Errorf("held: %v, %v", held, err)
			}
			holders.Add(-1)
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d held it at once", most.Load())
	}
	if held, err := filelock.IsHeld(path); held || err != nil {
		t.Errorf("held: %v, %v", held, err)
	}
}

func TestNote(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	l, err := filelock.Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range []string{"a long note", "short"} {
		if err := l.Note([]byte(note)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != note || err != nil {
			t.Errorf("the note is %q: %v", got, err)
		}
	}
	l.Release()
	if held, err := filelock.IsHeld(path); held || err != nil {
		t.Errorf("held: %v, %v", held, err)
	}
}
