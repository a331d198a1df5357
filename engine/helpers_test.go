package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(processPath); path != "" {
		worker.Main(workflow.AnswerLintRequest)
		if err := answerQuestions(path, os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	storetest.UseMemory()
	storetest.SampleProperties(10) // histories of one goroutine
	os.Exit(enginetest.Main(m))
}

// Principals of the tests.
var (
	agent    = engine.Principal{ID: "agent:ada", Role: engine.RoleAgent}
	other    = engine.Principal{ID: "agent:bob", Role: engine.RoleAgent}
	operator = engine.Principal{ID: "op:eve", Role: engine.RoleOperator}
	reviewer = engine.Principal{ID: "rev:rob", Role: engine.RoleReviewer}
	auditor  = engine.Principal{ID: "aud:ann", Role: engine.RoleAuditor}
)

// pool is the sandbox that this test binary shares.
var pool = enginetest.Pool

// bench is an engine with its store and a clock that only the test moves.
type bench struct {
	*engine.Engine
	*audit.Auditor
	t     testing.TB
	store store.Store
	judge *gate
	now   time.Time
	mu    sync.Mutex
}

// gate passes cases to the real pipeline, and lets a test intervene first.
type gate struct {
	next   engine.Judge
	before func(context.Context, judge.Case) error // may be nil
}

func (g *gate) Decide(ctx context.Context, c judge.Case) (judge.Verdict, error) {
	if g.before != nil {
		if err := g.before(ctx, c); err != nil {
			return judge.Verdict{}, err
		}
	}
	return g.next.Decide(ctx, c)
}

func (g *gate) Approve(ctx context.Context, c judge.Case, by judge.Review) (judge.Verdict, error) {
	if g.before != nil {
		if err := g.before(ctx, c); err != nil {
			return judge.Verdict{}, err
		}
	}
	return g.next.Approve(ctx, c, by)
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchOn(t, memory.New())
}

func newBenchOn(t testing.TB, db store.Store) *bench {
	t.Helper()
	return newBenchWith(t, db, nil, func(*engine.Config) {})
}

// newBenchWith returns a bench that fetches evidence, with an engine configured by the test.
func newBenchWith(t testing.TB, db store.Store, fetcher judge.Fetcher, configure func(*engine.Config)) *bench {
	t.Helper()
	b := &bench{t: t, store: db, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b.Engine = enginetest.New(t, judge.Config{Fetcher: fetcher}, func(cfg *engine.Config) {
		b.judge = &gate{next: cfg.Judge}
		cfg.Store, cfg.Judge, cfg.Reader = db, b.judge, pool()
		cfg.Now = func() time.Time {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.now = b.now.Add(time.Millisecond)
			return b.now
		}
	}, configure)
	b.signedBy(nil)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return b
}

// signedBy makes the bench's auditor sign with a key, or with none.
func (b *bench) signedBy(key audit.Signer) *bench {
	b.t.Helper()
	var err error
	if b.Auditor, err = audit.New(audit.Config{Engine: b.Engine, Store: b.store, Signer: key}); err != nil {
		b.t.Fatal(err)
	}
	return b
}

func (b *bench) define(p engine.Principal, doc string) engine.DefineResult {
	b.t.Helper()
	r, err := b.Define(b.t.Context(), p, engine.DefineRequest{Source: "test", Document: []byte(doc)})
	if err != nil {
		b.t.Fatalf("define: %v", err)
	}
	return r
}

// share lets every agent use an agent's workflow.
func (b *bench) share(name string) {
	b.t.Helper()
	if _, err := b.ConfigureJudge(b.t.Context(), operator, engine.JudgeConfigRequest{Name: name, Settings: workflow.JudgeSettings{Shared: new(true)}}); err != nil {
		b.t.Fatalf("share: %v", err)
	}
}

func (b *bench) start(p engine.Principal, workflow, doc string) engine.StartResult {
	b.t.Helper()
	r, err := b.Start(b.t.Context(), p, engine.StartRequest{Type: workflow, Context: json.RawMessage(doc)})
	if err != nil {
		b.t.Fatalf("start: %v", err)
	}
	if !r.Decision.Applied {
		b.t.Fatalf("start was refused: %+v", r.Decision)
	}
	return r
}

func (b *bench) advance(p engine.Principal, id, action, data string) engine.AdvanceResult {
	b.t.Helper()
	r, err := b.Advance(b.t.Context(), p, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(data))})
	if err != nil {
		b.t.Fatalf("advance %s: %v", action, err)
	}
	return r
}

// moved advances and fails the test unless the instance is in state afterwards.
func (b *bench) moved(p engine.Principal, id, action, data, state string) engine.AdvanceResult {
	b.t.Helper()
	r := b.advance(p, id, action, data)
	if !r.Decision.Applied || r.State != state {
		b.t.Fatalf("%s: got %s in %q (%s), want approve in %q", action, r.Decision.Outcome, r.State, r.Decision.Reasoning, state)
	}
	return r
}

// refused advances and fails the test unless the move was refused with code and nothing changed.
func (b *bench) refused(p engine.Principal, id, action, data, code string) engine.AdvanceResult {
	b.t.Helper()
	before := b.load(id)
	r := b.advance(p, id, action, data)
	after := b.load(id)
	if r.Decision.Applied || r.Decision.Code != code {
		b.t.Fatalf("%s: got %s code %q applied %v (%s), want a refusal with code %q",
			action, r.Decision.Outcome, r.Decision.Code, r.Decision.Applied, r.Decision.Reasoning, code)
	}
	if after.State != before.State || after.Revision != before.Revision || string(after.Context) != string(before.Context) {
		b.t.Fatalf("%s: a refusal changed the instance: %+v -> %+v", action, before, after)
	}
	if after.Seq != before.Seq+1 {
		b.t.Fatalf("%s: the refusal was not recorded: seq %d -> %d", action, before.Seq, after.Seq)
	}
	return r
}

func (b *bench) load(id string) record.Instance {
	b.t.Helper()
	inst, err := b.store.Load(b.t.Context(), id)
	if err != nil {
		b.t.Fatalf("load %s: %v", id, err)
	}
	return inst
}

// opened returns an instance with the plain context instead of the stored one.
func (b *bench) opened(id string) record.Instance {
	b.t.Helper()
	inst, err := b.Values().OpenInstance(b.t.Context(), b.load(id))
	if err != nil {
		b.t.Fatalf("open %s: %v", id, err)
	}
	return inst
}

func (b *bench) events(id string) []record.Event {
	b.t.Helper()
	var out []record.Event
	for ev, err := range b.store.Events(b.t.Context(), store.EventQuery{Instance: id}) {
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}

// wantCode fails the test unless err is an *engine.Error with code and a message.
func wantCode(t testing.TB, err error, code engine.Code) *engine.Error {
	t.Helper()
	var e *engine.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got error %v, want code %s", err, code)
	}
	if e.Message == "" || e.Error() == "" {
		t.Fatalf("code %s has no message", code)
	}
	return e
}

// simple is a workflow of three states in a row, with a way back.
const simple = `{"name":"simple","initialState":"a","states":{
	"a":{"transitions":{"go":"b"}},
	"b":{"transitions":{"go":"c","back":"a"}},
	"c":{"final":true,"outcome":"success"}}}`

func named(doc, name string) string {
	var m map[string]any
	if err := json.Unmarshal([]byte(doc), &m); err != nil {
		panic(err)
	}
	m["name"] = name
	out, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(out)
}
