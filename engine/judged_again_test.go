package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// loopFlow has the action set in every state but the last.
const loopFlow = `{"name":"loop","initialState":"a","states":{
	"a":{"transitions":{"set":"a","go":"b"}},
	"b":{"transitions":{"set":"b","go":"c","back":"a","end":"d"}},
	"c":{"transitions":{"set":"c","back":"b"}},
	"d":{"final":true}}}`

// overtake runs meanwhile once, while the next request is being judged, and counts the judged requests.
func (b *bench) overtake(meanwhile func()) (judged *atomic.Int32) {
	judged = &atomic.Int32{}
	b.judge.before = func(context.Context, judge.Case) error {
		if judged.Add(1) == 1 {
			meanwhile()
		}
		return nil
	}
	return judged
}

// A request without expectedRevision that was overtaken is judged again on the new state while the action
// is legal there. Only the last attempt is recorded.
func TestConflictingMoveIsJudgedAgain(t *testing.T) {
	t.Parallel()
	move := func(actions ...string) func(*bench, string) {
		return func(b *bench, id string) {
			for _, action := range actions {
				b.advance(operator, id, action, `{}`)
			}
		}
	}
	for _, tt := range []struct {
		name      string
		meanwhile func(b *bench, id string)
		req       engine.AdvanceRequest
		judged    int32  // requests that the judge got, including the overtaking one
		state     string // afterwards
		conflict  bool
	}{
		{"legal in the same state", move("set"), engine.AdvanceRequest{Action: "set"}, 3, "a", false},
		{"legal in another state", move("go"), engine.AdvanceRequest{Action: "set"}, 3, "b", false},
		{"it leads elsewhere from there", move("go"), engine.AdvanceRequest{Action: "go"}, 3, "c", false},
		{"not legal any more", move("go", "go"), engine.AdvanceRequest{Action: "go"}, 3, "c", true},
		{"ended", move("go", "end"), engine.AdvanceRequest{Action: "set"}, 3, "d", true},
		{"it was not legal, and is", move("go"), engine.AdvanceRequest{Action: "back"}, 3, "a", false},
		{"a revision is expected", move("set"), engine.AdvanceRequest{Action: "set", ExpectedRevision: new(int64(1))}, 2, "a", true},
		{"with a key", move("set"), engine.AdvanceRequest{Action: "set", Key: "k"}, 3, "a", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.define(operator, loopFlow)
			id := b.start(agent, "loop", "").ID
			judged := b.overtake(func() { tt.meanwhile(b, id) })
			req := tt.req
			req.ID, req.Data = id, document.ReadTrusted([]byte(`{"mine":1}`))
			got, err := b.Advance(t.Context(), agent, req)
			inst := b.load(id)
			if inst.State != tt.state || judged.Load() != tt.judged {
				t.Errorf("in %q after %d judgements; want %q, %d", inst.State, judged.Load(), tt.state, tt.judged)
			}
			mine := slices.DeleteFunc(b.events(id), func(ev record.Event) bool { return ev.Principal != agent.ID || ev.Kind == record.Started })
			if tt.conflict {
				if e := wantCode(t, err, engine.CodeConflict); e.Current == nil || e.Current.Revision != inst.Revision || len(mine) != 0 {
					t.Errorf("told %+v, %d events of its own", e.Current, len(mine))
				}
				return
			}
			if err != nil || !got.Decision.Applied || got.State != tt.state || len(mine) != 1 || mine[0].Kind != record.Advanced || mine[0].From != got.From {
				t.Fatalf("%+v, %v, recorded %+v", got, err, mine)
			}
			if req.Key != "" {
				if again, err := b.Advance(t.Context(), agent, req); err != nil || !again.Replayed || again.Revision != got.Revision {
					t.Errorf("the key: %+v, %v", again, err)
				}
			}
			b.verify(id)
		})
	}
}

// Requests that name no particular state are not lost either: pre-checks, checkpoints, cancellations.
func TestOtherConflictingRequests(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(b *bench, id string) (engine.Position, error){
		"validate": func(b *bench, id string) (engine.Position, error) {
			r, err := b.Validate(b.t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "end"})
			if err == nil && !r.Approved {
				b.t.Errorf("%+v", r.Decision)
			}
			return r.Position, err
		},
		"checkpoint": func(b *bench, id string) (engine.Position, error) {
			r, err := b.Checkpoint(b.t.Context(), agent, engine.CheckpointRequest{ID: id})
			return engine.Position{State: r.State, Revision: r.Revision}, err
		},
		"cancel": func(b *bench, id string) (engine.Position, error) {
			r, err := b.Cancel(b.t.Context(), agent, engine.CancelRequest{ID: id})
			return r.Position, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := &busyStore{Store: memory.New(), method: "Commit"}
			b := newBenchOn(t, db)
			b.define(operator, loopFlow)
			id := b.start(agent, "loop", "").ID
			db.meanwhile = func() { b.moved(operator, id, "go", `{}`, "b") }
			if at, err := ask(b, id); err != nil || at.State != "b" || at.Revision != b.load(id).Revision {
				t.Errorf("at %+v, %v", at, err)
			}
			b.verify(id)
		})
	}
}

