package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine/storetest"
)

// killable returns an operator's workflow whose script is kept busy by some data, and killed by others.
func killable(name string) string {
	const kills = "(d) => { if (d.heavy) for (;;); if (d.hang) Array.prototype.indexOf.call({length: 2**53-1}, 1); return true }"
	return fmt.Sprintf(`{"name":%q,"initialState":"a","states":{"a":{"transitions":{"go":{"target":"a","validator":%q}}}}}`, name, kills+" // "+name)
}

// TestAnAgentsDataKillsAnOperatorsScripts: an agent's data kills the scripts again and again. Then they are not run
// for that agent, which is told to wait, and nothing is recorded. Other callers are not affected.
func TestAnAgentsDataKillsAnOperatorsScripts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names, rejections, busy := []string{"one"}, 3, 1 // each script is killed three times
	if storetest.Long() {
		names, rejections, busy = []string{"one", "two", "three", "four"}, 10, 6 // and ten times in total
	}
	for _, name := range names {
		put(t, filepath.Join(dir, name+".json"), killable(name))
	}
	s := serveGavel(t, "--definitions", dir)
	s.untilReady()
	mallory, honest := s.token("mallory"), s.token("honest")
	advance := func(token, id, data string) (int, object) {
		return s.ask(token, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"go","data":`+data+`}`)
	}
	// On a busy machine, a page of the history ends early, so its count is not the number of events.
	seq := func(token, id string) any { return s.must(token, http.MethodGet, "/v1/instances/"+id, "")["seq"] }
	refused := map[int]int{}
	for _, name := range names {
		id := s.begin(mallory, name)
		for range 4 {
			status, answer := advance(mallory, id, `{"hang":true}`)
			refused[status]++
			if status == http.StatusServiceUnavailable && (answer["code"] != "busy" || !strings.Contains(fmt.Sprint(answer["hint"]), "Wait")) {
				t.Errorf("%v", answer)
			}
		}
		before := seq(mallory, id)
		if status, answer := advance(mallory, id, `{}`); status != http.StatusServiceUnavailable {
			t.Errorf("harmless data after that: %d %v", status, answer)
		}
		if after := seq(mallory, id); before == nil || fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("%v events, then %v", before, after)
		}
	}
	if refused[http.StatusOK] != rejections || refused[http.StatusServiceUnavailable] != busy {
		t.Errorf("the agent got %v, want %d rejections and %d times busy", refused, rejections, busy)
	}
	for _, name := range names {
		_, answer := advance(honest, s.begin(honest, name), `{}`)
		if d, ok := answer["decision"].(object); !ok || d["applied"] != true {
			t.Errorf("an honest move of %s: %v", name, answer)
		}
	}
	if status, answer := s.ask("", http.MethodGet, "/readyz", ""); status != http.StatusOK {
		t.Errorf("not ready: %v", answer)
	}
}

// TestAnAgentWithHeavyData keeps an operator's script busy with many concurrent requests. Each move of another agent
// still succeeds, and does not wait for all of the queued requests.
func TestAnAgentWithHeavyData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "one.json"), killable("one"))
	s := serveGavel(t, "--definitions", dir)
	noisy, honest := s.token("noisy"), s.token("honest")
	ctx, stop := context.WithCancel(t.Context())
	var noise sync.WaitGroup
	defer noise.Wait()
	defer stop()
	var heavy atomic.Int64
	requests, moves := 24, 4
	if storetest.Long() {
		requests, moves = 80, 12
	}
	for range requests {
		id := s.begin(noisy, "one")
		noise.Go(func() {
			for ctx.Err() == nil {
				status, answer, err := s.try(noisy, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"go","data":{"heavy":true}}`)
				if err != nil || status != http.StatusOK {
					t.Error(status, answer, err)
					return
				}
				heavy.Add(1)
			}
		})
	}
	waiting := regexp.MustCompile(`(?m)^gavel_sandbox_waiting (\d+)$`)
	id := s.begin(honest, "one")
	var others int64
	for range moves {
		s.until("the noise stands in line", func() bool {
			_, figures := s.figures(s.owner)
			found := waiting.FindStringSubmatch(figures)
			n, err := strconv.Atoi(found[1])
			return err == nil && n > requests*3/4
		})
		before := heavy.Load()
		status, answer := s.ask(honest, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"go"}`)
		if d, ok := answer["decision"].(object); !ok || d["applied"] != true {
			t.Errorf("an honest move: %d %v", status, answer)
		}
		others += heavy.Load() - before
	}
	if most := int64(moves * requests / 4); others > most { // really a few, compared with all that would wait in a single queue
		t.Errorf("%d honest moves waited for %d heavy ones, more than %d", moves, others, most)
	}
}
