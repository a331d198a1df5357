package sqlite_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/judge"
)

// A search reads only its results and a few neighbours: each uses an index, and none sorts.
func TestDecisionPlans(t *testing.T) {
	s := openAt(t, newPath(t))
	defer s.Close()
	const (
		byTerms   = "SCAN t VIRTUAL TABLE INDEX"
		byPlace   = "SEARCH e USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
		byHistory = "SEARCH e USING INDEX events_seq (n=?"
	)
	yes, half := true, 0.5
	tests := map[string]struct {
		q    store.DecisionQuery
		want string
	}{
		"all":                  {store.DecisionQuery{}, byPlace},
		"before":               {store.DecisionQuery{Before: 7}, byPlace},
		"time":                 {store.DecisionQuery{Since: storetest.Epoch, Until: storetest.Epoch.Add(1)}, byPlace},
		"instance":             {store.DecisionQuery{Instance: "i"}, byHistory},
		"instance and text":    {store.DecisionQuery{Instance: "i", Text: "x", Workflow: "w", Before: 9}, byHistory},
		"workflow":             {store.DecisionQuery{Workflow: "w"}, byTerms},
		"owner":                {store.DecisionQuery{Owner: "o"}, byTerms},
		"principal":            {store.DecisionQuery{Principal: "p"}, byTerms},
		"action":               {store.DecisionQuery{Action: "a"}, byTerms},
		"outcome":              {store.DecisionQuery{Outcome: judge.Reject}, byTerms},
		"decided by":           {store.DecisionQuery{DecidedBy: judge.LayerModel}, byTerms},
		"assurance":            {store.DecisionQuery{Assurance: judge.AssuranceLLM}, byTerms},
		"code":                 {store.DecisionQuery{Code: "c"}, byTerms},
		"degraded":             {store.DecisionQuery{Degraded: &yes}, byTerms},
		"confidence":           {store.DecisionQuery{MinConfidence: &half}, byTerms},
		"kinds":                {store.DecisionQuery{Kinds: []record.Kind{record.Refused, record.Prechecked}}, byTerms},
		"text":                 {store.DecisionQuery{Text: "missing field"}, byTerms},
		"workflow and outcome": {store.DecisionQuery{Workflow: "w", Outcome: judge.Reject, Before: 9}, byTerms},
		"everything": {store.DecisionQuery{
			Workflow: "w", Owner: "o", Principal: "p", Action: "a", Outcome: judge.Reject, DecidedBy: judge.LayerModel, Code: "c",
			Degraded: &yes, MaxConfidence: &half, Since: storetest.Epoch, Text: "missing", Limit: 5,
		}, byTerms},
	}
	for what, tt := range tests {
		steps := plan(t, s, sqlite.DecisionsQuery(tt.q))
		if !strings.HasPrefix(steps[0], tt.want) && !slices.ContainsFunc(steps, func(step string) bool { return strings.HasPrefix(step, tt.want) }) {
			t.Errorf("%s: %q, want %s", what, steps, tt.want)
		}
		for _, step := range steps {
			if strings.Contains(step, "TEMP B-TREE") || strings.HasPrefix(step, "SCAN") && !strings.HasPrefix(step, byTerms) {
				t.Errorf("%s: %s", what, step)
			}
		}
	}
}

// grown adds n refusals to an instance.
func grown(t *testing.T, s *sqlite.Store, inst record.Instance, n int) record.Instance {
	t.Helper()
	for range n {
		c := storetest.Refuse(t, inst, "submit")
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		inst = c.Next
	}
	return inst
}

func found(t *testing.T, s *sqlite.Store, q store.DecisionQuery) (positions []int64) {
	t.Helper()
	for h, err := range s.Decisions(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		positions = append(positions, h.Position)
	}
	return positions
}

