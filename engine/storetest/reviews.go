//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// ReviewID returns the id of the n-th review. Ids sort in creation order.
func ReviewID(n int) string { return fmt.Sprintf("rev-%08x-0000-7000-8000-%012x", n, n) }

// Review returns the n-th review, which is open and has a value in every field that an open review has.
func Review(n int, inst record.Instance) store.Review {
	r := store.Review{
		ID: ReviewID(n), Status: record.ReviewOpen, Instance: inst.ID, Workflow: inst.Workflow, Version: inst.Version,
		DefinitionHash: inst.DefinitionHash, Principal: "local:agent", Role: "agent", Action: "approve", From: "reviewing",
		Target: "approved", Revision: inst.Revision, Seq: inst.Seq, Digest: "hmac-sha256:" + hexOf(fmt.Sprint("review", n)),
		Priority: record.PriorityNormal, ParkedAt: Epoch, ExpiresAt: Epoch.Add(72 * time.Hour), OnExpire: "reject",
		Data: json.RawMessage(fmt.Sprintf("{ \"n\" : %d,\n \"s\":\"<zoë> & \u2028\", \"x\":1.50 }", n)), // not as an encoder would write it
	}
	decodeFixture(`[
		{
			"name": "tests", "source": "go-test", "required": true, "arguments": {"pkg":"./..."}, "digest": "sha256:c0", "sameDigest": "sha256:e0", "size": 17,
			"truncated": true, "content": {"exit":0,"out":"<ok> & \u003cdone\u003e é","n":1.50}, "tookMs": 1500, "maxAgeMs": 3600000
		},
		{"name": "ticket", "source": "jira", "failure": "timeout", "detail": "it took longer than 2s", "tookMs": 2000}
	]`, &r.Evidence)
	for i := range r.Evidence {
		r.Evidence[i].At = Epoch
	}
	return r
}

// endReview returns a review as stored after a person resolved it.
func endReview(r store.Review) store.Review {
	r.Status, r.Data, r.Resolution, r.By = record.ReviewResolved, nil, "approve", "human:zoë"
	r.Channel, r.Reason, r.ClosedAt = record.ChannelCLI, "the <tests> pass", Epoch.Add(time.Hour)
	return r
}

// commitReviews commits reviews with a new event of the instance.
func commitReviews(t *testing.T, s store.Store, id string, reviews ...store.Review) record.Instance {
	t.Helper()
	c := Refuse(t, loadInstance(t, s, id), "approve")
	c.Reviews = reviews
	return mustCommit(t, s, c)
}

func sameReview(t testing.TB, what string, got, want store.Review) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// wantReview fails the test unless the store returns exactly this review for its id, and lists it once.
func wantReview(t testing.TB, s store.Store, want store.Review) {
	t.Helper()
	got, err := store.FindReview(t.Context(), s, want.ID)
	if err != nil {
		t.Fatalf("review %s: %v", want.ID, err)
	}
	sameReview(t, "review "+want.ID, got, want)
	listed := 0
	for _, r := range listReviews(t, s, store.ReviewQuery{}) {
		if r.ID == want.ID {
			sameReview(t, "review "+want.ID+" in the list", r, want)
			listed++
		}
	}
	if listed != 1 {
		t.Fatalf("review %s is listed %d times", want.ID, listed)
	}
}

func noReview(t testing.TB, s store.Store, id string) {
	t.Helper()
	_, err := store.FindReview(t.Context(), s, id)
	wantError(t, "review "+id, err, store.ErrNotFound)
	for _, r := range listReviews(t, s, store.ReviewQuery{}) {
		if r.ID == id {
			t.Fatalf("review %s is listed and not found", id)
		}
	}
}

