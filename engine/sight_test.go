package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
)

// pair is a workflow for two agents: the one that writes may not approve. A person decides "ask".
const pair = `{"name":"pair",%s"sensitive":["/secret"],"initialState":"draft","states":{
	"draft":{"transitions":{"write":"written"}},
	"written":{"transitions":{"approve":{"target":"done","notBy":"write"},"ask":{"target":"done","requireAssurance":"human"}}},
	"done":{"final":true}}}`

func pairWith(access string) string { return fmt.Sprintf(pair, access) }

const sharedAccess = `"access":"shared",`

// scoped is an agent that may not use the workflow.
var scoped = engine.Principal{ID: "agent:cyd", Role: engine.RoleAgent, Workflows: "other*"}

// newPairBench has an instance of ada's at "written", under a definition with the given access, followed
// by optional newer definitions.
func newPairBench(t *testing.T, access string, newer ...string) (b *bench, id string) {
	t.Helper()
	b = newBench(t)
	b.define(operator, pairWith(access))
	id = b.start(agent, "pair", `{"secret":"s3same","n":1}`).ID
	b.advance(agent, id, "write", `{}`)
	for _, access := range newer {
		b.define(operator, pairWith(access))
	}
	return b, id
}

// TestSharedAccess covers the operations on an instance and the access of its workflow, for another agent,
// an agent that may not use the workflow, and the owner. A cell is the expected code, "" for allowed.
func TestSharedAccess(t *testing.T) {
	t.Parallel()
	const (
		ok   = engine.Code("")
		no   = engine.CodeForbidden
		none = engine.CodeUnknownInstance
	)
	type call func(context.Context, *bench, engine.Principal, string) error
	for name, row := range map[string]struct {
		call call
		want [3]engine.Code // other agent, agent out of scope, owner, if the workflow is shared
	}{
		"status": {func(ctx context.Context, b *bench, p engine.Principal, id string) error {
			_, err := b.Status(ctx, p, id)
			return err
		}, [3]engine.Code{ok, none, ok}},
		"history": {func(ctx context.Context, b *bench, p engine.Principal, id string) error {
			_, err := b.History(ctx, p, engine.HistoryRequest{ID: id})
			return err
		}, [3]engine.Code{ok, none, ok}},
		"events": {func(ctx context.Context, b *bench, p engine.Principal, id string) error {
			_, err := b.Tail(ctx, p, engine.TailRequest{Instance: id})
			return err
		}, [3]engine.Code{ok, none, ok}},
		"validate": {func(ctx context.Context, b *bench, p engine.Principal, id string) error {
			_, err := b.Validate(ctx, p, engine.AdvanceRequest{ID: id, Action: "approve"})
			return err
		}, [3]engine.Code{ok, none, ok}},
		"advance": {func(ctx context.Context, b *bench, p engine.Principal, id string) error {
			_, err := b.Advance(ctx, p, engine.AdvanceRequest{ID: id, Action: "approve"})
			return err
		}, [3]engine.Code{ok, none, ok}},
		"checkpoint": {func(ctx context.Context, b *bench, p engine.Principal, id string) error {
			_, err := b.Checkpoint(ctx, p, engine.CheckpointRequest{ID: id})
			return err
		}, [3]engine.Code{ok, none, ok}},
		"cancel": {func(ctx context.Context, b *bench, p engine.Principal, id string) error {
			_, err := b.Cancel(ctx, p, engine.CancelRequest{ID: id})
			return err
		}, [3]engine.Code{no, none, ok}},
		"undo": {func(ctx context.Context, b *bench, p engine.Principal, id string) error {
			_, err := b.Undo(ctx, p, engine.UndoRequest{ID: id})
			return err
		}, [3]engine.Code{no, none, no}},
	} {
		for access, of := range map[string]struct {
			newer  []string
			access string
			shared bool
		}{
			"shared": {nil, sharedAccess, true}, "own": {nil, "", false},
			"no longer shared": {[]string{""}, sharedAccess, false}, "shared since": {[]string{sharedAccess}, "", true},
		} {
			for i, p := range []engine.Principal{other, scoped, agent} {
				b, id := newPairBench(t, of.access, of.newer...)
				want := row.want[i]
				if !of.shared && p.ID == other.ID {
					want = none
				}
				if err := row.call(t.Context(), b, p, id); engine.CodeOf(err) != want {
					t.Errorf("%s of an instance that is %s, by %s: %v, not %q", name, access, p.ID, err, want)
				}
			}
		}
	}
}

