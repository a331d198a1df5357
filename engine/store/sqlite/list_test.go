package sqlite_test

import (
	"errors"
	"testing"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// Events stored under a later number than their own must not cause an endless read.
func TestEventsThatLeadBackEnd(t *testing.T) {
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	c := storetest.Start(t, storetest.ID(1), `{}`)
	for range 100 { // more than a page
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		inst, err := s.Load(t.Context(), storetest.ID(1))
		if err != nil {
			t.Fatal(err)
		}
		c = storetest.Advance(t, inst, "reviewing", `{}`)
	}
	db := raw(t, path)
	defer db.Close()
	run(t, db, "UPDATE events SET seq = seq + 1000")
	n := 0
	for _, err := range s.Events(t.Context(), store.EventQuery{Instance: storetest.ID(1)}) {
		if n++; n > 1000 {
			t.Fatal("the events never end")
		}
		if err != nil && !errors.Is(err, sqlite.ErrCorrupt) {
			t.Fatal(err)
		}
	}
}
