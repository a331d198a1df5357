//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

var (
	replicasRounds = flag.Int("replicas.rounds", 5, "kill servers over one database, or the database, so many times (make crash-postgres)")
	replicasTime   = flag.Duration("replicas.time", 2*time.Second, "load two servers over one database for so long")
)

// replicas is two servers over one database, with writers that move the same instances.
type replicas struct {
	t        *testing.T
	database *pgtest.Server
	args     []string
	servers  [2]atomic.Pointer[served]
	ids      []string
	known    []atomic.Int64 // a lower bound of each instance's revision
	stop     chan struct{}
	writers  sync.WaitGroup
	moved    chan struct{} // receives a value for each move if a test waits for it

	mu       sync.Mutex
	won      map[string]map[int64]string // instance, revision, key of the request
	lost     int
	unserved int
}

func startReplicas(t *testing.T, args ...string) *replicas {
	t.Helper()
	needsProgram(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("flow.json"), []byte(pingPong), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &replicas{t: t, database: pgtest.New(t), stop: make(chan struct{}), moved: make(chan struct{}), won: map[string]map[int64]string{}}
	runGavel(t, "store", "init", "--store", r.database.URL, "--store-key", file("store.key"))
	runGavel(t, "anchor", "keygen", "--key", file("anchor.key"))
	r.args = append([]string{
		"--store-key", file("store.key"), "--auth", "none", "--definitions", file("flow.json"), "--quota-bytes", "0",
		"--anchor-key", file("anchor.key"), "--anchor-every", "1s",
	}, args...)
	r.serve(0)
	r.serve(1)
	r.known = make([]atomic.Int64, 16)
	for i := range r.known {
		r.ids = append(r.ids, r.servers[i%2].Load().begin("", "ping-pong"))
		r.known[i].Store(1)
		r.won[r.ids[i]] = map[int64]string{}
	}
	return r
}

func (r *replicas) serve(n int) { r.servers[n].Store(serveStore(r.t, r.database.URL, r.args...)) }

func (r *replicas) kill(n int) {
	s := r.servers[n].Load()
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// needsMinutes skips a test that takes minutes unless GAVEL_LONG=1 is set.
func needsMinutes(t *testing.T) {
	t.Helper()
	if !storetest.Long() {
		t.Skip("minutes; GAVEL_LONG=1 has the time")
	}
}

// write starts writers. Each moves one instance after another and sends the revision that it expects. It retries
// with the same key at the other server until it knows the result.
func (r *replicas) write(writers int, mayFail bool) {
	for w := range writers {
		r.writers.Go(func() {
			for n := w; ; n++ {
				select {
				case <-r.stop:
					return
				default:
				}
				if !r.move(w, n, mayFail) {
					return
				}
			}
		})
	}
}

func (r *replicas) move(w, n int, mayFail bool) (more bool) {
	i := n % len(r.ids)
	id, revision, key := r.ids[i], r.known[i].Load(), fmt.Sprintf("%d-%d", w, n)
	body := fmt.Sprintf(`{"action":%q,"data":{"n":%q}}`, []string{"back", "go"}[revision%2], key)
	for server, until := w%2, time.Now().Add(4*patience); time.Now().Before(until); server = 1 - server {
		status, answer, err := r.servers[server].Load().tryWith("", http.MethodPost, "/v1/instances/"+id+"/advance", body,
			"If-Match", fmt.Sprintf("%q", fmt.Sprint(revision)), "Idempotency-Key", key)
		switch {
		case err == nil && status == http.StatusOK:
			return r.win(i, revision+1, key, answer)
		case err == nil && status == http.StatusPreconditionFailed:
			current, _ := answer["current"].(object)
			now, _ := current["revision"].(float64)
			if int64(now) <= revision {
				r.t.Errorf("%s at revision %d: %v", id, revision, answer)
				return false
			}
			r.raise(i, int64(now))
			r.mu.Lock()
			r.lost++
			r.mu.Unlock()
			return true
		case !mayFail, err == nil && answer["code"] != "unavailable":
			r.t.Errorf("%s at revision %d: %d %v, %v", id, revision, status, answer, err)
			return false
		}
		r.mu.Lock()
		r.unserved++
		r.mu.Unlock()
		select {
		case <-time.After(20 * time.Millisecond): // there is no signal that a server is back
		case <-r.t.Context().Done():
			return false
		}
	}
	r.t.Errorf("%s at revision %d was never answered", id, revision)
	return false
}

func (r *replicas) raise(i int, to int64) {
	for was := r.known[i].Load(); was < to && !r.known[i].CompareAndSwap(was, to); was = r.known[i].Load() {
	}
}

func (r *replicas) win(i int, revision int64, key string, answer object) bool {
	if fmt.Sprint(answer["revision"]) != fmt.Sprint(revision) {
		r.t.Errorf("%s: a move to revision %d was answered with %v", r.ids[i], revision, answer)
		return false
	}
	r.raise(i, revision)
	r.mu.Lock()
	before := r.won[r.ids[i]][revision]
	r.won[r.ids[i]][revision] = key
	r.mu.Unlock()
	if before != "" {
		r.t.Errorf("%s: revision %d was won by %s and by %s", r.ids[i], revision, before, key)
	}
	select {
	case r.moved <- struct{}{}:
	default:
	}
	return before == ""
}

// await waits until the given number of moves is acknowledged.
func (r *replicas) await(moves int) {
	r.t.Helper()
	for late := time.After(2 * patience); moves > 0; moves-- {
		select {
		case <-r.moved:
		case <-late:
			r.t.Fatalf("no moves any more; %d are missing", moves)
		}
	}
}

// settle ends the load. The servers keep running.
func (r *replicas) settle() {
	close(r.stop)
	r.writers.Wait()
}

// open opens the store while the servers use it.
func (r *replicas) open() store.Store {
	r.t.Helper()
	db, err := driver.Open(r.t.Context(), driver.Config{Address: r.database.URL, MustExist: true})
	if err != nil {
		r.t.Fatal(err)
	}
	return db
}

// awaitAnchor waits for the first anchor. A server killed while anchoring blocks the others until its lease
// expires.
func (r *replicas) awaitAnchor() {
	r.t.Helper()
	db := r.open()
	defer db.Close()
	r.servers[0].Load().until("an anchor", func() bool {
		_, err := store.First(db.Anchors(r.t.Context(), store.LastAnchor), "an anchor")
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			r.t.Fatal(err)
		}
		return err == nil
	})
}

// finish stops the servers and checks that the store has the acknowledged moves and nothing else.
func (r *replicas) finish() {
	r.t.Helper()
	r.awaitAnchor()
	for n := range r.servers {
		r.servers[n].Load().stop()
	}
	said := runGavel(r.t, "verify", "--store", r.database.URL, "--store-key", r.args[1], "--public-key", filepath.Join(filepath.Dir(r.args[1]), "anchor.key.pub"))
	if !regexp.MustCompile(`[1-9]\d* anchors?: all as it was written`).Match(said) {
		r.t.Errorf("gavel verify says %s", said)
	}
	found := map[string]map[int64]string{}
	events := int64(0)
	for line := range bytes.Lines(runGavel(r.t, "history", "export", "--store", r.database.URL, "--store-key", r.args[1])) {
		var d struct {
			ID, Kind string
			Seq      int64
			Data     struct{ N string }
		}
		if err := json.Unmarshal(line, &d); err != nil {
			r.t.Fatal(err)
		}
		events++
		if d.Kind == "advanced" {
			if found[d.ID] == nil {
				found[d.ID] = map[int64]string{}
			}
			found[d.ID][d.Seq] = d.Data.N
		}
	}
	moves := 0
	for id, won := range r.won {
		moves += len(won)
		if !maps.Equal(won, found[id]) {
			r.t.Errorf("%s: %d moves are on record and %d were acknowledged, or they differ", id, len(found[id]), len(won))
		}
		for at, revision := range slices.Sorted(maps.Keys(won)) {
			if revision != int64(at)+2 {
				r.t.Errorf("%s: revision %d is missing", id, at+2)
				break
			}
		}
	}
	err := pgtest.Execute(r.database.URL, fmt.Sprintf(`DO $$ BEGIN
		IF (SELECT count(*) <> %d OR min(pos) <> 1 OR max(pos) <> %[1]d OR max(pos) <> (SELECT last FROM gavel.counter) FROM gavel.events) THEN RAISE EXCEPTION 'positions have a gap'; END IF;
	END $$`, events))
	if err != nil {
		r.t.Error(err)
	}
	r.t.Logf("%d moves acknowledged, 0 lost or made twice; %d lost to another writer, %d asked again; %s", moves, r.lost, r.unserved, bytes.TrimSpace(said))
}

// TestReplicas loads two servers over one database. Each revision has one winner, and each response reports a win
// or another's win.
func TestReplicas(t *testing.T) {
	needsMinutes(t)
	r := startReplicas(t)
	r.write(64, false)
	for end := time.Now().Add(*replicasTime); time.Now().Before(end) && !t.Failed(); {
		r.await(20)
	}
	r.settle()
	r.finish()
}

// TestReplicasKilled repeatedly kills one server, both, the database, or its connections in the middle of commits.
// Acknowledged moves are present exactly once, and unanswered requests can be retried.
func TestReplicasKilled(t *testing.T) {
	needsMinutes(t)
	r := startReplicas(t)
	r.write(64, true)
	kinds := []func(){
		func() { r.kill(0); r.serve(0) },
		func() { r.kill(1); r.kill(0); r.serve(1); r.serve(0) },
		func() { r.restart() },
		func() { r.terminate() },
		func() { r.kill(1); r.restart(); r.serve(1) },
	}
	for round := range *replicasRounds {
		r.await(30 + 7*(round%5))
		kinds[round%len(kinds)]()
		if t.Failed() {
			break
		}
	}
	r.await(30)
	r.settle()
	r.finish()
	t.Logf("%d kills", *replicasRounds)
}

// restart kills and restarts the database. The servers keep running.
func (r *replicas) restart() {
	r.database.Kill()
	if err := r.database.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// terminate closes active connections.
func (r *replicas) terminate() {
	for range 10 {
		if err := pgtest.Execute(r.database.URL, `SELECT pg_terminate_backend(pid), pg_sleep(random() * 0.02) FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'`); err != nil {
			r.t.Error(err)
		}
	}
}
