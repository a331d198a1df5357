package engine_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/judge"
)

// onStores runs a test on both drivers.
func onStores(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		test(t, memory.New())
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "gavel.db")})
		if err != nil {
			t.Fatal(err)
		}
		test(t, s)
	})
}

// walkFlow goes from a to d, collecting its input, and can loop.
const walkFlow = `{"name":"walk","initialState":"a","states":{
	"a":{"transitions":{"go":{"target":"b","freezes":["/kept"]},"skip":"d"}},
	"b":{"transitions":{"go":"c","back":"a"}},
	"c":{"transitions":{"go":"d","back":"a"}},
	"d":{"final":true,"outcome":"success"}}}`

func (b *bench) undo(p engine.Principal, id, state string) engine.MovedResult {
	b.t.Helper()
	r, err := b.Undo(b.t.Context(), p, engine.UndoRequest{ID: id})
	if err != nil || r.State != state {
		b.t.Fatalf("undo: in %q, %v; want %q", r.State, err, state)
	}
	return r
}

func (b *bench) redo(p engine.Principal, id, state string) engine.MovedResult {
	b.t.Helper()
	r, err := b.Redo(b.t.Context(), p, engine.UndoRequest{ID: id})
	if err != nil || r.State != state {
		b.t.Fatalf("redo: in %q, %v; want %q", r.State, err, state)
	}
	return r
}

func TestUndoAndRedo(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		b := newBenchOn(t, s)
		b.define(agent, walkFlow)
		id := b.start(agent, "walk", `{"n":0}`).ID
		b.moved(agent, id, "go", `{"n":1}`, "b")
		b.moved(agent, id, "go", `{"n":2}`, "c")
		b.moved(agent, id, "go", `{"n":3}`, "d")
		before := b.load(id)
		if before.Status != record.Complete {
			t.Fatalf("status %s", before.Status)
		}
		r := b.undo(agent, id, "c")
		if r.Action != "go" || r.From != "d" || string(r.Context) != `{"n":2}` || r.Complete || r.Revision != 5 || r.Message != `Undid "go": in state "c" again. The history is kept.` {
			t.Errorf("undo answered %+v", r)
		}
		if got := b.load(id).Facts.Visited; slices.Contains(got, "d") {
			t.Errorf("a visit that was undone counts: %v", got)
		}
		b.undo(agent, id, "b")
		b.undo(agent, id, "a")
		if got := b.load(id); len(got.Facts.Frozen) != 0 || len(got.Facts.Performed) != 0 {
			t.Errorf("facts of the start: %+v", got.Facts)
		}
		_, err := b.Undo(t.Context(), agent, engine.UndoRequest{ID: id})
		if e := wantCode(t, err, engine.CodeNothingToUndo); e.Current == nil || e.Current.State != "a" {
			t.Errorf("the error does not say where it is: %+v", e)
		}
		b.redo(agent, id, "b")
		b.redo(agent, id, "c")
		if r := b.redo(agent, id, "d"); r.Message != `Made "go" again: in state "d".` || !r.Complete {
			t.Errorf("redo answered %+v", r)
		}
		after := b.load(id)
		if string(after.Context) != string(before.Context) || !slices.Equal(after.Facts.Visited, before.Facts.Visited) || after.Status != before.Status {
			t.Errorf("redone, it is %+v; it was %+v", after, before)
		}
		_, err = b.Redo(t.Context(), agent, engine.UndoRequest{ID: id})
		wantCode(t, err, engine.CodeNothingToUndo)
		b.verify(id)
	})
}

