package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
)

// entries are the entries of a database that may be down.
type entries struct {
	mu    sync.Mutex
	is    store.Entry
	away  error
	hangs chan struct{} // closed when it continues; nil if it does not hang
	asked atomic.Int64
}

func (e *entries) Entry(_ context.Context, name string, seen int64) (store.Entry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked.Add(1)
	if e.hangs != nil {
		<-e.hangs
	}
	switch {
	case e.away != nil:
		return store.Entry{}, e.away
	case e.is.Version == 0:
		return store.Entry{}, store.ErrNotFound
	}
	is := e.is
	if is.Version == seen {
		is.Body = nil
	}
	return is, nil
}

func (e *entries) PutEntry(_ context.Context, next store.Entry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.away != nil {
		return e.away
	}
	if next.Version != e.is.Version+1 {
		return store.ErrConflict
	}
	e.is = next
	return nil
}

func shared(t *testing.T, e *entries, key string) *Tokens {
	t.Helper()
	tokens, err := OpenSharedTokens(e, []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// TestReplicas checks that a token created at one replica is immediately valid at another, and that a revocation
// takes effect within a second. Known tokens do not cause a query for each request.
func TestReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &entries{}
		a, b := shared(t, db, "k"), shared(t, db, "k")
		const pause = 20 * time.Millisecond // between two commands
		bearer, token := create(t, a, NewToken{Name: "ci"})
		time.Sleep(pause) //nolint:forbidigo // synctest
		if _, err := b.Authenticate(t.Context(), bearer); err != nil {
			t.Fatalf("made at the other replica: %v", err)
		}
		asked := db.asked.Load()
		for range 1000 {
			_, _ = b.Authenticate(t.Context(), bearer)
			_, _ = b.Authenticate(t.Context(), "gvl_0000000000000000_"+bearer[len(bearer)-43:])
		}
		if n := db.asked.Load() - asked; n > 2 {
			t.Errorf("2000 requests at once asked the database %d times", n)
		}
		if _, err := a.Revoke(token.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Authenticate(t.Context(), bearer); !errors.Is(err, ErrBadCredential) {
			t.Errorf("revoked here, and %v", err)
		}
		time.Sleep(time.Second) //nolint:forbidigo // synctest
		if _, err := b.Authenticate(t.Context(), bearer); !errors.Is(err, ErrBadCredential) {
			t.Errorf("revoked at the other replica a second ago, and %v", err)
		}
		if err := b.RecordUse(); err != nil {
			t.Fatal(err)
		}
		if all, err := a.List(); err != nil || len(all) != 1 || all[0].LastUsed == nil || all[0].RevokedAt == nil {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestReplicasMake checks that tokens created concurrently by replicas are all stored, and that only one replica
// creates the first tokens.
func TestReplicasMake(t *testing.T) {
	t.Parallel()
	db := &entries{}
	var first atomic.Int64
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			tokens := shared(t, db, "k")
			_, made, err := tokens.CreateFirst(NewToken{Name: "first", Role: engine.RoleOperator})
			if err != nil {
				t.Error(err)
			}
			first.Add(int64(len(made)))
			create(t, tokens, NewToken{Name: fmt.Sprintf("t%d", i)})
		})
	}
	group.Wait()
	all, err := shared(t, db, "k").List()
	if err != nil || len(all) != 17 || first.Load() != 1 {
		t.Errorf("%d tokens, %d of them first, %v", len(all), first.Load(), err)
	}
}

// TestAway checks that, while the database is down, no one is admitted or permanently refused, and that not every
// request waits for it.
func TestAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &entries{}
		tokens := shared(t, db, "k")
		bearer, token := create(t, tokens, NewToken{Name: "ci"})
		set := func(err error) {
			db.mu.Lock()
			defer db.mu.Unlock()
			db.away = err
		}
		set(errors.New("connection refused"))
		time.Sleep(time.Second) //nolint:forbidigo // synctest
		asked := db.asked.Load()
		for range 100 {
			if _, err := tokens.Authenticate(t.Context(), bearer); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("away: %v", err)
			}
		}
		if n := db.asked.Load() - asked; n != 1 {
			t.Errorf("it was asked %d times", n)
		}
		if _, err := tokens.Revoke(token.ID); err == nil {
			t.Error("revoked without a database")
		}
		set(nil)
		time.Sleep(time.Second) //nolint:forbidigo // synctest
		if _, err := tokens.Authenticate(t.Context(), bearer); err != nil {
			t.Errorf("back: %v", err)
		}
	})
}

