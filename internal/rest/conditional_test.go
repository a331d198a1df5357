package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// TestIfMatch checks that an outdated condition changes nothing, and that the response has the instance's position.
func TestIfMatch(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	id := a.start(agent)
	at := "/v1/instances/" + id
	read := a.ask(agent, "GET "+at, "").is(http.StatusOK).header.Get("ETag")
	if !strings.HasPrefix(read, `"1-`) {
		t.Fatalf("ETag %q", read)
	}
	submit := `{"action":"submit","data":{"title":"T"}}`
	moved := a.ask(agent, "POST "+at+"/advance", submit, "If-Match", read).is(http.StatusOK)
	if tag := moved.header.Get("ETag"); tag != `"2"` {
		t.Errorf("ETag after the move: %q", tag)
	}
	for _, stale := range []string{read, `"1"`, `W/"1"`} {
		got := a.ask(agent, "POST "+at+"/advance", `{"action":"back"}`, "If-Match", stale).is(http.StatusPreconditionFailed)
		p := got.problem(engine.CodeConflict)
		if p.Current == nil || p.Current.State != "reviewing" || p.Current.Revision != 2 || got.header.Get("ETag") != `"2"` {
			t.Errorf("%s: %s", stale, got.body)
		}
	}
	for _, op := range []string{"validate", "cancel", "rollback", "undo", "redo"} {
		body := map[string]string{"validate": `{"action":"back"}`, "rollback": `{"checkpointId":"c"}`}[op]
		if op == "rollback" { // it looks for the checkpoint first
			continue
		}
		a.ask(operator, "POST "+at+"/"+op, body, "If-Match", `"1"`).is(http.StatusPreconditionFailed).problem(engine.CodeConflict)
	}
	a.ask(agent, "POST "+at+"/advance", `{"action":"back"}`, "If-Match", "*").is(http.StatusOK)
}

// TestIfNoneMatch checks that 304 is sent only while the caller's copy is current.
func TestIfNoneMatch(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	at := "/v1/instances/" + a.start(agent)
	first := a.ask(agent, "GET "+at, "")
	tag := first.header.Get("ETag")
	for _, have := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		got := a.ask(agent, "GET "+at, "", "If-None-Match", have).is(http.StatusNotModified)
		if len(got.body) != 0 || got.header.Get("ETag") != tag {
			t.Errorf("304 with %q and %q", got.body, got.header.Get("ETag"))
		}
	}
	a.ask(auditor, "GET "+at, "", "If-None-Match", tag).is(http.StatusOK) // other actions are possible for an auditor
	a.ask(agent, "POST "+at+"/advance", `{"action":"submit","data":{"title":"T"}}`).is(http.StatusOK)
	moved := a.ask(agent, "GET "+at, "", "If-None-Match", tag).is(http.StatusOK).header.Get("ETag")
	// A parked move changes the representation, but not the revision.
	a.ask(agent, "POST "+at+"/advance", `{"action":"publish"}`).is(http.StatusOK)
	parked := a.ask(agent, "GET "+at, "", "If-None-Match", moved).is(http.StatusOK).header.Get("ETag")
	if revision(moved) != "2" || revision(parked) != "2" || moved == parked {
		t.Errorf("moved %s, parked %s", moved, parked)
	}
}

func revision(tag string) string {
	r, _, _ := strings.Cut(strings.Trim(tag, `"`), "-")
	return r
}

// TestIdempotencyKey checks that a repeated request is answered but not repeated, and that a different request with
// the same key is refused.
func TestIdempotencyKey(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	start := func(key string) answer {
		return a.ask(agent, "POST /v1/instances", `{"type":"paper"}`, "Idempotency-Key", key).is(http.StatusCreated)
	}
	first, again := start("k-1"), start("k-1")
	if first.header.Get("Idempotency-Replayed") != "" || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("replayed: %q, %q", first.header.Get("Idempotency-Replayed"), again.header.Get("Idempotency-Replayed"))
	}
	id := into[engine.StartResult](first).ID
	if into[engine.StartResult](again).ID != id || into[engine.StartResult](start(`"k-1"`)).ID != id {
		t.Error("a replay started another one")
	}
	if into[engine.StartResult](start("k-2")).ID == id {
		t.Error("another key is no replay")
	}
	a.ask(agent, "POST /v1/instances", `{"type":"paper","context":{"n":1}}`, "Idempotency-Key", "k-1").is(http.StatusUnprocessableEntity).problem(engine.CodeKeyReused)

	at := "/v1/instances/" + id
	for range 3 { // a refusal uses up its key too
		got := into[engine.AdvanceResult](a.ask(agent, "POST "+at+"/advance", `{"action":"submit"}`, "Idempotency-Key", "m").is(http.StatusOK))
		if got.Decision.Applied {
			t.Error("the replay of a refusal moved")
		}
	}
	if n := into[engine.HistoryResult](a.ask(agent, "GET "+at+"/history", "")).Count; n != 2 {
		t.Errorf("%d decisions, want the start and one refusal", n)
	}
}

// TestRaces checks that only one of many concurrent moves of a revision succeeds. With the same key, all get the same
// result.
func TestRaces(t *testing.T) {
	a := newAPI(t)
	a.define(operator, paper)
	at := "/v1/instances/" + a.start(agent)
	var won, lost atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			got := a.ask(agent, "POST "+at+"/advance", fmt.Sprintf(`{"action":"submit","data":{"title":"T%d"}}`, i), "If-Match", `"1"`)
			switch got.status {
			case http.StatusOK:
				won.Add(1)
			case http.StatusPreconditionFailed:
				lost.Add(1)
			default:
				t.Errorf("%d: %s", got.status, got.body)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 || lost.Load() != 15 {
		t.Errorf("%d won, %d lost", won.Load(), lost.Load())
	}
	var fresh atomic.Int64
	for range 16 {
		all.Go(func() {
			got := a.ask(agent, "POST "+at+"/advance", `{"action":"back"}`, "Idempotency-Key", "one", "If-Match", `"2"`)
			if got.status != http.StatusOK {
				t.Errorf("%d: %s", got.status, got.body)
			}
			if got.header.Get("Idempotency-Replayed") == "" {
				fresh.Add(1)
			}
		})
	}
	all.Wait()
	if r := into[engine.StatusResult](a.ask(agent, "GET "+at, "")); fresh.Load() != 1 || r.Revision != 3 {
		t.Errorf("%d were not replays, revision %d", fresh.Load(), r.Revision)
	}
}
