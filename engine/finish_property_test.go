package engine_test

import (
	"context"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// In any order of operations, on any engine over the store, no more stops of a session are refused in a
// row than are allowed. Each is answered as in a model of a counter and a review, and every move resets
// the count.
func TestNoSequenceRefusesMoreStopsThanAllowed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := newFinishBench(t)
		again := newBenchWith(t, b.store, nil, func(c *engine.Config) { c.ReviewPath, c.Now = true, b.Now })
		ctx := context.Background()
		id := b.start(agent, "fix", `{}`).ID
		attempts := rapid.IntRange(1, 3).Draw(rt, "attempts")
		on := func(rt *rapid.T) *engine.Engine { // any process may be used
			if rapid.Bool().Draw(rt, "other process") {
				return again.Engine
			}
			return b.Engine
		}
		// The model, since the last move.
		refused, told, accepted := map[string]int{}, "", false
		revision := int64(1)
		look := func() record.Instance {
			inst := b.load(id)
			if inst.Revision != revision {
				revision, refused, told, accepted = inst.Revision, map[string]int{}, "", false
			}
			return inst
		}
		ignore := func(err error, codes ...engine.Code) {
			for _, code := range codes {
				if engine.CodeOf(err) == code {
					return
				}
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
		act := map[string]func(*rapid.T){
			"stop": func(rt *rapid.T) {
				inst := look()
				session := rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "session")
				r, err := on(rt).Finish(ctx, agent, engine.FinishRequest{ID: id, States: []string{"done"}, Attempts: attempts, Session: session})
				if err != nil {
					rt.Fatal(err)
				}
				waits := false
				for _, open := range inst.Facts.Reviews {
					waits = waits || open.Action == "merge"
				}
				free := inst.Status != record.Running || inst.State == "signed" || waits || accepted
				switch {
				case told != "" && refused[session] >= attempts:
					if !r.MayEnd || r.Review == nil || r.Review.ID != told {
						rt.Fatalf("a person was told by %s, and it may not end: %+v", told, r)
					}
				case free:
					if !r.MayEnd || r.Review != nil && r.Review.EndedEarly {
						rt.Fatalf("it may not end: %+v", r)
					}
				case refused[session] < attempts:
					if refused[session]++; r.MayEnd || r.Refused != refused[session] {
						rt.Fatalf("refusal %d of %d: %+v", refused[session], attempts, r)
					}
				default:
					if !r.MayEnd || r.Review == nil || !r.Review.EndedEarly {
						rt.Fatalf("after %d refusals it may not end: %+v", refused[session], r)
					}
					told = r.Review.ID
				}
			},
			"move": func(rt *rapid.T) {
				action := rapid.SampledFrom([]string{"note", "detour", "answer", "test", "back", "merge", "drop"}).Draw(rt, "action")
				_, err := on(rt).Advance(ctx, agent, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(`{"log":"ok"}`))})
				ignore(err)
			},
			"sign": func(rt *rapid.T) {
				_, err := on(rt).Advance(ctx, reviewer, engine.AdvanceRequest{ID: id, Action: "sign"})
				ignore(err)
			},
			"look": func(rt *rapid.T) {
				_, err := on(rt).Validate(ctx, agent, engine.AdvanceRequest{ID: id, Action: "test"})
				ignore(err)
			},
			"checkpoint": func(rt *rapid.T) {
				_, err := on(rt).Checkpoint(ctx, agent, engine.CheckpointRequest{ID: id})
				ignore(err)
			},
			"undo": func(rt *rapid.T) {
				_, err := on(rt).Undo(ctx, operator, engine.UndoRequest{ID: id})
				ignore(err, engine.CodeNothingToUndo)
			},
			"redo": func(rt *rapid.T) {
				_, err := on(rt).Redo(ctx, operator, engine.UndoRequest{ID: id})
				ignore(err, engine.CodeNothingToUndo)
			},
			"resolve": func(rt *rapid.T) {
				inst := look()
				if len(inst.Facts.Reviews) == 0 {
					return
				}
				open := rapid.SampledFrom(inst.Facts.Reviews).Draw(rt, "review")
				how := rapid.SampledFrom([]judge.Outcome{judge.Approve, judge.Reject}).Draw(rt, "how")
				if _, err := b.Resolve(ctx, reviewer, engine.ResolveRequest{ID: open.ID, Decision: how, Reason: "seen"}); err != nil {
					rt.Fatal(err)
				}
				if open.Action != "" {
					return
				}
				if told, accepted = "", how == judge.Approve; !accepted {
					refused = map[string]int{}
				}
			},
			"": func(rt *rapid.T) {
				inst := look()
				if got := inst.Facts.Stops; got.Accepted != accepted || got.Refused != refused["one"]+refused["two"] || len(got.Sessions) != len(refused) {
					rt.Fatalf("the facts say %+v, the model %v refused, accepted %v", got, refused, accepted)
				}
				for row, err := range b.store.Reviews(ctx, store.ReviewQuery{Instance: id, Status: record.ReviewOpen}) {
					if err != nil || row.IsStop() && row.ID != told {
						rt.Fatalf("%s is open, and a person was told by %q: %v", row.ID, told, err)
					}
				}
			},
		}
		rt.Repeat(act)
		row := 0
		for _, ev := range b.events(id) {
			switch {
			case ev.Kind.Revises(), ev.Kind == record.Reviewed && ev.Action == "":
				row = 0
			case ev.Kind == record.Refused && ev.IsStop():
				if row++; row > 2*attempts {
					rt.Fatalf("%d stops were refused in a row", row)
				}
			}
		}
		b.verify(id)
	})
}

// Concurrent stops on engines over one store each count once, and one of them opens a review.
func TestStopsAtOnceCountOnce(t *testing.T) {
	t.Parallel()
	db := memory.New()
	b := newBenchOn(t, db)
	b.define(operator, fixFlow)
	again := newBenchWith(t, db, nil, func(c *engine.Config) { c.Now = b.Now })
	id := b.start(agent, "fix", `{}`).ID
	const attempts, stops = 5, 12
	var answers [stops]engine.FinishResult
	var wg sync.WaitGroup
	for i := range stops {
		wg.Go(func() {
			on := b.Engine
			if i%2 == 1 {
				on = again.Engine
			}
			var err error
			if answers[i], err = on.Finish(t.Context(), agent, engine.FinishRequest{ID: id, States: []string{"done"}, Attempts: attempts}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	counted, review := map[int]int{}, ""
	for _, r := range answers {
		switch {
		case !r.MayEnd:
			counted[r.Refused]++
		case r.Review == nil || review != "" && r.Review.ID != review:
			t.Errorf("let through with %+v", r.Review)
		default:
			review = r.Review.ID
		}
	}
	for n := 1; n <= attempts; n++ {
		if counted[n] != 1 {
			t.Errorf("refusal %d was given %d times", n, counted[n])
		}
	}
	if n := len(b.events(id)); len(counted) != attempts || review == "" || n != 1+attempts+1 {
		t.Errorf("refusals %v, review %q, %d events", counted, review, n)
	}
}
