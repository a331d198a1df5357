package rest_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/rest"
)

// TestStreamOfOthers checks that a stream also has the events that another process committed to the same store, in
// one order.
func TestStreamOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gavel.db")
	open := func() *engine.Engine {
		store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
		return newEngine(t, func(c *engine.Config) { c.Store = store })
	}
	here, there := open(), open()
	cfg := rest.Config{Engine: here, Logger: slog.New(slog.DiscardHandler)}
	h, err := rest.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := &api{t: t, engine: here, handler: h, http: signedIn(h)}
	a.define(operator, paper)
	stream := listenTo(t, a.server(), agent, "/v1/events", "")
	defer stream.close()
	var want, got []string
	for i := range 6 {
		e := here
		if i%2 == 1 {
			e = there
		}
		r, err := e.Start(t.Context(), agent, engine.StartRequest{Type: "paper"})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, r.ID)
	}
	events, _ := stream.events(t, len(want))
	for _, ev := range events {
		got = append(got, ev.Instance)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("told %v, committed %v", got, want)
	}
}
