//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Call returns the commit that begins a call of a gate.
func Call(tb testing.TB, prev record.Instance, id, gate string, changes ...Change) store.Commit {
	tb.Helper()
	return Next(tb, prev, record.Event{Kind: record.Called, Call: &record.Call{
		ID: id, Gate: gate, Upstream: "prod", Tool: "deploy", Pin: hexOf("pin"), Arguments: hexOf("arguments"), Deadline: Epoch.Add(time.Hour),
		Success: "succeed", Error: "fail",
	}}, changes...)
}

// Settle returns the commit that records how a call ended; r is the review that this opens or ends.
func Settle(tb testing.TB, prev record.Instance, id, gate string, how record.CallOutcome, r *record.Review) store.Commit {
	tb.Helper()
	return Next(tb, prev, record.Event{Kind: record.Settled, Review: r, Call: &record.Call{ID: id, Gate: gate, Outcome: how, Result: hexOf("result")}})
}

func testCalls(t *testing.T, _ Driver, s store.Store) {
	var at [5]record.Instance
	for i := range at {
		at[i] = mustCommit(t, s, Start(t, ID(i), `{}`))
	}
	open := func(want ...int) {
		t.Helper()
		var got []record.Instance
		for inst, err := range s.Instances(t.Context(), store.InstanceQuery{OpenCalls: true, Workflow: "doc", Status: record.Running}) {
			wantNone(t, err)
			got = append(got, inst)
		}
		if len(got) != len(want) {
			t.Fatalf("%d instances have open calls, want %v", len(got), want)
		}
		for i, n := range want {
			requireSame(t, "with an open call", got[i], at[n])
		}
	}
	open()
	for _, i := range []int{1, 3} {
		at[i] = mustCommit(t, s, Call(t, at[i], "call-1", "prod__deploy"))
	}
	open(3, 1)
	at[3] = mustCommit(t, s, Call(t, at[3], "call-2", "prod__notify"))
	at[3] = mustCommit(t, s, Settle(t, at[3], "call-1", "prod__deploy", record.CallOK, nil))
	open(3, 1)
	at[3] = mustCommit(t, s, Settle(t, at[3], "call-2", "prod__notify", record.CallError, nil))
	unknown := &record.Review{ID: "rev-1", Status: record.ReviewOpen, Digest: hexOf("rev-1")}
	at[1] = mustCommit(t, s, Settle(t, at[1], "call-1", "prod__deploy", record.CallUnknown, unknown))
	open(1) // until a person reports what happened
	at[1] = mustCommit(t, s, Advance(t, at[1], "reviewing", `{}`))
	open(1)
	requireSame(t, "loaded", requireVerified(t, s, ID(1)), at[1])
	at[1] = mustCommit(t, s, Settle(t, at[1], "call-1", "prod__deploy", record.CallNotSent, &record.Review{
		ID: "rev-1", Status: record.ReviewResolved, Resolution: "reject", By: "local:cli", Reason: "The log shows none.",
	}))
	open()
	requireSame(t, "loaded", requireVerified(t, s, ID(1)), at[1])
}

func callsReopened(t *testing.T, s store.Store) func(store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`, func(e *record.Event) { e.Subject = "release 7" }))
	inst = mustCommit(t, s, Call(t, inst, "call-1", "prod__deploy"))
	return func(s store.Store) {
		for _, q := range []store.InstanceQuery{{OpenCalls: true}, {Workflow: "doc", Subject: "release 7"}} {
			got, err := store.First(s.Instances(t.Context(), q), "an instance")
			wantNone(t, err)
			requireSame(t, "reopened", got, inst)
		}
	}
}

func testSubjects(t *testing.T, _ Driver, s store.Store) {
	about := func(subject string) Change { return func(e *record.Event) { e.Subject = subject } }
	first := mustCommit(t, s, Start(t, ID(1), `{}`, about("release 7")))
	requireSame(t, "loaded", requireVerified(t, s, ID(1)), first)
	wantError(t, "a second instance", s.Commit(t.Context(), Start(t, ID(2), `{}`, about("release 7"))), store.ErrSubjectTaken)
	_, err := s.Load(t.Context(), ID(2))
	wantError(t, "the second instance", err, store.ErrNotFound)
	mustCommit(t, s, Start(t, ID(3), `{}`, about("release 8")))
	mustCommit(t, s, Start(t, ID(4), `{}`, about("release 7"), func(e *record.Event) { e.Workflow = "form" }))
	first = mustCommit(t, s, Advance(t, first, "done", `{}`)) // it keeps the subject
	got, err := store.First(s.Instances(t.Context(), store.InstanceQuery{Workflow: "doc", Subject: "release 7"}), "an instance")
	wantNone(t, err)
	requireSame(t, "found", got, first)
	first = mustCommit(t, s, Next(t, first, record.Event{Kind: record.Released}))
	requireSame(t, "released", requireVerified(t, s, ID(1)), first)
	second := mustCommit(t, s, Start(t, ID(5), `{}`, about("release 7")))
	requireSame(t, "started again", requireVerified(t, s, ID(5)), second)
}

// testStops checks that the results of an agent's attempts to stop are stored.
func testStops(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	stop := func(e *record.Event) {
		e.Decision.Code, e.Decision.Data = "not_finished", record.NewStopData("a session")
	}
	for n := 1; n <= 2; n++ {
		inst = mustCommit(t, s, Refuse(t, inst, "", stop))
		if got := requireVerified(t, s, ID(1)); got.Facts.Stops.CountIn("a session") != n || got.Facts.Stops.Refused != n {
			t.Fatalf("%d stops are counted as %+v", n, got.Facts.Stops)
		}
	}
	c := Escalate(t, inst, "", ReviewID(1), stop)
	row := store.Review{ID: ReviewID(1), Status: record.ReviewOpen, Instance: inst.ID, Workflow: inst.Workflow, Seq: inst.Seq + 1}
	c.Reviews = []store.Review{row}
	inst = mustCommit(t, s, c)
	wantReview(t, s, row)
	if row, err := store.FindReview(t.Context(), s, row.ID); err != nil || !row.IsStop() {
		t.Fatalf("the review is of no stop: %+v, %v", row, err)
	}
	inst = mustCommit(t, s, EndReview(t, inst, "", &record.Review{ID: ReviewID(1), Status: record.ReviewResolved, Resolution: "approve", By: "local:cli"}))
	got := requireVerified(t, s, ID(1))
	requireSame(t, "accepted", got, inst)
	if !got.Facts.Stops.Accepted {
		t.Fatalf("accepted, and the facts are %+v", got.Facts)
	}
	inst = mustCommit(t, s, Advance(t, inst, "reviewing", `{}`))
	requireSame(t, "moved", requireVerified(t, s, ID(1)), inst)
}
