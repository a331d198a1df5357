//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

func eventsQuery(t *testing.T, _ Driver, s store.Store) {
	last := growInstance(t, s, ID(1), 150) // more than any page
	growInstance(t, s, ID(2), 5)           // a neighbour that must not appear
	all := listEvents(t, s, store.EventQuery{Instance: ID(1)})
	if len(all) != 151 {
		t.Fatalf("%d events, want 151", len(all))
	}
	kinds := []record.Kind{record.Refused, record.Started}
	tests := map[string]struct {
		q    store.EventQuery
		keep func(record.Event) bool
	}{
		"everything":               {store.EventQuery{}, func(record.Event) bool { return true }},
		"after one":                {store.EventQuery{AfterSeq: 100}, func(e record.Event) bool { return e.Seq > 100 }},
		"after the last":           {store.EventQuery{AfterSeq: last.Seq}, func(record.Event) bool { return false }},
		"up to a revision":         {store.EventQuery{MaxRevision: 5}, func(e record.Event) bool { return e.Revision <= 5 }},
		"up to a later revision":   {store.EventQuery{MaxRevision: 1 << 40}, func(record.Event) bool { return true }},
		"of kinds":                 {store.EventQuery{Kinds: kinds}, func(e record.Event) bool { return slices.Contains(kinds, e.Kind) }},
		"limited":                  {store.EventQuery{Limit: 7}, func(e record.Event) bool { return e.Seq <= 7 }},
		"limited beyond a page":    {store.EventQuery{Limit: 130}, func(e record.Event) bool { return e.Seq <= 130 }},
		"after one, of kinds, two": {store.EventQuery{AfterSeq: 2, Kinds: kinds, Limit: 2}, func(e record.Event) bool { return e.Seq == 5 || e.Seq == 8 }},
	}
	for name, tt := range tests {
		tt.q.Instance = ID(1)
		var want, got []int64
		for _, e := range all {
			if tt.keep(e) {
				want = append(want, e.Seq)
			}
		}
		for _, e := range listEvents(t, s, tt.q) {
			got = append(got, e.Seq)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func eventsUnderWrites(t *testing.T, _ Driver, s store.Store) {
	inst := growInstance(t, s, ID(1), 200)
	before := inst.Seq
	// Writes and reads inside the loop must neither block nor disturb it, even with more open iterators than a pool
	// has connections.
	seen := int64(0)
	for e, err := range s.Events(t.Context(), store.EventQuery{Instance: ID(1)}) {
		wantNone(t, err)
		if e.Seq != seen+1 {
			t.Fatalf("event %d after %d", e.Seq, seen)
		}
		seen = e.Seq
		if seen%50 == 0 {
			inst = mustCommit(t, s, Refuse(t, inst, "submit"))
			nestLists(t, 40, func() iter.Seq2[record.Event, error] { return s.Events(t.Context(), store.EventQuery{Instance: ID(1)}) })
		}
	}
	if seen < before {
		t.Errorf("the iterator ended at event %d, %d were there at its start", seen, before)
	}
	rest := listEvents(t, s, store.EventQuery{Instance: ID(1), AfterSeq: seen})
	if int64(len(rest)) != inst.Seq-seen {
		t.Errorf("going on from %d gave %d events, want %d", seen, len(rest), inst.Seq-seen)
	}
	requireVerified(t, s, ID(1))
}

// nestLists reads lists nested in each other, and abandons each after its first row.
func nestLists[T any](t *testing.T, depth int, list func() iter.Seq2[T, error]) {
	for _, err := range list() {
		wantNone(t, err)
		if depth > 0 {
			nestLists(t, depth-1, list)
		}
		return
	}
}

func instancesQuery(t *testing.T, _ Driver, s store.Store) {
	var all []record.Instance
	for i := range 150 {
		inst := mustCommit(t, s, Start(t, ID(i), `{"n":1}`, By([]string{"local:a", "local:b", "local:c"}[i%3]), func(e *record.Event) {
			e.Workflow = []string{"doc", "form"}[i%2]
		}))
		if i%4 == 0 {
			inst = mustCommit(t, s, Advance(t, inst, "done", `{}`, By("local:x"), func(e *record.Event) { e.Status = record.Complete }))
		}
		all = append(all, inst)
	}
	slices.Reverse(all) // newest first
	queries := []store.InstanceQuery{
		{},
		{Limit: 1},
		{Limit: 130},
		{Limit: 1000},
		{Workflow: "form"},
		{Workflow: "none"},
		{State: "done"},
		{Status: record.Running},
		{Owner: "local:b"},
		{Workflow: "doc", State: "draft", Status: record.Running, Owner: "local:c"},
		{BeforeID: ID(77)},
		{BeforeID: ID(77), Workflow: "doc", Limit: 9},
		{BeforeID: ID(0)},
		{BeforeID: "zzz", Limit: 3},
	}
	for _, q := range queries {
		var want []record.Instance
		for _, i := range all {
			if (q.Workflow == "" || i.Workflow == q.Workflow) && (q.State == "" || i.State == q.State) &&
				(q.Status == "" || i.Status == q.Status) && (q.Owner == "" || i.Owner == q.Owner) &&
				(q.BeforeID == "" || i.ID < q.BeforeID) && (q.Limit == 0 || len(want) < q.Limit) {
				want = append(want, i)
			}
		}
		if got := listInstances(t, s, q); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: got %d instances, want %d (or they differ)", q, len(got), len(want))
		}
	}
}

func instancesUnderWrites(t *testing.T, _ Driver, s store.Store) {
	const n = 150
	startMany(t, s, n)
	seen := map[string]bool{}
	added := n
	for inst, err := range s.Instances(t.Context(), store.InstanceQuery{}) {
		wantNone(t, err)
		if seen[inst.ID] {
			t.Fatalf("%s twice", inst.ID)
		}
		seen[inst.ID] = true
		if len(seen)%10 == 0 {
			mustCommit(t, s, Start(t, ID(added), `{}`))
			added++
			mustCommit(t, s, Refuse(t, loadInstance(t, s, inst.ID), "submit"))
		}
	}
	for i := range n {
		if !seen[ID(i)] {
			t.Errorf("%s was there all the time and did not show", ID(i))
		}
	}
}

func newDefinition(name string, version int) store.Definition {
	return store.Definition{
		Name: name, Version: version, Hash: "sha256:" + hexOf(fmt.Sprint(name, version)),
		Document: json.RawMessage(fmt.Sprintf(`{"name":%q,"comment":"<é> %d","n":1.50}`, name, version)),
		Owner:    "local:cli", Operator: version%2 == 1, CreatedAt: Epoch,
	}
}

func sameDefinition(t testing.TB, s store.Store, version int, want store.Definition) {
	t.Helper()
	got, err := s.Definition(t.Context(), "doc", version)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("version %d: got %+v, %v, want %+v", version, got, err, want)
	}
}

func testDefinitions(t *testing.T, _ Driver, s store.Store) {
	ctx := t.Context()
	for _, d := range []store.Definition{newDefinition("form", 1), newDefinition("doc", 1), newDefinition("doc", 2), newDefinition("doc", 3)} {
		wantNone(t, s.AddRule(ctx, ofDefinition(d)))
	}
	for _, version := range []int{0, 1, 3, 5} {
		wantError(t, fmt.Sprintf("doc version %d", version), s.AddRule(ctx, ofDefinition(newDefinition("doc", version))), store.ErrConflict)
	}
	wantError(t, "version 2 of a new name", s.AddRule(ctx, ofDefinition(newDefinition("new", 2))), store.ErrConflict)
	sameDefinition(t, s, 1, newDefinition("doc", 1))
	sameDefinition(t, s, 2, newDefinition("doc", 2))
	sameDefinition(t, s, 0, newDefinition("doc", 3))
	_, err := s.Definition(ctx, "doc", 4)
	wantError(t, "doc version 4", err, store.ErrNotFound)
	all, err := s.Definitions(ctx)
	want := []store.Definition{newDefinition("doc", 3), newDefinition("form", 1)}
	for i := range want {
		want[i].Document = nil
	}
	if err != nil || !reflect.DeepEqual(all, want) {
		t.Errorf("definitions: got %+v, %v, want %+v", all, err, want)
	}
	sameDefinition(t, s, 3, newDefinition("doc", 3))
}

func definitionsRace(t *testing.T, _ Driver, s store.Store) {
	raceVersions(t, func(version, by int) error {
		d := newDefinition("doc", version)
		d.Owner = fmt.Sprint("local:", by)
		return s.AddRule(t.Context(), ofDefinition(d))
	}, func(version int) string {
		d, err := s.Definition(t.Context(), "doc", 0)
		if err != nil || d.Version != version {
			t.Errorf("the newest is %d, %v, want %d", d.Version, err, version)
		}
		return d.Owner
	})
}

func judgeConfig(name string, revision int) store.JudgeConfig {
	c := store.JudgeConfig{
		Workflow: name, Revision: revision, Principal: "local:agent", Role: "agent", Scope: "local:agent",
		Hash: "sha256:" + hexOf(fmt.Sprint(name, revision)), At: Epoch,
	}
	decodeFixture(fmt.Sprintf(`{"strictMode": %t, "minConfidence": %g, "criteria": ["<é>"]}`, revision%2 == 1, 0.25*float64(revision%4)), &c.Settings)
	return c
}

func judgeConfigs(t *testing.T, _ Driver, s store.Store) {
	ctx := t.Context()
	for _, c := range []store.JudgeConfig{judgeConfig("form", 1), judgeConfig("doc", 1), judgeConfig("doc", 2)} {
		wantNone(t, s.AddRule(ctx, ofConfig(c)))
	}
	for _, revision := range []int{0, 1, 2, 4} {
		wantError(t, fmt.Sprintf("revision %d", revision), s.AddRule(ctx, ofConfig(judgeConfig("doc", revision))), store.ErrConflict)
	}
	for range 2 {
		all, err := s.JudgeConfigs(ctx, "doc")
		if want := []store.JudgeConfig{judgeConfig("doc", 1), judgeConfig("doc", 2)}; err != nil || !reflect.DeepEqual(all, want) {
			t.Fatalf("got %+v, %v, want %+v", all, err, want)
		}
		*all[0].Settings.StrictMode = false // a reader's copy is its own
		clear(all[0].Settings.Criteria)
	}
}

func judgeConfigsRace(t *testing.T, _ Driver, s store.Store) {
	raceVersions(t, func(revision, by int) error {
		c := judgeConfig("doc", revision)
		c.Principal = fmt.Sprint("local:", by)
		return s.AddRule(t.Context(), ofConfig(c))
	}, func(revision int) string {
		all, err := s.JudgeConfigs(t.Context(), "doc")
		if err != nil || len(all) != revision {
			t.Fatalf("%d revisions, %v, want %d", len(all), err, revision)
		}
		return all[revision-1].Principal
	})
}

// raceVersions makes many callers add the same next version. One must win, and its version must be stored.
func raceVersions(t *testing.T, add func(version, by int) error, newest func(version int) string) {
	t.Helper()
	for version := 1; version <= 5; version++ {
		winner := onlyOne(t, 12, store.ErrConflict, func(i int) error { return add(version, i) })
		if owner := newest(version); owner != fmt.Sprint("local:", winner) {
			t.Errorf("version %d is %s's, but %d got success", version, owner, winner)
		}
	}
}
