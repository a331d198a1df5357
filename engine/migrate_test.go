package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
)

// paperV1 and its successors are versions of one process.
const (
	paperV1 = `{"name":"paper","initialState":"draft","states":{
		"draft":{"transitions":{"submit":"reviewing","note":"draft"}},
		"reviewing":{"transitions":{"pass":"signing","reject":"draft","release":{"target":"signing","requireAssurance":"human"}}},
		"signing":{"transitions":{"sign":"signed"}},
		"signed":{"final":true}}}`
	// paperV2 renames reviewing to "review", requires an author there, and adds a legal check.
	paperV2 = `{"name":"paper","initialState":"draft","states":{
		"draft":{"transitions":{"submit":"review","note":"draft"}},
		"review":{"transitions":{"pass":"legal","reject":"draft"}},
		"legal":{"transitions":{"clear":"signing"}},
		"signing":{"transitions":{"sign":"signed"}},
		"signed":{"final":true}},
		"stateValidators":{"review":{"requiredFields":["author"],"schema":{"properties":{"pages":{"type":"integer"}}}}},
		"mustPassThrough":{"signing":["review"],"signed":["legal"]}}`
	// paperV3 ends with the signing.
	paperV3 = `{"name":"paper","initialState":"draft","states":{
		"draft":{"transitions":{"submit":"signing"}},"signing":{"final":true}}}`
)

var toReview = map[string]string{"reviewing": "review"}

// asKept compares instances as stores keep them.
var asKept = cmpopts.IgnoreUnexported(record.Instance{})

func (b *bench) migrate(req engine.MigrateRequest) engine.MigrateResult {
	b.t.Helper()
	req.Workflow = "paper"
	r, err := b.Migrate(b.t.Context(), operator, req)
	if err != nil {
		b.t.Fatalf("migrate: %v", err)
	}
	if r.Migrated+r.Unchanged+r.Refused != len(r.Entries) {
		b.t.Fatalf("the counts do not add up: %+v", r)
	}
	return r
}

// outcomes returns the entries of a migration by instance.
func outcomes(r engine.MigrateResult) map[string]engine.InstanceMigration {
	out := map[string]engine.InstanceMigration{}
	for _, e := range r.Entries {
		out[e.ID] = e
	}
	return out
}

// papers starts instances of paperV1 in all of its states.
func papers(b *bench) map[string]string {
	b.t.Helper()
	b.define(operator, paperV1)
	at := func(doc string, actions ...string) string {
		id := b.start(agent, "paper", doc).ID
		for _, a := range actions {
			b.advance(agent, id, a, `{}`)
		}
		return id
	}
	ids := map[string]string{
		"draft":     at(`{}`),
		"reviewing": at(`{"author":"ada","pages":3}`, "submit"),
		"anonymous": at(`{}`, "submit"),
		"wordy":     at(`{"author":"ada","pages":"many"}`, "submit"),
		"signing":   at(`{}`, "submit", "pass"),
		"signed":    at(`{}`, "submit", "pass", "sign"),
		"cancelled": at(`{}`),
	}
	if _, err := b.Cancel(b.t.Context(), agent, engine.CancelRequest{ID: ids["cancelled"]}); err != nil {
		b.t.Fatal(err)
	}
	return ids
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		b := newBenchOn(t, s)
		ids := papers(b)
		b.define(operator, paperV2)
		ids["new"] = b.start(agent, "paper", `{}`).ID
		type end struct {
			outcome        engine.MigrateOutcome
			state, newName string
			reason         string
			blocked        []string
		}
		want := map[string]end{
			"draft":     {engine.Migrated, "draft", "draft", "", nil},
			"reviewing": {engine.Migrated, "reviewing", "review", "", nil},
			"anonymous": {engine.MigrateRefused, "reviewing", "", `It cannot be in "review": "author" is required`, nil},
			"wordy":     {engine.MigrateRefused, "reviewing", "", `It cannot be in "review": `, nil},
			// reviewing counts as visited under its new name; the end is blocked because legal was never
			// visited
			"signing": {engine.Migrated, "signing", "signing", "", []string{"signed"}},
			"new":     {engine.MigrateUnchanged, "draft", "draft", "", nil},
		}
		check := func(r engine.MigrateResult) {
			t.Helper()
			got := outcomes(r)
			if len(got) != len(want) {
				t.Errorf("%d outcomes, want %d: those that have ended are no part of it", len(got), len(want))
			}
			for name, w := range want {
				g := got[ids[name]]
				if g.Outcome != w.outcome || g.State != w.state || g.NewState != w.newName || !strings.HasPrefix(g.Reason, w.reason) || (w.reason == "") != (g.Reason == "") || !slices.Equal(g.Blocked, w.blocked) {
					t.Errorf("%s: %+v, want %+v", name, g, w)
				}
			}
		}
		before := map[string]record.Instance{}
		for _, id := range ids {
			before[id] = b.load(id)
		}
		dry := b.migrate(engine.MigrateRequest{States: toReview, DryRun: true})
		check(dry)
		for id, was := range before {
			if diff := cmp.Diff(was, b.load(id), asKept); diff != "" {
				t.Fatalf("a dry run changed %s:\n%s", id, diff)
			}
		}
		real := b.migrate(engine.MigrateRequest{States: toReview})
		dry.DryRun = false
		if diff := cmp.Diff(dry, real); diff != "" {
			t.Errorf("the dry run said something else (-dry +real):\n%s", diff)
		}
		for name, w := range want {
			inst := b.load(ids[name])
			was := before[ids[name]]
			if w.outcome != engine.Migrated {
				if diff := cmp.Diff(was, inst, asKept); diff != "" {
					t.Errorf("%s was changed:\n%s", name, diff)
				}
				continue
			}
			if inst.Version != 2 || inst.State != w.newName || inst.Revision != was.Revision+1 || inst.Seq != was.Seq+1 || string(inst.Context) != string(was.Context) {
				t.Errorf("%s: %+v", name, inst)
			}
			b.verify(ids[name])
		}
		again := b.migrate(engine.MigrateRequest{States: toReview})
		if again.Migrated != 0 || again.Unchanged != 4 || again.Refused != 2 {
			t.Errorf("again: %+v", again)
		}
		// It follows the new version.
		b.moved(agent, ids["reviewing"], "pass", `{}`, "legal")
		b.moved(agent, ids["reviewing"], "clear", `{}`, "signing")
		b.refused(agent, ids["signing"], "sign", `{}`, "must_pass_through")
	})
}

