package sqlite_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	storerows "github.com/gavel-mcp/gavel/engine/store/rows"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// A destroyed data key leaves no byte in the file or its log, whatever was re-encrypted, destroyed and written
// before, and however pages were split and merged.
func TestDestroyedDataKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, later int }{ // maximum number of hashes when a key is created and when it is re-encrypted
		"longer keys":  {10, 100}, // a page that rows leave keeps bytes of them
		"shorter keys": {100, 50}, // a page that becomes free keeps all its bytes
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testDestroyedDataKeys(t, c.size, c.later)
		})
	}
}

func testDestroyedDataKeys(t *testing.T, size, later int) { //nolint:thelper // part of the test
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	random := rand.New(rand.NewPCG(2, 2))
	var all []store.DataKey
	var copies [][]byte // of data that must be gone
	put := func(k store.DataKey, was *store.DataKey) {
		t.Helper()
		if err := s.PutDataKey(t.Context(), k, was); err != nil {
			t.Fatal(err)
		}
	}
	sealed := func(k store.DataKey, size int) store.DataKey {
		sum := sha256.Sum256(fmt.Append(nil, k.Instance, len(k.Wrapped)))
		k.Wrapped = bytes.Repeat(sum[:], 1+random.IntN(size))
		return k
	}
	for i := range 200 {
		k := sealed(store.DataKey{Instance: storetest.ID(random.IntN(1 << 30)), Number: 1, Under: "kek", MadeAt: storetest.Epoch}, size)
		put(k, nil)
		all = append(all, k)
		if i%4 == 0 {
			if err := s.Commit(t.Context(), storetest.Start(t, k.Instance, `{}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, was := range all {
		if random.IntN(3) > 0 {
			copies = append(copies, was.Wrapped[:sha256.Size]) // from before it was re-encrypted
			all[i] = sealed(was, later)
			put(all[i], &was)
		}
	}
	destroyed := 0
	for i, was := range all {
		if k := &all[i]; random.IntN(5) == 0 {
			copies = append(copies, was.Wrapped[:sha256.Size])
			k.Wrapped, k.DestroyedAt = nil, storetest.Epoch
			put(*k, &was)
			destroyed++
		}
	}
	if destroyed < 30 {
		t.Fatalf("only %d keys were destroyed", destroyed)
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		held, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range copies {
			if bytes.Contains(held, key) {
				t.Fatalf("%s holds the removed key %d of %d", name, i, len(copies))
			}
		}
	}
	found := 0 // otherwise the search proves nothing
	held, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if k.DestroyedAt.IsZero() && bytes.Contains(held, k.Wrapped) {
			found++
		}
	}
	if want := len(all) - destroyed; found != want {
		t.Errorf("the file holds %d of %d keys that were not destroyed", found, want)
	}
	var said string
	if err := s.ReaderDB().QueryRow(`PRAGMA integrity_check`).Scan(&said); err != nil || said != "ok" {
		t.Errorf("the file is not whole: %s, %v", said, err)
	}
}

// The same for a store that is being copied: a key that was deleted again is gone.
func TestTakenDataKeys(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, err := sqlite.Create(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table := storerows.Tables[slices.IndexFunc(storerows.Tables, func(t storerows.Table) bool { return t.Name == "data_keys" })]
	random := rand.New(rand.NewPCG(1, 2))
	var first, taken, again []storerows.Row
	row := func(i, round int) storerows.Row {
		sum := sha256.Sum256(fmt.Append(nil, i, round))
		return storerows.Row{storetest.ID(i), int64(1), bytes.Repeat(sum[:], 1+random.IntN(40)), "kek", int64(1), int64(2)}
	}
	for i := range 400 {
		first = append(first, row(i, 0))
		if random.IntN(2) == 0 {
			taken, again = append(taken, first[i][:table.Key]), append(again, row(i, 1))
		}
	}
	if err := errors.Join(s.Replace(t.Context(), table, nil, first), s.Replace(t.Context(), table, taken, again), s.Finish(t.Context())); err != nil {
		t.Fatal(err)
	}
	held, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range first {
		isTaken := slices.ContainsFunc(taken, func(key storerows.Row) bool { return key[0] == r[0] })
		if bytes.Contains(held, r[2].([]byte)[:sha256.Size]) == isTaken {
			t.Errorf("the key of %s was taken: %t; the file holds the opposite", r[0], isTaken)
		}
	}
}

// A reader in another process keeps copies in the log. PutDataKey waits for it, returns an error if it stays, and can
// be called again.
func TestDestroyedDataKeyThatIsRead(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, BusyTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	k := store.DataKey{Instance: storetest.ID(1), Number: 1, Wrapped: []byte("a sealed key of the first instance"), Under: "kek", MadeAt: storetest.Epoch}
	if err := s.PutDataKey(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	db := raw(t, path)
	defer db.Close()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var keys int
	if err := tx.QueryRow(`SELECT count(*) FROM data_keys`).Scan(&keys); err != nil || keys != 1 {
		t.Fatal(keys, err)
	}
	gone := k
	gone.Wrapped, gone.DestroyedAt = nil, storetest.Epoch
	if err := s.PutDataKey(t.Context(), gone, &k); !errors.Is(err, sqlite.ErrBusy) {
		t.Fatalf("destroyed while another process reads it: %v", err)
	}
	if got, err := s.DataKey(t.Context(), k.Instance, 0); err != nil || got.Wrapped != nil || got.DestroyedAt.IsZero() {
		t.Errorf("it is %+v, %v", got, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := s.PutDataKey(t.Context(), gone, &gone); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + "-wal"} {
		if held, err := os.ReadFile(name); err != nil || bytes.Contains(held, k.Wrapped) {
			t.Errorf("%s holds the key (%v)", name, err)
		}
	}
}
