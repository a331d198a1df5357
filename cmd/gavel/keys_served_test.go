package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/engine/values"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// sealedLoad moves instances with sensitive values, with several writers per instance, and records what was
// acknowledged.
type sealedLoad struct {
	*testing.T
	s       *served
	ids     []string
	stop    chan struct{}
	moved   chan struct{} // receives a value for each move if a test waits for it
	writers sync.WaitGroup

	mu   sync.Mutex
	sent map[string][]string // acknowledged values
}

// startSealedLoad starts the load on new instances.
func startSealedLoad(t *testing.T, s *served, instances, writers int) *sealedLoad {
	t.Helper()
	l := &sealedLoad{T: t, s: s, stop: make(chan struct{}), moved: make(chan struct{}), sent: map[string][]string{}}
	for range instances {
		id, _ := s.must("", http.MethodPost, "/v1/instances", fmt.Sprintf(`{"type":"sealed","context":%s}`, sealedData(0)))["id"].(string)
		l.ids = append(l.ids, id)
		for w := range writers {
			l.writers.Go(func() {
				for n := w + 1; l.move(id, n); n += writers {
				}
			})
		}
	}
	return l
}

func (l *sealedLoad) move(id string, n int) (more bool) {
	status, answer, err := l.s.try("", http.MethodPost, "/v1/instances/"+id+"/advance", fmt.Sprintf(`{"action":"note","data":%s}`, sealedData(n)))
	if err != nil || status != http.StatusOK || answer["applied"] == false {
		l.Errorf("%s: %d %v, %v", id, status, answer, err)
		return false
	}
	l.mu.Lock()
	l.sent[id] = append(l.sent[id], sealedToken(n))
	l.mu.Unlock()
	select {
	case l.moved <- struct{}{}:
	case <-l.stop:
		return false
	default:
	}
	return true
}

// await waits for the given number of further moves.
func (l *sealedLoad) await(moves int) {
	l.Helper()
	for late := time.After(patience); moves > 0; moves-- {
		select {
		case <-l.moved:
		case <-late:
			l.Fatalf("no moves any more; %d are missing", moves)
		}
	}
}

// end stops the load and waits for its writers.
func (l *sealedLoad) end() {
	close(l.stop)
	l.writers.Wait()
}

// check opens every event of the load in the store, and requires each acknowledged value exactly once.
func (l *sealedLoad) check(db store.Store, secret []byte) {
	l.Helper()
	keyring := values.NewKeyring(db, secret)
	for _, id := range l.ids {
		want, found := append([]string{sealedToken(0)}, l.sent[id]...), []string{}
		for ev, err := range db.Events(l.Context(), store.EventQuery{Instance: id}) {
			if err != nil {
				l.Fatal(err)
			}
			opened, destroyed, err := keyring.OpenEvent(l.Context(), ev)
			var data struct{ Token string }
			if err = errors.Join(err, json.Unmarshal(opened.Patch, &data)); err != nil || destroyed {
				l.Fatalf("event %d of %s does not open: %v", ev.Seq, id, err)
			}
			found = append(found, data.Token)
		}
		slices.Sort(want)
		slices.Sort(found)
		if !slices.Equal(want, found) {
			l.Errorf("%s: acknowledged are %v\nand recorded %v", id, want, found)
		}
	}
	if strings.Contains(l.s.stderr.String(), canaryValue) {
		l.Error("the log holds a value")
	}
}

// untilSealedWith waits until the server seals values of an instance with its n-th key.
func (l *sealedLoad) untilSealedWith(db store.Store, id string, n int) {
	l.Helper()
	l.s.until(fmt.Sprintf("key %d to be used", n), func() bool {
		inst, err := db.Load(l.Context(), id)
		return err == nil && bytes.Contains(inst.Context, fmt.Appendf(nil, "%s1:%d:", workflow.SealedForm, n))
	})
}

// Keys are rotated, rewrapped and destroyed while a server moves their instances. No value is lost or becomes
// unreadable, and the store verifies.
func TestKeysUnderLoad(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		at := storeIn(t)
		key := func() []byte {
			key, err := record.LoadOrCreateKey(filepath.Join(filepath.Dir(at), "gavel.key"))
			if err != nil {
				t.Fatal(err)
			}
			return key
		}
		l := testKeysUnderLoad(t, at, func() (store.Store, []byte) { return openBeside(t, at), key() })
		testRewrapUnderLoad(t, l, at, key)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		at, key := makeStore(t)
		open := func() (store.Store, []byte) {
			db, err := driver.Open(t.Context(), driver.Config{Address: at, MustExist: true})
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(key)
			kek, hexErr := hex.DecodeString(strings.TrimSpace(string(text)))
			secret, secretErr := gavel.OpenSecrets(t.Context(), db, kek)
			if err := errors.Join(err, hexErr, secretErr); err != nil {
				t.Fatal(err)
			}
			return db, secret
		}
		testKeysUnderLoad(t, at, open, "--store-key", key)
		// The key of the database changes while servers keep running.
		s := serveStore(t, at, "--store-key", key, "--auth", "none")
		l := startSealedLoad(t, s, 2, 2)
		l.await(20)
		was := key
		key += ".new"
		runGavel(t, "keys", "rewrap", "--store", at, "--store-key", was, "--new-store-key", key)
		l.await(20)
		l.end()
		s.stop()
		db, secret := open()
		defer db.Close()
		l.check(db, secret)
	})
}

