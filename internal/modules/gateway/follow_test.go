package gateway_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/modules/gateway"
	"github.com/gavel-mcp/gavel/validators/document"
)

// flakyTail is a store in which reading committed events fails for some time, while its feed still works.
type flakyTail struct {
	store.Store
	fails atomic.Bool
}

func (s *flakyTail) LastPosition(ctx context.Context) (int64, error) {
	if s.fails.Load() && !store.IsBulkRead(ctx) {
		return 0, errors.New("it cannot be read")
	}
	return s.Store.LastPosition(ctx) //nolint:wrapcheck // the store's own error
}

const followedFlow = `
name: change
initialState: draft
states:
  draft: {transitions: {approve: approved}}
  approved: {transitions: {finish: finished}}
  finished: {final: true}
`

// followedGates declares a server that is not pinned, so it is not started.
const followedGates = `
upstreams: {ops: {url: "https://ops.example/mcp", allow: [{tools: ["*"]}]}}
gates: [{tool: ops__write, workflow: change, states: approved, list: legal}]
`

// TestMoveWhileNothingCanBeRead shows that clients are notified soon after a move becomes readable, even if no event
// follows it. At the start all clients are notified, later only the owner.
func TestMoveWhileNothingCanBeRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"gavel.yaml": followedGates, "change.yaml": followedFlow} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ann, bob := engine.Principal{ID: "ann", Role: engine.RoleAgent}, engine.Principal{ID: "bob", Role: engine.RoleAgent}
		db := &flakyTail{}
		db.fails.Store(true)
		s, err := gavel.Open(t.Context(), gavel.Config{
			File: filepath.Join(dir, "gavel.yaml"), Definitions: []string{filepath.Join(dir, "change.yaml")}, Logger: slog.New(slog.DiscardHandler),
			Configure: func(c *engine.Config) { db.Store, c.Store = c.Store, db },
		})
		if err != nil {
			t.Fatal(err)
		}
		g := s.Extensions().Foreign()
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		told := func(c <-chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		begun, err := s.Engine.Start(t.Context(), ann, engine.StartRequest{Type: "change"})
		if err != nil {
			t.Fatal(err)
		}
		for _, move := range []struct {
			action string
			toBob  bool
		}{{"approve", true}, {"finish", false}} {
			db.fails.Store(true)
			anns, bobs := g.Changed(ann, wire.Tool), g.Changed(bob, wire.Tool)
			if _, err := s.Engine.Advance(t.Context(), ann, engine.AdvanceRequest{ID: begun.ID, Action: move.action, Data: document.ReadTrusted([]byte("{}"))}); err != nil {
				t.Fatal(err)
			}
			wait(time.Minute) // the feed has announced the move by now
			if told(anns) || told(bobs) {
				t.Fatalf("%s: somebody was told of what could not be read", move.action)
			}
			db.fails.Store(false)
			wait(gateway.TailAgain)
			if !told(anns) || told(bobs) != move.toBob {
				t.Errorf("%s: ann was told: %v, bob: %v", move.action, told(anns), told(bobs))
			}
		}
	})
}

func wait(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's clock
	synctest.Wait()
}
