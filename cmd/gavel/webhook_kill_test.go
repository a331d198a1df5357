package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// flakyReceiver accepts some messages only at the second attempt. At the first, it returns 500, hangs, drops the
// connection, returns 503, or redirects.
type flakyReceiver struct {
	oneOf    uint32 // one in so many messages, for each of the five faults
	mu       sync.Mutex
	tries    map[string]int
	tried    map[string]time.Time
	accepted map[string]string // body by id
	order    []string          // ids in order of first acceptance
	wrong    []string
	changed  chan struct{} // receives a value when a message is accepted
}

func (f *flakyReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	id, body := r.Header.Get("Webhook-Id"), string(raw)
	f.mu.Lock()
	f.tries[id]++
	f.tried[id] = time.Now().UTC()
	first := f.tries[id] == 1
	f.mu.Unlock()
	if first {
		switch crc32.ChecksumIEEE([]byte(id)) % f.oneOf {
		case 0:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case 1:
			<-r.Context().Done()
			return
		case 2:
			panic(http.ErrAbortHandler)
		case 3:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case 4:
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusTemporaryRedirect)
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if before, again := f.accepted[id]; again && before != body {
		f.wrong = append(f.wrong, fmt.Sprintf("%s is two messages:\n%s\n%s", id, before, body))
	} else if !again {
		f.order = append(f.order, id)
	}
	f.accepted[id] = body
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *flakyReceiver) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.accepted)
}

// waitFor waits until n messages are accepted.
func (f *flakyReceiver) waitFor(t *testing.T, n int) {
	t.Helper()
	idle := time.NewTimer(2 * patience)
	defer idle.Stop()
	for f.count() < n {
		select {
		case <-f.changed:
			idle.Reset(2 * patience) // the remaining messages arrive one after another
		case <-idle.C:
			t.Fatalf("%d messages arrived, want %d", f.count(), n)
		}
	}
}

// A server that sends to a faulty receiver is repeatedly killed under load. Every event arrives, events of one
// instance in order, and duplicates are identical.
func TestKilledWebhooksMissNothing(t *testing.T) {
	t.Parallel()
	receiver, config := startReceiver(t, 40)
	file := storeIn(t)
	defer func() {
		if t.Failed() {
			receiver.logMissing(t, openBeside(t, file))
		}
	}()
	start := func() *server { return launch(t, "--store", file, "--tool-names", "dotted", "--config", config) }
	for round := range *killRounds {
		s := start()
		s.define(pingPong)
		acked := map[string]int{}
		for range 4 {
			acked[s.must("workflow.start", object{"type": "ping-pong"}).field("id")] = 1
		}
		receiver.waitFor(t, receiver.count()+1)
		loadThenKill(t, s, acked, 15*(round%3+1))
		endLease(t, openBeside(t, file), "webhook:audit")
	}
	last := start()
	want := committedIDs(t, openBeside(t, file))
	receiver.waitFor(t, len(want))
	if _, err := last.finish(); err != nil {
		t.Error(err)
	}
	arrived, tries := receiver.check(t, want)
	t.Logf("%d kills, %d events arrived with %d tries, none lost", *killRounds, arrived, tries)
}

// check requires each event's message, in order per instance, and identical duplicates.
func (f *flakyReceiver) check(t *testing.T, want map[string]bool) (arrived, tries int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, wrong := range f.wrong {
		t.Error(wrong)
	}
	seqs := map[string]int{}
	for _, id := range f.order {
		instance, text, _ := strings.Cut(id, "_")
		seqs[instance]++
		if fmt.Sprint(seqs[instance]) != text {
			t.Errorf("%s arrived as number %d of its instance", id, seqs[instance])
		}
		tries += f.tries[id]
		if !want[id] || !json.Valid([]byte(f.accepted[id])) {
			t.Errorf("the message %s is of no event: %s", id, f.accepted[id])
		}
	}
	return len(f.order), tries
}

// startReceiver starts a receiver that fails one in oneOf messages at first, for each fault. It returns the
// configuration of a webhook to it.
func startReceiver(t *testing.T, oneOf uint32) (receiver *flakyReceiver, config string) {
	t.Helper()
	receiver = &flakyReceiver{oneOf: oneOf, tries: map[string]int{}, tried: map[string]time.Time{}, accepted: map[string]string{}, changed: make(chan struct{}, 1)}
	at := httptest.NewServer(receiver)
	t.Cleanup(at.Close)
	dir := t.TempDir()
	config = filepath.Join(dir, "gavel.yaml")
	put(t, filepath.Join(dir, "secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	put(t, config, fmt.Sprintf("webhooks: {audit: {url: %q, privateNetwork: true, secretFiles: secret, from: start, timeout: 1s, tries: 100}}\n", at.URL))
	return receiver, config
}

// committedIDs returns the message ids of all events. It closes the store.
func committedIDs(t *testing.T, db store.Store) map[string]bool {
	t.Helper()
	defer db.Close()
	ids := map[string]bool{}
	for ev, err := range db.EventsAfter(t.Context(), store.TailQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids[fmt.Sprintf("%s_%d", ev.Event.Instance, ev.Event.Seq)] = true
	}
	return ids
}

// logMissing logs details of the first missing messages, the cursor and its lease. It closes the store.
func (f *flakyReceiver) logMissing(t *testing.T, db store.Store) {
	t.Helper()
	defer db.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	missing := 0
	for ev, err := range db.EventsAfter(t.Context(), store.TailQuery{}) {
		if err != nil {
			t.Error(err)
			return
		}
		id := fmt.Sprintf("%s_%d", ev.Event.Instance, ev.Event.Seq)
		if _, ok := f.accepted[id]; ok {
			continue
		}
		if missing++; missing <= 10 {
			t.Logf("%s did not arrive: position %d, committed at %s, %d tries, the last of them at %s", id, ev.Position, ev.Event.Time, f.tries[id], f.tried[id])
		}
	}
	cursors, err := db.Cursors(t.Context())
	t.Logf("at %s %d messages have not arrived, and the cursors are %+v, %v", time.Now().UTC(), missing, cursors, err)
	lease, err := db.TakeLease(t.Context(), "webhook:audit", "test", time.Nanosecond) // returns the current holder, if any
	t.Logf("the lease is %+v, %v", lease, err)
	for letter, err := range db.DeadLetters(t.Context(), "") {
		t.Logf("dead letter %+v, %v", letter, err)
	}
}

// endLease ends the lease of a killed process, so that no one waits for its expiry. It closes the store.
func endLease(t *testing.T, db store.Store, name string) {
	t.Helper()
	defer db.Close()
	held, err := db.TakeLease(t.Context(), name, "test", time.Nanosecond)
	if err != nil && !errors.Is(err, store.ErrLeaseTaken) {
		t.Fatal(err)
	}
	if err := db.EndLease(t.Context(), held); err != nil {
		t.Fatal(err)
	}
}