// The number of attempts is limited, more strictly for those that ask a model; each is charged to the
// quotas.
func TestRetriesOfConflictingMoveAreBounded(t *testing.T) {
	t.Parallel()
	approval := judge.Verdict{Outcome: judge.Approve, Applied: true, Target: "a", Mode: judge.Enforce, Confidence: 1, Assurance: judge.AssuranceNone, DecidedBy: judge.LayerTransition}
	tokens := 10
	withModel := approval
	withModel.Opinions = []judge.Opinion{{Layer: judge.LayerModel, Outcome: judge.Approve, Confidence: 1, Assurance: judge.AssuranceLLM, Model: &judge.ModelRecord{PromptTokens: &tokens}}}
	for name, tt := range map[string]struct {
		verdict judge.Verdict
		quota   int64
		tries   int
		code    engine.Code
	}{
		"without a model":            {approval, 0, 50, engine.CodeConflict},
		"with a model":               {withModel, 0, 4, engine.CodeConflict},
		"until the tokens are spent": {withModel, 15, 2, engine.CodeModelTokensSpent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) { c.Models = []string{"m"} })
			b.define(operator, `{"name":"loop","initialState":"a","states":{"a":{"transitions":{"set":{"target":"a","useLLM":`+fmt.Sprint(tt.quota > 0)+`}}}}}`)
			id := b.start(agent, "loop", "").ID
			tries := 0
			b.judge.next = verdicts(tt.verdict)
			b.judge.before = func(_ context.Context, c judge.Case) error {
				if c.Principal == agent.ID {
					tries++
					b.advance(operator, id, "set", `{}`)
				}
				return nil
			}
			if tt.quota > 0 {
				b.SetQuotas(engine.Quotas{ModelTokens: tt.quota})
			}
			_, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "set", Key: "k"})
			if wantCode(t, err, tt.code); tries != tt.tries {
				t.Errorf("%d tries, want %d", tries, tt.tries)
			}
			b.judge.before = nil
			b.SetQuotas(engine.Quotas{})
			if r, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "set", Key: "k"}); err != nil || r.Replayed {
				t.Errorf("tries that were given up bind no key: %+v, %v", r, err)
			}
			if n := b.Waiting(); n != 0 {
				t.Errorf("%d turns are left", n)
			}
		})
	}
}

// A key that another process has answered in the meantime is replayed, not judged again.
func TestKeyOfConflictingMoveIsReplayed(t *testing.T) {
	t.Parallel()
	db := memory.New()
	b, twin := newBenchOn(t, db), newBenchOn(t, db)
	b.define(operator, loopFlow)
	id := b.start(agent, "loop", "").ID
	req := engine.AdvanceRequest{ID: id, Action: "set", Data: document.ReadTrusted([]byte(`{"n":1}`)), Key: "k"}
	var first engine.AdvanceResult
	judged := b.overtake(func() {
		var err error
		if first, err = twin.Advance(t.Context(), agent, req); err != nil {
			t.Error(err)
		}
	})
	got, err := b.Advance(t.Context(), agent, req)
	if err != nil || !got.Replayed || got.Revision != first.Revision || judged.Load() != 1 || b.load(id).Revision != 2 {
		t.Errorf("%+v, %v after %d judgements; first %+v", got, err, judged.Load(), first)
	}
}

// A model's refusal in an overtaken attempt does not count for the loop guard.
func TestLoopGuardIgnoresConflictingAttempts(t *testing.T) {
	t.Parallel()
	const flow = `{"name":"judged","initialState":"open","judgeConfig":{"strictMode":true},"states":{
		"open":{"transitions":{"edit":"open","close":{"target":"closed","requiredFields":["note"],"useLLM":true,"criteria":["the note says what was done"]}}},
		"closed":{"final":true}}}`
	db := &busyStore{Store: memory.New(), method: "Commit"}
	j := newJudged(t, db, "m")
	if _, err := j.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(flow)}); err != nil {
		t.Fatal(err)
	}
	id := j.start()
	db.meanwhile = func() {
		if _, err := j.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "edit", Data: document.ReadTrusted([]byte(`{"n":1}`))}); err != nil {
			t.Error(err)
		}
	}
	for i := range 2 {
		if d := j.advance(agent, closing(id, "did it")); d.Code == judge.CodeLoopGuard || d.Applied {
			t.Errorf("refusal %d: %+v", i+1, d)
		}
	}
	if n := j.model.calls.Load(); n != 2 { // only the second refusal was recorded
		t.Errorf("the model was asked %d times, want 2", n)
	}
	if d := j.advance(agent, closing(id, "did it")); d.Code != judge.CodeLoopGuard {
		t.Errorf("the third refusal: %+v", d)
	}
}

