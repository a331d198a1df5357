//go:build unix

package pgstore_test

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/pgstore/pgtest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/judge"
)

var millionOf = flag.Int("pg.instances", 0, "measure pages over so many instances (make bench-postgres)")

// slowestPage is what a page may take, whatever it asks for and however much there is.
const slowestPage = 50 * time.Millisecond

// fill writes n instances: in ten workflows alike, of which one in a hundred is in one that was given
// up long ago, and ten in a rare one; half of them of one owner. Every second one moved, ended or was
// refused, and every hundredth has a review.
func fill(t testing.TB, s *opened, n int) {
	t.Helper()
	ctx := context.Background()
	finish, err := s.BeginFill(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const chunk = 10_000
	var made [2]chan [][]store.Commit // two processors encode in turns
	for k := range made {
		made[k] = make(chan [][]store.Commit)
		go func() {
			defer close(made[k])
			for first := k * chunk; first < n; first += len(made) * chunk {
				var all [][]store.Commit
				for i := first; i < min(n, first+chunk); i++ {
					all = append(all, grow(t, i, n))
				}
				made[k] <- all
			}
		}()
	}
	for k := 0; ; k = (k + 1) % len(made) {
		all := <-made[k]
		if all == nil {
			break
		}
		if err := s.Fill(ctx, all); err != nil {
			t.Fatal(err)
		}
	}
	if err := finish(); err != nil {
		t.Fatal(err)
	}
}

// grow is what instance i of n went through.
func grow(t testing.TB, i, n int) []store.Commit {
	workflow, owner, said := fmt.Sprint("doc-", i%10), "local:busy", ""
	switch {
	case i < n/50:
		workflow, said = "old", "an ancient habit"
	case i%(n/10) == 7:
		workflow, said = "rare", "a zebra"
	}
	if i%2 == 1 {
		owner = fmt.Sprint("local:", i%1000)
	}
	at := func(e *record.Event) {
		e.Time = storetest.Epoch.Add(time.Duration(i) * time.Second)
		e.Decision.Reasoning = said
	}
	c := storetest.Start(t, storetest.ID(i), `{"title":"a document","n":0}`, at, storetest.By(owner), func(e *record.Event) { e.Workflow = workflow })
	if i%100 == 0 {
		r := storetest.Review(i, c.Next)
		if i%200 == 0 {
			r.Status, r.Data, r.Principal = record.ReviewResolved, nil, fmt.Sprint("local:", i%1000)
		}
		c.Reviews = []store.Review{r}
	}
	switch {
	case i%2 == 0:
		return []store.Commit{c}
	case i%7 == 0:
		return []store.Commit{c, storetest.Refuse(t, c.Next, "submit", at)}
	case i%20 == 1:
		return []store.Commit{c, storetest.Advance(t, c.Next, "done", `{}`, at, func(e *record.Event) { e.Status = record.Complete })}
	}
	return []store.Commit{c, storetest.Advance(t, c.Next, "reviewing", `{"n":1}`, at)}
}

// pagesOver are pages of all kinds over n instances with last events.
func pagesOver(n int, last int64) map[string]any {
	deep := storetest.ID(n / 3)
	all := map[string]any{}
	for name, q := range map[string]store.InstanceQuery{
		"all": {}, "all, deep": {BeforeID: deep},
		"of a workflow": {Workflow: "doc-3"}, "of a workflow, deep": {Workflow: "doc-3", BeforeID: deep},
		"of a rare workflow": {Workflow: "rare"}, "of an old workflow": {Workflow: "old"}, "of no workflow": {Workflow: "none"},
		"in a state": {State: "draft"}, "in a state, deep": {State: "reviewing", BeforeID: deep}, "in no state": {State: "none"},
		"of a workflow in a state": {Workflow: "doc-1", State: "done"}, "of a workflow in a state that it does not have": {Workflow: "doc-2", State: "done"},
		"of a status": {Status: record.Complete}, "of a status, deep": {Status: record.Running, BeforeID: deep}, "of a status without any": {Status: record.Cancelled},
		"of a workflow and a status": {Workflow: "doc-1", Status: record.Complete}, "of an owner": {Owner: "local:17"}, "of an owner with half of all": {Owner: "local:busy", BeforeID: deep},
		"of an owner and a status without any":             {Owner: "local:busy", Status: record.Complete},
		"of an owner and a workflow without any":           {Owner: "local:busy", Workflow: "doc-1"},
		"of an owner, a workflow, a state, a status, deep": {Owner: "local:busy", Workflow: "doc-2", State: "draft", Status: record.Running, BeforeID: deep},
		"of a subject": {Workflow: "doc-1", Subject: "release 7"}, "with open calls": {OpenCalls: true}, "heads": {Heads: true, BeforeID: deep},
		"of an owner, heads": {Owner: "local:busy", Status: record.Running, Heads: true},
	} {
		all["instances "+name] = q
	}
	low := 0.9
	for name, q := range map[string]store.DecisionQuery{
		"all": {}, "all, deep": {Before: last / 3}, "of an instance": {Instance: storetest.ID(7)}, "of a workflow": {Workflow: "doc-3"},
		"of an old workflow": {Workflow: "old"}, "of a rare workflow": {Workflow: "rare"}, "of an owner": {Owner: "local:17"},
		"of an owner with half of all, deep": {Owner: "local:busy", Before: last / 3}, "of an owner with half of all and a workflow without any": {Owner: "local:busy", Workflow: "doc-1"},
		"that reject": {Outcome: judge.Reject}, "of a workflow that reject, deep": {Workflow: "doc-7", Outcome: judge.Reject, Before: last / 3},
		"with a frequent word": {Text: "missing"}, "with a rare word": {Text: "zebra"}, "with an old word": {Text: "ancient"}, "with no such word": {Text: "unicorn"},
		"with a frequent and an old word": {Text: "missing ancient"}, "with two words of different decisions": {Text: "zebra ancient"},
		"with a confidence without any": {MaxConfidence: &low},
		"before an hour long past":      {Until: storetest.Epoch.Add(time.Hour)},
		"of an hour":                    {Since: storetest.Epoch.Add(time.Duration(n/2) * time.Second), Until: storetest.Epoch.Add(time.Duration(n/2+3600) * time.Second)},
		"with a word in an hour":        {Text: "missing", Since: storetest.Epoch.Add(time.Duration(n/2) * time.Second), Until: storetest.Epoch.Add(time.Duration(n/2+3600) * time.Second)},
	} {
		all["decisions "+name] = q
	}
	for name, q := range map[string]store.TailQuery{
		"from the first": {}, "from a third": {After: last / 3}, "from the last": {After: last}, "of an instance": {Instance: storetest.ID(7)},
		"of a workflow": {Workflow: "doc-3", After: last / 3}, "of an old workflow, from a third": {Workflow: "old", After: last / 3},
		"of a rare workflow": {Workflow: "rare"}, "of no workflow": {Workflow: "none"}, "of an owner": {Owner: "local:17"},
		"of an owner with half of all and a workflow without any": {Owner: "local:busy", Workflow: "doc-1"}, "of a workflow, from the last": {Workflow: "doc-3", After: last},
	} {
		all["events "+name] = q
	}
	for name, q := range map[string]store.ReviewQuery{
		"all": {}, "all, deep": {After: &store.ReviewCursor{Rank: record.PriorityNormal.Rank(), ID: storetest.ReviewID(n / 3)}},
		"of a workflow": {Workflow: "doc-0"}, "of no workflow": {Workflow: "none"}, "open": {Status: record.ReviewOpen}, "expired": {Status: record.ReviewExpired},
		"of a principal": {Principal: "local:agent"}, "of a principal, open": {Principal: "local:200", Status: record.ReviewOpen}, "of an instance": {Instance: storetest.ID(100)},
	} {
		all["reviews "+name] = q
	}
	return all
}

// pageRows is how many rows a page has.
const pageRows = 20

func readPage(t testing.TB, s store.Store, q any) (found int) {
	switch q := q.(type) {
	case store.InstanceQuery:
		q.Limit = pageRows
		return count(t, s.Instances(context.Background(), q))
	case store.DecisionQuery:
		q.Limit = pageRows
		return count(t, s.Decisions(context.Background(), q))
	case store.TailQuery:
		q.Limit = pageRows
		return count(t, s.EventsAfter(context.Background(), q))
	case store.ReviewQuery:
		q.Limit = pageRows
		return count(t, s.Reviews(context.Background(), q))
	}
	t.Fatalf("no page of %T", q)
	return 0
}

func count[T any](t testing.TB, all iter.Seq2[T, error]) (n int) {
	for _, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestMany looks at a store with more than fits in a page of anything.
func TestMany(t *testing.T) {
	s := unsynced(t, newSchema(t))
	defer s.Close()
	const n = 12_000
	fill(t, s, n)
	t.Run("no page reads a table from its beginning, nor sorts all that it could show", func(t *testing.T) { requirePlans(t, s, n) })
	t.Run("figures of whole blocks are kept, and counted again when something is removed", func(t *testing.T) { figuresOfBlocks(t, s) })
	t.Run("what was filled in verifies", func(t *testing.T) {
		for inst, err := range s.Instances(t.Context(), store.InstanceQuery{Limit: 100, BeforeID: storetest.ID(n / 2)}) {
			if err != nil {
				t.Fatal(err)
			}
			if err := record.Verify(s.Events(t.Context(), store.EventQuery{Instance: inst.ID})); err != nil {
				t.Error(err)
			}
		}
	})
}

// scans find a table read from its beginning, and rows the number that a sort expects.
var (
	scans = regexp.MustCompile(`Seq Scan on (instances|contexts|events|reviews|snapshots)|(Hash|Merge) Join`)
	sorts = regexp.MustCompile(`^ *(?:->  )?Sort.* rows=(\d+)`)
)

// sortedAtMost is how many rows a page may sort: those of a block of positions.
const sortedAtMost = 8192

func isWide(step string) bool {
	found := sorts.FindStringSubmatch(step)
	if found == nil {
		return scans.MatchString(step)
	}
	n, err := strconv.Atoi(found[1])
	return err != nil || n > sortedAtMost
}

func requirePlans(t *testing.T, s *opened, n int) {
	t.Helper()
	last, err := s.LastPosition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pages := pagesOver(n, last)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, plan := range plansOf(t, s, pages[name], last) {
			if slices.ContainsFunc(plan, isWide) {
				t.Errorf("%s:\n%s", name, strings.Join(plan, "\n"))
			}
		}
	}
}

// plansOf are a page's queries, each with the steps in which the server makes it.
func plansOf(t *testing.T, s *opened, q any, last int64) (all [][]string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pgtest.Shared(t).Fast)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, page := range s.PagesOf(q, last, pageRows) {
		found, err := conn.Query(t.Context(), "EXPLAIN "+page.SQL, append([]any{pgx.QueryExecModeCacheDescribe}, page.Args...)...)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, append([]string{page.SQL}, plan...))
	}
	return all
}