func TestUndoKeepsTheLineThroughRefusalsAndCheckpoints(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, walkFlow)
	id := b.start(agent, "walk", `{}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	b.undo(agent, id, "a")
	b.refused(agent, id, "nowhere", `{}`, "illegal_action")
	if _, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	b.redo(agent, id, "b")
	b.undo(agent, id, "a")
	b.moved(agent, id, "skip", `{}`, "d") // another move discards what could be redone
	_, err := b.Redo(t.Context(), agent, engine.UndoRequest{ID: id})
	wantCode(t, err, engine.CodeNothingToUndo)
	b.undo(agent, id, "a")
}

// TestUndoRights tries every caller against every owner.
func TestUndoRights(t *testing.T) {
	t.Parallel()
	const ok, no, none = engine.Code(""), engine.CodeForbidden, engine.CodeUnknownInstance
	for _, tt := range []struct {
		name    string
		definer engine.Principal
		caller  engine.Principal
		want    engine.Code
	}{
		{"owner of both", agent, agent, ok},
		{"owner of the instance only", other, agent, ok},
		{"owner of the definition only", agent, other, none},
		{"an agent on an operator's", operator, agent, no},
		{"another agent on an operator's", operator, other, none},
		{"an operator on an agent's", agent, operator, ok},
		{"an operator on an operator's", operator, operator, ok},
		{"a reviewer", agent, reviewer, no},
		{"an auditor", agent, auditor, no},
		{"nobody", agent, engine.Principal{}, no},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.define(tt.definer, walkFlow)
			if tt.definer == other {
				b.share("walk")
			}
			id := b.start(agent, "walk", `{}`).ID
			b.moved(agent, id, "go", `{}`, "b")
			_, err := b.Undo(t.Context(), tt.caller, engine.UndoRequest{ID: id})
			if got := engine.CodeOf(err); got != tt.want {
				t.Errorf("undo: got %q (%v), want %q", got, err, tt.want)
			}
			if tt.want != ok {
				b.undo(operator, id, "a")
			}
			_, err = b.Redo(t.Context(), tt.caller, engine.UndoRequest{ID: id})
			if got := engine.CodeOf(err); got != tt.want {
				t.Errorf("redo: got %q (%v), want %q", got, err, tt.want)
			}
		})
	}
}

// TestUndoAfterATakeover: an agent cannot undo its moves from before an operator took the name over.
func TestUndoAfterATakeover(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, walkFlow)
	id := b.start(agent, "walk", `{}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	b.define(operator, walkFlow)
	_, err := b.Undo(t.Context(), agent, engine.UndoRequest{ID: id})
	wantCode(t, err, engine.CodeForbidden)
	if got := b.load(id); got.State != "b" {
		t.Errorf("it is in %q", got.State)
	}
}

func TestUndoIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		b := newBenchOn(t, s)
		b.define(agent, walkFlow)
		id := b.start(agent, "walk", `{}`).ID
		b.moved(agent, id, "go", `{"n":1}`, "b")
		b.moved(agent, id, "go", `{"n":2}`, "c")
		ctx := t.Context()
		req := engine.UndoRequest{ID: id, Key: "k"}
		first, err1 := b.Undo(ctx, agent, req)
		second, err2 := b.Undo(ctx, agent, req)
		sameButReplayed(t, "undo", first, second, err1, err2, &second.Replayed)
		r1, err1 := b.Redo(ctx, agent, req) // the same key for another operation
		b.moved(agent, id, "back", `{}`, "a")
		r2, err2 := b.Redo(ctx, agent, req)
		sameButReplayed(t, "redo", r1, r2, err1, err2, &r2.Replayed)
		if n := len(b.events(id)); n != 6 {
			t.Errorf("%d events, want 6", n)
		}
		req.ExpectedRevision = new(int64(9))
		_, err := b.Undo(ctx, agent, req)
		wantCode(t, err, engine.CodeKeyReused)
	})
}

