package sqlitestore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/sqlitestore"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// A data key that was destroyed leaves no byte in the file and its log, whatever was sealed again,
// destroyed and written before, and however pages were split.
func TestDestroyedDataKeys(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openAt(t, path)
	defer s.Close()
	random := rand.New(rand.NewPCG(1, 2))
	all := map[string]store.DataKey{}
	var copies [][]byte // of what is to be gone
	sealed := func(k *store.DataKey, round int) {
		sum := sha256.Sum256(fmt.Append(nil, k.Instance, round))
		k.Wrapped = bytes.Repeat(sum[:], 1+random.IntN(4))
	}
	put := func(k store.DataKey, was *store.DataKey) {
		t.Helper()
		if err := s.PutDataKey(t.Context(), k, was); err != nil {
			t.Fatal(err)
		}
		all[k.Instance] = k
	}
	for i := range 400 {
		k := store.DataKey{Instance: storetest.ID(random.IntN(1 << 30)), Number: 1, Under: "kek", MadeAt: storetest.Epoch}
		sealed(&k, 0)
		put(k, nil)
		if i%4 == 0 {
			if err := s.Commit(t.Context(), storetest.Start(t, k.Instance, `{}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, was := range all {
		if k := was; random.IntN(3) == 0 {
			copies = append(copies, was.Wrapped[:sha256.Size]) // as it was before it was sealed again
			sealed(&k, 1)
			put(k, &was)
		}
	}
	destroyed := 0
	for _, was := range all {
		if k := was; random.IntN(5) == 0 {
			copies = append(copies, was.Wrapped[:sha256.Size])
			k.Wrapped, k.DestroyedAt = nil, storetest.Epoch
			put(k, &was)
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
	found := 0 // else the search proves nothing
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
}

// A reader of another process keeps copies in the log: PutDataKey waits for it, says so where it
// stays, and can be called again.
func TestDestroyedDataKeyThatIsRead(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, err := sqlitestore.Open(t.Context(), sqlitestore.Config{Path: path, BusyTimeout: 300 * time.Millisecond})
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
	if err := s.PutDataKey(t.Context(), gone, &k); !errors.Is(err, sqlitestore.ErrBusy) {
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
