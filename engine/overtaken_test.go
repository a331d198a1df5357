package engine_test

import (
	"context"
	"iter"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

// overtakenStore runs a function between the load of an instance and the next read of its history.
type overtakenStore struct {
	*memory.Store
	mu   sync.Mutex
	once func()
}

func (s *overtakenStore) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	s.mu.Lock()
	do := s.once
	s.once = nil
	s.mu.Unlock()
	if do != nil {
		do()
	}
	return s.Store.Events(ctx, q)
}

// If an event is committed after an instance was loaded, undo, redo and rollback return a conflict, never
// an internal error.
func TestOvertakenUndoReturnsAConflict(t *testing.T) {
	t.Parallel()
	undo := func(b *bench, id string) error {
		_, err := b.Undo(b.t.Context(), agent, engine.UndoRequest{ID: id})
		return err
	}
	redo := func(b *bench, id string) error {
		_, err := b.Redo(b.t.Context(), agent, engine.UndoRequest{ID: id})
		return err
	}
	move := func(b *bench, id string) { b.advance(agent, id, "go", `{}`) }
	for _, tt := range []struct {
		name      string
		prepare   func(b *bench, id string)
		meanwhile func(b *bench, id string)
		ask       func(b *bench, id string) error
	}{
		{"undo, a move", move, move, undo},
		{"undo, two moves", move, func(b *bench, id string) { move(b, id); move(b, id) }, undo},
		{"undo, an undo", func(b *bench, id string) { move(b, id); move(b, id) }, func(b *bench, id string) { _ = undo(b, id) }, undo},
		{
			"redo, a redo and an undo", func(b *bench, id string) { move(b, id); _ = undo(b, id) },
			func(b *bench, id string) { _ = redo(b, id); _ = undo(b, id) }, redo,
		},
		{
			"redo, a move and an undo", func(b *bench, id string) { move(b, id); _ = undo(b, id) },
			func(b *bench, id string) { move(b, id); _ = undo(b, id) }, redo,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			db := &overtakenStore{Store: memory.New()}
			b := newBenchOn(t, db)
			b.define(agent, walkFlow)
			id := b.start(agent, "walk", `{}`).ID
			tt.prepare(b, id)
			db.once = func() { tt.meanwhile(b, id) }
			e := wantCode(t, tt.ask(b, id), engine.CodeConflict)
			if e.Current == nil || e.Current.Revision != b.load(id).Revision {
				t.Errorf("the conflict says that it is at %+v", e.Current)
			}
			b.verify(id)
		})
	}
}

func TestARollbackToACheckpointThatIsNewerThanTheInstance(t *testing.T) {
	t.Parallel()
	db := &overtakenStore{Store: memory.New()}
	b := newBenchWith(t, db, nil, func(c *engine.Config) { c.NewID = func() string { return "1" } })
	b.define(agent, walkFlow)
	id := b.start(agent, "walk", `{}`).ID
	db.once = func() {
		b.advance(agent, id, "go", `{}`)
		b.checkpoint(agent, id)
		b.advance(agent, id, "go", `{}`)
	}
	_, err := b.Rollback(t.Context(), operator, engine.RollbackRequest{ID: id, CheckpointID: "cp-1"})
	wantCode(t, err, engine.CodeConflict)
	if _, err := b.Rollback(t.Context(), operator, engine.RollbackRequest{ID: id, CheckpointID: "cp-1"}); err != nil {
		t.Errorf("asked again: %v", err)
	}
}

// pagedStore reads histories in pages of one event, and runs a function after the first page.
type pagedStore struct {
	lapsing
	once func()
}

func (s *pagedStore) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for left := q.Limit; q.Limit == 0 || left > 0; left-- {
			page := q
			page.Limit = 1
			found := false
			for ev, err := range s.Store.Events(ctx, page) {
				if !yield(ev, err) || err != nil {
					return
				}
				found, q.AfterSeq = true, ev.Seq
			}
			if !found {
				return
			}
			if do := s.once; do != nil {
				s.once = nil
				do()
			}
		}
	}
}

// An export and a run of Retain are overtaken by another run, after their lease has ended. They see the
// remaining events and report nothing as broken.
func TestOvertakenReadersReportNothingBroken(t *testing.T) {
	t.Parallel()
	setUp := func(t *testing.T) (*bench, string) {
		db := &pagedStore{lapsing: lapsing{Store: memory.New()}}
		b := newBenchOn(t, db)
		b.define(operator, fading)
		id := b.start(agent, "fading", `{}`).ID
		b.moved(agent, id, "go", `{}`, "b")
		b.moved(agent, id, "go", `{}`, "c")
		b.pass(31 * day)
		db.once = func() {
			db.lapse(t)
			if r := b.retain(audit.RetainRequest{}); len(r.Histories) != 1 {
				t.Errorf("the other run removed %+v", r)
			}
		}
		return b, id
	}
	t.Run("retain", func(t *testing.T) {
		t.Parallel()
		b, _ := setUp(t)
		if r := b.retain(audit.RetainRequest{}); len(r.Broken) != 0 || r.Kept[audit.KeptMoved] != 1 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("export", func(t *testing.T) {
		t.Parallel()
		if exportInstances == nil {
			t.Skip("the module transfer is not linked")
		}
		b, id := setUp(t)
		got, err := exportInstances(t.Context(), b, operator, id, "")
		if err != nil || len(got) != 1 || got[0].ID != id || len(got[0].Lines) == 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}