func testReviews(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	noReview(t, s, ReviewID(1))
	_, err := store.FindReview(t.Context(), s, "")
	wantError(t, "no id", err, store.ErrNotFound)

	first, second := Review(1, inst), Review(2, inst)
	commitReviews(t, s, ID(1), first, second)
	wantReview(t, s, first)
	wantReview(t, s, second)
	commitReviews(t, s, ID(1)) // a commit without reviews does not change them
	wantReview(t, s, first)
	noReview(t, s, ReviewID(3))

	bare := store.Review{ID: ReviewID(3), Status: record.ReviewOpen}
	c := Start(t, ID(2), `{}`)
	c.Reviews = []store.Review{bare}
	mustCommit(t, s, c)
	wantReview(t, s, bare)
}

// When a review is rewritten, nothing of its previous version remains, and it is no longer found by its previous
// values.
func reviewsAreReplaced(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	mustCommit(t, s, Start(t, ID(2), `{}`))
	was, neighbour := Review(2, inst), Review(1, inst)
	commitReviews(t, s, ID(1), was, neighbour)

	raised := was
	raised.Priority, raised.ExpiresAt, raised.OnExpire = record.PriorityUrgent, time.Time{}, ""
	wantReviews(t, s, store.ReviewQuery{}, []store.Review{neighbour, was})
	commitReviews(t, s, ID(1), raised)
	wantReview(t, s, raised)
	wantReviews(t, s, store.ReviewQuery{}, []store.Review{raised, neighbour}) // it moved to the front

	done := endReview(raised)
	commitReviews(t, s, ID(1), done)
	wantReview(t, s, done)

	other := done
	other.Instance, other.Workflow, other.Principal, other.Priority = ID(2), "form", "local:other", record.PriorityLow
	other.Evidence = nil
	commitReviews(t, s, ID(2), other)
	wantReview(t, s, other)
	wantReview(t, s, neighbour)
	for _, q := range []store.ReviewQuery{
		{Status: record.ReviewOpen},
		{Instance: ID(1)},
		{Workflow: inst.Workflow},
		{Principal: was.Principal},
		{Principal: was.Principal, Status: record.ReviewOpen},
	} {
		wantReviews(t, s, q, []store.Review{neighbour})
	}

	twice := []store.Review{Review(3, inst), endReview(Review(3, inst))}
	commitReviews(t, s, ID(1), twice...)
	wantReview(t, s, twice[1]) // the later one in a commit
}

// A commit that loses a race neither writes nor replaces a review.
func reviewsAreAtomic(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	inst = commitReviews(t, s, ID(1), Review(0, inst))
	const tries = 8
	commits := make([]store.Commit, tries)
	for i := range commits {
		commits[i] = Advance(t, inst, "reviewing", fmt.Sprintf(`{"n":%d}`, i))
		mine := Review(0, inst)
		mine.Reason = fmt.Sprint("by ", i)
		commits[i].Reviews = []store.Review{mine, Review(1+i, inst)}
	}
	winner := onlyOne(t, tries, store.ErrConflict, func(i int) error { return s.Commit(t.Context(), commits[i]) })
	for i := range tries {
		if i != winner {
			noReview(t, s, ReviewID(1+i))
		}
	}
	for _, r := range commits[winner].Reviews {
		wantReview(t, s, r)
	}
}

// A commit whose key is taken writes no review, whether or not it is a replay.
func reviewsOfAReplay(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	c := Refuse(t, inst, "approve", WithKey("k"))
	c.Reviews = []store.Review{Review(1, inst)}
	inst = mustCommit(t, s, c)
	done := endReview(Review(1, inst))
	inst = commitReviews(t, s, ID(1), done)
	wantError(t, "the same commit", s.Commit(t.Context(), c), store.ErrKeyTaken)
	wantReview(t, s, done) // not open again
	again := Refuse(t, inst, "approve", WithKey("k"))
	again.Reviews = []store.Review{Review(1, inst), Review(2, inst)}
	wantError(t, "the key with a fresh event", s.Commit(t.Context(), again), store.ErrKeyTaken)
	wantReview(t, s, done)
	noReview(t, s, ReviewID(2))
}