// A key gives its result again only to a caller that can still see the instance: not to another agent once
// the workflow is no longer shared, nor to one whose credential no longer covers the workflow.
func TestReplayAfterAccessWasTaken(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(context.Context, *bench, engine.Principal, string) (replayed bool, err error){
		"advance": func(ctx context.Context, b *bench, p engine.Principal, id string) (bool, error) {
			r, err := b.Advance(ctx, p, engine.AdvanceRequest{ID: id, Action: "approve", Key: "k"})
			return r.Replayed, err
		},
		"parked advance": func(ctx context.Context, b *bench, p engine.Principal, id string) (bool, error) {
			r, err := b.Advance(ctx, p, engine.AdvanceRequest{ID: id, Action: "ask", Key: "k"})
			return r.Replayed, err
		},
		"checkpoint": func(ctx context.Context, b *bench, p engine.Principal, id string) (bool, error) {
			r, err := b.Checkpoint(ctx, p, engine.CheckpointRequest{ID: id, Description: "here", Key: "k"})
			return r.Replayed, err
		},
		"call": func(ctx context.Context, b *bench, p engine.Principal, id string) (bool, error) {
			r, err := b.BeginCall(ctx, p, engine.CallRequest{ID: id, Gate: "a__b", States: []string{"written"}, Timeout: time.Minute, Key: "k"})
			return r.Replayed, err
		},
	} {
		b, id := newPairBench(t, sharedAccess)
		if replayed, err := ask(t.Context(), b, other, id); replayed || err != nil {
			t.Fatalf("%s: replayed %v, %v", name, replayed, err)
		}
		if replayed, err := ask(t.Context(), b, other, id); !replayed || err != nil {
			t.Errorf("%s, again: replayed %v, %v", name, replayed, err)
		}
		narrowed := other
		narrowed.Workflows = scoped.Workflows
		if _, err := ask(t.Context(), b, narrowed, id); engine.CodeOf(err) != engine.CodeUnknownInstance {
			t.Errorf("%s, again with a credential for other workflows: %v", name, err)
		}
		b.define(operator, pairWith(""))
		if _, err := ask(t.Context(), b, other, id); engine.CodeOf(err) != engine.CodeUnknownInstance {
			t.Errorf("%s, again after the workflow is no longer shared: %v", name, err)
		}
		b.define(operator, pairWith(sharedAccess))
		if replayed, err := ask(t.Context(), b, other, id); !replayed || err != nil {
			t.Errorf("%s, again after it is shared again: replayed %v, %v", name, replayed, err)
		}
	}
}

// One agent approves what another one wrote, and the writer may not. Keys and records stay with each
// caller; the owner stays the owner, and the owner's secrets stay hidden.
func TestNotByBetweenAgents(t *testing.T) {
	t.Parallel()
	b, id := newPairBench(t, sharedAccess)
	own, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "approve", Key: "k"})
	if err != nil || own.Decision.Outcome != judge.Reject || !strings.Contains(fmt.Sprint(own.Decision.Findings), "not_by") {
		t.Fatalf("who wrote it approves it: %+v, %v", own.Decision, err)
	}
	seen, err := b.Status(t.Context(), other, id)
	if err != nil || seen.Owner != agent.ID || strings.Contains(string(seen.Context), "s3same") {
		t.Errorf("another agent sees %+v, %v", seen, err)
	}
	done, err := b.Advance(t.Context(), other, engine.AdvanceRequest{ID: id, Action: "approve", Key: "k"})
	if err != nil || done.State != "done" || done.Replayed {
		t.Errorf("another agent approves with %+v, %v", done, err)
	}
}

// Only operators share, and an agent's definition cannot.
func TestAgentsDoNotShare(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(pairWith(sharedAccess))})
	wantCode(t, err, engine.CodeInvalidDefinition)
}

