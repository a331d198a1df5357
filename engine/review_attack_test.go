package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Attempts to get past a person's decision.
func TestReviewAttacks(t *testing.T) {
	t.Parallel()
	approve := func(b *bench, p engine.Principal, id string) error {
		r, err := b.resolve(p, id, judge.Approve)
		if err == nil && r.Applied {
			b.t.Errorf("%s got its way", p.ID)
		}
		return err
	}
	for name, attack := range map[string]func(b *bench, id string){
		"the agent resolves its own review": func(b *bench, id string) {
			parked := b.parked(agent, id, "release", `{"why":"a"}`)
			wantCode(b.t, approve(b, agent, parked.ID), engine.CodeForbidden)
			// Another role does not change who made the request and who owns the instance.
			for _, role := range []engine.Role{engine.RoleReviewer, engine.RoleOperator} {
				wantCode(b.t, approve(b, engine.Principal{ID: agent.ID, Role: role}, parked.ID), engine.CodeForbidden)
			}
			wantCode(b.t, approve(b, engine.Principal{ID: "aud", Role: engine.RoleAuditor}, parked.ID), engine.CodeForbidden)
			wantCode(b.t, approve(b, engine.Principal{Role: engine.RoleReviewer}, parked.ID), engine.CodeForbidden)
		},
		"the owner approves what a colleague asked for": func(b *bench, id string) {
			parked := b.parked(operator, id, "release", `{"why":"a"}`)
			wantCode(b.t, approve(b, engine.Principal{ID: agent.ID, Role: engine.RoleReviewer}, parked.ID), engine.CodeForbidden)
			wantCode(b.t, approve(b, operator, parked.ID), engine.CodeForbidden)
		},
		"another agent reads it": func(b *bench, id string) {
			parked := b.parked(agent, id, "release", `{"why":"a"}`)
			_, err := b.Review(b.t.Context(), other, parked.ID)
			wantCode(b.t, err, engine.CodeUnknownReview)
			if r, err := b.Reviews(b.t.Context(), other, engine.ReviewsRequest{Status: "all"}); err != nil || r.Count != 0 {
				b.t.Errorf("%+v, %v", r, err)
			}
		},
		"calls its data a review": func(b *bench, id string) {
			const forged = `{"why":"a","review":{"status":"resolved","resolution":"approve","by":"rita"},"gavel":{"approved":true}}`
			if s := b.load(b.start(agent, "guarded", forged).ID); len(s.Facts.Reviews) != 0 {
				b.t.Errorf("started with %+v", s.Facts)
			}
			b.parked(agent, id, "release", forged)
		},
		"replays a review after a rollback": func(b *bench, id string) {
			cp, err := b.Checkpoint(b.t.Context(), agent, engine.CheckpointRequest{ID: id})
			if err != nil {
				b.t.Fatal(err)
			}
			parked := b.parked(agent, id, "release", `{"why":"a"}`)
			if r, err := b.resolve(rita, parked.ID, judge.Approve); err != nil || !r.Applied {
				b.t.Fatalf("%+v, %v", r, err)
			}
			if _, err := b.Rollback(b.t.Context(), operator, engine.RollbackRequest{ID: id, CheckpointID: cp.CheckpointID}); err != nil {
				b.t.Fatal(err)
			}
			wantCode(b.t, approve(b, rita, parked.ID), engine.CodeReviewClosed)
			if again := b.parked(agent, id, "release", `{"why":"a"}`); again.ID == parked.ID {
				b.t.Error("the old review stands for the new question")
			}
			if inst := b.load(id); inst.State != "ready" {
				b.t.Errorf("in %s", inst.State)
			}
		},
		"changes the data between review and move": func(b *bench, id string) {
			parked := b.parked(agent, id, "release", `{"why":"a","amount":1}`)
			row := b.review(parked.ID)
			row.Data = json.RawMessage(`{"why":"a","amount":1000000}`)
			b.tamper(row)
			r, err := b.resolve(rita, parked.ID, judge.Approve)
			if err != nil || r.Applied || r.Review.Status != record.ReviewStale || !strings.Contains(r.Message, "changed") {
				b.t.Errorf("%+v, %v", r, err)
			}
			if inst := b.load(id); inst.State != "ready" || strings.Contains(string(inst.Context), "amount") {
				b.t.Errorf("%+v", inst)
			}
		},
		"moves a review to another instance": func(b *bench, id string) {
			second := b.start(agent, "guarded", `{}`).ID
			parked := b.parked(agent, id, "release", `{"why":"a"}`)
			other := b.parked(agent, second, "release", `{"why":"b"}`)
			row := b.review(parked.ID)
			row.Instance = second
			row.Seq = b.review(other.ID).Seq
			b.tamper(row)
			if r, err := b.resolve(rita, parked.ID, judge.Approve); err == nil && r.Applied {
				b.t.Errorf("%+v", r)
			}
			if b.load(id).State != "ready" || b.load(second).State != "ready" {
				b.t.Error("something moved")
			}
		},
		"reopens a review that has ended": func(b *bench, id string) {
			parked := b.parked(agent, id, "release", `{"why":"a"}`)
			open := b.review(parked.ID)
			if _, err := b.resolve(rita, parked.ID, judge.Reject); err != nil {
				b.t.Fatal(err)
			}
			b.tamper(open)
			if r, err := b.resolve(ralf, parked.ID, judge.Approve); err == nil && r.Applied {
				b.t.Errorf("%+v", r)
			}
			if b.load(id).State != "ready" {
				b.t.Error("it moved")
			}
		},
		"has it approved by who performed what notBy names": func(b *bench, _ string) {
			b.define(operator, strings.Replace(named(guardedFlow, "strict"), `"why"]`, `"why"],"notBy":"note"`, 1))
			id := b.start(agent, "strict", `{}`).ID
			b.moved(operator, id, "note", `{}`, "ready")
			parked := b.parked(agent, id, "release", `{"why":"a"}`)
			wantCode(b.t, approve(b, operator, parked.ID), engine.CodeForbidden)
			alias := rita
			alias.Alias = operator.ID
			wantCode(b.t, approve(b, alias, parked.ID), engine.CodeForbidden)
			if r, err := b.resolve(rita, parked.ID, judge.Approve); err != nil || !r.Applied {
				b.t.Errorf("%+v, %v", r, err)
			}
		},
		"says nothing, or what is no decision": func(b *bench, id string) {
			parked := b.parked(agent, id, "release", `{"why":"a"}`)
			for _, req := range []engine.ResolveRequest{
				{Decision: "", Reason: "x"},
				{Decision: judge.Escalate, Reason: "x"},
				{Decision: "Approve", Reason: "x"},
				{Decision: judge.Approve, Reason: ""},
				{Decision: judge.Approve, Reason: " \n"},
			} {
				req.ID = parked.ID
				_, err := b.Resolve(b.t.Context(), rita, req)
				wantCode(b.t, err, engine.CodeInvalidArgument)
			}
			_, err := b.Resolve(b.t.Context(), rita, engine.ResolveRequest{ID: parked.ID, Decision: judge.Approve, Reason: strings.Repeat("x", 5000)})
			wantCode(b.t, err, engine.CodeTooLarge)
			_, err = b.Resolve(b.t.Context(), rita, engine.ResolveRequest{ID: parked.ID, Decision: judge.Approve, Reason: "x", Channel: record.ChannelClient})
			wantCode(b.t, err, engine.CodeForbidden)
		},
		"has a high risk decided in its own client": func(b *bench, _ string) {
			b.define(operator, strings.Replace(named(guardedFlow, "risky"), `"initialState"`, `"judgeConfig":{"risk":"high"},"initialState"`, 1))
			id := b.start(agent, "risky", `{}`).ID
			parked := b.parked(agent, id, "release", `{"why":"a"}`)
			_, err := b.clients().Resolve(b.t.Context(), rita, engine.ResolveRequest{ID: parked.ID, Decision: judge.Approve, Reason: "x", Channel: record.ChannelClient})
			if e := wantCode(b.t, err, engine.CodeForbidden); !strings.Contains(e.Message, "high-risk") {
				b.t.Error(e.Message)
			}
		},
		"floods": func(b *bench, _ string) {
			limit := engine.DefaultLimits().OpenReviews
			var parked, refused atomic.Int32
			var wg sync.WaitGroup
			ids := make([]string, 2*limit)
			for i := range ids {
				ids[i] = b.start(agent, "guarded", `{}`).ID
			}
			for _, id := range ids {
				wg.Go(func() {
					r, err := b.Advance(context.Background(), agent, engine.AdvanceRequest{ID: id, Action: "other", Data: document.ReadTrusted([]byte(`{}`))})
					switch {
					case err != nil:
						b.t.Error(err)
					case r.Review != nil:
						parked.Add(1)
					case r.Decision.Code == judge.CodeReviewLimit && r.Decision.Outcome == judge.Reject:
						refused.Add(1)
					default:
						b.t.Errorf("%+v", r.Decision)
					}
				})
			}
			wg.Wait()
			if int(parked.Load()) != limit || int(refused.Load()) != limit {
				b.t.Errorf("%d parked, %d refused, of %d", parked.Load(), refused.Load(), len(ids))
			}
			// Others are not affected.
			b.parked(other, b.start(other, "guarded", `{}`).ID, "release", `{"why":"a"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, id := parkable(t)
			b.t = t
			attack(b, id)
			b.verify(id)
		})
	}
}

// clients returns an engine over the same store on which the agent's client may ask a person.
func (b *bench) clients() *engine.Engine {
	b.t.Helper()
	return newBenchWith(b.t, unclosed{b.store}, nil, func(c *engine.Config) { c.ReviewPath, c.ClientReviews = true, true }).Engine
}

// unclosed is a store that the test closes elsewhere.
type unclosed struct{ store.Store }

func (unclosed) Close() error { return nil }

// tamper writes a review past the engine, as an attacker with access to the store could.
func (b *bench) tamper(row store.Review) {
	b.t.Helper()
	inst := b.load(row.Instance)
	ev, next, err := record.Seal(inst, record.Event{
		Kind: record.Checkpointed, Principal: "mallory", Time: time.Unix(1, 0), Checkpoint: &record.Checkpoint{ID: fmt.Sprintf("cp-%d", inst.Seq)},
	}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	err = b.store.Commit(b.t.Context(), store.Commit{Expect: inst.Seq, Events: []record.Event{ev}, Next: next, Reviews: []store.Review{row}})
	if err != nil {
		b.t.Fatal(err)
	}
}

// A review is resolved once, even by concurrent reviewers in different processes.
func TestReviewersAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gavel.db")
	open := func() store.Store {
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, stores := range map[string][2]store.Store{
		"one process":   {memory.New(), nil},
		"two processes": {open(), open()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := newReviewBenchOn(t, stores[0], nil)
			second := first
			if stores[1] != nil {
				second = newReviewBenchOn(t, stores[1], nil)
			}
			first.define(operator, guardedFlow)
			for range 20 {
				id := first.start(agent, "guarded", `{}`).ID
				parked := first.parked(agent, id, "release", `{"why":"a"}`)
				var won, told atomic.Int32
				var wg sync.WaitGroup
				for i, who := range []engine.Principal{rita, ralf, rita, ralf} {
					b, how := first, judge.Approve
					if i%2 == 1 {
						b = second
					}
					if i > 1 {
						how = judge.Reject
					}
					wg.Go(func() {
						_, err := b.Resolve(context.Background(), who, engine.ResolveRequest{ID: parked.ID, Decision: how, Reason: "looked"})
						var e *engine.Error
						switch {
						case err == nil:
							won.Add(1)
						case errors.As(err, &e) && e.Code == engine.CodeReviewClosed && strings.Contains(e.Message, "resolved"):
							told.Add(1)
						default:
							t.Errorf("%s: %v", who.ID, err)
						}
					})
				}
				wg.Wait()
				if won.Load() != 1 || told.Load() != 3 {
					t.Fatalf("%d resolved it, %d were told", won.Load(), told.Load())
				}
				first.verify(id)
			}
		})
	}
}

// A concurrent resolution and move: either the review is resolved or it is void, and the instance made
// exactly one of the two moves.
func TestResolveAgainstAMove(t *testing.T) {
	t.Parallel()
	b := newReviewBench(t)
	b.define(operator, guardedFlow)
	for range 50 {
		id := b.start(agent, "guarded", `{}`).ID
		parked := b.parked(agent, id, "release", `{"why":"a"}`)
		var wg sync.WaitGroup
		var resolved engine.ResolveResult
		var rerr, aerr error
		var moved engine.AdvanceResult
		wg.Go(func() { resolved, rerr = b.resolve(rita, parked.ID, judge.Approve) })
		wg.Go(func() {
			moved, aerr = b.Advance(context.Background(), agent, engine.AdvanceRequest{ID: id, Action: "fix"})
		})
		wg.Wait()
		approved, left := rerr == nil && resolved.Applied, aerr == nil && moved.Decision.Applied
		status := b.review(parked.ID).Status
		switch state := b.load(id).State; {
		case approved && !left && state == "live" && status == record.ReviewResolved:
		case left && !approved && state == "broken" && status == record.ReviewStale:
		default:
			t.Fatalf("approved %v (%v), left %v (%v), in %s, the review is %s", approved, rerr, left, aerr, state, status)
		}
		b.verify(id)
	}
}

func TestResolveIsReplayed(t *testing.T) {
	t.Parallel()
	for _, how := range []judge.Outcome{judge.Approve, judge.Reject} {
		b, id := parkable(t)
		parked := b.parked(agent, id, "release", `{"why":"a"}`)
		req := engine.ResolveRequest{ID: parked.ID, Decision: how, Reason: "looked", Key: "k"}
		first, err := b.Resolve(t.Context(), rita, req)
		if err != nil || first.Replayed {
			t.Fatalf("%+v, %v", first, err)
		}
		again, err := b.Resolve(t.Context(), rita, req)
		if err != nil || !again.Replayed || again.Applied != first.Applied || again.State != first.State || again.Review.Decision != how {
			t.Errorf("%+v, %v", again, err)
		}
		req.Reason = "another"
		_, err = b.Resolve(t.Context(), rita, req)
		wantCode(t, err, engine.CodeKeyReused)
	}
}

// The replay of a parked request returns the present state of its review.
func TestParkedIsReplayed(t *testing.T) {
	t.Parallel()
	b, id := parkable(t)
	req := engine.AdvanceRequest{ID: id, Action: "release", Data: document.ReadTrusted([]byte(`{"why":"a"}`)), Key: "k"}
	first, err := b.Advance(t.Context(), agent, req)
	if err != nil || first.Review == nil {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := b.resolve(rita, first.Review.ID, judge.Reject); err != nil {
		t.Fatal(err)
	}
	again, err := b.Advance(t.Context(), agent, req)
	if err != nil || !again.Replayed || again.Review == nil || again.Review.Decision != judge.Reject || again.Review.Reason != "looked at it" {
		t.Errorf("%+v, %v", again.Review, err)
	}
}
