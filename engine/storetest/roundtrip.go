//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

func roundTrip(t *testing.T, _ Driver, s store.Store) {
	var commits []store.Commit
	put := func(c store.Commit) record.Instance {
		commits = append(commits, c)
		inst := mustCommit(t, s, c)
		requireSame(t, "loaded", loadInstance(t, s, inst.ID), inst)
		return inst
	}
	inst := put(Start(t, ID(1), `{"title":"a"}`, WithKey("start")))
	inst = put(Refuse(t, inst, "submit"))
	inst = put(Advance(t, inst, "reviewing", `{"by":"zoë"}`, func(e *record.Event) { e.Freezes = []string{"/title", "/by"} }))
	inst = put(CheckpointOf(t, inst))
	then := inst
	inst = put(Refuse(t, inst, "approve", func(e *record.Event) { e.Kind = record.Prechecked }))
	inst = put(Advance(t, inst, "approved", `{}`, By("local:other"), func(e *record.Event) { e.Status = record.Complete }))
	inst = put(RollbackTo(t, inst, then))
	put(Next(t, inst, record.Event{Kind: record.KindCancelled, Reason: "enough"}))

	events := listEvents(t, s, store.EventQuery{Instance: inst.ID})
	if len(events) != len(commits) {
		t.Fatalf("%d events, want %d", len(events), len(commits))
	}
	for i, e := range events {
		sameEvent(t, e, commits[i].Events[0])
	}
	requireVerified(t, s, inst.ID)

	parked := mustCommit(t, s, Start(t, ID(3), `{"title":"a"}`))
	for i, action := range []string{"approve", "publish"} {
		parked = mustCommit(t, s, Escalate(t, parked, action, ReviewID(i)))
		requireSame(t, "parked", loadInstance(t, s, ID(3)), parked)
	}
	parked = mustCommit(t, s, EndReview(t, parked, "approve", &record.Review{ID: ReviewID(0), Status: record.ReviewStale, Reason: "it moved"}))
	if requireSame(t, "ended", requireVerified(t, s, ID(3)), parked); len(parked.Facts.Reviews) != 1 {
		t.Errorf("%d reviews wait, want 1", len(parked.Facts.Reviews))
	}

	// Several events in one commit, as an import writes them.
	first := Start(t, ID(2), `{}`)
	second := Refuse(t, first.Next, "submit", WithKey("second"))
	third := Advance(t, second.Next, "reviewing", `{"a":1}`)
	mustCommit(t, s, store.Commit{Events: []record.Event{first.Events[0], second.Events[0], third.Events[0]}, Next: third.Next})
	requireSame(t, "three events in one commit", requireVerified(t, s, ID(2)), third.Next)
	if e, err := s.ByKey(t.Context(), second.Events[0].Key.Scope); err != nil || e.Seq != 2 {
		t.Errorf("the key of the second of three: event %d, %v", e.Seq, err)
	}
}

func testDocuments(t *testing.T, _ Driver, s store.Store) {
	docs := []string{
		`{}`,
		`{"z":1,"a":2}`,
		`{"n":[1.50,1e2,-0,12345678901234567890,0.1]}`,
		`{"s":"<a href=\"x\">&</a>","u":"\u2028 \ud83d\ude00 é","raw":"` + "\u2028 😀 é" + `"}`,
		`{"control":"\u0000\u001f\t"," ":{"":null},"ключ":[[],{}]}`,
		`{"base64":"AAECAwT/"}`,
	}
	for i, doc := range docs {
		inst := mustCommit(t, s, Start(t, ID(i), doc))
		got := loadInstance(t, s, inst.ID)
		requireSame(t, doc, got, inst)
		if string(got.Context) != doc {
			t.Errorf("the context came back as %s, want %s", got.Context, doc)
		}
		if e := listEvents(t, s, store.EventQuery{Instance: inst.ID})[0]; string(e.Patch) != doc {
			t.Errorf("the patch came back as %s, want %s", e.Patch, doc)
		}
	}
}