func TestMigrateNamedInstances(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := papers(b)
	b.define(operator, paperV2)
	b.define(operator, simple)
	foreign := b.start(agent, "simple", `{}`).ID
	r := b.migrate(engine.MigrateRequest{Instances: []string{ids["draft"], ids["signed"], ids["cancelled"], "wf-none", foreign}})
	var got []string
	for _, e := range r.Entries {
		got = append(got, string(e.Outcome)+": "+e.Reason)
	}
	want := []string{"migrated: ", "refused: It has ended: it is complete.", "refused: It has ended: it is cancelled.", "refused: There is no such instance.", `refused: It is an instance of "simple".`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if b.load(ids["reviewing"]).Version != 1 {
		t.Error("an instance that was not named was migrated")
	}
	// A state visited under an old name does not count as visited, unless the mapping names it.
	r = b.migrate(engine.MigrateRequest{Instances: []string{ids["signing"]}})
	if e := r.Entries[0]; e.Outcome != engine.MigrateRefused || !strings.HasPrefix(e.Reason, `It cannot be in "signing": The state "signing" may only be entered after "review"`) {
		t.Errorf("past mustPassThrough: %+v", e)
	}
}

func TestMigrateVersions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, paperV1)
	one := b.start(agent, "paper", `{"author":"ada"}`).ID
	b.define(operator, paperV2)
	two := b.start(agent, "paper", `{}`).ID
	b.define(operator, paperV3)
	if r := b.migrate(engine.MigrateRequest{FromVersion: 1}); len(r.Entries) != 1 || r.To != 3 || b.load(one).Version != 3 || b.load(two).Version != 2 {
		t.Errorf("from 1: %+v", r)
	}
	if r := b.migrate(engine.MigrateRequest{ToVersion: 1}); r.Migrated != 2 || b.load(one).Version != 1 {
		t.Errorf("back to 1: %+v", r)
	}
	if r := b.migrate(engine.MigrateRequest{FromVersion: 2, ToVersion: 3, Instances: []string{one}}); r.Refused != 1 || r.Entries[0].Reason != "It has version 1, not 2." {
		t.Errorf("from another version: %+v", r)
	}
	b.moved(agent, one, "submit", `{}`, "reviewing")
	r := b.migrate(engine.MigrateRequest{States: map[string]string{"reviewing": "signing"}, Instances: []string{one}})
	if e := r.Entries[0]; e.Outcome != engine.Migrated || !e.Completes || b.load(one).Status != record.Complete {
		t.Errorf("into a final state: %+v", e)
	}
}

func TestMigrateRefusesTheRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := papers(b)["draft"]
	b.define(operator, paperV2)
	for name, tt := range map[string]struct {
		p    engine.Principal
		req  engine.MigrateRequest
		code engine.Code
		say  string
	}{
		"an agent":               {agent, engine.MigrateRequest{Workflow: "paper"}, engine.CodeForbidden, "may not migrate"},
		"an agent, dry":          {agent, engine.MigrateRequest{Workflow: "paper", DryRun: true}, engine.CodeForbidden, "may not migrate"},
		"a reviewer":             {reviewer, engine.MigrateRequest{Workflow: "paper"}, engine.CodeForbidden, "may not migrate"},
		"no workflow":            {operator, engine.MigrateRequest{}, engine.CodeInvalidArgument, "workflow"},
		"an unknown workflow":    {operator, engine.MigrateRequest{Workflow: "papr"}, engine.CodeUnknownWorkflow, "paper"},
		"an unknown version":     {operator, engine.MigrateRequest{Workflow: "paper", ToVersion: 9}, engine.CodeUnknownWorkflow, "9"},
		"an unknown from":        {operator, engine.MigrateRequest{Workflow: "paper", FromVersion: 9}, engine.CodeUnknownWorkflow, "9"},
		"a negative version":     {operator, engine.MigrateRequest{Workflow: "paper", ToVersion: -1}, engine.CodeInvalidArgument, "1 or more"},
		"twice the same version": {operator, engine.MigrateRequest{Workflow: "paper", FromVersion: 2}, engine.CodeInvalidArgument, "Both versions are 2"},
		"an unknown new state":   {operator, engine.MigrateRequest{Workflow: "paper", States: map[string]string{"reviewing": "revew"}}, engine.CodeInvalidArgument, `did you mean "review"`},
		"an unknown old state":   {operator, engine.MigrateRequest{Workflow: "paper", States: map[string]string{"revieving": "review"}}, engine.CodeInvalidArgument, `did you mean "reviewing"`},
		"a state of the target":  {operator, engine.MigrateRequest{Workflow: "paper", States: map[string]string{"legal": "review"}}, engine.CodeInvalidArgument, `no state "legal"`},
	} {
		_, err := b.Migrate(t.Context(), tt.p, tt.req)
		if e := wantCode(t, err, tt.code); !strings.Contains(e.Message, tt.say) {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
	if b.load(id).Version != 1 {
		t.Error("it was migrated")
	}
}

func TestMigrateClosesReviews(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		b := newReviewBenchOn(t, s, nil)
		b.define(operator, paperV1)
		id := b.start(agent, "paper", `{"author":"ada"}`).ID
		b.moved(agent, id, "submit", `{}`, "reviewing")
		r := b.parked(agent, id, "release", `{}`)
		b.define(operator, paperV2)
		got := b.migrate(engine.MigrateRequest{States: toReview})
		if e := got.Entries[0]; e.Outcome != engine.Migrated || !slices.Equal(e.Stale, []string{r.ID}) {
			t.Errorf("got %+v", e)
		}
		if row := b.review(r.ID); row.Status != record.ReviewStale || row.Reason != "The instance was migrated to version 2." {
			t.Errorf("the review is %s (%s)", row.Status, row.Reason)
		}
		_, err := b.resolve(rita, r.ID, judge.Approve)
		wantCode(t, err, engine.CodeReviewClosed)
		b.verify(id)
	})
}