func TestUndoExpectsItsRevision(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, walkFlow)
	id := b.start(agent, "walk", `{}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	_, err := b.Undo(t.Context(), agent, engine.UndoRequest{ID: id, ExpectedRevision: new(int64(1))})
	wantCode(t, err, engine.CodeConflict)
	if _, err = b.Undo(t.Context(), agent, engine.UndoRequest{ID: id, ExpectedRevision: new(int64(2))}); err != nil {
		t.Error(err)
	}
}

func TestUndoOfEndedInstance(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, walkFlow)
	id := b.start(agent, "walk", `{}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	if _, err := b.Cancel(t.Context(), agent, engine.CancelRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []engine.Principal{agent, operator} {
		_, err := b.Undo(t.Context(), p, engine.UndoRequest{ID: id})
		wantCode(t, err, engine.CodeInstanceEnded)
		_, err = b.Redo(t.Context(), p, engine.UndoRequest{ID: id})
		wantCode(t, err, engine.CodeInstanceEnded)
	}
	_, err := b.Undo(t.Context(), agent, engine.UndoRequest{})
	wantCode(t, err, engine.CodeInvalidArgument)
	_, err = b.Undo(t.Context(), agent, engine.UndoRequest{ID: "wf-none"})
	wantCode(t, err, engine.CodeUnknownInstance)
}

// approved returns an instance of an agent's own guardedFlow whose release a person approved.
func approved(t *testing.T) (b *bench, id, before, after string) {
	t.Helper()
	b = newReviewBench(t)
	b.define(agent, guardedFlow)
	id = b.start(agent, "guarded", `{}`).ID
	checkpoint := func() string {
		cp, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return cp.CheckpointID
	}
	before = checkpoint()
	r := b.parked(agent, id, "release", `{"why":"ready"}`)
	if got, err := b.resolve(rita, r.ID, judge.Approve); err != nil || !got.Applied {
		t.Fatalf("approve: %+v, %v", got, err)
	}
	return b, id, before, checkpoint()
}

// TestUndoAcrossAnApproval: an agent can neither undo nor redo a move that a person approved, in any way.
func TestUndoAcrossAnApproval(t *testing.T) {
	t.Parallel()
	b, id, before, after := approved(t)
	ctx := t.Context()
	back := func(cp string) error {
		_, err := b.Rollback(ctx, agent, engine.RollbackRequest{ID: id, CheckpointID: cp})
		return err
	}
	_, err := b.Undo(ctx, agent, engine.UndoRequest{ID: id})
	if e := wantCode(t, err, engine.CodeForbidden); !strings.Contains(e.Message, "approved it in a review") {
		t.Errorf("the reason is not told: %s", e.Message)
	}
	wantCode(t, back(before), engine.CodeForbidden)
	if err := back(after); err != nil { // no such move in between
		t.Error(err)
	}
	b.undo(operator, id, "ready")
	_, err = b.Redo(ctx, agent, engine.UndoRequest{ID: id})
	wantCode(t, err, engine.CodeForbidden)
	wantCode(t, back(after), engine.CodeForbidden)
	if err := back(before); err != nil { // the approval is no longer in force
		t.Error(err)
	}
	if got := b.load(id); got.State != "ready" {
		t.Errorf("it is in %q", got.State)
	}
	b.verify(id)
}

// TestUndoOfAMoveAfterAnApproval: the owner may undo it, because only that move is taken back.
func TestUndoOfAMoveAfterAnApproval(t *testing.T) {
	t.Parallel()
	b, id, _, _ := approved(t)
	b.moved(agent, id, "done", `{}`, "over")
	b.undo(agent, id, "live")
	_, err := b.Undo(t.Context(), agent, engine.UndoRequest{ID: id})
	wantCode(t, err, engine.CodeForbidden)
}

func TestUndoClosesReviews(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		b := newReviewBenchOn(t, s, nil)
		b.define(agent, guardedFlow)
		id := b.start(agent, "guarded", `{}`).ID
		b.moved(agent, id, "note", `{"n":1}`, "ready")
		r := b.parked(agent, id, "release", `{"why":"x"}`)
		b.undo(agent, id, "ready")
		row := b.review(r.ID)
		if row.Status != record.ReviewStale || row.Reason != `The move "note" was undone.` || len(b.load(id).Facts.Reviews) != 0 {
			t.Errorf("the review is %s (%s)", row.Status, row.Reason)
		}
		_, err := b.resolve(rita, r.ID, judge.Approve)
		wantCode(t, err, engine.CodeReviewClosed)
		again := b.parked(agent, id, "release", `{"why":"x"}`)
		b.redo(agent, id, "ready")
		if row := b.review(again.ID); row.Status != record.ReviewStale || row.Reason != `The move "note" was made again.` {
			t.Errorf("the review is %s (%s)", row.Status, row.Reason)
		}
		b.verify(id)
	})
}