// Lists, tails, searches, statistics and reviews show an agent its own rows and shared ones, each once and
// in order, with pages of every size.
func TestSharedLists(t *testing.T) {
	t.Parallel()
	b := newReviewBench(t)
	b.define(operator, pairWith(sharedAccess))
	b.define(operator, strings.Replace(pairWith(sharedAccess), `"pair"`, `"pair2"`, 1))
	b.define(operator, strings.Replace(pairWith(""), `"pair"`, `"own"`, 1))
	third := engine.Principal{ID: "agent:dan", Role: engine.RoleAgent}
	for i := range 24 {
		p, name := []engine.Principal{agent, other, third}[i%3], []string{"pair", "own", "pair2", "own"}[i/3%4]
		id := b.start(p, name, `{}`).ID
		b.advance(p, id, "write", `{}`)
		if i%2 == 0 {
			if _, err := b.Advance(t.Context(), p, engine.AdvanceRequest{ID: id, Action: "ask"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, p := range []engine.Principal{agent, {ID: agent.ID, Role: engine.RoleAgent, Workflows: "pair2 own"}, {ID: "agent:new", Role: engine.RoleAgent}} {
		sees := func(workflow, owner string) bool {
			return p.InScope(workflow) && (owner == p.ID || workflow != "own")
		}
		owners, workflows := map[string]string{}, map[string]string{}
		all, err := b.Instances(t.Context(), operator, engine.InstancesRequest{Limit: 500})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, i := range all.Instances {
			owners[i.ID], workflows[i.ID] = i.Owner, i.Workflow
			if sees(i.Workflow, i.Owner) {
				ids = append(ids, i.ID)
			}
		}
		seesID := func(id string) bool { return sees(workflows[id], owners[id]) }
		for _, limit := range []int{1, 3, 100} {
			compareSeen(t, "instances", p, ids, pagesOf(func(cursor string) (page []string, next string) {
				r, err := b.Instances(t.Context(), p, engine.InstancesRequest{Limit: limit, Cursor: cursor})
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range r.Instances {
					page = append(page, i.ID)
				}
				return page, r.NextCursor
			}))
			search := func(p engine.Principal, limit int) []string {
				return pagesOf(func(cursor string) (page []string, next string) {
					r, err := b.Decisions(t.Context(), p, engine.DecisionsRequest{Query: store.DecisionQuery{}, Limit: limit, Cursor: cursor})
					if err != nil {
						t.Fatal(err)
					}
					for _, d := range r.Decisions {
						if seesID(d.Instance) {
							page = append(page, d.Hash)
						} else if p.Role == engine.RoleAgent {
							t.Errorf("%s finds a decision of %s of %s", p.ID, owners[d.Instance], workflows[d.Instance])
						}
					}
					return page, r.NextCursor
				})
			}
			compareSeen(t, "decisions", p, search(operator, 1000), search(p, limit))
			reviews := func(p engine.Principal, limit int) []string {
				return pagesOf(func(cursor string) (page []string, next string) {
					r, err := b.Reviews(t.Context(), p, engine.ReviewsRequest{Limit: limit, Cursor: cursor})
					if err != nil {
						t.Fatal(err)
					}
					for _, v := range r.Reviews {
						if seesID(v.Instance) {
							page = append(page, v.ID)
						}
					}
					return page, r.NextCursor
				})
			}
			compareSeen(t, "reviews", p, reviews(operator, 500), reviews(p, limit))
			tail := func(p engine.Principal, limit int) (out []string) {
				for after, more := int64(0), true; more; {
					r, err := b.Tail(t.Context(), p, engine.TailRequest{After: after, Limit: limit})
					if err != nil {
						t.Fatal(err)
					}
					for _, ev := range r.Events {
						if seesID(ev.Instance) {
							out = append(out, ev.Hash)
						}
					}
					after, more = r.Next, r.More
				}
				return out
			}
			compareSeen(t, "events", p, tail(operator, 1000), tail(p, limit))
		}
		counts := func(p engine.Principal) map[string]int64 {
			out := map[string]int64{}
			r, err := b.Statistics(t.Context(), p, engine.StatisticsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range r.Transitions {
				out[s.Workflow] += s.Decisions
			}
			return out
		}
		want := map[string]int64{}
		for cursor, more := "", true; more; more = cursor != "" { // a busy machine finds less at a time
			found, err := b.Decisions(t.Context(), operator, engine.DecisionsRequest{Limit: 1000, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range found.Decisions {
				if seesID(d.Instance) {
					want[d.Workflow]++
				}
			}
			cursor = found.NextCursor
		}
		if got := counts(p); !maps.Equal(got, want) {
			t.Errorf("the statistics of %s (%s) count %v, not %v", p.ID, p.Workflows, got, want)
		}
	}
}

func pagesOf(page func(cursor string) ([]string, string)) (all []string) {
	for cursor := ""; ; {
		some, next := page(cursor)
		all = append(all, some...)
		if cursor = next; next == "" {
			return all
		}
	}
}

func compareSeen(t *testing.T, what string, p engine.Principal, want, got []string) {
	t.Helper()
	if len(want) == 0 || !slices.Equal(want, got) {
		t.Errorf("%s for %s (%s): %d, and %d were expected:\n%v\n%v", what, p.ID, p.Workflows, len(got), len(want), got, want)
	}
}

// A stream shows an agent the events of shared instances as long as they are shared.
func TestSharedFeed(t *testing.T) {
	t.Parallel()
	b, id := newPairBench(t, sharedAccess)
	feed := b.Feed()
	follower := feed.Follow(0)
	defer follower.Unfollow()
	await := func(p engine.Principal, after int64) (kinds []string, next int64) {
		t.Helper()
		for {
			changed := follower.Changed()
			page, err := feed.Page(t.Context(), p, engine.TailRequest{After: after})
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				var ev struct{ ID string }
				if err := json.Unmarshal(item.JSON, &ev); err != nil || ev.ID != id {
					t.Errorf("an event of %q, %v", ev.ID, err)
				}
				kinds = append(kinds, string(item.Kind))
			}
			if page.Next > after && !page.More {
				return kinds, page.Next
			}
			<-changed
		}
	}
	kinds, next := await(other, 0)
	if want := []string{"started", "advanced"}; !slices.Equal(kinds, want) {
		t.Errorf("another agent's stream has %v", kinds)
	}
	if kinds, _ := await(scoped, 0); len(kinds) > 0 {
		t.Errorf("the stream of an agent without the right to the workflow has %v", kinds)
	}
	b.define(operator, pairWith(""))
	b.advance(agent, id, "ask", `{}`)
	if kinds, _ := await(other, next); len(kinds) > 0 {
		t.Errorf("it is no longer shared, and another agent's stream has %v", kinds)
	}
}

// foundStore has decisions at positions, by workflow ("" is the caller's own), and calls OnScan at
// intervals.
type foundStore struct {
	store.Store
	found map[string][]int64
}

func (s foundStore) Decisions(_ context.Context, q store.DecisionQuery) iter.Seq2[store.PlacedEvent, error] {
	return func(yield func(store.PlacedEvent, error) bool) {
		for position := int64(100); position > 0; position-- {
			if slices.Contains(s.found[q.Workflow], position) && !yield(store.PlacedEvent{Position: position, Event: record.Event{Kind: record.Refused}}, nil) {
				return
			}
			if position%10 == 0 && !q.OnScan(position) {
				return
			}
		}
	}
}

// If a search in several parts has to end early, it ends where the first part did: the next page misses
// nothing and repeats nothing.
func TestSearchEndsEarly(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, foundStore{memory.New(), map[string][]int64{"": {90, 31}, "pair": {95, 60, 50, 49, 31}, "quiet": {}}})
	for full := int64(100); full >= 0; full -= 10 {
		last := int64(-1)
		looked := func(position int64) bool {
			if position <= full {
				last = position
			}
			return position > full
		}
		var got, want []int64
		for ev, err := range engine.SearchShared(t.Context(), b.Engine, agent, store.DecisionQuery{OnScan: looked}, "pair", "quiet") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ev.Position)
		}
		for _, position := range []int64{95, 90, 60, 50, 49, 31} {
			if position >= full {
				want = append(want, position)
			}
		}
		if !slices.Equal(got, want) || full > 0 && last != full {
			t.Errorf("where it ends at %d: %v, not %v, and the next page begins below %d", full, got, want, last)
		}
	}
}

// A rejected review stays listed for the agent that asked for it, even if the list covers only a shared
// workflow.
func TestSharedRejectedReview(t *testing.T) {
	t.Parallel()
	b := newReviewBench(t)
	b.define(operator, pairWith(sharedAccess))
	id := b.start(agent, "pair", `{}`).ID
	b.advance(agent, id, "write", `{}`)
	review := b.parked(agent, id, "ask", `{}`)
	if _, err := b.resolve(reviewer, review.ID, judge.Reject); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[engine.Principal]int{agent: 1, other: 0} {
		for _, workflow := range []string{"", "pair"} {
			r, err := b.Reviews(t.Context(), p, engine.ReviewsRequest{Workflow: workflow})
			if err != nil || len(r.Reviews) != want {
				t.Errorf("%s sees %+v of the workflow %q, %v", p.ID, r.Reviews, workflow, err)
			}
		}
	}
}
