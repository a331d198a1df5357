package replay_test

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/memstore"
	"github.com/gavel-mcp/gavel/engine/replay"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

func TestMain(m *testing.M) {
	storetest.SampleProperties(30)
	os.Exit(enginetest.Main(m))
}

var (
	agent    = engine.Principal{ID: "agent:ada", Role: engine.RoleAgent}
	other    = engine.Principal{ID: "agent:bob", Role: engine.RoleAgent}
	operator = engine.Principal{ID: "op:eve", Role: engine.RoleOperator}
	reviewer = engine.Principal{ID: "rev:rob", Role: engine.RoleReviewer}
)

// bench is an engine whose history is judged again.
type bench struct {
	*engine.Engine
	t        testing.TB
	store    *memstore.Store
	compiler *validators.Compiler
	world    *world
}

// world is what the gate finds outside: evidence, and a model that says what the data
// tell it to.
type world struct {
	mu       sync.Mutex
	now      time.Time
	evidence map[string]judge.FetchResult
	fetches  int
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(time.Millisecond)
	return w.now
}

// Fetch implements judge.Fetcher.
func (w *world) Fetch(_ context.Context, r judge.EvidenceRequest, _ bool) (judge.FetchResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fetches++
	if len(r.Missing) > 0 {
		return judge.FetchResult{Failure: judge.FailureArgument, Detail: "no value came"}, nil
	}
	if f, ok := w.evidence[r.Source]; ok {
		return f, nil
	}
	return judge.FetchResult{Failure: judge.FailureUnavailable, Detail: "nobody there"}, nil
}

// tool is a model that answers what stands in data.model.
type tool struct{}

func (tool) Name() judge.LayerName { return judge.LayerModel }

func (tool) Weigh(_ context.Context, c judge.Case) (judge.Opinion, error) {
	var said struct {
		Model string  `json:"model"`
		Sure  float64 `json:"sure"`
		Tries int     `json:"tries"` // what the loop guard of an engine with a memory would have counted
	}
	if err := json.Unmarshal(c.Data.Raw(), &said); err != nil {
		return judge.Opinion{}, err
	}
	op := judge.Opinion{
		Layer: judge.LayerModel, Outcome: judge.Escalate, Confidence: 0.5, Assurance: judge.AssuranceNone,
		Model: &judge.ModelRecord{Model: "tool", PromptID: "transition/v1", PromptDigest: "sha256:then", CriteriaDigest: judge.CriteriaDigest(c.Rubric), Stated: said.Sure, Calls: 1},
	}
	switch said.Model {
	case "approve", "reject":
		op.Outcome, op.Confidence, op.Assurance = judge.Outcome(said.Model), min(said.Sure, 1), judge.AssuranceLLM
		if said.Model == "reject" {
			op.Findings = []validators.Finding{{Code: judge.CodeCriterionNotMet, Message: "It is not met."}}
		}
		op.Model.Refusals, op.Model.RefusalLimit = said.Tries, 3
	case "unreadable":
		op.Trouble = judge.TroubleUnreadable
	case "unsure":
		op.Trouble = judge.TroubleCannotAssess
	default:
		op.Trouble = judge.TroubleUnavailable
	}
	return op, nil
}

func newBench(t testing.TB, reviews bool) *bench {
	t.Helper()
	b := &bench{
		t: t, store: memstore.New(), compiler: validators.NewCompiler(enginetest.Pool(), validators.Options{}),
		world: &world{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), evidence: map[string]judge.FetchResult{}},
	}
	b.Engine = enginetest.New(t, judge.Config{Fetcher: b.world, Model: tool{}}, func(cfg *engine.Config) {
		cfg.Store, cfg.Now, cfg.ReviewPath = b.store, b.world.clock, reviews
		cfg.Models, cfg.Sources = []string{"tool"}, []string{"ci", "big"}
	})
	t.Cleanup(func() { _ = b.store.Close() })
	return b
}

func (b *bench) define(doc string) {
	b.t.Helper()
	if _, err := b.Define(b.t.Context(), operator, engine.DefineRequest{Source: "test.yaml", Document: []byte(doc)}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) start(p engine.Principal, flow, doc string) string {
	b.t.Helper()
	r, err := b.Start(b.t.Context(), p, engine.StartRequest{Type: flow, Context: json.RawMessage(doc)})
	if err != nil || r.ID == "" {
		b.t.Fatalf("start: %+v, %v", r.Decision, err)
	}
	return r.ID
}

func (b *bench) advance(p engine.Principal, id, action, data string) engine.AdvanceResult {
	b.t.Helper()
	r, err := b.Advance(b.t.Context(), p, engine.AdvanceRequest{ID: id, Action: action, Data: json.RawMessage(data)})
	if err != nil {
		b.t.Fatalf("%s: %v", action, err)
	}
	return r
}

// run judges everything again.
func (b *bench) run(with func(*replay.Config)) replay.Report {
	b.t.Helper()
	cfg := replay.Config{From: b.store, Compiler: b.compiler, Query: replay.QuestionQuery{Digester: enginetest.Digester, Values: b.Values()}}
	with(&cfg)
	r, err := replay.Run(b.t.Context(), cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func parsed(t testing.TB, doc string) map[string]*workflow.Definition {
	t.Helper()
	d, err := workflow.Parse("other.yaml", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*workflow.Definition{d.Name: d}
}

func settings(least float64) workflow.JudgeSettings {
	return workflow.JudgeSettings{MinConfidence: &least}
}
