package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
)

// A reader sees what was written, while the writer has the store open and afterwards, and changes no byte.
func TestReader(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "s.db")
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	d := store.Definition{Name: "one", Version: 1, Hash: "h", Document: []byte(`{}`), Owner: "me"}
	if err := s.AddRule(ctx, store.Rule{Definition: &d}); err != nil {
		t.Fatal(err)
	}
	look := func() {
		t.Helper()
		r, err := sqlite.OpenToRead(ctx, path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(r.Close(), r.Close()); err != nil {
				t.Error(err)
			}
			if _, err := r.Definition(ctx, "one", 0); !errors.Is(err, store.ErrClosed) {
				t.Errorf("a closed reader answers %v", err)
			}
		}()
		if got, err := r.Definition(ctx, "one", 1); err != nil || got.Hash != "h" {
			t.Fatalf("got %+v, %v", got, err)
		}
		if _, err := r.Snapshot(ctx, "wf-1", 1); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("a snapshot that is not there: %v", err)
		}
		if _, err := store.FindReview(ctx, r, "rev-1"); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("a review that is not there: %v", err)
		}
		for range r.Instances(ctx, store.InstanceQuery{}) {
			t.Fatal("an instance from nowhere")
		}
	}
	look()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	look()
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Fatalf("reading changed the file (%v)", err)
	}
}

func TestReaderRefuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("not a store "), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		filepath.Join(dir, "none"): fs.ErrNotExist, text: sqlite.ErrNotAStore, dir: sqlite.ErrNotAStore,
	} {
		if _, err := sqlite.OpenToRead(context.Background(), path); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
}
