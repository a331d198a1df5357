package sqlitestore_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// The newest events are lost. Their positions are not used again: an anchor says that it
// covers all up to one.
func TestSalvagedPositionsAreNotUsedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gavel.db")
	s := openAt(t, path)
	commit := func(c store.Commit) record.Instance {
		t.Helper()
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c.Next
	}
	kept := commit(storetest.Start(t, storetest.ID(1), `{"title":"a"}`))
	lost := commit(storetest.Start(t, storetest.ID(2), `{"title":"b"}`))
	lost = commit(storetest.Refuse(t, lost, "submit"))
	key, err := record.GenerateSigner("test")
	if err != nil {
		t.Fatal(err)
	}
	for n, events := range []int64{3, 1 << 60} { // the second cannot be
		note, err := key.Sign(record.Anchor{Origin: "test", Number: int64(n) + 1, Events: events, Time: time.Unix(int64(n), 0)}.Text())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.AddAnchor(t.Context(), store.Anchor{Number: int64(n) + 1, At: time.Unix(int64(n), 0), Note: note}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"DELETE FROM events WHERE pos > 1", "DELETE FROM contexts WHERE n > 1", "DELETE FROM instances WHERE n > 1", "PRAGMA wal_checkpoint(TRUNCATE)"} {
		if _, err := db.Exec(query); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, s = saved(t, path)
	position := func(want int64) {
		t.Helper()
		if got, err := s.LastPosition(t.Context()); err != nil || got != want {
			t.Errorf("the last position is %d, %v, want %d", got, err, want)
		}
	}
	position(3)
	commit(storetest.Refuse(t, kept, "submit"))
	position(4)
	var heads []string
	for h, err := range s.Instances(t.Context(), store.InstanceQuery{MovedAfter: 3, Heads: true}) {
		if err != nil {
			t.Fatal(err)
		}
		heads = append(heads, h.ID)
	}
	if len(heads) != 1 || heads[0] != kept.ID || kept.ID == lost.ID {
		t.Errorf("above the anchor: %v", heads)
	}
}
