package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/judge"
)

// job is a workflow that fails repeatedly and cleans up each time.
const job = `{"name":"job","initialState":"work","states":{
	"work":{"transitions":{"fail":"error","finish":"done"}},
	"error":{"onEnter":{"chain":"clean","input":{"job":"{{instance.id}}","path":"{{context.path}}"}},"transitions":{"again":"work"}},
	"done":{"final":true}}}`

// fakeEntries counts started runs by id.
type fakeEntries struct {
	mu    sync.Mutex
	began map[string]int
}

func (f *fakeEntries) StartEntry(_ context.Context, _ engine.Principal, e chain.Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began[chain.EntryRun(e.Instance, e.Revision)]++
	return nil
}

// dyingEntries makes calls from a process that may be killed.
type dyingEntries struct {
	*process
	runs *fakeEntries
}

func (d dyingEntries) StartEntry(ctx context.Context, p engine.Principal, e chain.Entry) error {
	_, err := call(d.process, func() (int, error) { return 0, d.runs.StartEntry(ctx, p, e) })
	return err
}

func (p *process) MoveCursor(ctx context.Context, c store.Cursor, from int64, under *store.Lease) error {
	_, err := call(p, func() (int, error) { return 0, p.Store.MoveCursor(ctx, c, from, under) })
	return err
}

func owns(_ context.Context, e chain.Entry) (engine.Principal, error) {
	return engine.Principal{ID: e.Owner, Role: engine.RoleAgent}, nil
}

func newEntries(t *testing.T, db store.Store) *chain.Entries {
	t.Helper()
	e := enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Store = db })
	return &chain.Entries{EntryLog: chain.EntryLog{Engine: e, Store: db}, Cursors: db, ActsFor: owns, Log: quiet}
}

// TestEntriesStartOnce: with two replicas over one store that are killed repeatedly, each entry of a state
// has one run.
func TestEntriesStartOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, runs := memory.New(), &fakeEntries{began: map[string]int{}}
		e := enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Store = db })
		if _, err := e.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(job)}); err != nil {
			t.Fatal(err)
		}
		if err := db.MoveCursor(t.Context(), store.Cursor{Name: chain.EntryCursor}, store.NoCursor, nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var replicas sync.WaitGroup
		kills := 0
		for replica := range 2 {
			replicas.Go(func() {
				for ctx.Err() == nil {
					p := &process{Store: db, lives: 3 + rand.N(40)}
					life, end := context.WithCancel(ctx)
					entries := newEntries(t, p)
					var running sync.WaitGroup
					running.Go(func() { entries.RunEntries(life, dyingEntries{p, runs}) })
					for ctx.Err() == nil && !p.isDead() {
						select {
						case <-ctx.Done():
						case <-time.After(time.Second):
						}
					}
					if p.isDead() && replica == 0 {
						kills++
					}
					end()
					running.Wait()
				}
			})
		}
		var want []string
		for range 10 {
			began, err := e.Start(ctx, ann, engine.StartRequest{Type: "job"})
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				time.Sleep(time.Duration(rand.N(20)) * time.Second) //nolint:forbidigo // by the clock of synctest
				failed, err := e.Advance(ctx, ann, engine.AdvanceRequest{ID: began.ID, Action: "fail"})
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, chain.EntryRun(began.ID, failed.Revision))
				if _, err := e.Advance(ctx, ann, engine.AdvanceRequest{ID: began.ID, Action: "again"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(10 * time.Minute) //nolint:forbidigo // by the clock of synctest
		cancel()
		replicas.Wait()
		again := 0
		for _, run := range want {
			if runs.began[run] == 0 {
				t.Errorf("no run %s", run)
			}
			again += runs.began[run] - 1
		}
		if len(runs.began) != len(want) || kills < 10 || again == 0 {
			t.Errorf("%d runs of %d entries, %d kills, %d starts asked for once more", len(runs.began), len(want), kills, again)
		}
	})
}

// served is a store with running chains, and the component that starts chains of states.
type served struct {
	*engine.Engine
	db      store.Store
	folder  string
	chains  map[string]*chain.Definition
	service *chain.Service
	stop    func()
}