func largeValues(t *testing.T, _ Driver, s store.Store) {
	big := strings.Repeat("é", 48<<10) // 96 KiB
	inst := mustCommit(t, s, Start(t, ID(1), `{"a":"`+big+`"}`))
	inst = mustCommit(t, s, Advance(t, inst, "reviewing", `{"b":"`+big+`"}`))
	c := CheckpointOf(t, inst)
	inst = mustCommit(t, s, c)
	requireSame(t, "190 KiB of context", requireVerified(t, s, ID(1)), c.Next)
	snap, err := s.Snapshot(t.Context(), ID(1), c.Next.Revision)
	wantNone(t, err)
	requireSame(t, "190 KiB of snapshot", snap, c.Next)
	for key := 'c'; len(inst.Context) < record.MaxContext; key++ {
		piece := min(record.MaxContext-len(inst.Context)-len(`,"c":""`), 60<<10)
		inst = mustCommit(t, s, Advance(t, inst, "reviewing", fmt.Sprintf(`{"%c":"%s"}`, key, strings.Repeat("x", piece))))
	}
	requireSame(t, "the largest context", requireVerified(t, s, ID(1)), inst)
}

// clocksDiffer writes events of processes whose clocks are an hour apart. Their order must be the commit order.
func clocksDiffer(t *testing.T, _ Driver, s store.Store) {
	inst := mustCommit(t, s, Start(t, ID(1), `{}`))
	for i, off := range []time.Duration{time.Hour, -time.Hour, 0} {
		inst = mustCommit(t, s, Advance(t, inst, "reviewing", `{}`, func(e *record.Event) { e.Time = Epoch.Add(off + time.Duration(i)*time.Second) }))
	}
	requireSame(t, "afterwards", requireVerified(t, s, ID(1)), inst)
	var got []int64
	for _, e := range listTail(t, s, store.TailQuery{}) {
		got = append(got, e.Event.Seq)
	}
	if !slices.Equal(got, []int64{1, 2, 3, 4}) {
		t.Errorf("the events in the order of the log are %v", got)
	}
}

func tooLarge(t *testing.T, _ Driver, s store.Store) {
	c := Start(t, ID(1), `{}`)
	c.Next.Context = json.RawMessage(`{"a":"` + strings.Repeat("x", record.MaxContext) + `"}`)
	wantError(t, "a context over the limit", s.Commit(t.Context(), c), store.ErrTooLarge)
	_, err := s.Load(t.Context(), ID(1))
	wantError(t, "after it", err, store.ErrNotFound)
}

