package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

// lossyStore has lost its definitions.
type lossyStore struct {
	*memory.Store
	lost bool
}

func (s *lossyStore) Definition(ctx context.Context, name string, version int) (store.Definition, error) {
	if s.lost {
		return store.Definition{}, store.ErrNotFound
	}
	return s.Store.Definition(ctx, name, version) //nolint:wrapcheck // what it loses
}

// An event that needs no definition is shown without one: otherwise no reader could get past it.
func TestTailShowsCheckpointsWithoutADefinition(t *testing.T) {
	t.Parallel()
	s := &lossyStore{Store: memory.New()}
	b := newBenchOn(t, s)
	b.define(agent, `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":"a"}}}}`)
	id := b.start(agent, "w", `{}`).ID
	first, err := b.Tail(t.Context(), operator, engine.TailRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	s.lost = true
	got, err := newBenchOn(t, s).Tail(t.Context(), operator, engine.TailRequest{After: first.Next})
	if err != nil || len(got.Events) != 1 || got.Events[0].Kind != record.Checkpointed {
		t.Errorf("%+v, %v", got.Events, err)
	}
}

// loadsStore counts the complete instances that are loaded.
type loadsStore struct {
	*memory.Store
	loads int
}

func (s *loadsStore) Load(ctx context.Context, id string) (record.Instance, error) {
	s.loads++
	return s.Store.Load(ctx, id) //nolint:wrapcheck // what it counts for
}

// A stream reads events of many instances while others wait for the store. It loads none of them, unless
// an event may hold sensitive values.
func TestTailLoadsNoInstances(t *testing.T) {
	t.Parallel()
	s := &loadsStore{Store: memory.New()}
	b := newBenchOn(t, s)
	b.define(agent, `{"name":"open","initialState":"a","states":{"a":{"transitions":{"go":"a"}}}}`)
	b.define(agent, `{"name":"secret","sensitive":["/pin"],"initialState":"a","states":{"a":{"transitions":{"go":"a"}}}}`)
	for range 5 {
		b.moved(agent, b.start(agent, "open", `{}`).ID, "go", `{"pin":"4711-0815"}`, "a")
	}
	s.loads = 0
	plain, err := b.Tail(t.Context(), operator, engine.TailRequest{})
	if err != nil || len(plain.Events) != 10 || s.loads != 0 {
		t.Errorf("%d events with %d loads: %v", len(plain.Events), s.loads, err)
	}
	id := b.start(agent, "secret", `{"pin":"4711-0815"}`).ID
	b.moved(agent, id, "go", `{"note":"4711-0815"}`, "a")
	b.advance(agent, id, "4711-0815", `{}`)
	s.loads = 0
	secret, err := b.Tail(t.Context(), operator, engine.TailRequest{After: plain.Next})
	if err != nil || len(secret.Events) != 3 || s.loads != 1 {
		t.Fatalf("%d events with %d loads: %v", len(secret.Events), s.loads, err)
	}
	if last := secret.Events[2]; strings.Contains(last.Action+last.Decision.Reasoning, "4711") {
		t.Errorf("the secret is told: %+v", last)
	}
}
