package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
)

// pingPong is a workflow that never ends.
const pingPong = `{"name":"ping-pong","initialState":"a","states":{
	"a":{"transitions":{"go":"b"}},"b":{"transitions":{"back":"a","stop":"end"}},"end":{"final":true}}}`

// killRounds is the number of kills in TestKillLosesNothing. make crash sets more.
var killRounds = flag.Int("kill.rounds", 3, "kill a server in mid-load so many times")

// TestKillLosesNothing repeatedly kills a server under load. After each kill it looks in the store for every
// acknowledged move and runs gavel verify. At the end it checks the moves of all rounds once more.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	store := storeIn(t)
	const instances = 8
	all := map[string]int{} // instance -> highest acknowledged revision
	for round := range *killRounds {
		s := launch(t, "--store", store, "--tool-names", "dotted")
		s.define(pingPong)
		acked := map[string]int{}
		for range instances {
			acked[s.must("workflow.start", object{"type": "ping-pong"}).field("id")] = 1
		}
		loadThenKill(t, s, acked, 40*(round%3+1))
		verifies(t, store)
		after := launch(t, "--store", store, "--tool-names", "dotted")
		for id, want := range acked {
			all[id] = checkMoves(t, after, id, want)
		}
		if _, err := after.finish(); err != nil {
			t.Error(err)
		}
	}
	last := launch(t, "--store", store, "--tool-names", "dotted")
	moves := 0
	for id, want := range all {
		moves += checkMoves(t, last, id, want) - 1
	}
	if _, err := last.finish(); err != nil {
		t.Error(err)
	}
	t.Logf("%d kills, %d moves on record, none lost", *killRounds, moves)
}

// verifies runs gavel verify over a store.
func verifies(t *testing.T, store string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"verify", "--store", store}, strings.NewReader(""), &out, &errs); code != 0 {
		t.Errorf("gavel verify ends with %d:\n%s%s", code, &out, &errs)
	}
}

