package engine_test

import (
	"context"
	"fmt"
	"iter"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

const day = 24 * time.Hour

// fading is simple with a history that is kept for 30 days.
const fading = `{"name":"fading","initialState":"a","retention":{"events":"30d"},"states":{
	"a":{"transitions":{"go":"b"}},
	"b":{"transitions":{"go":"c","back":"a"}},
	"c":{"final":true,"outcome":"success"}}}`

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bench) retain(req audit.RetainRequest) audit.RetainResult {
	b.t.Helper()
	r, err := b.Retain(b.t.Context(), operator, req)
	if err != nil {
		b.t.Fatalf("retain: %v", err)
	}
	return r
}

// whole fails the test unless the rest of a history verifies and folds to the loaded instance. It returns
// the floor.
func (b *bench) whole(id string) record.Instance {
	b.t.Helper()
	inst, events := b.load(id), b.events(id)
	var floor record.Instance
	if first := events[0]; first.Seq > 1 {
		var cut int64
		for _, ev := range events {
			if ev.Truncation != nil {
				cut = ev.Truncation.Revision
			}
		}
		var err error
		if floor, err = b.store.Snapshot(b.t.Context(), id, cut); err != nil || floor.Seq != first.Seq-1 {
			b.t.Fatalf("the floor of %s below event %d: %+v, %v", id, first.Seq, floor, err)
		}
	}
	chain := record.NewChainFrom(floor)
	for _, ev := range events {
		if err := chain.Add(ev); err != nil {
			b.t.Fatal(err)
		}
	}
	if chain.Head() != inst.Head {
		b.t.Fatalf("the history of %s ends elsewhere", id)
	}
	folded, err := record.FoldFrom(floor, b.store.Events(b.t.Context(), store.EventQuery{Instance: id}), 0)
	if err != nil {
		b.t.Fatalf("fold %s: %v", id, err)
	}
	if !reflect.DeepEqual(folded, inst) {
		b.t.Fatalf("the fold of %s:\n got %+v\nwant %+v", id, folded, inst)
	}
	return floor
}

func stores(t *testing.T) map[string]store.Store {
	t.Helper()
	disk, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "gavel.db")})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]store.Store{"memory": memory.New(), "sqlite": disk}
}