// serveEntries runs the chains of states over a store, with the effects, until the test ends.
func serveEntries(t *testing.T, workflow string, effects chain.Effects, chains ...string) served {
	t.Helper()
	s := served{db: memory.New(), folder: t.TempDir(), chains: map[string]*chain.Definition{}}
	s.Engine = enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Store, c.ReviewPath = s.db, true })
	if _, err := s.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(workflow)}); err != nil {
		t.Fatal(err)
	}
	for _, text := range chains {
		d, err := chain.Parse("chain.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s.chains[d.Name] = d
	}
	if err := s.db.MoveCursor(t.Context(), store.Cursor{Name: chain.EntryCursor}, store.NoCursor, nil); err != nil {
		t.Fatal(err)
	}
	s.open(t, effects, chain.NewLedger(s.Engine))
	return s
}

// open runs chains until stop is called or the test ends.
func (s *served) open(t *testing.T, effects chain.Effects, ledger chain.Ledger) {
	t.Helper()
	runs, err := chain.Open(t.Context(), chain.Config{Path: s.folder + "/chains.db", Effects: effects, Ledger: ledger})
	if err != nil {
		t.Fatal(err)
	}
	service := chain.NewService(chain.ServiceConfig{Runs: runs, Engine: s.Engine, Chains: func() map[string]*chain.Definition { return s.chains }})
	entries := &chain.Entries{EntryLog: chain.EntryLog{Engine: s.Engine, Store: s.db}, Cursors: s.db, ActsFor: owns, Log: quiet}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { entries.RunEntries(ctx, service) })
	s.service, s.stop = service, sync.OnceFunc(func() { cancel(); running.Wait(); runs.Close() })
	t.Cleanup(s.stop)
}

// enter starts an instance of job and makes it fail.
func (s served) enter(t *testing.T) (id, run string) {
	t.Helper()
	began, err := s.Start(t.Context(), ann, engine.StartRequest{Type: "job", Context: json.RawMessage(`{"path":"/work"}`)})
	if err != nil {
		t.Fatal(err)
	}
	failed, err := s.Advance(t.Context(), ann, engine.AdvanceRequest{ID: began.ID, Action: "fail"})
	if err != nil {
		t.Fatal(err)
	}
	return began.ID, chain.EntryRun(began.ID, failed.Revision)
}