// loadThenKill moves every instance back and forth until the given number of moves is acknowledged. Then it kills
// the server while moves are in flight. acked receives the last acknowledged revisions.
func loadThenKill(t *testing.T, s *server, acked map[string]int, moves int) {
	t.Helper()
	enough := make(chan struct{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	total := 0
	for id, revision := range maps.Clone(acked) {
		wg.Go(func() {
			for {
				action := []string{"back", "go"}[revision%2]
				ch := s.beginCall("workflow.advance", fmt.Sprintf(`{"id":%q,"action":%q,"data":{"n":%d}}`, id, action, revision))
				r, ok := untilEnd(s, ch)
				if !ok {
					return
				}
				if result := decodeTool(t, r); result.IsError {
					t.Errorf("%s: %s", action, result.text())
					return
				}
				revision++
				mu.Lock()
				acked[id] = revision
				if total++; total == moves {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	s.kill()
	wg.Wait()
}

// untilEnd waits for a response or the server's end. A response before the end counts.
func untilEnd(s *server, ch chan reply) (reply, bool) {
	select {
	case r := <-ch:
		return r, true
	case <-s.ended:
	}
	select {
	case r := <-ch:
		return r, true
	default:
		return reply{}, false
	}
}

// checkMoves checks that each acknowledged move is present exactly once and in order. One in-flight move may be
// present too. It returns the revision.
func checkMoves(t *testing.T, s *server, id string, want int) int {
	t.Helper()
	var revision int
	if _, err := fmt.Sscan(s.must("workflow.status", object{"id": id}).field("revision"), &revision); err != nil {
		t.Fatal(err)
	}
	if revision < want || revision > want+1 {
		t.Errorf("%s is at revision %d; %d was acknowledged", id, revision, want)
	}
	n := 0
	for _, d := range s.must("workflow.judge.history", object{"id": id}).Body["decisions"].([]any) {
		data, _ := d.(object)["data"].(object)
		if data["n"] == nil {
			continue // the start
		}
		if n++; fmt.Sprint(data["n"]) != fmt.Sprint(n) {
			t.Fatalf("%s: move %d is %v", id, n, data["n"])
		}
	}
	if n != revision-1 {
		t.Errorf("%s: %d moves on record at revision %d", id, n, revision)
	}
	return revision
}

// TestTwoServersOneInstance lets two processes advance one instance in the same file concurrently. Exactly one
// succeeds; the other gets the instance's current position.
func TestTwoServersOneInstance(t *testing.T) {
	t.Parallel()
	store := storeIn(t)
	one := launch(t, "--store", store, "--tool-names", "dotted")
	two := launch(t, "--store", store, "--tool-names", "dotted")
	one.define(pingPong)
	id := one.must("workflow.start", object{"type": "ping-pong"}).field("id")
	for round := range 20 {
		action, state := "go", "b"
		if round%2 == 1 {
			action, state = "back", "a"
		}
		arguments := fmt.Sprintf(`{"id":%q,"action":%q,"expectedRevision":%d}`, id, action, round+1)
		a, b := one.beginCall("workflow.advance", arguments), two.beginCall("workflow.advance", arguments)
		results := []toolResult{decodeTool(t, one.await(a)), decodeTool(t, two.await(b))}
		if results[0].IsError {
			results[0], results[1] = results[1], results[0]
		}
		won, lost := results[0], results[1]
		if won.IsError || !lost.IsError {
			t.Fatalf("round %d: want one winner, got %s and %s", round, won.Raw, lost.Raw)
		}
		if code := lost.code(); code != "conflict" {
			t.Fatalf("round %d: the loser got %q: %s", round, code, lost.Raw)
		}
		if won.field("state") != state || lost.field("state") != state || lost.field("revision") != fmt.Sprint(round+2) {
			t.Fatalf("round %d: winner %s, loser %s", round, won.Raw, lost.Raw)
		}
	}
	if got := one.must("workflow.status", object{"id": id}).field("seq"); got != "21" {
		t.Errorf("the losers left traces: seq %s", got)
	}
}

// TestSameKeyTwice sends one request with one key to two servers concurrently, and again after both were killed.
// There is one event, and all responses are the same.
func TestSameKeyTwice(t *testing.T) {
	t.Parallel()
	store := storeIn(t)
	one := launch(t, "--store", store, "--tool-names", "dotted")
	two := launch(t, "--store", store, "--tool-names", "dotted")
	one.define(pingPong)

	start := `{"type":"ping-pong","idempotencyKey":"s"}`
	id := sameAnswer(t, one, two, "workflow.start", start).field("id")
	advance := fmt.Sprintf(`{"id":%q,"action":"go","data":{"x":1},"idempotencyKey":"k"}`, id)
	first := sameAnswer(t, one, two, "workflow.advance", advance)
	refusal := fmt.Sprintf(`{"id":%q,"action":"go","idempotencyKey":"r"}`, id)
	refused := sameAnswer(t, one, two, "workflow.advance", refusal)
	if first.IsError || !refused.IsError {
		t.Fatalf("first %s, second %s", first.Raw, refused.Raw)
	}
	one.kill()
	two.kill()

	after := launch(t, "--store", store, "--tool-names", "dotted")
	alike(t, first, after.callRaw("workflow.advance", advance))
	alike(t, refused, after.callRaw("workflow.advance", refusal))
	if again := after.callRaw("workflow.start", start); again.field("id") != id {
		t.Errorf("the start was repeated: %s", again.Raw)
	}
	if got := after.must("workflow.status", object{"id": id}).field("seq"); got != "3" {
		t.Errorf("seq is %s; want started, advanced and refused", got)
	}
	other := after.callRaw("workflow.advance", fmt.Sprintf(`{"id":%q,"action":"back","idempotencyKey":"k"}`, id))
	if other.code() != "idempotency_key_reused" {
		t.Errorf("another request with the key: %s", other.Raw)
	}
}

// sameAnswer sends a request to each server four times, concurrently.
func sameAnswer(t *testing.T, one, two *server, tool, arguments string) toolResult {
	t.Helper()
	var pending []func() reply
	for range 4 {
		for _, s := range []*server{one, two} {
			ch := s.beginCall(tool, arguments)
			pending = append(pending, func() reply { return s.await(ch) })
		}
	}
	fresh := 0
	var first toolResult
	for i, get := range pending {
		r := decodeTool(t, get())
		if r.field("replayed") != "true" {
			fresh++
		}
		if i == 0 {
			first = r
			continue
		}
		alike(t, first, r)
	}
	if fresh != 1 {
		t.Errorf("%s: %d of %d answers are no replay", tool, fresh, len(pending))
	}
	return first
}

// alike compares two responses except for the replay mark.
func alike(t *testing.T, a, b toolResult) {
	t.Helper()
	plain := func(r toolResult) string {
		body := map[string]any{}
		for k, v := range r.Body {
			if k != "replayed" {
				body[k] = v
			}
		}
		raw, err := json.Marshal(object{"isError": r.IsError, "body": body})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if plain(a) != plain(b) {
		t.Errorf("answers differ:\n%s\n%s", plain(a), plain(b))
	}
}