func TestRetainAppliesTheDefinition(t *testing.T) {
	for name, db := range stores(t) {
		t.Run(name, func(t *testing.T) {
			b := newBenchOn(t, db)
			b.define(operator, fading)
			b.define(operator, simple) // keeps everything
			ended := b.start(agent, "fading", `{"n":1}`).ID
			b.advance(agent, ended, "nonsense", `{}`)
			b.moved(agent, ended, "go", `{}`, "b")
			b.moved(agent, ended, "go", `{}`, "c")
			cancelled := b.start(agent, "fading", `{}`).ID
			b.moved(agent, cancelled, "go", `{}`, "b")
			if _, err := b.Cancel(t.Context(), agent, engine.CancelRequest{ID: cancelled}); err != nil {
				t.Fatal(err)
			}
			pinned := b.start(agent, "fading", `{}`).ID
			b.moved(agent, pinned, "go", `{}`, "b")
			b.moved(agent, pinned, "back", `{}`, "a")
			if _, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: pinned}); err != nil {
				t.Fatal(err)
			}
			b.moved(agent, pinned, "go", `{}`, "b")
			b.moved(agent, pinned, "go", `{}`, "c")
			running := b.start(agent, "fading", `{}`).ID
			b.moved(agent, running, "go", `{}`, "b")
			endless := b.start(agent, "simple", `{}`).ID
			b.moved(agent, endless, "go", `{}`, "b")
			b.moved(agent, endless, "go", `{}`, "c")
			b.pass(20 * day)
			late := b.start(agent, "fading", `{}`).ID
			b.moved(agent, late, "go", `{}`, "b")
			b.moved(agent, late, "go", `{}`, "c")
			b.pass(11 * day)

			for _, dry := range []bool{true, false} {
				r := b.retain(audit.RetainRequest{DryRun: dry})
				got := map[string]string{}
				for _, h := range r.Histories {
					got[h.ID] = fmt.Sprintf("%d up to %d, %d left %s", h.Events, h.UpTo, h.Left, h.Pinned)
				}
				want := map[string]string{ended: "3 up to 3, 1 left ", cancelled: "2 up to 2, 1 left ", pinned: "3 up to 3, 3 left checkpoint"}
				if !reflect.DeepEqual(got, want) || r.Ended != 4 || r.Events != 8 || r.DryRun != dry || !reflect.DeepEqual(r.Kept, map[string]int{audit.KeptNotDue: 1}) {
					t.Fatalf("dry run %v: got %+v, want %v", dry, r, want)
				}
				if n := len(b.events(ended)); dry && n != 4 {
					t.Fatalf("a dry run removed something: %d events are left", n)
				}
			}
			for _, id := range []string{ended, cancelled, pinned} {
				events := b.events(id)
				if last := events[len(events)-1]; last.Kind != record.Truncated || last.Principal != operator.ID || last.Truncation.Count != events[0].Seq-1 {
					t.Errorf("%s: the last event is %+v", id, last)
				}
				b.whole(id)
			}
			for _, id := range []string{running, endless, late} {
				if floor := b.whole(id); floor.Seq != 0 {
					t.Errorf("%s lost its first %d events", id, floor.Seq)
				}
			}
			if s, err := b.Status(t.Context(), agent, ended); err != nil || s.State != "c" || !s.Complete || s.Revision != 3 {
				t.Errorf("status: %+v, %v", s, err)
			}
			if h, err := b.History(t.Context(), agent, engine.HistoryRequest{ID: ended}); err != nil || len(h.Decisions) != 1 || h.Decisions[0].To != "c" {
				t.Errorf("history: %+v, %v", h, err)
			}
			if r := b.retain(audit.RetainRequest{}); len(r.Histories) != 0 || r.Kept[audit.KeptDone] != 2 || r.Kept[audit.KeptCheckpoint] != 1 {
				t.Errorf("the second time: %+v", r)
			}
		})
	}
}

func TestRetainIsTheOperators(t *testing.T) {
	b := newBench(t)
	for _, p := range []engine.Principal{agent, reviewer, auditor, {}} {
		_, err := b.Retain(t.Context(), p, audit.RetainRequest{})
		wantCode(t, err, engine.CodeForbidden)
	}
	_, err := b.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(fading)})
	if e := wantCode(t, err, engine.CodeInvalidDefinition); e.Issues[0].Rule != "retention-not-operator" {
		t.Errorf("issues: %v", e.Issues)
	}
	_, err = b.Retain(t.Context(), operator, audit.RetainRequest{Workflow: "fadin"})
	wantCode(t, err, engine.CodeUnknownWorkflow)
	_, err = b.Retain(t.Context(), operator, audit.RetainRequest{Limit: -1})
	wantCode(t, err, engine.CodeInvalidArgument)
}

func TestRetainStopsAtItsLimit(t *testing.T) {
	b := newBench(t)
	b.define(operator, fading)
	for range 3 {
		id := b.start(agent, "fading", `{}`).ID
		b.moved(agent, id, "go", `{}`, "b")
		b.moved(agent, id, "go", `{}`, "c")
	}
	b.pass(31 * day)
	for i, more := range []bool{true, false} {
		if r := b.retain(audit.RetainRequest{Limit: 2, Workflow: "fading"}); r.More != more || len(r.Histories) != 2-i {
			t.Errorf("run %d: %+v", i+1, r)
		}
	}
}

