package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/modules/demo"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// restless is a fetcher that changes the world after each fetch.
type restless struct {
	judge.Fetcher
	fetches int
	then    func()
}

func (r *restless) Fetch(ctx context.Context, q judge.EvidenceRequest, readOnly bool) (judge.FetchResult, error) {
	f, err := r.Fetcher.Fetch(ctx, q, readOnly)
	r.fetches++
	r.then()
	return f, err
}

// onlooker is a model that changes the world while it judges, and remembers the evidence that it got.
type onlooker struct {
	then func()
	seen json.RawMessage
}

func (*onlooker) Name() judge.LayerName { return judge.LayerModel }

func (o *onlooker) Weigh(_ context.Context, c judge.Case) (judge.Opinion, error) {
	o.then()
	o.seen = c.Fetched[0].Content
	return judge.Opinion{Layer: judge.LayerModel, Outcome: judge.Approve, Confidence: 0.85, Assurance: judge.AssuranceLLM}, nil
}

// Evidence is fetched once, and that content is judged, recorded and shown to the model. Changes of the world
// between fetch and judgement, or during it, have no effect.
func TestEvidenceStaysAsItWasFetched(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		before, then, later demo.Mood
		want                judge.Outcome
	}{
		{"it passes, and is broken right after", demo.Fixed, demo.Broken, demo.Broken, judge.Approve},
		{"it fails, and is fixed right after", demo.Broken, demo.Fixed, demo.Fixed, judge.Reject},
		{"it passes, and hangs right after", demo.Fixed, demo.Hanging, demo.Broken, judge.Approve},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := openRestless(t)
			b.become(c.before)
			b.fetcher.then = func() { b.become(c.then) }
			b.model.then = func() { b.become(c.later) }
			b.judgeOnce(c.want)
		})
	}
}

// restlessBench is an engine over the demo's project.
type restlessBench struct {
	t       *testing.T
	shop    *demo.Workshop
	engine  *engine.Engine
	fetcher *restless
	model   *onlooker
}

func openRestless(t *testing.T) *restlessBench {
	t.Helper()
	w, err := demo.OpenWorkshop()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &restlessBench{t: t, shop: w, model: &onlooker{}}
	file, err := config.Load(filepath.Join(w.Dir, "gavel.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	declared, err := evidence.ParseConfig(file.Section(evidence.Section))
	if err != nil {
		t.Fatal(err)
	}
	source := declared.Sources["tests-pass"]
	source.Command[0] = program(t)
	declared.Sources["tests-pass"] = source
	manager, err := evidence.New(declared, evidence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Close)
	b.fetcher = &restless{Fetcher: manager}
	compiler, store := plainSandbox(t), memory.New()
	pipeline, err := judge.New(judge.Config{Compiler: compiler, Fetcher: b.fetcher, Model: b.model})
	if err != nil {
		t.Fatal(err)
	}
	b.engine, err = engine.New(engine.Config{
		Store: store, Judge: pipeline, Compiler: compiler, Digester: record.NewDigester(make([]byte, 32)),
		Models: []string{"onlooker"}, Sources: manager.Names(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *restlessBench) become(to demo.Mood) {
	if err := b.shop.Become(to); err != nil {
		b.t.Error(err)
	}
}

// judgeOnce performs the action and checks the judged evidence.
func (b *restlessBench) judgeOnce(want judge.Outcome) {
	b.t.Helper()
	operator, agent := gavel.Operator, engine.Principal{ID: "agent:ada", Role: engine.RoleAgent}
	modelled := strings.Replace(string(demo.TestedChange), "writes: [summary]", "writes: [summary]\n        useLLM: true\n        criteria: [The tests pass]", 1)
	if _, err := b.engine.Define(b.t.Context(), operator, engine.DefineRequest{Source: "tested-change.yaml", Document: []byte(modelled)}); err != nil {
		b.t.Fatal(err)
	}
	started, err := b.engine.Start(b.t.Context(), agent, engine.StartRequest{Type: "tested-change"})
	if err != nil {
		b.t.Fatal(err)
	}
	got, err := b.engine.Advance(b.t.Context(), agent, engine.AdvanceRequest{
		ID: started.ID, Action: "finish", Data: document.ReadTrusted([]byte(`{"summary":"The discount is subtracted in total."}`)),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if got.Decision.Outcome != want || b.fetcher.fetches != 1 {
		b.t.Errorf("%s after %d fetches, want %s after one: %s", got.Decision.Outcome, b.fetcher.fetches, want, got.Decision.Reasoning)
	}
	h, err := b.engine.History(b.t.Context(), operator, engine.HistoryRequest{ID: started.ID})
	if err != nil {
		b.t.Fatal(err)
	}
	recorded := h.Decisions[len(h.Decisions)-1].Evidence[0]
	var content struct {
		ExitCode int `json:"exitCode"`
	}
	if err := json.Unmarshal(recorded.Content, &content); err != nil || (content.ExitCode == 0) != (want == judge.Approve) {
		b.t.Errorf("recorded is %s, %v", recorded.Content, err)
	}
	if want == judge.Approve && string(b.model.seen) != string(recorded.Content) {
		b.t.Errorf("the model was given %s, recorded is %s", b.model.seen, recorded.Content)
	}
	if _, same := (judge.Evidence{Digest: recorded.Digest}).With(recorded.Content); !same {
		b.t.Errorf("the digest %s is not that of what is recorded", recorded.Digest)
	}
}
