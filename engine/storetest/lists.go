package storetest

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Grown returns the commits of instance i of n. The instances are spread over ten workflows. One in fifty belongs to
// a workflow that was abandoned long ago, and ten belong to a rare one. One owner has half of them. Every second one
// moved, ended or was refused, and every hundredth has a review.
func Grown(tb testing.TB, i, n int) []store.Commit {
	tb.Helper()
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
		e.Time = Epoch.Add(time.Duration(i) * time.Second)
		e.Decision.Reasoning = said
	}
	c := Start(tb, ID(i), `{"title":"a document","n":0}`, at, By(owner), func(e *record.Event) { e.Workflow = workflow })
	if i%100 == 0 {
		r := Review(i, c.Next)
		if i%200 == 0 {
			r.Status, r.Data, r.Principal = record.ReviewResolved, nil, fmt.Sprint("local:", i%1000)
		}
		c.Reviews = []store.Review{r}
	}
	switch {
	case i%2 == 0:
		return []store.Commit{c}
	case i%7 == 0:
		return []store.Commit{c, Refuse(tb, c.Next, "submit", at)}
	case i%20 == 1:
		return []store.Commit{c, Advance(tb, c.Next, "done", `{}`, at, func(e *record.Event) { e.Status = record.Complete })}
	}
	return []store.Commit{c, Advance(tb, c.Next, "reviewing", `{"n":1}`, at)}
}

// ListPages returns queries for every kind of list, by name, over n instances (Grown) with their last events.
func ListPages(n int, last int64) map[string]any {
	deep := ID(n / 3)
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
		"of an owner with half of all and an old workflow": {Owner: "local:busy", Workflow: "old"},
		"of a subject": {Workflow: "doc-1", Subject: "release 7"}, "with open calls": {OpenCalls: true}, "heads": {Heads: true, BeforeID: deep},
		"of an owner, heads": {Owner: "local:busy", Status: record.Running, Heads: true},
	} {
		all["instances "+name] = q
	}
	low := 0.9
	for name, q := range map[string]store.DecisionQuery{
		"all": {}, "all, deep": {Before: last / 3}, "of an instance": {Instance: ID(7)}, "of a workflow": {Workflow: "doc-3"},
		"of an old workflow": {Workflow: "old"}, "of a rare workflow": {Workflow: "rare"}, "of an owner": {Owner: "local:17"},
		"of an owner with half of all, deep": {Owner: "local:busy", Before: last / 3}, "of an owner with half of all and a workflow without any": {Owner: "local:busy", Workflow: "doc-1"},
		"that reject": {Outcome: "reject"}, "of a workflow that reject, deep": {Workflow: "doc-7", Outcome: "reject", Before: last / 3},
		"with a frequent word": {Text: "missing"}, "with a rare word": {Text: "zebra"}, "with an old word": {Text: "ancient"}, "with no such word": {Text: "unicorn"},
		"with a frequent and an old word": {Text: "missing ancient"}, "with two words of different decisions": {Text: "zebra ancient"},
		"with a confidence without any": {MaxConfidence: &low},
		"before an hour long past":      {Until: Epoch.Add(time.Hour)},
		"of an hour":                    {Since: Epoch.Add(time.Duration(n/2) * time.Second), Until: Epoch.Add(time.Duration(n/2+3600) * time.Second)},
		"with a word in an hour":        {Text: "missing", Since: Epoch.Add(time.Duration(n/2) * time.Second), Until: Epoch.Add(time.Duration(n/2+3600) * time.Second)},
	} {
		all["decisions "+name] = q
	}
	for name, q := range map[string]store.TailQuery{
		"from the first": {}, "from a third": {After: last / 3}, "from the last": {After: last}, "of an instance": {Instance: ID(7)},
		"of a workflow": {Workflow: "doc-3", After: last / 3}, "of an old workflow, from a third": {Workflow: "old", After: last / 3},
		"of a rare workflow": {Workflow: "rare"}, "of no workflow": {Workflow: "none"}, "of an owner": {Owner: "local:17"},
		"of an owner with half of all and a workflow without any": {Owner: "local:busy", Workflow: "doc-1"}, "of a workflow, from the last": {Workflow: "doc-3", After: last},
	} {
		all["events "+name] = q
	}
	for name, q := range map[string]store.ReviewQuery{
		"all": {}, "all, deep": {After: &store.ReviewCursor{Rank: record.PriorityNormal.Rank(), ID: ReviewID(n / 3)}},
		"of a workflow": {Workflow: "doc-0"}, "of no workflow": {Workflow: "none"}, "of a workflow, open": {Workflow: "doc-0", Status: record.ReviewOpen}, "open": {Status: record.ReviewOpen}, "expired": {Status: record.ReviewExpired},
		"of a principal": {Principal: "local:agent"}, "of a principal, open": {Principal: "local:200", Status: record.ReviewOpen}, "of an instance": {Instance: ID(100)},
	} {
		all["reviews "+name] = q
	}
	return all
}

// PageRows is the number of rows that ReadPage reads.
const PageRows = 20

// ReadPage reads a page of a list and returns its number of rows.
func ReadPage(tb testing.TB, s store.Store, q any) (found int) {
	tb.Helper()
	switch q := q.(type) {
	case store.InstanceQuery:
		q.Limit = PageRows
		return Count(tb, s.Instances(context.Background(), q))
	case store.DecisionQuery:
		q.Limit = PageRows
		return Count(tb, s.Decisions(context.Background(), q))
	case store.EventQuery:
		return Count(tb, s.Events(context.Background(), q))
	case store.TailQuery:
		q.Limit = PageRows
		return Count(tb, s.EventsAfter(context.Background(), q))
	case store.ReviewQuery:
		q.Limit = PageRows
		return Count(tb, s.Reviews(context.Background(), q))
	}
	tb.Fatalf("no page of %T", q)
	return 0
}

// Count reads a list and returns its number of rows.
func Count[T any](tb testing.TB, all iter.Seq2[T, error]) (n int) {
	tb.Helper()
	for _, err := range all {
		if err != nil {
			tb.Fatal(err)
		}
		n++
	}
	return n
}