// A request repeated within a week is answered from the record, whatever was removed.
func TestRetainLeavesLiveKeys(t *testing.T) {
	b := newBench(t)
	b.define(operator, fading)
	id := b.start(agent, "fading", `{}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	b.moved(agent, id, "go", `{}`, "c")
	b.pass(40 * day)
	again := engine.AdvanceRequest{ID: id, Action: "go", Key: "k"} // refused: the instance has ended
	first, err := b.Advance(t.Context(), agent, again)
	if err != nil {
		t.Fatal(err)
	}
	b.pass(6 * day)
	b.retain(audit.RetainRequest{})
	replayed, err := b.Advance(t.Context(), agent, again)
	if err != nil || !replayed.Replayed || replayed.Decision.ID != first.Decision.ID {
		t.Errorf("the replay: %+v, %v", replayed, err)
	}
	b.whole(id)
}

// A clock that was turned back makes an event younger than the events after it.
func TestRetainLeavesYoungRecords(t *testing.T) {
	b := newBench(t)
	b.define(operator, fading)
	id := b.start(agent, "fading", `{}`).ID
	b.pass(26 * day)
	again := engine.AdvanceRequest{ID: id, Action: "nonsense", Key: "k"}
	if _, err := b.Advance(t.Context(), agent, again); err != nil {
		t.Fatal(err)
	}
	b.pass(-26 * day)
	b.moved(agent, id, "go", `{}`, "b")
	b.moved(agent, id, "go", `{}`, "c")
	b.pass(31 * day)
	r := b.retain(audit.RetainRequest{})
	if len(r.Histories) != 1 || r.Histories[0].UpTo != 1 || r.Histories[0].Pinned != audit.KeptYoung {
		t.Errorf("got %+v", r)
	}
	if replayed, err := b.Advance(t.Context(), agent, again); err != nil || !replayed.Replayed {
		t.Errorf("the replay: %+v, %v", replayed, err)
	}
}

// Only an operator's definition allows removals, even if a forged version is in the store.
func TestRetainAsksTheOperatorsDefinition(t *testing.T) {
	b := newBench(t)
	id := b.start(agent, b.define(agent, named(simple, "fading")).Name, `{}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	b.moved(agent, id, "go", `{}`, "c")
	forged, err := b.store.Definition(t.Context(), "fading", 1)
	if err != nil {
		t.Fatal(err)
	}
	d, err := workflow.Parse("fading", []byte(fading))
	if err != nil {
		t.Fatal(err)
	}
	forged.Version, forged.Document, forged.Hash = 2, d.Document, d.Hash
	forged.Seal = record.NewRuleSealer(nil).Seal(2, forged.Seal.Hash, store.Rule{Definition: &forged}.Parts()...)
	if err := b.store.AddRule(t.Context(), store.Rule{Definition: &forged}); err != nil {
		t.Fatal(err)
	}
	b.pass(31 * day)
	if r := b.retain(audit.RetainRequest{}); r.Ended != 0 || len(r.Histories) != 0 {
		t.Errorf("got %+v", r)
	}
	b.define(operator, fading) // it is the operator's now, and applies to older instances too
	if r := b.retain(audit.RetainRequest{}); len(r.Histories) != 1 {
		t.Errorf("got %+v", r)
	}
	b.whole(id)
}

// underReview shows instances with an open review, which ended instances cannot have.
type underReview struct{ *memory.Store }

func (s underReview) Instances(ctx context.Context, q store.InstanceQuery) iter.Seq2[record.Instance, error] {
	return func(yield func(record.Instance, error) bool) {
		for inst, err := range s.Store.Instances(ctx, q) {
			inst.Facts.Reviews = []workflow.OpenReview{{ID: "rev-1", Action: "go", Seq: 2}}
			if !yield(inst, err) {
				return
			}
		}
	}
}

func TestRetainLeavesInstancesUnderReview(t *testing.T) {
	b := newBenchOn(t, underReview{memory.New()})
	b.define(operator, fading)
	id := b.start(agent, "fading", `{}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	b.moved(agent, id, "go", `{}`, "c")
	b.pass(400 * day)
	if r := b.retain(audit.RetainRequest{}); len(r.Histories) != 0 || r.Kept[audit.KeptReview] != 1 {
		t.Errorf("got %+v", r)
	}
}

// tampered returns events other than those committed.
type tampered struct {
	*memory.Store
	instance string
}

func (s *tampered) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for ev, err := range s.Store.Events(ctx, q) {
			if ev.Instance == s.instance && ev.Seq == 2 {
				ev.Principal = "somebody else"
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

func TestRetainLeavesEvidenceOfTampering(t *testing.T) {
	db := &tampered{Store: memory.New()}
	b := newBenchOn(t, db)
	b.define(operator, fading)
	id := b.start(agent, "fading", `{}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	b.moved(agent, id, "go", `{}`, "c")
	db.instance = id
	b.pass(31 * day)
	r := b.retain(audit.RetainRequest{})
	if len(r.Histories) != 0 || r.Kept[audit.KeptBroken] != 1 || len(r.Broken) != 1 || r.Broken[0] != id {
		t.Errorf("got %+v", r)
	}
	if n := len(b.events(id)); n != 3 {
		t.Errorf("%d events are left", n)
	}
}

// describeConflict runs a function between the check and the removal.
type describeConflict struct {
	*memory.Store
	before func()
}

func (s *describeConflict) Commit(ctx context.Context, c store.Commit) error {
	if c.Floor != nil {
		s.before()
	}
	return s.Store.Commit(ctx, c)
}

func TestRetainGivesWay(t *testing.T) {
	db := &describeConflict{Store: memory.New()}
	b := newBenchOn(t, db)
	b.define(operator, fading)
	id := b.start(agent, "fading", `{}`).ID
	b.moved(agent, id, "go", `{}`, "b")
	b.moved(agent, id, "go", `{}`, "c")
	db.before = func() { b.advance(agent, id, "go", `{}`) }
	b.pass(31 * day)
	if r := b.retain(audit.RetainRequest{}); len(r.Histories) != 0 || r.Kept[audit.KeptMoved] != 1 {
		t.Errorf("got %+v", r)
	}
	if floor := b.whole(id); floor.Seq != 0 {
		t.Errorf("the first %d events are gone", floor.Seq)
	}
}

// Whatever happened to an instance, the rest of its history verifies and folds to the instance, and every
// checkpoint can still be restored.
func TestRetainedHistoriesStillVerify(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		b.define(operator, fading)
		id := b.start(agent, "fading", `{"n":0}`).ID
		var checkpoints []engine.CheckpointResult
		turned := false // undone or redone
		for i := range rapid.IntRange(1, 14).Draw(rt, "steps") {
			ctx := t.Context()
			switch rapid.IntRange(0, 7).Draw(rt, "step") {
			case 0, 1:
				b.advance(agent, id, "go", fmt.Sprintf(`{"n":%d}`, i))
			case 2:
				b.advance(agent, id, "back", `{"n":null}`)
			case 3:
				b.advance(agent, id, "nonsense", `{}`)
			case 4:
				if cp, err := b.Checkpoint(ctx, agent, engine.CheckpointRequest{ID: id}); err == nil {
					checkpoints = append(checkpoints, cp)
				}
			case 5: // refused if there is nothing to undo or redo
				turned = true
				_, _ = b.Undo(ctx, operator, engine.UndoRequest{ID: id})
			case 6:
				turned = true
				_, _ = b.Redo(ctx, operator, engine.UndoRequest{ID: id})
			case 7:
				if len(checkpoints) > 0 {
					cp := rapid.SampledFrom(checkpoints).Draw(rt, "checkpoint")
					if _, err := b.Rollback(ctx, operator, engine.RollbackRequest{ID: id, CheckpointID: cp.CheckpointID}); err != nil {
						rt.Fatalf("rollback: %v", err)
					}
				}
			}
			if rapid.IntRange(0, 3).Draw(rt, "later") == 0 {
				b.pass(time.Duration(rapid.IntRange(1, 20).Draw(rt, "days")) * day)
				b.retain(audit.RetainRequest{})
				b.whole(id)
			}
		}
		b.pass(400 * day)
		before := b.load(id)
		r := b.retain(audit.RetainRequest{})
		floor := b.whole(id)
		if before.Status == record.Running && (len(r.Histories) > 0 || b.load(id).Seq != before.Seq) {
			rt.Fatalf("a running instance was cut: %+v", r)
		}
		if before.Status == record.Complete && len(checkpoints) == 0 && !turned && floor.Revision != before.Revision-1 {
			rt.Fatalf("ended at revision %d, the floor is %d", before.Revision, floor.Revision)
		}
		if again := b.retain(audit.RetainRequest{}); len(again.Histories) != 0 {
			rt.Fatalf("the second time: %+v", again)
		}
		for _, cp := range checkpoints {
			got, err := b.Rollback(t.Context(), operator, engine.RollbackRequest{ID: id, CheckpointID: cp.CheckpointID})
			if err != nil || got.State != cp.State {
				rt.Fatalf("rollback to %+v: %+v, %v", cp, got, err)
			}
		}
		b.whole(id)
	})
}

