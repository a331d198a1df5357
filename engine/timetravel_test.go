package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// lived is an instance with a long history: moves, a refusal, a checkpoint, a rollback, an undo, a
// migration. It keeps the status after every event.
type lived struct {
	*bench
	id    string
	after []engine.StatusResult // by seq, from 1
}

func newLived(t *testing.T, s store.Store) *lived {
	t.Helper()
	l := &lived{bench: newBenchOn(t, s)}
	b := l.bench
	b.define(agent, walkFlow)
	l.id = b.start(agent, "walk", `{"n":0}`).ID
	look := func() {
		t.Helper()
		got, err := b.Status(t.Context(), agent, l.id)
		if err != nil || got.Past != nil {
			t.Fatalf("status: %+v, %v", got.Past, err)
		}
		l.after = append(l.after, got)
	}
	look()
	move := func(action, data, state string) { b.moved(agent, l.id, action, data, state); look() }
	move("go", `{"n":1}`, "b")
	b.refused(agent, l.id, "nowhere", `{}`, "illegal_action")
	look()
	cp, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: l.id})
	if err != nil {
		t.Fatal(err)
	}
	look()
	b.refused(agent, l.id, "nowhere", `{}`, "illegal_action") // after the snapshot of its revision
	look()
	move("go", `{"n":2}`, "c")
	if _, err := b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: l.id, CheckpointID: cp.CheckpointID}); err != nil {
		t.Fatal(err)
	}
	look()
	move("back", `{"m":1}`, "a")
	b.undo(agent, l.id, "b")
	look()
	b.define(agent, strings.ReplaceAll(walkFlow, `"b"`, `"bb"`))
	r, err := b.Migrate(t.Context(), operator, engine.MigrateRequest{Workflow: "walk", States: map[string]string{"b": "bb"}})
	if err != nil || r.Migrated != 1 {
		t.Fatalf("migrate: %+v, %v", r, err)
	}
	look()
	move("go", `{"n":3}`, "c")
	return l
}

// past returns the expected status at a past event, from the status at that time.
func (l *lived) past(seq int) engine.StatusResult {
	want := l.after[seq-1]
	now := l.after[len(l.after)-1]
	if seq == len(l.after) {
		return want
	}
	want.Past = &engine.Past{Revision: now.Revision, State: now.State}
	want.Progress = ""
	return want
}

func (l *lived) compare(what string, got engine.StatusResult, seq int) {
	l.t.Helper()
	if got.Past != nil {
		if !strings.HasPrefix(got.Progress, "As it was at revision ") {
			l.t.Errorf("%s: the progress does not say that it is past: %s", what, got.Progress)
		}
		got.Progress = ""
	}
	if diff := cmp.Diff(l.past(seq), got); diff != "" {
		l.t.Errorf("%s (-was +told):\n%s", what, diff)
	}
}

// countingStore counts the events that are read from it.
type countingStore struct {
	*memory.Store
	read int
}

func (s *countingStore) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	return func(yield func(record.Event, error) bool) {
		for ev, err := range s.Store.Events(ctx, q) {
			s.read++
			if !yield(ev, err) {
				return
			}
		}
	}
}

