package engine_test

import (
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

// The cost of restoring or reading the past depends on the events involved, not on the length of the
// history.
func TestHistoryCostDoesNotGrowWithLength(t *testing.T) {
	t.Parallel()
	short, long := historyCosts(t, 100), historyCosts(t, 10_000)
	for what, n := range short {
		t.Logf("%s: %d events are read after 100 moves, %d after 10,000", what, n, long[what])
		if n == 0 || 2*long[what] > 3*n {
			t.Errorf("%s: %d events are read after 100 moves, %d after 10,000", what, n, long[what])
		}
	}
}

// historyCosts returns how many events are read by each operation on the past after this many moves.
func historyCosts(t *testing.T, moves int) map[string]int {
	t.Helper()
	counted := &countingStore{Store: memory.New()}
	b := newBenchOn(t, counted)
	b.define(agent, walkFlow)
	id := b.start(agent, "walk", `{"n":0}`).ID
	for n := range moves {
		if n%2 == 0 {
			b.moved(agent, id, "go", `{"n":1}`, "b")
		} else {
			b.moved(agent, id, "back", `{"n":2}`, "a")
		}
	}
	checkpoint := b.checkpoint(agent, id)
	b.moved(agent, id, "go", `{"n":3}`, "b")
	b.moved(agent, id, "go", `{"n":4}`, "c")
	costs := map[string]int{}
	measure := func(what string, do func()) {
		before := counted.read
		do()
		costs[what] = counted.read - before
	}
	measure("undo", func() { b.undo(agent, id, "b") })
	measure("redo", func() { b.redo(agent, id, "c") })
	measure("undo again", func() { b.undo(agent, id, "b") })
	measure("rollback", func() {
		if _, err := b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: id, CheckpointID: checkpoint}); err != nil {
			t.Fatal(err)
		}
	})
	for what, revision := range map[string]int64{"an early revision": 63, "one in the middle": int64(moves)/2/64*64 + 63, "a late one": int64(moves)/64*64 - 1} {
		measure(what, func() {
			if r, err := b.StatusAt(t.Context(), agent, id, engine.When{Revision: revision}); err != nil || r.Revision != revision {
				t.Fatalf("revision %d: %+v, %v", revision, r, err)
			}
		})
	}
	return costs
}