// TestMillion measures pages over a million instances.
func TestMillion(t *testing.T) {
	if *millionOf == 0 {
		t.Skip("a measurement: make bench-postgres")
	}
	s := unsynced(t, newSchema(t))
	defer s.Close()
	start := time.Now()
	fill(t, s, *millionOf)
	last, err := s.LastPosition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d instances with %d events written in %s", *millionOf, last, time.Since(start).Round(time.Second))
	requirePlans(t, s, *millionOf)
	for _, when := range []string{"counted", "from what is kept"} {
		start := time.Now()
		count(t, s.Figures(t.Context(), store.DecisionQuery{Workflow: "doc-3"}))
		t.Logf("figures of a workflow, %s: %s", when, time.Since(start).Round(time.Millisecond))
	}
	pages := pagesOver(*millionOf, last)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		var took []time.Duration
		found := 0
		for range 21 {
			start := time.Now()
			found = readPage(t, s, pages[name])
			took = append(took, time.Since(start))
		}
		first := took[0]
		slices.Sort(took)
		t.Logf("%-60s %2d rows %8.2f ms, the first %8.2f ms", name, found, float64(took[len(took)/2].Microseconds())/1e3, float64(first.Microseconds())/1e3)
		if took[len(took)/2] > slowestPage {
			t.Errorf("%s: %s\n%s", name, took[len(took)/2], plansOf(t, s, pages[name], last))
		}
	}
}

func figuresOfBlocks(t *testing.T, s *opened) {
	t.Helper()
	hour := store.DecisionQuery{Since: storetest.Epoch.Add(time.Hour), Until: storetest.Epoch.Add(2 * time.Hour)}
	require := func(when string, all ...store.DecisionQuery) {
		t.Helper()
		for _, q := range all {
			storetest.RequireFigures(t, s, q)
		}
		if kept := s.KeptFigures(t); kept != 2 {
			t.Errorf("%s: figures of %d blocks are kept, want those of 2 that are full", when, kept)
		}
	}
	require("once", store.DecisionQuery{})
	require("from what is kept", store.DecisionQuery{Workflow: "doc-3"}, hour)
	for inst, err := range s.Instances(t.Context(), store.InstanceQuery{Workflow: "old", Status: record.Complete, Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Commit(t.Context(), storetest.Truncate(t, inst, inst)); err != nil {
			t.Fatal(err)
		}
	}
	if kept := s.KeptFigures(t); kept != 1 {
		t.Errorf("figures of %d blocks are kept, and something of one was removed", kept)
	}
	require("after a removal", store.DecisionQuery{Workflow: "old"})
}
