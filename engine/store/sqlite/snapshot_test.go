package sqlite_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// checkpointedStore creates a closed store with an instance that has several checkpoints, and returns them by
// revision.
func checkpointedStore(t *testing.T) (path string, at map[int64]record.Instance) {
	t.Helper()
	path = newPath(t)
	s := openAt(t, path)
	at = map[int64]record.Instance{}
	c := storetest.Start(t, storetest.ID(1), `{"secret":"aaaa"}`)
	for n := 0; ; n++ {
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if c.Snapshot {
			at[c.Next.Revision] = c.Next
		}
		switch {
		case len(at) == 3 && n%2 == 0:
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return path, at
		case n%2 == 0:
			c = storetest.Advance(t, c.Next, "reviewing", fmt.Sprintf(`{"n":%d}`, n))
		default:
			c = storetest.CheckpointOf(t, c.Next)
		}
	}
}

const wrongValue = `UPDATE snapshots SET context = CAST(replace(CAST(context AS TEXT), 'aaaa', 'bbbb') AS BLOB) WHERE revision = 3`

// A snapshot is returned only if it matches its digest.
func TestSnapshotIsHeldAgainstItsDigest(t *testing.T) {
	for name, harm := range map[string]string{
		"its context":  wrongValue,
		"its state":    `UPDATE snapshots SET instance = CAST(replace(CAST(instance AS TEXT), '"reviewing"', '"approved"') AS BLOB) WHERE revision = 3`,
		"its digest":   `UPDATE snapshots SET instance = CAST(replace(CAST(instance AS TEXT), '"digest":"', '"digest":"0') AS BLOB) WHERE revision = 3`,
		"its key":      `UPDATE snapshots SET instance = CAST(replace(CAST(instance AS TEXT), '"instance"', '"instancf"') AS BLOB) WHERE revision = 3`,
		"another's is": `UPDATE snapshots SET context = (SELECT context FROM snapshots WHERE revision = 2) WHERE revision = 3`,
	} {
		t.Run(name, func(t *testing.T) {
			path, at := checkpointedStore(t)
			db := raw(t, path)
			run(t, db, harm)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			s := openAt(t, path)
			defer s.Close()
			if got, err := s.Snapshot(t.Context(), storetest.ID(1), 3); !errors.Is(err, store.ErrDamaged) || got.Context != nil {
				t.Errorf("got %s, %v, want ErrDamaged", got.Context, err)
			}
			if got, err := s.Snapshot(t.Context(), storetest.ID(1), 2); err != nil || !bytes.Equal(got.Context, at[2].Context) {
				t.Errorf("another snapshot: %s, %v", got.Context, err)
			}
		})
	}
}

// Repair drops a snapshot that does not match its digest, and reports it.
func TestSalvageOfSnapshots(t *testing.T) {
	for name, tt := range map[string]struct {
		harm  func(t *testing.T, path string)
		whole bool
	}{
		"whole":         {func(*testing.T, string) {}, true},
		"a wrong value": {func(t *testing.T, path string) { change(t, path, wrongValue) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			path, at := checkpointedStore(t)
			tt.harm(t, path)
			out := filepath.Join(t.TempDir(), "out.db")
			r, err := sqlite.Salvage(t.Context(), path, out)
			if err != nil {
				t.Fatal(err)
			}
			if r.Whole() != tt.whole {
				t.Errorf("whole %t: %+v", r.Whole(), r)
			}
			if named := len(r.Lost) == 1 && r.Lost[0].Table == "snapshots"; named == tt.whole {
				t.Errorf("lost %+v", r.Lost)
			}
			s := openAt(t, out)
			defer s.Close()
			want := at[3]
			if !tt.whole {
				want = at[2]
			}
			got, err := s.Snapshot(t.Context(), storetest.ID(1), 3)
			if err != nil || record.DigestState(got) != record.DigestState(want) {
				t.Errorf("got %s, %v, want %s", got.Context, err, want.Context)
			}
		})
	}
}

// A store of another schema is not repaired, because its tables are unknown.
func TestSalvageRefusesAnotherSchema(t *testing.T) {
	path, _ := checkpointedStore(t)
	change(t, path, `PRAGMA user_version = 99`)
	out := filepath.Join(t.TempDir(), "out.db")
	if r, err := sqlite.Salvage(t.Context(), path, out); !errors.Is(err, store.ErrOtherSchema) {
		t.Errorf("got %+v, %v, want ErrOtherSchema", r, err)
	}
}
