package record_test

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// restoring returns an event that goes back to a revision.
func restoring(kind record.Kind, revision int64) record.Event {
	return record.Event{Kind: kind, Rollback: &record.Rollback{Restores: revision}}
}

// migrated returns an event that pins version 2.
func migrated(to string) record.Event {
	return record.Event{Kind: record.Migrated, Version: 2, DefinitionHash: "sha256:bb", To: to, Migration: &record.Migration{FromVersion: 1, FromHash: "sha256:aa"}}
}

// back seals an event that restores a revision.
func (h *history) back(kind record.Kind, revision int64) {
	h.tb.Helper()
	h.seal(restoring(kind, revision), h.at(revision))
}

// at returns the instance at the end of a revision.
func (h *history) at(revision int64) *record.Instance {
	h.tb.Helper()
	for i := len(h.after) - 1; i >= 0; i-- {
		if h.after[i].Revision == revision {
			return &h.after[i]
		}
	}
	h.tb.Fatalf("no revision %d", revision)
	return nil
}

func (h *history) line() record.UndoHistory {
	h.tb.Helper()
	l, err := record.ReadUndoHistory(h.seq())
	if err != nil {
		h.tb.Fatalf("read the line: %v", err)
	}
	return l
}

func TestUndoHistory(t *testing.T) {
	go1 := func(h *history) { h.seal(advanced("go", "b", `{}`), nil) } // to revision 2
	go2 := func(h *history) { h.seal(advanced("on", "c", `{}`), nil) } // to revision 3
	step := func(kind record.Kind, to int64) func(*history) {
		return func(h *history) { h.back(kind, to) }
	}
	migrate := func(h *history) { h.seal(migrated("c"), nil) }
	tests := map[string]struct {
		steps []func(*history)
		// undo and redo are the revisions that each would restore; 0 for none.
		undo, redo int64
	}{
		"the start":                      {nil, 0, 0},
		"a move":                         {[]func(*history){go1}, 1, 0},
		"two moves":                      {[]func(*history){go1, go2}, 2, 0},
		"one undone":                     {[]func(*history){go1, go2, step(record.Undone, 2)}, 1, 3},
		"both undone":                    {[]func(*history){go1, go2, step(record.Undone, 2), step(record.Undone, 1)}, 0, 2},
		"one made again":                 {[]func(*history){go1, go2, step(record.Undone, 2), step(record.Undone, 1), step(record.Redone, 2)}, 1, 3},
		"both made again":                {[]func(*history){go1, go2, step(record.Undone, 2), step(record.Undone, 1), step(record.Redone, 2), step(record.Redone, 3)}, 2, 0},
		"another move cuts the line":     {[]func(*history){go1, step(record.Undone, 1), go2}, 3, 0},
		"a rollback cuts the line":       {[]func(*history){go1, go2, step(record.Undone, 2), step(record.RolledBack, 2)}, 1, 0},
		"a rollback stands where it was": {[]func(*history){go1, go2, step(record.RolledBack, 2)}, 1, 0},
		"a rollback to the start":        {[]func(*history){go1, go2, step(record.RolledBack, 1)}, 0, 0},
		"a rollback forward":             {[]func(*history){go1, go2, step(record.RolledBack, 1), step(record.RolledBack, 3)}, 2, 0},
		"a rollback to an undone move":   {[]func(*history){go1, step(record.Undone, 1), step(record.RolledBack, 2)}, 1, 0},
		"a migration":                    {[]func(*history){go1, go2, migrate}, 0, 0},
		"a move after a migration":       {[]func(*history){go1, migrate, go2}, 3, 0},
		"a migration after an undo":      {[]func(*history){go1, step(record.Undone, 1), migrate}, 0, 0},
		"a rollback across a migration":  {[]func(*history){go1, go2, migrate, step(record.RolledBack, 3)}, 0, 0},
		"a refusal in between":           {[]func(*history){go1, func(h *history) { h.seal(refused("on", `{}`), nil) }}, 1, 0},
		"a cancel":                       {[]func(*history){go1, func(h *history) { h.seal(record.Event{Kind: record.KindCancelled}, nil) }}, 1, 0},
		"imported steps": {[]func(*history){func(h *history) {
			h.seal(record.Event{Kind: record.Imported, To: "b", Import: &record.Import{Source: "x", Line: 1}}, nil)
		}}, 0, 0},
		"a reconciliation": {[]func(*history){go1, func(h *history) {
			h.seal(record.Event{Kind: record.Reconciled, To: "b", Import: &record.Import{Source: "x"}}, nil)
		}}, 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := &history{tb: t}
			h.seal(started(`{}`), nil)
			for _, s := range tt.steps {
				s(h)
			}
			line := h.line()
			last, _ := line.LastMove()
			undone, _ := line.LastUndone()
			if last.Before != tt.undo || undone.Event.Revision != tt.redo {
				t.Errorf("undo restores %d, redo %d; want %d, %d", last.Before, undone.Event.Revision, tt.undo, tt.redo)
			}
		})
	}
}