// TestHanging checks that a database that does not answer delays no one for long, and is queried once.
func TestHanging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &entries{}
		tokens := shared(t, db, "k")
		bearer, _ := create(t, tokens, NewToken{Name: "ci"})
		for range 8 { // repeated, because of random choices
			time.Sleep(time.Second) //nolint:forbidigo // synctest
			db.hangs = make(chan struct{})
			began, asked := time.Now(), db.asked.Load()
			for range 20 {
				if _, err := tokens.Authenticate(t.Context(), bearer); !errors.Is(err, ErrUnavailable) {
					t.Fatalf("it hangs: %v", err)
				}
				time.Sleep(300 * time.Millisecond) //nolint:forbidigo // synctest
			}
			if waited := time.Since(began) - 20*300*time.Millisecond; waited > loadTimeout || db.asked.Load()-asked != 1 {
				t.Errorf("waited %v, asked %d times", waited, db.asked.Load()-asked)
			}
			close(db.hangs)
			synctest.Wait()
			if _, err := tokens.Authenticate(t.Context(), bearer); err != nil {
				t.Errorf("it goes on: %v", err)
			}
			db.hangs = nil
		}
	})
}

// TestForgedEntry checks that write access to the database without the key is not enough to create tokens.
func TestForgedEntry(t *testing.T) {
	t.Parallel()
	db := &entries{}
	bearer, _ := create(t, shared(t, db, "k"), NewToken{Name: "ci"})
	was := db.is
	strong, err := encodeTokens(map[string]Token{"x": {ID: "x", Principal: "token:x", Role: engine.RoleOperator, Digest: digestBearer("x")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{
		"nothing":         {},
		"cut short":       was.Body[:20],
		"no tokens":       was.Body[:32],
		"another role":    bytes.Replace(was.Body, []byte(`"agent"`), []byte(`"operator"`), 1),
		"without a MAC":   strong,
		"under its MAC":   append(was.Body[:32:32], strong...),
		"under other key": append((&tokensInDatabase{key: []byte("other")}).mac(strong), strong...),
	} {
		db.is = store.Entry{Name: was.Name, Version: 2, Body: body}
		if _, err := OpenSharedTokens(db, []byte("k")); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	db.is = was
	if _, err := shared(t, db, "k").Authenticate(t.Context(), bearer); err != nil {
		t.Error(err)
	}
}

// The tokens of one store replace those of another: tokens that were forgotten or revoked there end here, too.
func TestReplaceTokens(t *testing.T) {
	t.Parallel()
	from, to := open(t, ""), open(t, "")
	bearers, made, err := from.Create(NewToken{Name: "a", Role: engine.RoleAgent}, NewToken{Name: "b", Role: engine.RoleAgent})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.Revoke(made[1].ID); err != nil {
		t.Fatal(err)
	}
	others, _, err := to.Create(NewToken{Name: "c", Role: engine.RoleAgent})
	if err != nil {
		t.Fatal(err)
	}
	all, err := from.List()
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Replace(all); err != nil {
		t.Fatal(err)
	}
	for bearer, want := range map[string]bool{bearers[0]: true, bearers[1]: false, others[0]: false} {
		if _, err := to.Authenticate(t.Context(), bearer); (err == nil) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