func testMisfits(t *testing.T, _ Driver, s store.Store) {
	inst := growInstance(t, s, ID(1), 3)
	good := Refuse(t, inst, "submit")
	unsealed := good
	unsealed.Events = []record.Event{{Instance: inst.ID, Seq: inst.Seq + 1, Kind: record.Refused}}
	gap := good
	gap.Expect--
	elsewhere := good
	elsewhere.Next.Seq++
	for name, c := range map[string]store.Commit{
		"no event": {Expect: inst.Seq, Next: inst}, "not sealed": unsealed, "a gap": gap, "another end": elsewhere,
	} {
		if err := s.Commit(t.Context(), c); err == nil || errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	// The same seq after a different history: a fork, for example of a restored backup.
	fork := inst
	fork.Head = strings.Repeat("ab", 32)
	wantError(t, "a fork", s.Commit(t.Context(), Refuse(t, fork, "submit")), store.ErrConflict)
	ghost := inst
	ghost.ID = ID(9)
	wantError(t, "an instance that is not there", s.Commit(t.Context(), Refuse(t, ghost, "submit")), store.ErrConflict)
	wantError(t, "a second start", s.Commit(t.Context(), Start(t, ID(1), `{}`)), store.ErrConflict)
	requireSame(t, "afterwards", requireVerified(t, s, ID(1)), inst)
	mustCommit(t, s, good)
}

func notShared(t *testing.T, _ Driver, s store.Store) {
	c := Start(t, ID(1), `{"title":"a"}`, WithKey("k"), func(e *record.Event) { e.Freezes = []string{"/title"} })
	c.Snapshot = true
	want := c.Next.Clone()
	mustCommit(t, s, c)
	spoil := func(i record.Instance) {
		clear(i.Facts.Visited)
		clear(i.Facts.Frozen)
	}
	spoil(c.Next)
	clear(c.Next.Context) // no one may write into a loaded Context
	requireSame(t, "after the caller changed its argument", loadInstance(t, s, ID(1)), want)
	spoil(loadInstance(t, s, ID(1)))
	requireSame(t, "after a reader changed its result", loadInstance(t, s, ID(1)), want)
	snap, err := s.Snapshot(t.Context(), ID(1), 1)
	wantNone(t, err)
	requireSame(t, "the snapshot", snap, want)
	spoil(snap)
	for _, e := range listEvents(t, s, store.EventQuery{Instance: ID(1)}) {
		clear(e.Patch)
		clear(e.Freezes)
		e.Decision.Outcome = "spoilt"
	}
	requireVerified(t, s, ID(1))
	requireSame(t, "in the end", loadInstance(t, s, ID(1)), want)
}

func notFound(t *testing.T, _ Driver, s store.Store) {
	ctx := t.Context()
	errs := map[string]error{}
	_, errs["load"] = s.Load(ctx, ID(1))
	_, errs["by key"] = s.ByKey(ctx, hexOf("k"))
	_, errs["by a strange key"] = s.ByKey(ctx, "no hex at all")
	_, errs["snapshot"] = s.Snapshot(ctx, ID(1), 1)
	_, errs["definition"] = s.Definition(ctx, "doc", 0)
	_, errs["definition -1"] = s.Definition(ctx, "doc", -1)
	wantErrors(t, errs, store.ErrNotFound)
	if all, err := s.Definitions(ctx); err != nil || len(all) != 0 {
		t.Errorf("definitions: %v, %v", all, err)
	}
	if all, err := s.JudgeConfigs(ctx, "doc"); err != nil || len(all) != 0 {
		t.Errorf("judge configs: %v, %v", all, err)
	}
	if all := listEvents(t, s, store.EventQuery{Instance: ID(1)}); len(all) != 0 {
		t.Errorf("events: %v", all)
	}
	for i, err := range s.Instances(ctx, store.InstanceQuery{}) {
		t.Errorf("instances: %v, %v", i, err)
	}
}

func testSnapshots(t *testing.T, _ Driver, s store.Store) {
	inst := growInstance(t, s, ID(1), 3)
	first := mustCommit(t, s, CheckpointOf(t, inst))
	inst = mustCommit(t, s, Refuse(t, first, "submit"))
	inst = mustCommit(t, s, Advance(t, inst, "reviewing", `{"n":7}`))
	second := mustCommit(t, s, CheckpointOf(t, inst))
	third := mustCommit(t, s, CheckpointOf(t, second)) // the same revision again
	mustCommit(t, s, Advance(t, third, "draft", `{}`))
	for _, tt := range []struct {
		at   int64
		want record.Instance
	}{
		{first.Revision, first}, {second.Revision, third}, {second.Revision + 1, third}, {1 << 40, third},
	} {
		got, err := s.Snapshot(t.Context(), ID(1), tt.at)
		if err != nil {
			t.Fatalf("at revision %d: %v", tt.at, err)
		}
		// If a revision has two snapshots, either is accepted: they differ only in seq and dependent fields.
		if got.Revision != tt.want.Revision || got.State != tt.want.State || string(got.Context) != string(tt.want.Context) ||
			!reflect.DeepEqual(got.Facts, tt.want.Facts) || got.Status != tt.want.Status || got.Owner != tt.want.Owner {
			t.Errorf("at revision %d: got %+v, want %+v", tt.at, got, tt.want)
		}
	}
	_, err := s.Snapshot(t.Context(), ID(1), first.Revision-1)
	wantError(t, "below the first", err, store.ErrNotFound)
	_, err = s.Snapshot(t.Context(), ID(2), 100)
	wantError(t, "of another instance", err, store.ErrNotFound)
}

func foldEqualsLoad(t *testing.T, _ Driver, s store.Store) {
	byRevision := map[int64]record.Instance{}
	inst := mustCommit(t, s, Start(t, ID(1), `{"n":0}`))
	byRevision[inst.Revision] = inst
	for i := range 40 {
		var c store.Commit
		switch {
		case i == 10 || i == 30:
			c = MigrateTo(t, inst, inst.Version+1, "reviewing")
		case i%7 == 6:
			c = RollbackTo(t, inst, byRevision[1+inst.Revision/2])
		case i%5 == 4:
			c = CheckpointOf(t, inst)
		case i%3 == 2:
			c = Refuse(t, inst, "submit")
		default:
			c = Advance(t, inst, []string{"draft", "reviewing"}[i%2], `{"n":`+strings.Repeat("1", 1+i%5)+`}`)
		}
		inst = mustCommit(t, s, c)
		requireSame(t, "loaded", loadInstance(t, s, ID(1)), inst)
		byRevision[inst.Revision] = inst
	}
	for revision, want := range byRevision {
		events := s.Events(t.Context(), store.EventQuery{Instance: ID(1), MaxRevision: revision})
		got, err := record.FoldAt(events, revision)
		if err != nil {
			t.Fatalf("revision %d: %v", revision, err)
		}
		requireSame(t, "folded", got, want)
	}
	requireVerified(t, s, ID(1))
}