// Overtaken requests of one caller take turns, so that ten of them ask a model at most twice each. No
// caller waits for another one.
func TestConflictingMovesAreSerialized(t *testing.T) {
	pool()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.define(operator, loopFlow)
		id := b.start(agent, "loop", "").ID
		const callers = 10
		gates := make([]chan struct{}, 0, callers)
		var mu sync.Mutex
		var judged atomic.Int32
		b.judge.before = func(_ context.Context, c judge.Case) error {
			if c.Principal != agent.ID {
				return nil
			}
			judged.Add(1)
			gate := make(chan struct{})
			mu.Lock()
			gates = append(gates, gate)
			mu.Unlock()
			<-gate
			return nil
		}
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				if _, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "set", Data: document.ReadTrusted([]byte(fmt.Sprintf(`{"n":%d}`, i)))}); err != nil {
					t.Error(err)
				}
			})
		}
		for round := 0; ; round++ {
			synctest.Wait()
			if round == 1 { // ahead of the waiting requests, and more often than they overtake each other
				if r, err := b.Advance(t.Context(), operator, engine.AdvanceRequest{ID: id, Action: "go"}); err != nil || !r.Decision.Applied {
					t.Errorf("the operator: %+v, %v", r, err)
				}
			}
			mu.Lock()
			open := gates
			gates = nil
			mu.Unlock()
			if len(open) == 0 {
				break
			}
			if round > 0 && len(open) > 1 {
				t.Errorf("round %d: %d are judged at once", round, len(open))
			}
			for _, gate := range open {
				close(gate)
			}
		}
		all.Wait()
		if n := judged.Load(); n != 2*callers {
			t.Errorf("%d judgements for %d moves", n, callers)
		}
	})
}

// Concurrent moves on two processes: each acknowledged approval is recorded exactly once, as it was
// acknowledged. Nothing else moved, and the moves are a path of the definition.
func TestConcurrentMovesAreOnePath(t *testing.T) {
	t.Parallel()
	db := memory.New()
	first := newBenchOn(t, db)
	first.define(operator, loopFlow)
	engines := []*bench{first, newBenchOn(t, db)}
	rapid.Check(t, func(rt *rapid.T) {
		id := first.start(agent, "loop", "").ID
		plans := rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]string{"set", "set", "go", "back", "end"}), 1, 5), 2, 6).Draw(rt, "plans")
		var mu sync.Mutex
		moves := map[int64]engine.AdvanceResult{}
		var wg sync.WaitGroup
		for i, plan := range plans {
			wg.Go(func() {
				for k, action := range plan {
					who := []engine.Principal{agent, agent, operator}[i%3]
					got, err := engines[i%2].Advance(context.Background(), who, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(fmt.Sprintf(`{"move":"%d.%d"}`, i, k)))})
					mu.Lock()
					switch _, twice := moves[got.Revision]; {
					case err != nil && (engine.CodeOf(err) != engine.CodeConflict || action == "set" && first.load(id).State != "d"):
						rt.Errorf("%s: %v", action, err)
					case err != nil || !got.Decision.Applied:
					case twice:
						rt.Errorf("revision %d twice", got.Revision)
					default:
						moves[got.Revision] = got
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		state, recorded := "a", 0
		for _, ev := range first.events(id) {
			if ev.Kind != record.Advanced {
				continue
			}
			recorded++
			got := moves[ev.Revision]
			if ev.From != state || got.From != ev.From || got.State != ev.To || got.Action != ev.Action || got.Decision.ID != ev.Decision.ID {
				rt.Errorf("from %q: recorded %+v, acknowledged %+v", state, ev, got)
			}
			legal := map[string]map[string]string{"a": {"set": "a", "go": "b"}, "b": {"set": "b", "go": "c", "back": "a", "end": "d"}, "c": {"set": "c", "back": "b"}}
			if legal[ev.From][ev.Action] != ev.To {
				rt.Errorf("%s leads from %q to %q", ev.Action, ev.From, ev.To)
			}
			state = ev.To
		}
		if recorded != len(moves) {
			rt.Errorf("%d moves were acknowledged, %d are recorded: %v", len(moves), recorded, slices.Sorted(maps.Keys(moves)))
		}
		if err := record.Verify(db.Events(context.Background(), store.EventQuery{Instance: id})); err != nil {
			rt.Error(err)
		}
	})
}
