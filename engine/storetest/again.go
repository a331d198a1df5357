//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// iteratorsBeginAnew ranges over each iterator of a store twice, after a partial pass that stops in the second page.
// Each time it must start from the beginning.
func iteratorsBeginAnew(t *testing.T, _ Driver, s store.Store) {
	const many = 150 // more than the two pages that an interrupted pass has seen, in any driver
	growInstance(t, s, ID(0), many)
	for i := range many {
		c := Start(t, ID(i+1), `{}`)
		c.Reviews = []store.Review{Review(i, c.Next)}
		mustCommit(t, s, c)
		wantNone(t, s.AddDeadLetter(t.Context(), newDeadLetter("a", int64(i+1)), nil))
		wantNone(t, s.PutDataKey(t.Context(), store.DataKey{Instance: ID(i), Number: 1, Wrapped: []byte{1}, Under: "kek", MadeAt: Epoch}, nil))
	}
	for n := range int64(5) {
		wantNone(t, s.AddAnchor(t.Context(), newAnchor(n+1)))
	}
	ctx := t.Context()
	rangeAgain(t, "events", s.Events(ctx, store.EventQuery{Instance: ID(0)}), func(e record.Event) any { return e.Seq })
	rangeAgain(t, "events of a limit", s.Events(ctx, store.EventQuery{Instance: ID(0), Limit: 100}), func(e record.Event) any { return e.Seq })
	rangeAgain(t, "instances", s.Instances(ctx, store.InstanceQuery{}), func(i record.Instance) any { return i.ID })
	rangeAgain(t, "heads", s.Instances(ctx, store.InstanceQuery{Heads: true}), func(i record.Instance) any { return i.ID })
	rangeAgain(t, "reviews", s.Reviews(ctx, store.ReviewQuery{}), func(r store.Review) any { return r.ID })
	rangeAgain(t, "decisions", s.Decisions(ctx, store.DecisionQuery{}), func(p store.PlacedEvent) any { return p.Position })
	rangeAgain(t, "decisions of a word", s.Decisions(ctx, store.DecisionQuery{Workflow: "doc"}), func(p store.PlacedEvent) any { return p.Position })
	rangeAgain(t, "events after a position", s.EventsAfter(ctx, store.TailQuery{After: 3}), func(p store.PlacedEvent) any { return p.Position })
	rangeAgain(t, "anchors", s.Anchors(ctx, 1), func(a store.Anchor) any { return a.Number })
	rangeAgain(t, "the last anchor", s.Anchors(ctx, store.LastAnchor), func(a store.Anchor) any { return a.Number })
	rangeAgain(t, "dead letters", s.DeadLetters(ctx, "a"), func(l store.DeadLetter) any { return l.Position })
	rangeAgain(t, "data keys", s.DataKeys(ctx, "", 0), func(k store.DataKey) any { return k.Instance })
	count := func(all iter.Seq2[store.Figures, error]) (n int64) {
		for f, err := range all {
			wantNone(t, err)
			n += f.Decisions
		}
		return n
	}
	figures := s.Figures(ctx, store.DecisionQuery{})
	if first, second := count(figures), count(figures); first != second || first == 0 {
		t.Errorf("figures of %d decisions, and then of %d", first, second)
	}
}

func rangeAgain[T any](t *testing.T, what string, all iter.Seq2[T, error], name func(T) any) {
	t.Helper()
	list := func(most int) (found []string) {
		for row, err := range all {
			wantNone(t, err)
			if found = append(found, fmt.Sprint(name(row))); len(found) == most {
				break
			}
		}
		return found
	}
	first := list(0)
	part := min(len(first), 130)
	if got := list(part); part == 0 || !slices.Equal(got, first[:part]) {
		t.Errorf("%s: the second time begins with %v, the first with %v", what, got[:min(3, len(got))], first[:min(3, len(first))])
	}
	if got := list(0); !slices.Equal(got, first) {
		t.Errorf("%s: %d the third time, from %v; %d the first, from %v", what, len(got), got[:min(3, len(got))], len(first), first[:min(3, len(first))])
	}
}