func number(t *testing.T, s *sqlite.Store, query string) (n int64) {
	t.Helper()
	if err := s.ReaderDB().QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

const (
	reachedByIndex = `SELECT pos FROM decision_index`
	indexed        = `SELECT count(*) FROM decision_terms`
)

// Writes index nothing. A search indexes all older events except the newest few, including those from before the
// index existed.
func TestDecisionsAreIndexedOnSearch(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t))
	defer s.Close()
	start := storetest.Start(t, storetest.ID(1), `{}`)
	if err := s.Commit(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	rejected := store.DecisionQuery{Outcome: judge.Reject}
	inst := grown(t, s, start.Next, 100)
	if got := found(t, s, rejected); len(got) != 100 || number(t, s, reachedByIndex) != 0 {
		t.Errorf("found %d, indexed up to %d; want 100 of what is not indexed", len(got), number(t, s, reachedByIndex))
	}
	inst = grown(t, s, inst, 899)
	if n := number(t, s, reachedByIndex); n != 0 {
		t.Errorf("writing indexed up to %d", n)
	}
	if got := found(t, s, rejected); len(got) != 999 || got[0] != 1000 || got[998] != 2 {
		t.Errorf("found %d: %v", len(got), got)
	}
	if reached, n := number(t, s, reachedByIndex), number(t, s, indexed); reached < 1000-256 || n != reached {
		t.Errorf("indexed up to %d, %d decisions", reached, n)
	}
	db := raw(t, s.Path())
	defer db.Close()
	run(t, db, `DELETE FROM decision_times; DELETE FROM decision_terms; UPDATE decision_index SET pos = 0`) // as before the index existed
	grown(t, s, inst, 3)
	if got := found(t, s, rejected); len(got) != 1002 {
		t.Errorf("found %d of 1002 after the index began anew", len(got))
	}
}