// TestATimeInALongHistory: anyone who may see an instance may ask for any time repeatedly, so that must
// not read the whole history.
func TestATimeInALongHistory(t *testing.T) {
	t.Parallel()
	const moves, between = 3000, 50 // between two snapshots
	db := &countingStore{Store: memory.New()}
	b := newBenchOn(t, db)
	b.define(agent, `{"name":"long","initialState":"a","states":{"a":{"transitions":{"note":"a"}}}}`)
	inst := b.load(b.start(agent, "long", `{}`).ID)
	began := inst.UpdatedAt
	verdict := judge.Verdict{
		Outcome: judge.Approve, Proposed: judge.Approve, Applied: true, Target: "a", Confidence: 1, Assurance: judge.AssuranceStructural, DecidedBy: judge.LayerSchema,
	}
	for i := range moves {
		ev := record.Event{
			Kind: record.Advanced, Time: began.Add(time.Duration(i+1) * time.Second), Principal: agent.ID, Role: string(agent.Role), Action: "note", To: "a",
			Patch: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i+1)), Decision: &record.Decision{ID: fmt.Sprint("dec-", i), Verdict: verdict},
		}
		sealed, next, err := record.Seal(inst, ev, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Commit(t.Context(), store.Commit{Events: []record.Event{sealed}, Next: next, Expect: inst.Seq, Snapshot: i%between == 0}); err != nil {
			t.Fatal(err)
		}
		inst = next
	}
	for _, n := range []int{0, 1, 1777, moves - 1} {
		db.read = 0
		got, err := b.StatusAt(t.Context(), agent, inst.ID, engine.When{At: began.Add(time.Duration(n)*time.Second + time.Millisecond)})
		if err != nil || got.Revision != int64(n+1) || n > 0 && string(got.Context) != fmt.Sprintf(`{"n":%d}`, n) {
			t.Fatalf("after %d moves: %+v, %v", n, got, err)
		}
		if db.read > 3*between {
			t.Errorf("after %d moves: %d of %d events were read", n, db.read, moves)
		}
	}
}

// TestStatusAtEveryPoint asks for every revision and every time of a history.
func TestStatusAtEveryPoint(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		l := newLived(t, s)
		ctx := t.Context()
		last := map[int64]int{} // the last event of each revision
		for seq := 1; seq <= len(l.after); seq++ {
			last[l.after[seq-1].Revision] = seq
		}
		for revision, seq := range last {
			got, err := l.StatusAt(ctx, agent, l.id, engine.When{Revision: revision})
			if err != nil {
				t.Fatalf("revision %d: %v", revision, err)
			}
			l.compare("revision", got, seq)
		}
		for i := range l.after {
			at := l.after[i].UpdatedAt
			got, err := l.StatusAt(ctx, agent, l.id, engine.When{At: at})
			if err != nil {
				t.Fatalf("at %s: %v", at, err)
			}
			l.compare("at the moment", got, i+1)
			if i == 0 {
				continue
			}
			if got, err = l.StatusAt(ctx, agent, l.id, engine.When{At: at.Add(-time.Nanosecond)}); err != nil {
				t.Fatal(err)
			}
			l.compare("right before", got, i)
		}
		got, err := l.StatusAt(ctx, agent, l.id, engine.When{At: l.after[len(l.after)-1].UpdatedAt.Add(time.Hour)})
		if err != nil || got.Past != nil {
			t.Errorf("later than the last event: %+v, %v", got.Past, err)
		}
	})
}

func TestPastThatWasNot(t *testing.T) {
	t.Parallel()
	l := newLived(t, newBench(t).store)
	ctx := t.Context()
	began := l.after[0].CreatedAt
	for name, tt := range map[string]struct {
		when engine.When
		code engine.Code
		say  string
	}{
		"a revision to come": {engine.When{Revision: 99}, engine.CodeUnknownRevision, "no revision 99 yet; it is at 8"},
		"a revision below 1": {engine.When{Revision: -1}, engine.CodeInvalidArgument, "1 or more"},
		"before the start":   {engine.When{At: began.Add(-time.Second)}, engine.CodeUnknownRevision, "did not exist at"},
		"both":               {engine.When{Revision: 1, At: began}, engine.CodeInvalidArgument, "both"},
	} {
		_, err := l.StatusAt(ctx, agent, l.id, tt.when)
		if e := wantCode(t, err, tt.code); !strings.Contains(e.Message, tt.say) {
			t.Errorf("%s: %s", name, e.Message)
		}
		_, err = l.History(ctx, agent, engine.HistoryRequest{ID: l.id, Until: tt.when})
		wantCode(t, err, tt.code)
		_, err = l.DescribeAt(ctx, agent, engine.DescribeRequest{ID: l.id, When: tt.when})
		wantCode(t, err, tt.code)
	}
	_, err := l.StatusAt(ctx, other, l.id, engine.When{Revision: 1})
	wantCode(t, err, engine.CodeUnknownInstance)
}