func TestUndoHistoryListsMovesBetween(t *testing.T) {
	h := &history{tb: t}
	h.seal(started(`{}`), nil)                      // 1
	h.seal(advanced("one", "b", `{}`), nil)         // 2
	h.seal(advanced("two", "c", `{}`), nil)         // 3
	h.back(record.RolledBack, 1)                    // 4
	h.seal(advanced("three", "d", `{}`), nil)       // 5
	h.seal(advanced("four", "e", `{}`), nil)        // 6
	for revision, want := range map[int64][]string{ // from the present revision, which three and four led to
		1: {"four", "three"}, 2: {"four", "three", "one"}, 3: {"four", "three", "two", "one"},
		4: {"four", "three"}, 5: {"four"}, 6: nil,
	} {
		var got []string
		for _, m := range h.line().MovesBetween(revision) {
			got = append(got, m.Event.Action)
		}
		if !slices.Equal(got, want) {
			t.Errorf("revision %d: %v, want %v", revision, got, want)
		}
	}
	h.seal(migrated("e"), nil) // 7
	if l := h.line(); l.MigratedAt() != 7 || l.FirstRevision() != 1 {
		t.Errorf("migrated at %d, begins at %d; want 7 and 1", l.MigratedAt(), l.FirstRevision())
	}
}

// TestUndoHistoryOfTruncatedInstance reads a history whose beginning was removed.
func TestUndoHistoryOfTruncatedInstance(t *testing.T) {
	h := &history{tb: t}
	h.seal(started(`{}`), nil)              // 1
	h.seal(advanced("one", "b", `{}`), nil) // 2
	h.seal(advanced("two", "c", `{}`), nil) // 3
	l, err := record.ReadUndoHistory(each(h.events[2:]))
	if err != nil {
		t.Fatal(err)
	}
	if last, ok := l.LastMove(); !ok || last.Before != 2 || l.FirstRevision() != 2 {
		t.Errorf("last restores %d, begins at %d; want 2 and 2", last.Before, l.FirstRevision())
	}
}

func TestReadUndoHistoryFails(t *testing.T) {
	boom := errors.New("boom")
	var failing iter.Seq2[record.Event, error] = func(yield func(record.Event, error) bool) { yield(record.Event{}, boom) }
	if _, err := record.ReadUndoHistory(failing); !errors.Is(err, boom) {
		t.Errorf("got %v, want boom", err)
	}
}

// twoStacks is the model of undo and redo, as in any editor.
type twoStacks struct {
	now        string
	undo, redo []string
	then       map[int64]twoStacks // the stacks at each revision, since the last migration
}

// TestUndoHistoryIsTwoStacks plays random moves, undos, redos and rollbacks, and compares the result with
// two stacks of contexts.
func TestUndoHistoryIsTwoStacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{tb: t}
		h.seal(started(`{}`), nil)
		m := twoStacks{now: `{}`, then: map[int64]twoStacks{}}
		remember := func() {
			m.then[h.last().Revision] = twoStacks{now: m.now, undo: slices.Clone(m.undo)}
		}
		remember()
		ops := rapid.SliceOfN(rapid.SampledFrom([]string{"move", "move", "undo", "undo", "redo", "rollback", "refuse", "migrate"}), 1, 40).Draw(t, "ops")
		for i, op := range ops {
			line := h.line()
			last, canUndo := line.LastMove()
			undone, canRedo := line.LastUndone()
			if canUndo != (len(m.undo) > 0) || canRedo != (len(m.redo) > 0) {
				t.Fatalf("before %s %d: undo %v, redo %v; the model has %d and %d", op, i, canUndo, canRedo, len(m.undo), len(m.redo))
			}
			switch op {
			case "move":
				h.seal(advanced("go", "b", fmt.Sprintf(`{"n":%d}`, i)), nil)
				m.undo, m.redo, m.now = append(m.undo, m.now), nil, string(h.last().Context)
			case "undo":
				if canUndo {
					h.back(record.Undone, last.Before)
					m.redo = append(m.redo, m.now)
					m.now, m.undo = m.undo[len(m.undo)-1], m.undo[:len(m.undo)-1]
				}
			case "redo":
				if canRedo {
					h.back(record.Redone, undone.Event.Revision)
					m.undo = append(m.undo, m.now)
					m.now, m.redo = m.redo[len(m.redo)-1], m.redo[:len(m.redo)-1]
				}
			case "rollback":
				known := make([]int64, 0, len(m.then))
				for r := range m.then {
					known = append(known, r)
				}
				slices.Sort(known)
				r := rapid.SampledFrom(known).Draw(t, "revision")
				h.back(record.RolledBack, r)
				m.now, m.undo, m.redo = m.then[r].now, slices.Clone(m.then[r].undo), nil
			case "refuse":
				h.seal(refused("go", `{}`), nil)
			case "migrate":
				e := migrated("b")
				e.Version, e.Migration.FromVersion = h.last().Version+1, h.last().Version
				h.seal(e, nil)
				m.undo, m.redo, m.then = nil, nil, map[int64]twoStacks{}
			}
			remember()
			if got := string(h.last().Context); got != m.now {
				t.Fatalf("after %s %d: the context is %s, the model says %s", op, i, got, m.now)
			}
		}
	})
}

