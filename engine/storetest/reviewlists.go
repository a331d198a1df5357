//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

func listReviews(t testing.TB, s store.Store, q store.ReviewQuery) []store.Review {
	t.Helper()
	return collect(t, s.Reviews(t.Context(), q))
}

func wantReviews(t testing.TB, s store.Store, q store.ReviewQuery, want []store.Review) {
	t.Helper()
	if got := listReviews(t, s, q); !reflect.DeepEqual(got, want) {
		t.Fatalf("reviews %+v after %+v:\n got %v\nwant %v (or they differ)", q, q.After, reviewIDs(got), reviewIDs(want))
	}
}

func reviewIDs(reviews []store.Review) []string {
	out := make([]string, len(reviews))
	for i, r := range reviews {
		out[i] = fmt.Sprintf("%s %s", r.ID, r.Priority)
	}
	return out
}

func cursorOf(r store.Review) *store.ReviewCursor {
	return &store.ReviewCursor{Rank: r.Priority.Rank(), ID: r.ID}
}

func inListOrder(a, b store.Review) int {
	if d := b.Priority.Rank() - a.Priority.Rank(); d != 0 {
		return d
	}
	return strings.Compare(a.ID, b.ID)
}

// matchingReviews returns the reviews that a query must yield.
func matchingReviews(all []store.Review, q store.ReviewQuery) []store.Review {
	var out []store.Review
	for _, r := range slices.SortedFunc(slices.Values(all), inListOrder) {
		behind := q.After == nil || r.Priority.Rank() < q.After.Rank || r.Priority.Rank() == q.After.Rank && r.ID > q.After.ID
		if behind && (q.Instance == "" || r.Instance == q.Instance) && (q.Workflow == "" || r.Workflow == q.Workflow) &&
			(q.Principal == "" || r.Principal == q.Principal) && (q.Status == "" || r.Status == q.Status) &&
			(q.Limit == 0 || len(out) < q.Limit) {
			out = append(out, r)
		}
	}
	return out
}

// newMixedReviews returns n reviews that differ in every field that can be queried, in the order of their creation.
func newMixedReviews(n int, inst record.Instance) []store.Review {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same every time
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	out := make([]store.Review, n)
	for i := range out {
		r := Review(i, inst)
		r.Priority = record.Priority(pick("low", "normal", "high", "urgent", "", "strange")) // the last two count as normal
		r.Status = record.ReviewStatus(pick("open", "open", "resolved", "stale", "expired", "superseded"))
		r.Instance, r.Workflow, r.Principal = pick(ID(1), ID(2), ID(3)), pick("doc", "form"), pick("local:a", "local:b")
		if r.Status != record.ReviewOpen {
			r.Data = nil
		}
		out[i] = r
	}
	return out
}

// Every combination of filters, from every kind of cursor, must yield the matching reviews in list order.
func reviewsQuery(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	wantReviews(t, s, store.ReviewQuery{}, nil)
	all := newMixedReviews(200, inst)
	shuffled := slices.Clone(all)
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(all), func(i, j int) { //nolint:gosec // the same every time
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	})
	for some := range slices.Chunk(shuffled, 23) { // listed by id, not in write order
		commitReviews(t, s, ID(1), some...)
	}
	inOrder := matchingReviews(all, store.ReviewQuery{})
	places := []*store.ReviewCursor{nil}
	for _, r := range []int{0, 70, 120, len(all) - 1} {
		places = append(places, cursorOf(inOrder[r]))
	}
	for rank := -1; rank <= 4; rank++ { // between reviews, and before and after all of them
		places = append(places, &store.ReviewCursor{Rank: rank}, &store.ReviewCursor{Rank: rank, ID: "zzz"})
	}
	places = append(places, &store.ReviewCursor{Rank: 1, ID: ReviewID(100) + "-"})
	n := 0
	for _, instance := range []string{"", ID(2)} {
		for _, workflow := range []string{"", "form"} {
			for _, principal := range []string{"", "local:b"} {
				for _, status := range []record.ReviewStatus{"", record.ReviewOpen, record.ReviewStale} {
					for _, after := range places {
						for _, limit := range []int{0, 1, 9} {
							if n++; !Long() && n%7 != 0 { // coprime to the number of values of each filter
								continue
							}
							q := store.ReviewQuery{
								Instance: instance, Workflow: workflow, Principal: principal, Status: status, After: after, Limit: limit,
							}
							wantReviews(t, s, q, matchingReviews(all, q))
						}
					}
				}
			}
		}
	}
	wantReviews(t, s, store.ReviewQuery{Limit: 1000}, inOrder)
	for _, q := range []store.ReviewQuery{{Instance: ID(99)}, {Workflow: "none"}, {Principal: "none"}, {Status: "none"}} {
		wantReviews(t, s, q, nil)
	}
}