func TestHistoryUntil(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		l := newLived(t, s)
		seqs := func(until engine.When) []int64 {
			h, err := l.History(t.Context(), agent, engine.HistoryRequest{ID: l.id, Until: until})
			if err != nil {
				t.Fatal(err)
			}
			var out []int64
			for _, d := range h.Decisions {
				out = append(out, d.Seq)
			}
			return out
		}
		for name, tt := range map[string]struct {
			until engine.When
			want  []int64
		}{
			"now":           {engine.When{}, []int64{1, 2, 3, 5, 6, 8, 11}},
			"the start":     {engine.When{Revision: 1}, []int64{1}},
			"a revision":    {engine.When{Revision: 2}, []int64{1, 2, 3, 5}},
			"in the middle": {engine.When{At: l.after[2].UpdatedAt}, []int64{1, 2, 3}},
			"at the end":    {engine.When{Revision: 8}, []int64{1, 2, 3, 5, 6, 8, 11}},
		} {
			if diff := cmp.Diff(tt.want, seqs(tt.until)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

// TestDescribeAt returns past versions of a name and of an instance, with the judge's settings at that
// time.
func TestDescribeAt(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		l := newLived(t, s)
		ctx := t.Context()
		first, err := l.Describe(ctx, agent, "walk", 1)
		if err != nil {
			t.Fatal(err)
		}
		second, err := l.Describe(ctx, agent, "walk", 2)
		if err != nil {
			t.Fatal(err)
		}
		strict := true
		if _, err := l.ConfigureJudge(ctx, agent, engine.JudgeConfigRequest{Name: "walk", Settings: workflow.JudgeSettings{StrictMode: &strict}}); err != nil {
			t.Fatal(err)
		}
		for name, tt := range map[string]struct {
			ask     engine.DescribeRequest
			version int
			strict  bool
		}{
			"the newest":                   {engine.DescribeRequest{Name: "walk"}, 2, true},
			"a version":                    {engine.DescribeRequest{Name: "walk", Version: 1}, 1, true},
			"when the first was new":       {engine.DescribeRequest{Name: "walk", When: engine.When{At: first.CreatedAt}}, 1, false},
			"right before the second":      {engine.DescribeRequest{Name: "walk", When: engine.When{At: second.CreatedAt.Add(-1)}}, 1, false},
			"when the second was new":      {engine.DescribeRequest{Name: "walk", When: engine.When{At: second.CreatedAt}}, 2, false},
			"the instance's":               {engine.DescribeRequest{ID: l.id}, 2, true},
			"the instance's at the start":  {engine.DescribeRequest{ID: l.id, When: engine.When{Revision: 1}}, 1, false},
			"the instance's, not migrated": {engine.DescribeRequest{ID: l.id, When: engine.When{At: second.CreatedAt}}, 1, false},
			"the instance's after that":    {engine.DescribeRequest{ID: l.id, When: engine.When{Revision: 7}}, 2, false},
			"the instance's as it is now":  {engine.DescribeRequest{ID: l.id, When: engine.When{Revision: 8}}, 2, true},
		} {
			got, err := l.DescribeAt(ctx, agent, tt.ask)
			if err != nil || got.Version != tt.version || got.Judge.StrictMode != tt.strict {
				t.Errorf("%s: version %d, strict %v, %v; want %d, %v", name, got.Version, got.Judge.StrictMode, err, tt.version, tt.strict)
			}
		}
		for name, tt := range map[string]struct {
			ask  engine.DescribeRequest
			code engine.Code
		}{
			"nothing":                   {engine.DescribeRequest{}, engine.CodeInvalidArgument},
			"both":                      {engine.DescribeRequest{Name: "walk", ID: l.id}, engine.CodeInvalidArgument},
			"a version of an instance":  {engine.DescribeRequest{ID: l.id, Version: 1}, engine.CodeInvalidArgument},
			"a version and a time":      {engine.DescribeRequest{Name: "walk", Version: 1, When: engine.When{At: first.CreatedAt}}, engine.CodeInvalidArgument},
			"a revision of a name":      {engine.DescribeRequest{Name: "walk", When: engine.When{Revision: 1}}, engine.CodeInvalidArgument},
			"before it was defined":     {engine.DescribeRequest{Name: "walk", When: engine.When{At: first.CreatedAt.Add(-1)}}, engine.CodeUnknownRevision},
			"an unknown name":           {engine.DescribeRequest{Name: "wolk"}, engine.CodeUnknownWorkflow},
			"an unknown name of a time": {engine.DescribeRequest{Name: "wolk", When: engine.When{At: first.CreatedAt}}, engine.CodeUnknownWorkflow},
			"somebody else's instance":  {engine.DescribeRequest{ID: "wf-none"}, engine.CodeUnknownInstance},
		} {
			if _, err := l.DescribeAt(ctx, agent, tt.ask); engine.CodeOf(err) != tt.code {
				t.Errorf("%s: got %v, want %s", name, err, tt.code)
			}
		}
	})
}

// TestThePastIsMasked: a caller that may not see a value now does not see it in the past. That holds even
// if only a later or only an earlier version marks it as sensitive.
func TestThePastIsMasked(t *testing.T) {
	t.Parallel()
	flow := func(sensitive string) string {
		return `{"name":"secret","initialState":"a","sensitive":` + sensitive + `,"states":{"a":{"transitions":{"go":"b"}},"b":{"transitions":{"go":"a"}}}}`
	}
	for name, tt := range map[string]struct{ before, after string }{
		"from the beginning": {`["/ssn","/pin"]`, `["/ssn","/pin"]`},
		"since the second":   {`[]`, `["/ssn","/pin"]`},
		"until the second":   {`["/ssn","/pin"]`, `[]`},
		"one and the other":  {`["/ssn"]`, `["/pin"]`},
		"one within another": {`["/ssn","/pin"]`, `["/pin"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.define(operator, flow(tt.before))
			id := b.start(agent, "secret", `{"ssn":"078-05-1120","pin":1234,"open":"fine"}`).ID
			b.moved(agent, id, "go", `{}`, "b")
			b.define(operator, flow(tt.after))
			if _, err := b.Migrate(t.Context(), operator, engine.MigrateRequest{Workflow: "secret"}); err != nil {
				t.Fatal(err)
			}
			for _, p := range []engine.Principal{reviewer, auditor} {
				got, err := b.StatusAt(t.Context(), p, id, engine.When{Revision: 1})
				if err != nil {
					t.Fatal(err)
				}
				text := string(got.Context)
				if strings.Contains(text, "078") || strings.Contains(text, "1234") || !strings.Contains(text, "fine") || strings.Count(text, "[masked]") != 2 {
					t.Errorf("%s sees %s", p.Role, text)
				}
			}
			got, err := b.StatusAt(t.Context(), agent, id, engine.When{Revision: 1})
			if err != nil || !strings.Contains(string(got.Context), "078") {
				t.Errorf("its owner sees %s, %v", got.Context, err)
			}
		})
	}
}

// TestThePastShowsItsReviews returns the reviews that were open then, in their present state.
func TestThePastShowsItsReviews(t *testing.T) {
	t.Parallel()
	b, id := parkable(t)
	b.moved(agent, id, "note", `{"n":2}`, "ready")
	r := b.parked(agent, id, "release", `{"why":"x"}`)
	if got, err := b.resolve(rita, r.ID, judge.Approve); err != nil || !got.Applied {
		t.Fatalf("%+v, %v", got, err)
	}
	got, err := b.StatusAt(t.Context(), agent, id, engine.When{Revision: 2})
	// The review was resolved in the commit of the move, right before it: at the end of revision 2 no
	// review is open.
	if err != nil || len(got.Reviews) != 0 || got.Seq != 4 {
		t.Errorf("at the end of the revision: %+v, %v", got.Reviews, err)
	}
	got, err = b.StatusAt(t.Context(), agent, id, engine.When{At: r.ParkedAt})
	if err != nil || len(got.Reviews) != 1 || got.Reviews[0].Status != record.ReviewResolved || got.Seq != 3 {
		t.Errorf("while it waited: %+v, %v", got.Reviews, err)
	}
}

// TestThePastThatWasRemoved: before the floor of a history nothing is known.
func TestThePastThatWasRemoved(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s store.Store) {
		b := newBenchOn(t, s)
		b.define(agent, walkFlow)
		id := b.start(agent, "walk", `{"n":0}`).ID
		var at []time.Time
		at = append(at, b.load(id).UpdatedAt)
		for i, state := range []string{"b", "c", "a", "b", "c"} {
			action := "go"
			if i == 2 {
				action = "back"
			}
			b.moved(agent, id, action, `{"n":`+string(rune('1'+i))+`}`, state)
			at = append(at, b.load(id).UpdatedAt)
		}
		floor, err := engine.FoldTo(t.Context(), b.store, id, 3, 3)
		if err != nil {
			t.Fatal(err)
		}
		inst := b.load(id)
		ev, next, err := record.Seal(inst, record.Event{
			Kind: record.Truncated, Time: inst.UpdatedAt, Principal: "system", Role: "operator",
			Truncation: &record.Truncation{UpTo: floor.Seq, Hash: floor.Head, Count: 3, Revision: floor.Revision, Floor: record.DigestState(floor)},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), store.Commit{Expect: inst.Seq, Events: []record.Event{ev}, Next: next, Floor: &floor}); err != nil {
			t.Fatal(err)
		}
		for revision, state := range map[int64]string{3: "c", 4: "a", 5: "b", 6: "c"} {
			got, err := b.StatusAt(t.Context(), agent, id, engine.When{Revision: revision})
			if err != nil || got.State != state {
				t.Errorf("revision %d: in %q, %v; want %q", revision, got.State, err, state)
			}
			got, err = b.StatusAt(t.Context(), agent, id, engine.When{At: at[revision-1]})
			if err != nil || got.State != state {
				t.Errorf("at %s: in %q, %v; want %q", at[revision-1], got.State, err, state)
			}
		}
		for _, w := range []engine.When{{Revision: 1}, {Revision: 2}, {At: at[0]}, {At: at[2].Add(-1)}} {
			_, err := b.StatusAt(t.Context(), agent, id, w)
			if e := wantCode(t, err, engine.CodeUnknownRevision); !strings.Contains(e.Message, "removed") {
				t.Errorf("%+v: %s", w, e.Message)
			}
		}
		for _, state := range []string{"b", "a", "c"} { // the rest can be undone
			b.undo(agent, id, state)
		}
		_, err = b.Undo(t.Context(), agent, engine.UndoRequest{ID: id})
		if e := wantCode(t, err, engine.CodeNothingToUndo); !strings.Contains(e.Message, "removed") {
			t.Error(e.Message)
		}
	})
}

// TestReadWholeHistoryFollowsPages has more decisions than fit on one page.
func TestReadWholeHistoryFollowsPages(t *testing.T) {
	b := newBench(t)
	b.define(operator, `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":{"target":"a","requiredFields":["name"]}}}}}`)
	id := b.start(operator, "w", `{}`).ID
	data := json.RawMessage(`{"text":"` + strings.Repeat("x", 60<<10) + `"}`)
	for range 24 {
		if _, err := b.Advance(t.Context(), operator, engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted(data)}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := b.History(t.Context(), operator, engine.HistoryRequest{ID: id, Limit: 1000})
	if err != nil || page.NextAfter == 0 || page.Count >= 25 {
		t.Fatalf("%d decisions of 25, the next after %d, %v: one page shows all", page.Count, page.NextAfter, err)
	}
	all, err := engine.ReadWholeHistory(t.Context(), b.Engine, operator, id)
	if err != nil || len(all) != 25 {
		t.Errorf("%d decisions, want 25; %v", len(all), err)
	}
}
