package storetest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Epoch is the time of the first event of every generated history.
var Epoch = time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)

// Change alters an event before it is sealed.
type Change func(*record.Event)

// WithKey gives an event an idempotency key with this name.
func WithKey(name string) Change {
	return func(e *record.Event) {
		e.Key = &record.Key{Scope: hexOf("scope " + name), Request: hexOf("request " + name)}
	}
}

// By sets the principal of an event.
func By(principal string) Change { return func(e *record.Event) { e.Principal = principal } }

func hexOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// ID returns the id of the n-th instance. Ids sort in creation order.
func ID(n int) string { return fmt.Sprintf("wf-%08x-0000-7000-8000-%012x", n, n) }

// Start returns the commit that starts an instance of workflow "doc" in state "draft".
func Start(tb testing.TB, id, data string, changes ...Change) store.Commit {
	tb.Helper()
	return Next(tb, record.Instance{}, record.Event{
		Kind: record.Started, Instance: id, Workflow: "doc", Version: 1, DefinitionHash: "sha256:" + hexOf("doc"),
		To: "draft", Patch: json.RawMessage(data), Decision: newDecision(true),
	}, changes...)
}

// Advance returns the commit that moves an instance to a state.
func Advance(tb testing.TB, prev record.Instance, to, data string, changes ...Change) store.Commit {
	tb.Helper()
	return Next(tb, prev, record.Event{
		Kind: record.Advanced, Action: "to-" + to, To: to, Patch: json.RawMessage(data), Decision: newDecision(true),
	}, changes...)
}

// Refuse returns the commit of a refused action.
func Refuse(tb testing.TB, prev record.Instance, action string, changes ...Change) store.Commit {
	tb.Helper()
	return Next(tb, prev, record.Event{Kind: record.Refused, Action: action, Decision: newDecision(false)}, changes...)
}

// Escalate returns the commit of a move that waits for a person.
func Escalate(tb testing.TB, prev record.Instance, action, review string, changes ...Change) store.Commit {
	tb.Helper()
	d := newDecision(false)
	d.Outcome, d.Proposed, d.Code = "escalate", "escalate", ""
	return Next(tb, prev, record.Event{Kind: record.Escalated, Action: action, Decision: d, Review: &record.Review{
		ID: review, Status: record.ReviewOpen, Digest: hexOf(review), Priority: record.PriorityHigh, ExpiresAt: Epoch.Add(time.Hour),
	}}, changes...)
}

// EndReview returns the commit that ends a review.
func EndReview(tb testing.TB, prev record.Instance, action string, r *record.Review, changes ...Change) store.Commit {
	tb.Helper()
	return Next(tb, prev, record.Event{Kind: record.Reviewed, Action: action, Review: r}, changes...)
}

// CheckpointOf returns the commit of a checkpoint, with its snapshot.
func CheckpointOf(tb testing.TB, prev record.Instance, changes ...Change) store.Commit {
	tb.Helper()
	c := Next(tb, prev, record.Event{Kind: record.Checkpointed, Checkpoint: &record.Checkpoint{
		ID: fmt.Sprint("cp-", prev.Seq), Description: "zoë's <checkpoint>", Metadata: json.RawMessage(`{"a":1.50}`),
	}}, changes...)
	c.Snapshot = true
	return c
}

// RollbackTo returns the commit that restores an earlier instance.
func RollbackTo(tb testing.TB, prev, then record.Instance) store.Commit {
	tb.Helper()
	e := record.Event{Kind: record.RolledBack, Rollback: &record.Rollback{CheckpointID: "cp", Restores: then.Revision}}
	return sealCommit(tb, prev, e, &then)
}

// MigrateTo returns the commit that pins another version.
func MigrateTo(tb testing.TB, prev record.Instance, version int, to string, changes ...Change) store.Commit {
	tb.Helper()
	return Next(tb, prev, record.Event{
		Kind: record.Migrated, Version: version, DefinitionHash: "sha256:" + hexOf(fmt.Sprint("version ", version)), To: to,
		Migration: &record.Migration{FromVersion: prev.Version, FromHash: prev.DefinitionHash},
	}, changes...)
}

// Next returns the commit of one event.
func Next(tb testing.TB, prev record.Instance, e record.Event, changes ...Change) store.Commit {
	tb.Helper()
	for _, change := range changes {
		change(&e)
	}
	return sealCommit(tb, prev, e, nil)
}

func sealCommit(tb testing.TB, prev record.Instance, e record.Event, restored *record.Instance) store.Commit {
	tb.Helper()
	if e.Time.IsZero() {
		e.Time = Epoch.Add(time.Duration(prev.Seq) * time.Second)
	}
	e.Principal = cmp.Or(e.Principal, "local:agent")
	e.Role = "agent"
	sealed, next, err := record.Seal(prev, e, restored)
	if err != nil {
		tb.Fatalf("seal: %v", err)
	}
	return store.Commit{Expect: prev.Seq, Events: []record.Event{sealed}, Next: next}
}

func newDecision(applied bool) *record.Decision {
	d := refusedFixture()
	if applied {
		d = approvedFixture()
	}
	d.Opinions, d.Findings, d.Data = slices.Clone(d.Opinions), slices.Clone(d.Findings), slices.Clone(d.Data)
	return &d
}

