//go:build unix

package postgres_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine/store"
)

// Entries are replaced as a whole, by only one of the processes that saw the previous version.
func TestEntries(t *testing.T) {
	schema := newSchema(t)
	a, b := unsynced(t, schema), unsynced(t, schema)
	defer a.Close()
	defer b.Close()
	if _, err := a.Entry(t.Context(), "tokens", 0); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("none: %v", err)
	}
	for version := int64(1); version <= 3; version++ {
		var won atomic.Int64
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				body := []byte{0, byte(version), byte(i)}
				switch err := []*opened{a, b}[i%2].PutEntry(t.Context(), store.Entry{Name: "tokens", Version: version, Body: body}); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, store.ErrConflict):
					t.Error(err)
				}
			})
		}
		group.Wait()
		if won.Load() != 1 {
			t.Errorf("%d wrote version %d", won.Load(), version)
		}
		got, err := b.Entry(t.Context(), "tokens", version-1)
		if err != nil || got.Version != version || len(got.Body) != 3 || got.Body[1] != byte(version) {
			t.Fatalf("%+v, %v; want version %d", got, err, version)
		}
		if err := a.PutEntry(t.Context(), got); err != nil { // a retry after its result was lost
			t.Errorf("the same again: %v", err)
		}
	}
	if got, err := a.Entry(t.Context(), "tokens", 3); err != nil || got.Version != 3 || got.Body != nil {
		t.Errorf("seen already: %+v, %v", got, err)
	}
	if err := a.PutEntry(t.Context(), store.Entry{Name: "tokens", Version: 5}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a gap: %v", err)
	}
	if _, err := a.Entry(t.Context(), "token", 0); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another: %v", err)
	}
}
