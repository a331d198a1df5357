//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Truncate returns the commit that removes the events up to floor.
func Truncate(tb testing.TB, prev, floor record.Instance, changes ...Change) store.Commit {
	tb.Helper()
	c := Next(tb, prev, record.Event{Kind: record.Truncated, Truncation: &record.Truncation{
		UpTo: floor.Seq, Hash: floor.Head, Count: floor.Seq, Revision: floor.Revision, Floor: record.DigestState(floor),
	}}, changes...)
	c.Floor = &floor
	return c
}

// growLong returns an instance with keys, refusals, moves and checkpoints, and its state after each of its ten
// events.
func growLong(t *testing.T, s store.Store, id string) (record.Instance, []record.Instance) {
	at := []record.Instance{mustCommit(t, s, Start(t, id, `{"title":"a"}`, WithKey(id+" start")))}
	for i := range 9 {
		prev := at[len(at)-1]
		var c store.Commit
		switch i % 3 {
		case 0:
			c = Refuse(t, prev, "submit", WithKey(fmt.Sprint(id, " ", i)))
		case 1:
			c = Advance(t, prev, "reviewing", fmt.Sprintf(`{"n":%d}`, i), WithKey(fmt.Sprint(id, " ", i)))
		case 2:
			c = CheckpointOf(t, prev)
		}
		at = append(at, mustCommit(t, s, c))
	}
	return at[len(at)-1], at
}

func testTruncation(t *testing.T, _ Driver, s store.Store) {
	neighbour, _ := growLong(t, s, ID(1))
	inst, at := growLong(t, s, ID(2))
	floor := at[4] // after a refusal, with the revision of an earlier advance and checkpoint
	inst = mustCommit(t, s, Truncate(t, inst, floor))
	requireSame(t, "the loaded instance", loadInstance(t, s, inst.ID), inst)

	left := listEvents(t, s, store.EventQuery{Instance: inst.ID})
	if len(left) == 0 || left[0].Seq != floor.Seq+1 || left[len(left)-1].Kind != record.Truncated {
		t.Fatalf("remaining: %d events from %+v", len(left), left)
	}
	chain := record.NewChainFrom(floor)
	for _, e := range left {
		wantNone(t, chain.Add(e))
	}
	then, err := s.Snapshot(t.Context(), inst.ID, floor.Revision)
	wantNone(t, err)
	requireSame(t, "the floor", then, floor)
	folded, err := record.FoldFrom(then, s.Events(t.Context(), store.EventQuery{Instance: inst.ID}), 0)
	wantNone(t, err)
	requireSame(t, "the fold from the floor", folded, inst)

	if _, err := s.Snapshot(t.Context(), inst.ID, floor.Revision-1); err == nil {
		t.Error("a snapshot below the floor is still there")
	}
	if newest, err := s.Snapshot(t.Context(), inst.ID, inst.Revision); err != nil || newest.Revision != inst.Revision {
		t.Errorf("the newest snapshot: %+v, %v", newest, err)
	}
	_, err = s.ByKey(t.Context(), hexOf("scope "+ID(2)+" start"))
	wantError(t, "the key of an event that is gone", err, store.ErrNotFound)
	if e, err := s.ByKey(t.Context(), hexOf("scope "+ID(2)+" 6")); err != nil || e.Seq != 8 {
		t.Errorf("the key of an event that is left: event %d, %v", e.Seq, err)
	}
	requireSame(t, "the neighbour", requireVerified(t, s, neighbour.ID), neighbour)

	// The history continues and may be truncated again.
	inst = mustCommit(t, s, Advance(t, inst, "draft", `{"again":true}`, WithKey("goes on")))
	if e, err := s.ByKey(t.Context(), hexOf("scope goes on")); err != nil || e.Seq != inst.Seq {
		t.Errorf("the key of an event after the cut: event %d, %v", e.Seq, err)
	}
	floor = at[6]
	mustCommit(t, s, Truncate(t, inst, floor))
	if left := listEvents(t, s, store.EventQuery{Instance: inst.ID, Limit: 1}); len(left) != 1 || left[0].Seq != floor.Seq+1 || left[0].PrevHash != floor.Head {
		t.Errorf("after the second cut: %+v", left)
	}
	_, err = s.Snapshot(t.Context(), inst.ID, floor.Revision-1)
	wantError(t, "the first floor, after the second cut", err, store.ErrNotFound)
}

func truncationIsAllOrNothing(t *testing.T, d Driver, s store.Store) {
	inst, at := growLong(t, s, ID(1))
	floor := at[4]
	intact := func(what string) {
		t.Helper()
		requireSame(t, what, requireVerified(t, s, inst.ID), inst)
		if _, err := s.Snapshot(t.Context(), inst.ID, 1); err == nil {
			t.Errorf("%s: a snapshot from nowhere", what)
		}
	}
	// Another caller was first.
	late := Truncate(t, at[8], floor)
	wantError(t, "a conflict", s.Commit(t.Context(), late), store.ErrConflict)
	intact("after a conflict")

	// Parts that do not fit together.
	other := floor
	other.Head = hexOf("other")
	for what, misfit := range map[string]struct {
		commit store.Commit
		floor  record.Instance
	}{
		"no truncated event": {Advance(t, inst, "draft", `{}`), floor},
		"another floor":      {Truncate(t, inst, floor), other},
		"another end":        {Truncate(t, inst, floor), at[3]},
	} {
		misfit.commit.Floor = &misfit.floor
		wantError(t, what, s.Commit(t.Context(), misfit.commit), record.ErrIllegalStep)
		intact(what)
	}
	taken := Truncate(t, inst, floor, WithKey(ID(1)+" start"))
	wantError(t, "a key that is taken", s.Commit(t.Context(), taken), store.ErrKeyTaken)
	intact("after a key that was taken")

	if d.Poison == nil {
		return
	}
	d.Poison(t, s, "poison")
	bad := Truncate(t, inst, floor, func(e *record.Event) { e.Action = "poison" })
	if err := s.Commit(t.Context(), bad); err == nil {
		t.Error("a failing write was acknowledged")
	}
	intact("after a failure")
}

func truncationReopened(t *testing.T, s store.Store) func(store.Store) {
	inst, at := growLong(t, s, ID(1))
	floor := at[7]
	floor.Context = json.RawMessage(string(floor.Context)) // separate bytes
	c := Truncate(t, inst, floor)
	mustCommit(t, s, c)
	return func(s store.Store) {
		requireSame(t, "after the restart", loadInstance(t, s, inst.ID), c.Next)
		then, err := s.Snapshot(t.Context(), inst.ID, floor.Revision)
		wantNone(t, err)
		requireSame(t, "the floor after the restart", then, floor)
	}
}