// TestUndoHistoryOfNewestEvents: the newest events alone give no answer that the whole history does not give.
func TestUndoHistoryOfNewestEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{tb: t}
		h.seal(started(`{}`), nil)
		for i, op := range rapid.SliceOfN(rapid.SampledFrom([]string{"move", "move", "undo", "undo", "redo", "rollback", "refuse", "migrate"}), 1, 30).Draw(t, "ops") {
			line := h.line()
			switch op {
			case "move":
				h.seal(advanced(fmt.Sprint("go-", i), "b", `{}`), nil)
			case "undo":
				if last, ok := line.LastMove(); ok {
					h.back(record.Undone, last.Before)
				}
			case "redo":
				if undone, ok := line.LastUndone(); ok {
					h.back(record.Redone, undone.Event.Revision)
				}
			case "rollback":
				if r := rapid.Int64Range(1, h.last().Revision).Draw(t, "revision"); r >= line.MigratedAt() {
					h.back(record.RolledBack, r)
				}
			case "refuse":
				h.seal(refused("go", `{}`), nil)
			case "migrate":
				e := migrated("b")
				e.Version, e.Migration.FromVersion = h.last().Version+1, h.last().Version
				h.seal(e, nil)
			}
		}
		whole := h.line()
		from := rapid.IntRange(0, len(h.events)-1).Draw(t, "from")
		newest, err := record.ReadUndoHistory(each(h.events[from:]))
		if err != nil {
			t.Fatal(err)
		}
		same := func(what string, got, want record.Move, ok bool) {
			if ok && (got.Event.Hash != want.Event.Hash || got.Before != want.Before) {
				t.Fatalf("%s: %s of the newest, %s of all", what, got.Event.Action, want.Event.Action)
			}
		}
		got, ok := newest.LastMove()
		want, _ := whole.LastMove()
		same("the last move", got, want, ok)
		got, ok = newest.LastUndone()
		want, _ = whole.LastUndone()
		same("the last undone move", got, want, ok)
		if newest.IsIncomplete() || newest.MigratedAt() > 0 {
			return
		}
		for r := newest.FirstRevision(); r > 0 && r <= h.last().Revision; r++ {
			if got, want := actions(newest.MovesBetween(r)), actions(whole.MovesBetween(r)); !slices.Equal(got, want) {
				t.Fatalf("apart from %d: %v of the newest, %v of all", r, got, want)
			}
		}
	})
}

// actions returns the actions of moves, sorted.
func actions(moves []record.Move) (out []string) {
	for _, m := range moves {
		out = append(out, m.Event.Action)
	}
	slices.Sort(out)
	return out
}

// A line is held in memory, so of each move it keeps only the sources of its evidence.
func TestUndoHistoryHoldsLittle(t *testing.T) {
	h := &history{tb: t}
	h.seal(started(`{}`), nil)
	e := advanced("go", "b", `{"big":"x"}`)
	e.Decision.Reasoning = "at length"
	e.Decision.Evidence = []judge.Evidence{{Name: "n", Source: "s", Failure: judge.FailureArgument, Arguments: []byte(`"fetched"`)}}
	h.seal(e, nil)
	m, _ := h.line().LastMove()
	want := []judge.Evidence{{Name: "n", Source: "s", Failure: judge.FailureArgument}}
	if m.Event.Patch != nil || m.Event.Decision.Reasoning != "" || !reflect.DeepEqual(m.Event.Decision.Evidence, want) || len(m.Event.Body()) != 0 {
		t.Errorf("got %+v, %+v", m.Event, m.Event.Decision)
	}
}