// Decisions that were removed from the table of events are no longer found.
func TestRemovedDecisionsAreNotFound(t *testing.T) {
	t.Parallel()
	s := openAt(t, newPath(t))
	defer s.Close()
	start := storetest.Start(t, storetest.ID(1), `{}`)
	if err := s.Commit(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	grown(t, s, start.Next, 600)
	rejected := store.DecisionQuery{Code: "required_field"}
	if got := found(t, s, rejected); len(got) != 600 {
		t.Fatalf("found %d", len(got))
	}
	before := number(t, s, indexed)
	db := raw(t, s.Path())
	defer db.Close()
	run(t, db, `DELETE FROM events WHERE pos BETWEEN 101 AND 150`)
	if got := found(t, s, rejected); len(got) != 550 {
		t.Errorf("found %d, want 550", len(got))
	}
	if n := number(t, s, indexed); n != before-50 {
		t.Errorf("%d are indexed, want %d", n, before-50)
	}
}

// An unreadable event is reported with its position, and the search ends there.
func TestUnreadableDecision(t *testing.T) {
	s := openAt(t, newPath(t))
	defer s.Close()
	start := storetest.Start(t, storetest.ID(1), `{}`)
	if err := s.Commit(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	grown(t, s, start.Next, 20)
	db := raw(t, s.Path())
	defer db.Close()
	run(t, db, `UPDATE events SET body = CAST('{"torn' AS BLOB) WHERE pos = 9`)
	var got []int64
	var told error
	for h, err := range s.Decisions(t.Context(), store.DecisionQuery{}) {
		if told = err; err == nil {
			got = append(got, h.Position)
		}
	}
	if !errors.Is(told, sqlite.ErrCorrupt) || !strings.Contains(told.Error(), "position 9") {
		t.Errorf("found %v and %v, want ErrCorrupt at position 9", got, told)
	}
}

// A search by time starts at the right block and finds everything, even if clocks jump.
func TestDecisionsByTimeOverManyBlocks(t *testing.T) {
	storetest.SkipUnlessLong(t)
	t.Parallel()
	s := openAt(t, newPath(t))
	defer s.Close()
	var inst record.Instance
	const events, perHour = 10_000, 100 // three blocks
	at := func(i int) time.Time {
		return storetest.Epoch.Add(time.Duration(i/perHour) * time.Hour).Add(-time.Duration(i%7) * 3 * time.Hour)
	}
	for i := 0; i < events; {
		c := store.Commit{Expect: inst.Seq}
		for range 100 {
			one := storetest.Start(t, storetest.ID(1), `{}`, func(e *record.Event) { e.Time = at(i) })
			if inst.Seq > 0 {
				one = storetest.Refuse(t, inst, "submit", func(e *record.Event) { e.Time = at(i) })
			}
			c.Events, c.Next, inst = append(c.Events, one.Events...), one.Next, one.Next
			i++
		}
		if err := s.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, hours := range [][2]int{{0, 1}, {10, 12}, {50, 51}, {99, 200}, {0, 100}, {-9, -1}} {
		q := store.DecisionQuery{Since: storetest.Epoch.Add(time.Duration(hours[0]) * time.Hour), Until: storetest.Epoch.Add(time.Duration(hours[1]) * time.Hour)}
		want := 0
		for i := range events {
			if t := at(i); !t.Before(q.Since) && t.Before(q.Until) {
				want++
			}
		}
		if got := found(t, s, q); len(got) != want {
			t.Errorf("hours %v: found %d, want %d", hours, len(got), want)
		}
	}
	if n := number(t, s, `SELECT count(*) FROM decision_times`); n < 2 {
		t.Errorf("%d blocks", n)
	}
	since := sqlite.SpanOf(t.Context(), s, store.DecisionQuery{Since: storetest.Epoch.Add(99 * time.Hour)})
	until := sqlite.SpanOf(t.Context(), s, store.DecisionQuery{Until: storetest.Epoch.Add(2 * time.Hour)})
	if since[0] < int64(events*8/10) || until[1] > 5000 {
		t.Errorf("since looks from %d on, until up to %d", since[0], until[1])
	}
}

// A search takes a limited time, however much there is to index: it scans the rest, and the next search continues
// indexing.
func TestDecisionsAreIndexedForABoundedTime(t *testing.T) {
	t.Parallel()
	s, err := sqlite.OpenIndexing(t.Context(), sqlite.Config{Path: newPath(t)}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := storetest.Start(t, storetest.ID(1), `{}`)
	if err := s.Commit(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	grown(t, s, start.Next, 999)
	for _, want := range []int64{256, 512, 768, 768} {
		got := found(t, s, store.DecisionQuery{Outcome: judge.Reject})
		if len(got) != 999 || got[0] != 1000 || got[998] != 2 {
			t.Errorf("found %d: %v", len(got), got)
		}
		if reached := number(t, s, reachedByIndex); reached != want {
			t.Errorf("indexed up to %d, want %d", reached, want)
		}
	}
}

// BenchmarkDecisions measures a page of a search in a store with many decisions, and indexing them.
func BenchmarkDecisions(b *testing.B) {
	s := openAt(b, b.TempDir()+"/gavel.db")
	defer s.Close()
	const instances, perInstance = 500, 100
	for n := range instances {
		one := storetest.Start(b, storetest.ID(n), `{}`, func(e *record.Event) { e.Principal = fmt.Sprint("agent-", n%50) })
		c := store.Commit{Events: one.Events, Next: one.Next}
		for range perInstance - 1 {
			one = storetest.Refuse(b, c.Next, fmt.Sprint("action-", n%7))
			c.Events, c.Next = append(c.Events, one.Events...), one.Next
		}
		if err := s.Commit(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	first := time.Now()
	page := func(q store.DecisionQuery) {
		q.Limit = 50
		for _, err := range s.Decisions(b.Context(), q) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	page(store.DecisionQuery{Code: "required_field"})
	b.Logf("indexing %d decisions took %s each", instances*perInstance, time.Since(first)/(instances*perInstance))
	for name, q := range map[string]store.DecisionQuery{
		"all":                 {},
		"outcome":             {Outcome: judge.Reject},
		"owner and outcome":   {Owner: "agent-7", Outcome: judge.Reject},
		"text":                {Text: "missing"},
		"action, text, deep":  {Action: "action-3", Text: "missing", Before: 5000},
		"nothing found":       {Outcome: judge.Reject, Text: "nowhere"},
		"rare among frequent": {Outcome: judge.Approve, Workflow: "doc", Owner: "agent-3"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				page(q)
			}
		})
	}
}