// TestMigrateEndsUndoHistory: undo stops at a migration. Only an operator may roll back across it, and
// only to a state that is valid in the new version.
func TestMigrateEndsUndoHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, paperV1)
	id := b.start(agent, "paper", `{"author":"ada"}`).ID
	checkpoint := func() string {
		cp, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return cp.CheckpointID
	}
	inDraft := checkpoint()
	b.moved(agent, id, "submit", `{}`, "reviewing")
	inReviewing := checkpoint()
	b.define(agent, paperV2)
	b.migrate(engine.MigrateRequest{States: toReview})
	back := func(p engine.Principal, cp string) error {
		_, err := b.Rollback(t.Context(), p, engine.RollbackRequest{ID: id, CheckpointID: cp})
		return err
	}
	_, err := b.Undo(t.Context(), agent, engine.UndoRequest{ID: id})
	if e := wantCode(t, err, engine.CodeNothingToUndo); !strings.Contains(e.Message, "migration to version 2") {
		t.Error(e.Message)
	}
	wantCode(t, back(agent, inDraft), engine.CodeForbidden)
	var e *engine.Error
	if e = wantCode(t, back(operator, inReviewing), engine.CodeInvalidArgument); !strings.Contains(e.Message, `no state "reviewing"`) {
		t.Error(e.Message)
	}
	if err := back(operator, inDraft); err != nil {
		t.Error(err)
	}
	if inst := b.load(id); inst.Version != 2 || inst.State != "draft" {
		t.Errorf("in %q of version %d", inst.State, inst.Version)
	}
	// Migrating back does not get around it.
	b.migrate(engine.MigrateRequest{ToVersion: 1})
	wantCode(t, back(agent, inReviewing), engine.CodeForbidden)
	b.verify(id)
}

// TestMigrateResumes: repeating an interrupted migration completes it.
func TestMigrateResumes(t *testing.T) {
	t.Parallel()
	inner := memory.New()
	s := &interruptedStore{Store: inner}
	b := newBenchOn(t, s)
	b.define(operator, paperV1)
	var ids []string
	for range 3 {
		ids = append(ids, b.start(agent, "paper", `{}`).ID)
	}
	b.define(operator, paperV2)
	ctx, cancel := context.WithCancel(t.Context())
	s.before = func() { s.before = cancel } // during the second one
	r, err := b.Migrate(ctx, operator, engine.MigrateRequest{Workflow: "paper"})
	if engine.CodeOf(err) != engine.CodeCancelled || r.Migrated != 1 {
		t.Fatalf("cut short: %+v, %v", r, err)
	}
	if r := b.migrate(engine.MigrateRequest{}); r.Migrated != 2 || r.Unchanged != 1 {
		t.Errorf("taken up: %+v", r)
	}
	for _, id := range ids {
		if n := len(b.events(id)); n != 2 {
			t.Errorf("%s has %d events, want 2", id, n)
		}
	}
}

// TestMovingInstancesArePlannedAgain: an instance that moves during its migration is planned again from its new state.
func TestMovingInstancesArePlannedAgain(t *testing.T) {
	t.Parallel()
	inner := memory.New()
	s := &interruptedStore{Store: inner}
	b, beside := newBenchOn(t, s), newBenchOn(t, inner)
	b.define(operator, paperV1)
	id := b.start(agent, "paper", `{}`).ID
	b.define(operator, paperV2)
	s.before = func() { beside.moved(agent, id, "submit", `{}`, "reviewing") }
	r := b.migrate(engine.MigrateRequest{})
	if e := r.Entries[0]; e.Outcome != engine.MigrateRefused || e.State != "reviewing" || e.Reason != `Version 2 has no state "reviewing"; did it become "review"?` {
		t.Errorf("got %+v", e)
	}
	var again func()
	n := 0
	again = func() {
		n++
		beside.moved(agent, id, map[bool]string{true: "reject", false: "submit"}[n%2 == 1], `{"author":"ada"}`, map[bool]string{true: "draft", false: "reviewing"}[n%2 == 1])
		s.before = again
	}
	s.before = again
	r = b.migrate(engine.MigrateRequest{States: toReview})
	s.before = nil
	if e := r.Entries[0]; e.Outcome != engine.MigrateRefused || !strings.HasPrefix(e.Reason, "It keeps moving.") && !strings.HasPrefix(e.Reason, "It cannot be in") {
		t.Errorf("got %+v after %d moves", e, n)
	}
}

// TestMigrateManyPages reads page after page while it writes.
func TestMigrateManyPages(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("1,100 instances")
	}
	onStores(t, func(t *testing.T, s store.Store) {
		b := newBenchOn(t, s)
		b.define(operator, paperV1)
		var starts sync.WaitGroup // concurrently, so that a store writes many together
		for first := range 50 {
			starts.Go(func() {
				for i := first; i < 1100; i += 50 {
					if _, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "paper", Context: fmt.Appendf(nil, `{"n":%d}`, i)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		starts.Wait()
		b.define(operator, paperV2)
		if r := b.migrate(engine.MigrateRequest{}); r.Migrated != 1100 || len(r.Entries) != 1100 {
			t.Errorf("migrated %d of 1100", r.Migrated)
		}
	})
}