// TestUndoneVisitsDoNotCount: mustPassThrough and notBy consider only moves in force.
func TestUndoneVisitsDoNotCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, `{"name":"pass","initialState":"a","states":{
		"a":{"transitions":{"in":"mid","past":[{"condition":"context.late","target":"c"},{"condition":"true","target":"a"}]}},
		"mid":{"transitions":{"out":"c"}},
		"c":{"transitions":{"end":"z","round":"a"}},"z":{"final":true}}}`)
	id := b.start(agent, "pass", `{}`).ID
	b.moved(agent, id, "in", `{}`, "mid")
	b.undo(agent, id, "a")
	if got := b.load(id).Facts; !slices.Equal(got.Visited, []string{"a"}) || len(got.Performed) != 0 {
		t.Errorf("facts %+v", got)
	}
	b.redo(agent, id, "mid")
	if got := b.load(id).Facts; !slices.Equal(got.Visited, []string{"a", "mid"}) || !slices.Equal(got.Performed["in"], []string{agent.ID}) {
		t.Errorf("facts %+v", got)
	}
}

// TestUndoWithAMoveInBetween loses the race and returns a conflict.
func TestUndoWithAMoveInBetween(t *testing.T) {
	t.Parallel()
	inner := memory.New()
	s := &interruptedStore{Store: inner}
	b := newBenchOn(t, s)
	quick := newBenchWith(t, inner, nil, func(*engine.Config) {})
	b.define(agent, walkFlow)
	id := b.start(agent, "walk", `{}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	s.before = func() { quick.moved(agent, id, "go", `{}`, "c") }
	_, err := b.Undo(t.Context(), agent, engine.UndoRequest{ID: id})
	if e := wantCode(t, err, engine.CodeConflict); e.Current == nil || e.Current.State != "c" {
		t.Errorf("the conflict does not say where it is: %+v", e.Current)
	}
}

// interruptedStore runs a function right before the next commit.
type interruptedStore struct {
	store.Store
	before func()
}

func (s *interruptedStore) Commit(ctx context.Context, c store.Commit) error {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	return s.Store.Commit(ctx, c)
}

// TestEffectsOutside describes the effects of a move that undo does not revert.
func TestEffectsOutside(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) { c.ReadOnlySources = []string{"ci"} })
	fetched := func(all ...judge.Evidence) record.Event {
		d := &record.Decision{}
		d.Evidence = all
		return record.Event{Kind: record.Advanced, Decision: d}
	}
	for name, tt := range map[string]struct {
		move record.Event
		want bool
	}{
		"nothing":                    {fetched(), false},
		"a look":                     {fetched(judge.Evidence{Source: "ci"}), false},
		"more than a look":           {fetched(judge.Evidence{Source: "ci"}, judge.Evidence{Source: "deploy"}), true},
		"more than a look, too late": {fetched(judge.Evidence{Source: "deploy", Failure: judge.FailureTimeout}), true},
		"never asked":                {fetched(judge.Evidence{Source: "deploy", Failure: judge.FailureNotConfigured}), false},
		"asked without its argument": {fetched(judge.Evidence{Source: "deploy", Failure: judge.FailureArgument}), false},
		"approved by a person":       {record.Event{Kind: record.Advanced, Review: &record.Review{ID: "r"}}, true},
		"without a decision":         {record.Event{Kind: record.Advanced, Patch: json.RawMessage(`{}`)}, false},
	} {
		if got := b.Effect(tt.move); (got != "") != tt.want {
			t.Errorf("%s: %q, want an effect: %v", name, got, tt.want)
		}
	}
}