// await polls until an instance satisfies is.
func (s served) await(t *testing.T, id, what string, is func(engine.StatusResult) bool) engine.StatusResult {
	t.Helper()
	tick, late := time.NewTicker(20*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for {
		now, err := s.Status(t.Context(), operator, id)
		if err != nil {
			t.Fatal(err)
		}
		if is(now) {
			return now
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s never came; it is in %s with %v", what, now.State, now.Calls)
		}
	}
}

const cleaning = `{"name":"clean","variables":{"input":{"job":"none","path":"/tmp"}},"steps":[{"id":"rm","type":"tool","server":"s","action":"rm","arguments":{"job":"{{variables.input.job}}","path":"{{variables.input.path}}"}}]}`

// scripted answers calls from a channel, and reports what was asked.
type scripted struct {
	asked chan string
	say   chan chain.Outcome
}

func (s scripted) Do(ctx context.Context, c chain.Command) chain.Outcome {
	raw, _ := json.Marshal(c.Arguments)
	select {
	case s.asked <- string(raw):
	case <-ctx.Done():
	}
	select {
	case o := <-s.say:
		return o
	case <-ctx.Done():
		return chain.Outcome{Err: &chain.StepError{Code: "stopped", Message: "stopped"}}
	}
}

func newScripted() scripted { return scripted{make(chan string), make(chan chain.Outcome)} }

const waiting = `{"name":"job","initialState":"work","states":{
	"work":{"transitions":{"fail":"error"}},
	"error":{"onEnter":{"chain":"clean","input":{"job":"{{instance.id}}","path":"{{context.path}}"},"wait":true,"onSuccess":"cleaned","onFailure":"broken"},
		"transitions":{"cleaned":{"target":"clean","validator":"(data, context) => context.path !== '/'"},"broken":"dirty","skip":"dirty"}},
	"clean":{"final":true,"outcome":"failure"},"dirty":{"transitions":{"back":"error"}}}}`

// TestStateWaitsForChain: nothing else moves the instance before the run has ended. Its end performs an
// action that the deterministic layers judge.
func TestStateWaitsForChain(t *testing.T) {
	t.Parallel()
	failure := chain.Outcome{Err: &chain.StepError{Code: "tool_error", Message: "it cannot be removed", Final: true}}
	for name, row := range map[string]struct {
		context, asked, state string
		say                   chain.Outcome
	}{
		"done":            {`{"path":"/work"}`, `/work`, "clean", chain.Outcome{Value: "ok"}},
		"without context": {`{}`, `/tmp`, "clean", chain.Outcome{Value: "ok"}}, // uses the chain's default
		"failed":          {`{"path":"/work"}`, `/work`, "dirty", failure},
		"judged":          {`{"path":"/"}`, `/`, "error", chain.Outcome{Value: "ok"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			effects := newScripted()
			s := serveEntries(t, waiting, effects, cleaning)
			began, err := s.Start(t.Context(), ann, engine.StartRequest{Type: "job", Context: json.RawMessage(row.context)})
			if err != nil {
				t.Fatal(err)
			}
			failed, err := s.Advance(t.Context(), ann, engine.AdvanceRequest{ID: began.ID, Action: "fail"})
			if err != nil {
				t.Fatal(err)
			}
			skip := func() engine.Code {
				_, err := s.Advance(t.Context(), operator, engine.AdvanceRequest{ID: began.ID, Action: "skip"})
				return engine.CodeOf(err)
			}
			if code := skip(); code != engine.CodeCallOpen {
				t.Errorf("before the chain begins: %q", code)
			}
			if got, want := <-effects.asked, fmt.Sprintf(`{"job":%q,"path":%q}`, began.ID, row.asked); got != want {
				t.Errorf("asked with %s, not %s", got, want)
			}
			s.await(t, began.ID, "the call", func(now engine.StatusResult) bool {
				return len(now.Calls) == 1 && now.Calls[0].Tool == "chain.clean@error"
			})
			if code := skip(); code != engine.CodeCallOpen {
				t.Errorf("while the chain runs: %q", code)
			}
			effects.say <- row.say
			s.await(t, began.ID, "the end", func(now engine.StatusResult) bool { return len(now.Calls) == 0 && now.State == row.state })
			run, err := s.Status(t.Context(), ann, engine.RunInstance(chain.EntryRun(began.ID, failed.Revision)))
			if err != nil || run.Owner != "ann" || run.Workflow != "chain.clean" {
				t.Errorf("the run is %+v, %v", run, err)
			}
			if row.state == "error" {
				if code := skip(); code != "" {
					t.Errorf("after a refused action: %q", code)
				}
			}
		})
	}
}

// TestLockedInstances: an instance whose chain never ran, because there were no chains, is freed once there
// are, or by an operator. Earlier entries that do not wait start nothing.
func TestLockedInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, runs := memory.New(), &fakeEntries{began: map[string]int{}}
		e := enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Store = db })
		const locks = `{"name":"job","initialState":"work","states":{"work":{"transitions":{"fail":"error"}},
			"error":{"onEnter":{"chain":"clean","wait":true,"onFailure":"broken"},"transitions":{"broken":"dirty","skip":"dirty"}},"dirty":{"final":true}}}`
		free := strings.NewReplacer(`"job"`, `"free"`, `"wait":true,`, "").Replace(locks)
		for _, doc := range []string{locks, free} {
			if _, err := e.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(doc)}); err != nil {
				t.Fatal(err)
			}
		}
		enter := func(workflow string) (id string, revision int64) {
			began, err := e.Start(t.Context(), ann, engine.StartRequest{Type: workflow})
			if err != nil {
				t.Fatal(err)
			}
			failed, err := e.Advance(t.Context(), ann, engine.AdvanceRequest{ID: began.ID, Action: "fail"})
			if err != nil {
				t.Fatal(err)
			}
			return began.ID, failed.Revision
		}
		locked, revision := enter("job")
		freed, _ := enter("job")
		enter("free")
		skip := func(id string) engine.Code {
			_, err := e.Advance(t.Context(), ann, engine.AdvanceRequest{ID: id, Action: "skip"})
			return engine.CodeOf(err)
		}
		if code := skip(freed); code != engine.CodeCallOpen {
			t.Errorf("without chains it is %q", code)
		}
		if name, err := chain.CancelEntry(t.Context(), chain.EntryLog{Engine: e, Store: db}, operator, freed); name != "clean" || err != nil {
			t.Errorf("%q, %v", name, err)
		}
		if now, err := e.Status(t.Context(), ann, freed); err != nil || now.State != "dirty" {
			t.Errorf("the instance that the operator freed is in %q, %v", now.State, err)
		}
		if _, err := chain.CancelEntry(t.Context(), chain.EntryLog{Engine: e, Store: db}, operator, freed); engine.CodeOf(err) != engine.CodeConflict {
			t.Errorf("freed again: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { newEntries(t, db).RunEntries(ctx, runs) })
		time.Sleep(time.Minute) //nolint:forbidigo // by the clock of synctest
		later, _ := enter("free")
		time.Sleep(time.Minute) //nolint:forbidigo // by the clock of synctest
		cancel()
		running.Wait()
		want := map[string]int{chain.EntryRun(locked, revision): 1, chain.EntryRun(later, 2): 1}
		if !maps.Equal(runs.began, want) {
			t.Errorf("began %v, want %v", runs.began, want)
		}
	})
}