// Events that a reader with a cursor has not read or could not pass on are kept. A cursor that has not
// moved for too long is reported, and ignored if the operator requests it.
func TestRetainKeepsUnexportedRecords(t *testing.T) {
	for name, db := range stores(t) {
		t.Run(name, func(t *testing.T) {
			b := newBenchOn(t, db)
			b.define(operator, fading)
			end := func() string {
				id := b.start(agent, "fading", `{}`).ID
				b.moved(agent, id, "go", `{}`, "b")
				b.moved(agent, id, "go", `{}`, "c")
				return id
			}
			first, second := end(), end()
			place := func(from, to int64) {
				t.Helper()
				if err := db.MoveCursor(t.Context(), store.Cursor{Name: "webhook:a", Position: to}, from, nil); err != nil {
					t.Fatal(err)
				}
			}
			retained := func(req audit.RetainRequest) (map[string]string, audit.RetainResult) {
				r, got := b.retain(req), map[string]string{}
				for _, h := range r.Histories {
					got[h.ID] = fmt.Sprintf("up to %d %s", h.UpTo, h.Pinned)
				}
				return got, r
			}
			place(store.NoCursor, 0)
			b.pass(31 * day)
			if got, r := retained(audit.RetainRequest{}); len(got) > 0 || r.Kept[audit.KeptUnexported] != 2 || r.Forgotten != nil {
				t.Errorf("nothing is exported: %v, %+v", got, r)
			}
			place(0, 4)
			letter := store.DeadLetter{Cursor: "webhook:b", Position: 2, Instance: first, Seq: 2, At: b.now}
			if err := db.AddDeadLetter(t.Context(), letter, nil); err != nil {
				t.Fatal(err)
			}
			if got, r := retained(audit.RetainRequest{DryRun: true}); !reflect.DeepEqual(got, map[string]string{first: "up to 1 not_exported", second: "up to 1 not_exported"}) {
				t.Errorf("a part is exported: %v, %+v", got, r)
			}
			b.pass(100 * 365 * day) // cursors move by the store's clock
			if got, r := retained(audit.RetainRequest{DryRun: true}); len(got) != 2 || len(r.Forgotten) != 1 || r.Forgotten[0].Name != "webhook:a" {
				t.Errorf("a forgotten cursor is not passed over by itself: %v, %+v", got, r)
			}
			if got, _ := retained(audit.RetainRequest{DryRun: true, PassForgotten: true, ForgottenAfter: 200 * 365 * day}); got[first] != "up to 1 not_exported" {
				t.Errorf("within the limit: %v", got)
			}
			if got, r := retained(audit.RetainRequest{PassForgotten: true}); !reflect.DeepEqual(got, map[string]string{first: "up to 2 ", second: "up to 2 "}) || len(r.Forgotten) != 1 {
				t.Errorf("passed over: %v, %+v", got, r)
			}
			b.whole(first)
		})
	}
}