// A list shows one state, whatever happens to its reviews during the iteration. It must not block writes or nested
// lists.
func reviewsUnderWrites(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	all := newMixedReviews(150, inst) // more than any page
	commitReviews(t, s, ID(1), all...)
	q := store.ReviewQuery{Status: record.ReviewOpen}
	want := matchingReviews(all, q)
	var got []store.Review
	for r, err := range s.Reviews(t.Context(), q) {
		wantNone(t, err)
		if got = append(got, r); len(got)%20 == 1 {
			first, last := Review(1000+len(got), inst), want[len(want)-1]
			first.Priority, last.Priority = record.PriorityUrgent, record.PriorityUrgent
			commitReviews(t, s, ID(1), first, last, endReview(want[len(want)/2]), endReview(r)) // new, reordered and ended reviews
			nestLists(t, 40, func() iter.Seq2[store.Review, error] { return s.Reviews(t.Context(), store.ReviewQuery{}) })
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant the reviews from the start: %v (or they differ)", reviewIDs(got), reviewIDs(want))
	}
	if now := listReviews(t, s, q); reflect.DeepEqual(now, want) {
		t.Error("nothing was written during the list")
	}
}

// A list ends with an error soon after its caller cancelled, so that it does not look complete.
func reviewsCancelled(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	all := newMixedReviews(150, inst)
	commitReviews(t, s, ID(1), all...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	given, told := 0, 0
	for _, err := range s.Reviews(ctx, store.ReviewQuery{}) {
		cancel()
		if err != nil {
			wantError(t, "the list", err, context.Canceled)
			told++
			continue
		}
		given++
	}
	if told != 1 || given == 0 || given == len(all) {
		t.Errorf("gave %d of %d and %d errors about the cancellation", given, len(all), told)
	}
}

// A client that continues after the last review it saw reaches each review that was present all along, once and in
// order, even if others are added before and after.
func reviewsWalk(t *testing.T, _ Driver, s store.Store) {
	mustCommit(t, s, Start(t, ID(1), `{}`))
	inst := mustCommit(t, s, Start(t, ID(2), `{}`))
	all := newMixedReviews(100, inst)
	for i := range all { // every second id, so that new reviews fall in between
		all[i].ID = ReviewID(2 * i)
	}
	commitReviews(t, s, ID(2), all...)
	for _, q := range []store.ReviewQuery{
		{Limit: 7}, {Limit: 1, Principal: "local:a"}, {Limit: 3, Status: record.ReviewOpen}, {Limit: 3, Instance: ID(2), Workflow: "doc"},
	} {
		want := matchingReviews(all, store.ReviewQuery{
			Instance: q.Instance, Workflow: q.Workflow, Principal: q.Principal, Status: q.Status,
		})
		steps := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			inst := loadInstance(t, s, ID(1))
			come := newMixedReviews(100, inst)
			for range steps { // as long as the walk continues
				i := int(inst.Seq) % len(come)
				c := Refuse(t, inst, "approve")
				come[i].ID = ReviewID(2*i + 1)
				c.Reviews = come[i : i+1]
				if err := s.Commit(t.Context(), c); err != nil {
					t.Errorf("during the walk: %v", err)
				}
				inst = c.Next
			}
		})
		got := listPages(t, s, q, func() { steps <- struct{}{} })
		close(steps)
		wg.Wait()
		if !slices.IsSortedFunc(got, inListOrder) {
			t.Errorf("%+v: not in order: %v", q, reviewIDs(got))
		}
		old := slices.DeleteFunc(slices.Clone(got), func(r store.Review) bool {
			return !slices.ContainsFunc(all, func(a store.Review) bool { return a.ID == r.ID })
		})
		if !reflect.DeepEqual(old, want) {
			t.Errorf("%+v:\n got %v\nwant %v", q, reviewIDs(old), reviewIDs(want))
		}
		q.Limit = 0
		if rest := listReviews(t, s, q); len(rest) <= len(want) {
			t.Errorf("%+v: nothing was added during the walk", q)
		}
	}
}

// listPages lists page by page, each after the last review of the previous page.
func listPages(t *testing.T, s store.Store, q store.ReviewQuery, between func()) (got []store.Review) {
	for {
		page := listReviews(t, s, q)
		if len(page) == 0 {
			return got
		}
		if len(page) > q.Limit {
			t.Fatalf("%d reviews in a page of %d", len(page), q.Limit)
		}
		if got = append(got, page...); len(got) > 10000 {
			t.Fatal("the walk does not end")
		}
		q.After = cursorOf(page[len(page)-1])
		between()
	}
}