// A write that fails halfway, or that cannot be encoded, leaves the reviews unchanged.
func reviewsOfAFailedWrite(t *testing.T, d Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	was := Review(1, inst)
	inst = commitReviews(t, s, ID(1), was)

	torn := Review(2, inst)
	torn.Evidence[0].Content = json.RawMessage(`{"torn":`)
	c := Refuse(t, inst, "approve")
	c.Reviews = []store.Review{endReview(was), torn}
	err := s.Commit(t.Context(), c)
	if err == nil || errors.Is(err, store.ErrConflict) || !strings.Contains(err.Error(), torn.ID) {
		t.Errorf("evidence that is no JSON: got %v, want an error that names %s", err, torn.ID)
	}
	requireSame(t, "after a review that cannot be encoded", requireVerified(t, s, ID(1)), inst)
	wantReview(t, s, was)
	noReview(t, s, torn.ID)

	if d.Poison == nil {
		return
	}
	d.Poison(t, s, "poison")
	first := Advance(t, inst, "reviewing", `{}`)
	second := Refuse(t, first.Next, "poison")
	bad := store.Commit{
		Expect: inst.Seq, Events: []record.Event{first.Events[0], second.Events[0]}, Next: second.Next,
		Reviews: []store.Review{endReview(was), Review(3, inst)},
	}
	if err := s.Commit(t.Context(), bad); err == nil {
		t.Fatal("the poisoned write went through")
	}
	requireSame(t, "after a poisoned write", requireVerified(t, s, ID(1)), inst)
	wantReview(t, s, was)
	noReview(t, s, ReviewID(3))
}

func reviewsReopened(t *testing.T, s store.Store) func(store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	open, done := Review(1, inst), endReview(Review(2, inst))
	commitReviews(t, s, ID(1), open, Review(2, inst))
	commitReviews(t, s, ID(1), done)
	return func(s store.Store) {
		wantReview(t, s, open)
		wantReview(t, s, done)
		done = endReview(open)
		commitReviews(t, s, ID(1), done)
		wantReview(t, s, done)
	}
}

// A review opened by one process is found and resolved by another, and the first sees the result. If both resolve it
// concurrently, one gets an error.
func reviewsBeside(t *testing.T, d Driver, s store.Store) {
	other := d.Beside(t, s)
	defer closeStore(t, other)
	noReview(t, other, ReviewID(1))
	stores := []store.Store{s, other}
	mustCommit(t, s, Start(t, ID(1), `{}`))
	for n := range 10 {
		parked := Review(n, loadInstance(t, s, ID(1)))
		inst := commitReviews(t, stores[n%2], ID(1), parked)
		commits := make([]store.Commit, len(stores))
		for i, db := range stores {
			wantReview(t, db, parked)
			commits[i] = Refuse(t, inst, "approve", By(fmt.Sprint("human:", i)))
			mine := endReview(parked)
			mine.By = fmt.Sprint("human:", i)
			commits[i].Reviews = []store.Review{mine}
		}
		winner := onlyOne(t, len(stores), store.ErrConflict, func(i int) error { return stores[i].Commit(t.Context(), commits[i]) })
		for _, db := range stores {
			wantReview(t, db, commits[winner].Reviews[0])
			wantReviews(t, db, store.ReviewQuery{Status: record.ReviewOpen}, nil)
		}
	}
}

func reviewsNotShared(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	want, given := Review(1, inst), Review(1, inst)
	spoil := func(r store.Review) {
		clear(r.Data)
		for i := range r.Evidence {
			clear(r.Evidence[i].Arguments)
			clear(r.Evidence[i].Content)
			r.Evidence[i].Name = "spoilt"
		}
	}
	list := []store.Review{given}
	commitReviews(t, s, ID(1), list...)
	spoil(given)
	list[0].ID = "spoilt"
	wantReview(t, s, want) // after the caller changed what it passed
	got, err := store.FindReview(t.Context(), s, want.ID)
	wantNone(t, err)
	spoil(got)
	for _, r := range listReviews(t, s, store.ReviewQuery{}) {
		spoil(r)
	}
	wantReview(t, s, want) // after a reader changed what it received
}