// TestChainThatCannotStart: a chain that cannot start counts as failed.
func TestChainThatCannotStart(t *testing.T) {
	t.Parallel()
	s := serveEntries(t, waiting, newScripted())
	id, _ := s.enter(t)
	s.await(t, id, "the action on failure", func(now engine.StatusResult) bool { return now.State == "dirty" })
}

// TestSensitiveContextStartsNothing: a chain that would expose sensitive values of the workflow does not
// run, and counts as failed.
func TestSensitiveContextStartsNothing(t *testing.T) {
	t.Parallel()
	s := serveEntries(t, strings.Replace(waiting, `{"name":"job",`, `{"name":"job","sensitive":["/path"],`, 1), newScripted(), cleaning)
	id, run := s.enter(t)
	s.await(t, id, "the action on failure", func(now engine.StatusResult) bool { return now.State == "dirty" })
	if _, err := s.service.ReadRun(t.Context(), operator, run); !chain.IsCode(err, engine.CodeUnknownInstance) {
		t.Errorf("it ran: %v", err)
	}
}

// TestCancelledChainOfState: a cancelled chain counts as failed.
func TestCancelledChainOfState(t *testing.T) {
	t.Parallel()
	effects := newScripted()
	s := serveEntries(t, waiting, effects, cleaning)
	id, run := s.enter(t)
	<-effects.asked
	if _, err := s.service.CancelRun(t.Context(), operator, run, "no time"); err != nil {
		t.Fatal(err)
	}
	s.await(t, id, "the action on failure", func(now engine.StatusResult) bool { return now.State == "dirty" && len(now.Calls) == 0 })
	if _, err := s.service.StartRun(t.Context(), ann, chain.StartRun{Chain: "clean", Run: "enter-" + id + "-9"}); !chain.IsCode(err, engine.CodeInvalidArgument) {
		t.Errorf("somebody takes the id of an entry: %v", err)
	}
}

// unreachable is a store that never accepts the end of a run.
type unreachable struct {
	chain.Ledger
	asked chan struct{}
}

func (u unreachable) BeginCall(context.Context, engine.Principal, engine.CallRequest) (engine.CallResult, error) {
	select {
	case u.asked <- struct{}{}:
	default:
	}
	return engine.CallResult{}, &engine.Error{Code: engine.CodeUnavailable, Message: "The store cannot be reached."}
}

// TestEndOfChainIsTakenUp: if a process dies before the instance learns of the end of its chain, the next
// process reports it, and the chain's work is not repeated.
func TestEndOfChainIsTakenUp(t *testing.T) {
	t.Parallel()
	effects := newScripted()
	s := serveEntries(t, waiting, effects, cleaning)
	s.stop()
	gone := unreachable{chain.NewLedger(s.Engine), make(chan struct{})}
	s.open(t, effects, gone)
	id, _ := s.enter(t)
	<-effects.asked
	effects.say <- chain.Outcome{Value: "ok"}
	<-gone.asked
	s.stop()
	s.open(t, effects, chain.NewLedger(s.Engine))
	s.await(t, id, "the action on success", func(now engine.StatusResult) bool { return now.State == "clean" })
	all, err := engine.ReadWholeHistory(t.Context(), s.Engine, operator, id)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, d := range all {
		actions = append(actions, d.Action)
	}
	if want := []string{"", "fail", "cleaned"}; !slices.Equal(actions, want) {
		t.Errorf("%q and not %q", actions, want)
	}
}

