package engine_test

import (
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// The progress counts changes, as the revision does: after an undo it does not claim two completed steps.
func TestProgressCountsChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, walkFlow)
	id := b.start(agent, "walk", `{}`).ID
	says := func(got, want string) {
		t.Helper()
		if !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	says(b.moved(agent, id, "go", `{}`, "b").Progress, `In "b" after 1 change. `)
	says(b.undo(agent, id, "a").Progress, `In "a" after 2 changes. `)
	r, err := b.Cancel(t.Context(), agent, engine.CancelRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	says(r.Progress, `Cancelled in "a" after 3 changes.`)
}
