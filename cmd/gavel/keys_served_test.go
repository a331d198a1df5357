package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/storetest"
)

// sealedLoad moves instances with sensitive values, several writers each, and knows what was acknowledged last.
type sealedLoad struct {
	*testing.T
	s       *served
	ids     []string
	stop    chan struct{}
	moved   chan struct{} // a value for each move, where somebody waits for them
	writers sync.WaitGroup

	mu    sync.Mutex
	moves map[string]int     // acknowledged, by instance
	at    map[string]float64 // the newest revision
	last  map[string]int     // the n of it
}

// startSealedLoad begins the load of new instances.
func startSealedLoad(t *testing.T, s *served, instances, writers int) *sealedLoad {
	t.Helper()
	l := &sealedLoad{T: t, s: s, stop: make(chan struct{}), moved: make(chan struct{}), moves: map[string]int{}, at: map[string]float64{}, last: map[string]int{}}
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
	l.moves[id]++
	if revision, _ := answer["revision"].(float64); revision > l.at[id] {
		l.at[id], l.last[id] = revision, n
	}
	l.mu.Unlock()
	select {
	case l.moved <- struct{}{}:
	case <-l.stop:
		return false
	default:
	}
	return true
}

// await waits for so many moves more.
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

// end ends the load, and checks that each instance has every move and shows the value of the last one.
func (l *sealedLoad) end() {
	l.Helper()
	close(l.stop)
	l.writers.Wait()
	l.check()
}

func (l *sealedLoad) check() {
	l.Helper()
	for _, id := range l.ids {
		now := l.s.must("", http.MethodGet, "/v1/instances/"+id, "")
		context, _ := now["context"].(object)
		if now["revision"] != float64(l.moves[id]+1) || context["token"] != fmt.Sprintf("%s-token-%d", canaryValue, l.last[id]) {
			l.Errorf("%s: %d moves were acknowledged, the last with %d, and it is %v", id, l.moves[id], l.last[id], now)
		}
	}
	if strings.Contains(l.s.stderr.String(), canaryValue) {
		l.Error("the log holds a value")
	}
	if _, figures := l.s.figures(""); !strings.Contains(figures, "\ngavel_sealed_values_refused_total 0\n") {
		l.Error("values did not open")
	}
}

// Keys are rotated, wrapped anew and destroyed while a server moves the instances that they belong to: no
// value is lost, none becomes unreadable, and everything verifies.
func TestKeysUnderLoad(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		at := storeIn(t)
		l := testKeysUnderLoad(t, at)
		l.s.stop()
		testRewrapUnderLoad(t, l, at)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		at, key := makeStore(t)
		l := testKeysUnderLoad(t, at, "--store-key", key)
		newKey := key + ".new"
		l = startSealedLoad(t, l.s, 2, 2)
		l.await(20)
		runGavel(t, "keys", "rewrap", "--store", at, "--store-key", key, "--new-store-key", newKey)
		l.await(20)
		l.end()
		l.s.stop()
		l.s = serveStore(t, at, "--store-key", newKey, "--auth", "none")
		l.check()
	})
}

// testKeysUnderLoad rotates and destroys keys under load, over a store that is served until the test ends.
func testKeysUnderLoad(t *testing.T, at string, flags ...string) *sealedLoad {
	t.Helper()
	flow := filepath.Join(t.TempDir(), "flow.json")
	put(t, flow, sealedFlow)
	store := append([]string{"--store", at}, flags...)
	gavel := func(args ...string) []byte { t.Helper(); return runGavel(t, append(args, store...)...) }
	s := serveStore(t, at, append([]string{"--auth", "none", "--definitions", flow, "--quota-bytes", "0"}, flags...)...)
	gone := startSealedLoad(t, s, 1, 1)
	gone.await(5)
	gone.end()
	l := startSealedLoad(t, s, 3, 2)
	rounds := 4
	if storetest.Long() {
		rounds = 40
	}
	for range rounds {
		l.await(20)
		gavel("keys", "rotate", "--all")
	}
	gavel("verify")
	if said := gavel("keys", "shred", gone.ids[0]); !bytes.Contains(said, fmt.Appendf(nil, "destroyed: %d", rounds+1)) {
		t.Errorf("%s", said)
	}
	l.await(20)
	gavel("verify")
	l.end()
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
	// An export opens every event.
	gavel("export", filepath.Join(t.TempDir(), "out"))
	return l
}

// testRewrapUnderLoad serves a store with another gavel.key: its values do not open until the keys are wrapped
// anew while the server runs, under load.
func testRewrapUnderLoad(t *testing.T, old *sealedLoad, at string) {
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
	_, figures := s.figures("")
	before := strings.Count(figures, "\ngavel_sealed_values_refused_total 0\n")
	if before != 0 {
		t.Error("what did not open was not counted")
	}
	l := startSealedLoad(t, s, 2, 2)
	l.await(20)
	runGavel(t, "keys", "rewrap", "--old-key", filepath.Join(folder, "old.key"), "--store", at)
	l.await(20)
	close(l.stop)
	l.writers.Wait()
	for _, id := range old.ids {
		s.until("the key that was wrapped anew", func() bool {
			_, now := s.ask("", http.MethodGet, "/v1/instances/"+id, "")
			context, _ := now["context"].(object)
			return context["token"] == fmt.Sprintf("%s-token-%d", canaryValue, old.last[id])
		})
		s.must("", http.MethodPost, "/v1/instances/"+id+"/advance", fmt.Sprintf(`{"action":"note","data":%s}`, sealedData(7)))
	}
	runGavel(t, "verify", "--store", at)
}