// TestStartsMovesAndRedosEnterStates: starts, moves and redos enter a state. Staying in it or undoing a move does not,
// unless the state awaits a chain that never ran.
func TestStartsMovesAndRedosEnterStates(t *testing.T) {
	t.Parallel()
	const loops = `{"name":"loops","initialState":"a","states":{
		"a":{"onEnter":{"chain":"c"},"transitions":{"stay":"a","go":"b"}},
		"b":{"onEnter":{"chain":"d","wait":true},"transitions":{"back":"a"}}}}`
	db := memory.New()
	e := enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Store = db })
	if _, err := e.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(loops)}); err != nil {
		t.Fatal(err)
	}
	began, err := e.Start(t.Context(), ann, engine.StartRequest{Type: "loops", Context: json.RawMessage(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, action := range []string{"stay", "go"} {
		if r, err := e.Advance(t.Context(), ann, engine.AdvanceRequest{ID: began.ID, Action: action}); err != nil || !r.Decision.Applied {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if _, err := e.Undo(t.Context(), operator, engine.UndoRequest{ID: began.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Redo(t.Context(), operator, engine.UndoRequest{ID: began.ID}); err != nil {
		t.Fatal(err)
	}
	log := chain.EntryLog{Engine: e, Store: db}
	all, _, upTo, err := log.List(t.Context(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range all {
		got = append(got, fmt.Sprint(entry.Revision, entry.State, string(entry.Context)))
	}
	if want := []string{`1a{"n":1}`, `3b{"n":1}`, `5b{"n":1}`}; !slices.Equal(got, want) {
		t.Errorf("%q and not %q", got, want)
	}
	if one, _, at, err := log.List(t.Context(), 0, 1); err != nil || len(one) != 1 || at != one[0].Position {
		t.Errorf("%+v, %d, %v", one, at, err)
	}
	if none, _, at, err := log.List(t.Context(), upTo, 100); err != nil || len(none) != 0 || at != upTo {
		t.Errorf("%+v, %d, %v", none, at, err)
	}
	if _, err := e.Define(t.Context(), ann, engine.DefineRequest{Document: []byte(`{"name":"mine","initialState":"a","states":{"a":{"onEnter":{"chain":"c"},"transitions":{"stay":"a"}}}}`)}); !chain.IsCode(err, engine.CodeInvalidDefinition) {
		t.Errorf("an agent's: %v", err)
	}
}

// unfoldable is a store in which the history of one instance cannot be read.
type unfoldable struct {
	store.Store
	instance string
	most     int64 // if not 0, only reads up to this revision fail
	cause    error
}

func (u *unfoldable) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	if q.Instance != u.instance || u.most > 0 && q.MaxRevision > u.most {
		return u.Store.Events(ctx, q)
	}
	return func(yield func(record.Event, error) bool) { yield(record.Event{}, u.cause) }
}

func (u *unfoldable) Snapshot(context.Context, string, int64) (record.Instance, error) {
	return record.Instance{}, store.ErrNotFound
}

// TestDamagedHistoryIsPassed: an instance whose history is unreadable is reported, and does not hold up the
// entries of others. If the store only fails temporarily, the entry waits.
func TestDamagedHistoryIsPassed(t *testing.T) {
	t.Parallel()
	db := &unfoldable{Store: memory.New()}
	e := enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Store = db })
	if _, err := e.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(job)}); err != nil {
		t.Fatal(err)
	}
	log := chain.EntryLog{Engine: e, Store: db}
	var ids []string
	for range 3 {
		began, err := e.Start(t.Context(), ann, engine.StartRequest{Type: "job"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Advance(t.Context(), ann, engine.AdvanceRequest{ID: began.ID, Action: "fail"}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, began.ID)
	}
	db.instance = ids[1]
	for _, cause := range []error{store.ErrDamaged, record.ErrMalformed} {
		db.cause = fmt.Errorf("read a row: %w", cause)
		found, damaged, upTo, err := log.List(t.Context(), 0, 100)
		if err != nil || len(found) != 2 || found[0].Instance != ids[0] || found[1].Instance != ids[2] || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), ids[1]) || !errors.Is(damaged[0], cause) {
			t.Errorf("%+v, %v, %d, %v", found, damaged, upTo, err)
		}
		if found, damaged, at, err := log.List(t.Context(), 0, 2); err != nil || len(found) != 1 || len(damaged) != 1 || at >= upTo {
			t.Errorf("at most two: %+v, %v, %d, %v", found, damaged, at, err)
		}
	}
	db.cause = errors.New("the connection was reset")
	if _, _, at, err := log.List(t.Context(), 0, 100); !chain.IsCode(err, engine.CodeUnavailable) || at != 0 {
		t.Errorf("just now: %d, %v", at, err)
	}
	if _, err := e.Undo(t.Context(), operator, engine.UndoRequest{ID: ids[0]}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Redo(t.Context(), operator, engine.UndoRequest{ID: ids[0]}); err != nil {
		t.Fatal(err)
	}
	db.instance, db.most = ids[0], 1 // the revision that the undo reads
	if _, damaged, at, err := log.List(t.Context(), 0, 100); !chain.IsCode(err, engine.CodeUnavailable) || at != 0 {
		t.Errorf("just now, in the past of a redo: %v, %d, %v", damaged, at, err)
	}
}