// Fixtures that are decoded only once, because benchmarks create many.
var (
	approvedFixture = sync.OnceValue(func() record.Decision { return decodeDecision("approve", true, "") })
	refusedFixture  = sync.OnceValue(func() record.Decision {
		return decodeDecision("reject", false,
			`"code": "required_field", "findings": [{"code": "required_field", "path": "/a", "message": "“a” is <missing>."}],`)
	})
)

func decodeDecision(outcome string, applied bool, refusal string) (d record.Decision) {
	decodeFixture(fmt.Sprintf(`{
		"id": "dec-1", "outcome": %q, "proposed": "approve", "applied": %t, %s
		"confidence": 1, "mode": "enforce", "decidedBy": "fields", "assurance": "structural",
		"opinions": [{"layer": "fields", "outcome": %[1]q, "confidence": 1, "tookMs": 0.001}],
		"data": {"n":1}, "tookMs": 1, "rubric": {
			"enabled": true, "minConfidence": 0.8, "mode": "enforce", "onJudgeUnavailable": "structural", "requireAssurance": "none"
		}
	}`, outcome, applied, refusal), &d)
	return d
}

// decodeFixture decodes values of the judge's types from JSON, as a store does. Like the drivers, the suite imports
// only the packages of stores and records.
func decodeFixture(doc string, into any) {
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		panic(err) // the suite's own text
	}
}

// namesOf returns names in the type of its first argument.
func namesOf[T ~string](_ T, names ...T) []T { return names }

func mustCommit(t testing.TB, s store.Store, c store.Commit) record.Instance {
	t.Helper()
	if err := s.Commit(t.Context(), c); err != nil {
		t.Fatalf("commit event %d of %s: %v", c.Next.Seq, c.Next.ID, err)
	}
	return c.Next
}

func startMany(t testing.TB, s store.Store, n int) []record.Instance {
	t.Helper()
	insts := make([]record.Instance, n)
	for i := range insts {
		insts[i] = mustCommit(t, s, Start(t, ID(i), `{}`))
	}
	return insts
}

// commitAll commits in order. It may be called from any goroutine.
func commitAll(t testing.TB, s store.Store, commits []store.Commit) {
	for _, c := range commits {
		if err := s.Commit(t.Context(), c); err != nil {
			t.Errorf("commit event %d of %s: %v", c.Next.Seq, c.Next.ID, err)
			return
		}
	}
}

// growInstance starts an instance and adds n refusals and moves.
func growInstance(t testing.TB, s store.Store, id string, n int) record.Instance {
	t.Helper()
	inst := mustCommit(t, s, Start(t, id, `{"title":"a"}`))
	for i := range n {
		switch i % 3 {
		case 0:
			inst = mustCommit(t, s, Refuse(t, inst, "submit"))
		case 1:
			inst = mustCommit(t, s, Advance(t, inst, "reviewing", fmt.Sprintf(`{"n":%d}`, i)))
		case 2:
			inst = mustCommit(t, s, Advance(t, inst, "draft", `{"title":null,"n":1.50}`))
		}
	}
	return inst
}

// outlives returns a test whose check must hold after the store was closed and reopened.
func outlives(write func(t *testing.T, s store.Store) (check func(s store.Store))) func(*testing.T, Driver, store.Store) {
	return func(t *testing.T, d Driver, s store.Store) {
		check := write(t, s)
		closeStore(t, s)
		again := d.Reopen(t, s)
		defer closeStore(t, again)
		check(again)
	}
}

func closeStore(t testing.TB, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func loadInstance(t testing.TB, s store.Store, id string) record.Instance {
	t.Helper()
	inst, err := s.Load(t.Context(), id)
	if err != nil {
		t.Fatalf("load %s: %v", id, err)
	}
	return inst
}

func collect[T any](t testing.TB, list iter.Seq2[T, error]) (all []T) {
	t.Helper()
	for row, err := range list {
		wantNone(t, err)
		all = append(all, row)
	}
	return all
}

func listInstances(t testing.TB, s store.Store, q store.InstanceQuery) []record.Instance {
	t.Helper()
	return collect(t, s.Instances(t.Context(), q))
}

func listEvents(t testing.TB, s store.Store, q store.EventQuery) []record.Event {
	t.Helper()
	return collect(t, s.Events(t.Context(), q))
}

// requireVerified fails the test unless the instance's history verifies and folds to the loaded instance.
func requireVerified(t testing.TB, s store.Store, id string) record.Instance {
	t.Helper()
	inst := loadInstance(t, s, id)
	events := s.Events(t.Context(), store.EventQuery{Instance: id})
	if err := record.Verify(events); err != nil {
		t.Fatalf("verify %s: %v", id, err)
	}
	folded, err := record.FoldAt(events, 0)
	if err != nil {
		t.Fatalf("fold %s: %v", id, err)
	}
	requireSame(t, "the fold of "+id, folded, inst)
	return inst
}

func requireSame(t testing.TB, what string, got, want record.Instance) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func sameEvent(t testing.TB, got, want record.Event) {
	t.Helper()
	if string(got.Body()) != string(want.Body()) || got.Hash != want.Hash || got.PrevHash != want.PrevHash {
		t.Fatalf("event %d:\n got %s %s %s\nwant %s %s %s", want.Seq,
			got.Body(), got.PrevHash, got.Hash, want.Body(), want.PrevHash, want.Hash)
	}
}

func wantNone(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected: %v", err)
	}
}

func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

// isContextEnd reports whether an error is the caller's own cancellation.
func isContextEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
