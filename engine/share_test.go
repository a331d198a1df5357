package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/validators/document"
)

// spendBytes moves an instance of an agent back and forth until the byte quota is used up, and returns the
// number of moves.
func spendBytes(t *testing.T, b *bench, id string) (moves int) {
	t.Helper()
	data := json.RawMessage(`{"text":"` + strings.Repeat("x", 6000) + `"}`)
	for ; moves < 30; moves++ {
		now, err := b.Status(t.Context(), agent, id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: map[string]string{"a": "go", "b": "back"}[now.State], Data: document.ReadTrusted(data)}); err != nil {
			wantCode(t, err, engine.CodeBytesSpent)
			return moves
		}
	}
	t.Fatal("no end of it")
	return 0
}

// Amounts that a principal spends in one process count in the others a second later, until the hour is
// over. Without Shared, each process counts alone.
func TestQuotasAreShared(t *testing.T) {
	for _, shared := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			db := memory.New()
			quotas := func(c *engine.Config) {
				c.Quotas, c.Now = engine.Quotas{Bytes: 20_000, Shared: shared}, time.Now
			}
			a, b := newBenchWith(t, db, nil, quotas), newBenchWith(t, db, nil, quotas)
			a.define(operator, simple)
			id := a.start(agent, "simple", "").ID
			if n := spendBytes(t, a, id); n < 2 {
				t.Fatalf("%d moves", n)
			}
			time.Sleep(1100 * time.Millisecond) //nolint:forbidigo // synctest
			if n := spendBytes(t, b, id); (n == 0) != shared {
				t.Errorf("shared %v: %d moves at another process", shared, n)
			}
			time.Sleep(time.Hour) //nolint:forbidigo // synctest
			if n := spendBytes(t, b, id); n < 2 {
				t.Errorf("%d moves in the next hour", n)
			}
			time.Sleep(2 * time.Second) //nolint:forbidigo // synctest
		})
	}
}

// Processes that start instances at the same time grant no more places than there are.
func TestPlacesAreShared(t *testing.T) {
	db := memory.New()
	var all []*bench
	for range 3 {
		all = append(all, newBenchWith(t, db, nil, func(c *engine.Config) { c.Quotas = engine.Quotas{Running: 24, Shared: true} }))
	}
	all[0].define(operator, simple)
	started := 0
	for refused := 0; refused < len(all); {
		refused = 0
		for _, b := range all {
			if _, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "simple"}); err != nil {
				wantCode(t, err, engine.CodeTooManyInstances)
				refused++
			} else {
				started++
			}
		}
	}
	if started != 24 {
		t.Errorf("%d started", started)
	}
}

// deafCounters fail to count.
type deafCounters struct{ *memory.Store }

func (deafCounters) Count(context.Context, ...store.Addition) ([]store.Count, error) {
	return nil, errors.New("away")
}

// If the amounts spent in other processes are unknown, nothing is judged.
func TestQuotasThatCannotBeCounted(t *testing.T) {
	b := newBenchWith(t, deafCounters{memory.New()}, nil, func(c *engine.Config) { c.Quotas = engine.Quotas{Bytes: 20_000, Shared: true} })
	b.define(operator, simple)
	_, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "simple"})
	wantCode(t, err, engine.CodeUnavailable)
	b.start(operator, "simple", "")
}