// testKeysUnderLoad rotates and destroys keys of a store under load while it is served.
func testKeysUnderLoad(t *testing.T, at string, open func() (store.Store, []byte), flags ...string) *sealedLoad {
	t.Helper()
	flow := filepath.Join(t.TempDir(), "flow.json")
	put(t, flow, sealedFlow)
	gavel := func(args ...string) []byte {
		t.Helper()
		return runGavel(t, append(append(args, "--store", at), flags...)...)
	}
	s := serveStore(t, at, append([]string{"--auth", "none", "--definitions", flow, "--quota-bytes", "0"}, flags...)...)
	db, secret := open()
	defer db.Close()
	gone := startSealedLoad(t, s, 1, 1)
	gone.await(5)
	gone.end()
	l := startSealedLoad(t, s, 3, 2)
	rounds := 2
	if storetest.Long() {
		rounds = 20
	}
	for n := range rounds {
		gavel("keys", "rotate", "--all")
		for _, id := range l.ids {
			l.untilSealedWith(db, id, n+2)
		}
	}
	gavel("verify")
	gone.check(db, secret)
	if said := gavel("keys", "shred", gone.ids[0]); !bytes.Contains(said, fmt.Appendf(nil, "destroyed: %d", rounds+1)) {
		t.Errorf("%s", said)
	}
	l.await(20)
	gavel("verify")
	l.end()
	l.check(db, secret)
	s.until("the key to be forgotten", func() bool {
		_, now := s.ask("", http.MethodGet, "/v1/instances/"+gone.ids[0], "")
		context, _ := now["context"].(object)
		return context["token"] == "[destroyed]"
	})
	if status, answer := s.ask("", http.MethodPost, "/v1/instances/"+gone.ids[0]+"/advance", `{"action":"note","data":{}}`); answer["code"] != "values_destroyed" {
		t.Errorf("%d %v", status, answer)
	}
	for _, id := range l.ids {
		if said := gavel("keys", "list", id); !regexp.MustCompile(fmt.Sprintf(` sealed +%d `, rounds+1)).Match(said) {
			t.Errorf("%d rotations:\n%s", rounds, said)
		}
	}
	s.stop()
	return l
}

// testRewrapUnderLoad serves a store with another gavel.key. Its values do not open until the keys are rewrapped,
// while the server runs under load.
func testRewrapUnderLoad(t *testing.T, old *sealedLoad, at string, key func() []byte) {
	t.Helper()
	folder := filepath.Dir(at)
	if err := os.Rename(filepath.Join(folder, "gavel.key"), filepath.Join(folder, "old.key")); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(folder, "gavel.key"), strings.Repeat("0123456789abcdef", 4)+"\n")
	runGavel(t, "seal", "--accept", "--store", at)
	s := serveStore(t, at, "--auth", "none", "--quota-bytes", "0")
	if status, answer := s.ask("", http.MethodGet, "/v1/instances/"+old.ids[0], ""); answer["code"] != "values_unreadable" {
		t.Fatalf("with another gavel.key: %d %v", status, answer)
	}
	if _, figures := s.figures(""); strings.Contains(figures, "\ngavel_sealed_values_refused_total 0\n") {
		t.Error("what did not open was not counted")
	}
	l := startSealedLoad(t, s, 2, 2)
	l.await(20)
	runGavel(t, "keys", "rewrap", "--old-key", filepath.Join(folder, "old.key"), "--store", at)
	l.await(20)
	for _, id := range old.ids {
		s.until("the key that was wrapped anew", func() bool {
			status, _ := s.ask("", http.MethodGet, "/v1/instances/"+id, "")
			return status == http.StatusOK
		})
		s.must("", http.MethodPost, "/v1/instances/"+id+"/advance", fmt.Sprintf(`{"action":"note","data":%s}`, sealedData(7)))
		old.sent[id] = append(old.sent[id], sealedToken(7))
	}
	l.end()
	s.stop()
	db := openBeside(t, at)
	defer db.Close()
	l.check(db, key())
	old.check(db, key())
	runGavel(t, "verify", "--store", at)
}

func openBeside(t *testing.T, file string) *sqlite.Store {
	t.Helper()
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	return db
}
