package engine_test

import (
	"context"
	"iter"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

func TestAnInstanceHasOnlySoManyRefusals(t *testing.T) {
	b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) { c.Limits.Events = 5 })
	b.define(operator, simple)
	id := b.start(agent, "simple", `{}`).ID
	for range 3 {
		b.refused(agent, id, "nonsense", `{}`, "illegal_action")
	}
	if _, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"}); err != nil {
		t.Fatal(err)
	}
	first, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "nonsense", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	before := b.load(id)
	judged := false
	b.judge.before = func(context.Context, judge.Case) error { judged = true; return nil }
	for what, ask := range map[string]func() error{
		"advance": func() error {
			_, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"})
			return err
		},
		"validate": func() error {
			_, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"})
			return err
		},
		"checkpoint": func() error {
			_, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id})
			return err
		},
	} {
		e := wantCode(t, ask(), engine.CodeTooManyEvents)
		if e.Current == nil || e.Current.State != "a" || e.Hint == "" {
			t.Errorf("%s: %+v", what, e)
		}
		if b.load(id).Seq != before.Seq || judged {
			t.Errorf("%s was judged or recorded", what)
		}
	}
	b.judge.before = nil

	again, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "nonsense", Key: "k"})
	if err != nil || !again.Replayed || again.Decision.ID != first.Decision.ID {
		t.Errorf("a replay: %+v, %v", again, err)
	}
	b.refused(operator, id, "nonsense", `{}`, "illegal_action") // operators have no quota
	b.moved(operator, id, "go", `{}`, "b")                      // and their moves reset the others'
	for range 5 {
		b.refused(agent, id, "nonsense", `{}`, "illegal_action")
	}
	_, err = b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"})
	wantCode(t, err, engine.CodeTooManyEvents)
	if _, err := b.Cancel(t.Context(), agent, engine.CancelRequest{ID: id}); err != nil {
		t.Errorf("the owner cannot give it up: %v", err)
	}
}

func TestASecondInstanceHasRoom(t *testing.T) {
	b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) { c.Limits.Events = 2 })
	b.define(operator, simple)
	for range 2 {
		id := b.start(agent, "simple", `{}`).ID
		b.refused(agent, id, "nonsense", `{}`, "illegal_action")
		b.moved(agent, id, "go", `{}`, "b") // a move with the last event of the quota
		b.refused(agent, id, "nonsense", `{}`, "illegal_action")
		b.refused(agent, id, "nonsense", `{}`, "illegal_action")
		_, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"})
		wantCode(t, err, engine.CodeTooManyEvents)
	}
}

// Undo, redo and rollback are no moves: going back and forth uses up a quota like refusals. Only an
// operator's reset it.
func TestBackAndForthMakesNoRoom(t *testing.T) {
	b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) { c.Limits.Events = 6 })
	b.define(agent, simple)
	id := b.start(agent, "simple", `{}`).ID
	cp := b.checkpoint(agent, id)
	b.moved(agent, id, "go", `{}`, "b") // the last event that is a move
	turn := func(i int) error {
		var err error
		switch i % 3 {
		case 0:
			_, err = b.Undo(t.Context(), agent, engine.UndoRequest{ID: id})
		case 1:
			_, err = b.Redo(t.Context(), agent, engine.UndoRequest{ID: id})
		case 2:
			_, err = b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: id, CheckpointID: cp})
			if err == nil {
				_, err = b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"})
			}
		}
		return err
	}
	fill := func() {
		t.Helper()
		for i := range 6 {
			if err := turn(i % 2); err != nil {
				t.Fatalf("turn %d: %v", i, err)
			}
		}
	}
	fill()
	before := b.load(id).Seq
	for i := range 3 {
		wantCode(t, turn(i), engine.CodeTooManyEvents)
	}
	if got := b.load(id).Seq; got != before {
		t.Errorf("%d events were recorded", got-before)
	}
	if _, err := b.Undo(t.Context(), operator, engine.UndoRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	if err := turn(1); err != nil {
		t.Errorf("after an operator made room: %v", err)
	}
}

// One principal's events do not use up another's quota: a reviewer cannot keep the owner from moving, and
// the owner's refusals do not stop a reviewer.
func TestEventQuotasAreCountedPerPrincipal(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		const most = 5
		b := newBenchWith(t, s, nil, func(c *engine.Config) { c.Limits.Events = most })
		b.define(operator, simple)
		id := b.start(agent, "simple", `{}`).ID
		second := engine.Principal{ID: "rev:sue", Role: engine.RoleReviewer}
		check := func(p engine.Principal) error {
			_, err := b.Validate(t.Context(), p, engine.AdvanceRequest{ID: id, Action: "go"})
			return err
		}
		fill := func(p engine.Principal) {
			t.Helper()
			for range most {
				if err := check(p); err != nil {
					t.Fatal(err)
				}
			}
			before := b.load(id).Seq
			wantCode(t, check(p), engine.CodeTooManyEvents)
			if got := b.load(id).Seq; got != before {
				t.Errorf("%d events were recorded of what was refused", got-before)
			}
		}
		fill(reviewer)
		fill(second)
		for range 3 * most { // an operator's events count for no quota
			if err := check(operator); err != nil {
				t.Fatal(err)
			}
		}
		for range most - 1 {
			b.refused(agent, id, "nonsense", `{}`, "illegal_action")
		}
		b.moved(agent, id, "go", `{}`, "b")
		fill(agent)
		fill(reviewer) // the move has reset its quota
		b.moved(operator, id, "back", `{}`, "a")
		fill(second)
		fill(agent)

		fresh, err := engine.New(engine.Config{ // another process has the same counts
			Store: s, Judge: b.judge, Compiler: validators.NewCompiler(pool(), validators.Options{}),
			Digester: record.NewDigester([]byte("0123456789abcdef0123456789abcdef")), Limits: engine.Limits{Events: most},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = fresh.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"})
		wantCode(t, err, engine.CodeTooManyEvents)
		if _, err := fresh.Validate(t.Context(), reviewer, engine.AdvanceRequest{ID: id, Action: "go"}); err != nil {
			t.Errorf("a reviewer without events: %v", err)
		}
	})
}

// queriedStore records the queries of histories.
type queriedStore struct {
	*memory.Store
	queries []store.EventQuery
}

func (s *queriedStore) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	s.queries = append(s.queries, q)
	return s.Store.Events(ctx, q)
}

// A move reads almost nothing of a long history to find that there were recent moves. It makes a query for
// one event, and the next query only after half of the limit has been recorded.
func TestAMoveReadsNoLongHistory(t *testing.T) {
	t.Parallel()
	s := &queriedStore{Store: memory.New()}
	b := newBenchWith(t, s, nil, func(c *engine.Config) { c.Limits.Events = 10 })
	b.define(operator, simple)
	id := b.start(agent, "simple", `{}`).ID
	for range 50 {
		b.moved(agent, id, "go", `{}`, "b")
		b.moved(agent, id, "back", `{}`, "a")
	}
	// 91 moves are past the limit; each result holds for 5 to 9 of them.
	if n := len(s.queries); n < 10 || n > 19 {
		t.Errorf("%d queries, want one for every 5 to 9 moves: %+v", n, s.queries)
	}
	for _, q := range s.queries {
		if q.Limit != 1 {
			t.Errorf("got %+v, want one event at most", q)
		}
	}
}
