package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

func quotaBench(t *testing.T, q engine.Quotas) *bench {
	t.Helper()
	return newBenchWith(t, memory.New(), nil, func(c *engine.Config) { c.Quotas = q })
}

func TestQuotaOfDefinitions(t *testing.T) {
	b := quotaBench(t, engine.Quotas{Definitions: 2})
	b.define(agent, named(simple, "one"))
	b.define(agent, named(simple, "two"))
	_, err := b.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(named(simple, "three"))})
	wantCode(t, err, engine.CodeTooManyDefinitions)
	b.define(agent, strings.Replace(named(simple, "two"), "success", "failure", 1)) // a new version of its own workflow does not count
	b.define(other, named(simple, "three"))
	for i := range 3 {
		b.define(operator, named(simple, fmt.Sprintf("op-%d", i)))
	}
}

func TestQuotaOfRunningInstances(t *testing.T) {
	b := quotaBench(t, engine.Quotas{Running: 3})
	b.define(operator, simple)
	var last string
	for range 3 {
		last = b.start(agent, "simple", "").ID
	}
	_, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "simple"})
	if e := wantCode(t, err, engine.CodeTooManyInstances); e.RetryAfter <= 0 {
		t.Error("it is not said when to try again")
	}
	b.start(other, "simple", "") // each principal has separate places
	for range 4 {
		b.start(operator, "simple", "") // operators are not counted
	}
	if _, err := b.Cancel(t.Context(), agent, engine.CancelRequest{ID: last}); err != nil {
		t.Fatal(err)
	}
	b.later(2 * time.Second)
	b.start(agent, "simple", "")
	_, err = b.Start(t.Context(), agent, engine.StartRequest{Type: "simple"})
	wantCode(t, err, engine.CodeTooManyInstances)
}

// later advances the clock.
func (b *bench) later(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func TestQuotaOfBytes(t *testing.T) {
	b := quotaBench(t, engine.Quotas{Bytes: 20_000})
	b.define(operator, simple)
	id := b.start(agent, "simple", "").ID
	data := json.RawMessage(`{"text":"` + strings.Repeat("x", 6000) + `"}`)
	var err error
	moves := 0
	for action := "go"; err == nil && moves < 20; moves++ {
		_, err = b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted(data)})
		action = map[string]string{"go": "back", "back": "go"}[action]
	}
	e := wantCode(t, err, engine.CodeBytesSpent)
	if moves < 3 || moves > 5 || e.RetryAfter <= 0 || e.RetryAfter > time.Hour {
		t.Errorf("spent after %d moves, try again after %s", moves, e.RetryAfter)
	}
	_, err = b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id})
	wantCode(t, err, engine.CodeBytesSpent)
	b.start(other, "simple", "")
	b.later(e.RetryAfter)
	b.advance(agent, id, "back", "")
}

// costly is a judge whose script time and model tokens cost something.
type costly struct{ engine.Judge }

func (c costly) Decide(ctx context.Context, k judge.Case) (judge.Verdict, error) {
	v, err := c.Judge.Decide(ctx, k)
	tokens := 400
	validators.MeterOf(ctx).AddWorked(4 * time.Second)
	v.Opinions = append(v.Opinions,
		judge.Opinion{Layer: judge.LayerModel, Model: &judge.ModelRecord{PromptTokens: &tokens, CompletionTokens: &tokens}})
	return v, err
}

// Defining counts as well: the stored versions of a principal's own workflows, and the sandbox time for
// examining definitions in stateless requests.
func TestQuotasOfDefining(t *testing.T) {
	version := func(n int) []byte {
		return []byte(fmt.Sprintf(`{"name":"one","comment":"%d %s","initialState":"a","states":{"a":{"final":true}}}`, n, strings.Repeat("x", 6000)))
	}
	t.Run("bytes", func(t *testing.T) {
		b := quotaBench(t, engine.Quotas{Bytes: 20_000})
		var err error
		n := 0
		for ; err == nil && n < 20; n++ {
			_, err = b.Define(t.Context(), agent, engine.DefineRequest{Document: version(n)})
		}
		e := wantCode(t, err, engine.CodeBytesSpent)
		if n != 5 {
			t.Errorf("refused at version %d", n)
		}
		b.define(agent, string(version(3))) // unchanged
		b.define(other, named(simple, "theirs"))
		b.define(operator, named(simple, "op"))
		b.later(e.RetryAfter)
		b.define(agent, string(version(4)))
	})
	t.Run("worker time", func(t *testing.T) {
		b := quotaBench(t, engine.Quotas{WorkerTime: 1})
		b.define(agent, string(version(0)))
		_, err := b.Define(t.Context(), agent, engine.DefineRequest{Document: version(1)})
		wantCode(t, err, engine.CodeWorkerTimeSpent)
		_, err = b.Decide(t.Context(), agent, engine.DecideRequest{Definition: version(1), State: "a", Action: "go"})
		wantCode(t, err, engine.CodeWorkerTimeSpent)
		b.define(operator, named(simple, "op"))
	})
}

// Every decision reads all judge configurations of a definition, so only operators may configure it
// without limit.
func TestJudgeIsNotConfiguredWithoutEnd(t *testing.T) {
	b := newBench(t)
	b.define(operator, simple)
	yes := true
	configure := func(p engine.Principal) error {
		_, err := b.ConfigureJudge(t.Context(), p, engine.JudgeConfigRequest{Name: "simple", Settings: workflow.JudgeSettings{Enabled: &yes}})
		return err
	}
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		err = configure(agent)
	}
	wantCode(t, err, engine.CodeTooManyConfigs)
	if n != 201 {
		t.Errorf("refused at %d", n)
	}
	for _, p := range []engine.Principal{other, operator} {
		if err := configure(p); err != nil {
			t.Errorf("%s: %v", p.ID, err)
		}
	}
}

func TestQuotasOfJudging(t *testing.T) {
	const scripted = `{"name":"scripted","initialState":"a","states":{"a":{"transitions":{
		"go":{"target":"a","validator":"() => ({valid:true, confidence:1})"},"free":"a"}}}}`
	const modelled = `{"name":"modelled","initialState":"a","states":{"a":{"transitions":{
		"go":{"target":"a","useLLM":true,"criteria":["it is so"]},"free":{"target":"a"}}}}}`
	for _, c := range []struct {
		name, doc string
		quotas    engine.Quotas
		code      engine.Code
	}{
		{"worker time", scripted, engine.Quotas{WorkerTime: 6 * time.Second}, engine.CodeWorkerTimeSpent},
		{"model tokens", modelled, engine.Quotas{ModelTokens: 1200}, engine.CodeModelTokensSpent},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBenchWith(t, memory.New(), nil, func(cfg *engine.Config) {
				cfg.Quotas, cfg.Judge = c.quotas, costly{cfg.Judge}
			})
			name := b.define(operator, c.doc).Name
			id := b.start(agent, name, "").ID
			b.advance(agent, id, "go", "") // together with the start, this exceeds the quota
			_, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"})
			e := wantCode(t, err, c.code)
			_, err = b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"})
			wantCode(t, err, c.code)
			_, err = b.Decide(t.Context(), agent, engine.DecideRequest{Workflow: name, State: "a", Action: "go"})
			wantCode(t, err, c.code)
			b.advance(agent, id, "free", "") // an action that uses none of this quota is still possible
			b.advance(operator, id, "go", "")
			b.later(e.RetryAfter)
			if _, err = b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"}); err != nil {
				t.Errorf("after the time that was told: %v", err)
			}
		})
	}
}

// Sandbox time for a caller that cancelled before the answer is charged.
func TestWorkerTimeOfACallerThatLeft(t *testing.T) {
	const scripted = `{"name":"scripted","initialState":"a","states":{"a":{"transitions":{"go":{"target":"a","validator":"() => true"}}}}}`
	b := newBenchWith(t, memory.New(), nil, func(cfg *engine.Config) { cfg.Quotas.WorkerTime = time.Minute })
	b.define(operator, scripted)
	ask := engine.AdvanceRequest{ID: b.start(agent, "scripted", "").ID, Action: "go"}
	b.judge.before = func(ctx context.Context, _ judge.Case) error {
		validators.MeterOf(ctx).AddWorked(time.Minute)
		return context.Canceled
	}
	_, err := b.Advance(t.Context(), agent, ask)
	wantCode(t, err, engine.CodeCancelled)
	b.judge.before = nil
	_, err = b.Advance(t.Context(), agent, ask)
	wantCode(t, err, engine.CodeWorkerTimeSpent)
}

// A start that the store rejected frees its place.
func TestQuotaOfFailedStarts(t *testing.T) {
	db := &failing{Store: memory.New()}
	b := newBenchWith(t, db, nil, func(c *engine.Config) { c.Quotas = engine.Quotas{Running: 1} })
	b.define(operator, simple)
	db.fail = true
	_, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "simple"})
	wantCode(t, err, engine.CodeUnavailable)
	db.fail = false
	b.start(agent, "simple", "")
}

type failing struct {
	*memory.Store
	fail bool
}

func (f *failing) Commit(ctx context.Context, c store.Commit) error {
	if f.fail {
		return errors.New("the disk is gone")
	}
	return f.Store.Commit(ctx, c)
}

// TestSetQuotas: new quotas apply from the next request on, and earlier use still counts.
func TestSetQuotas(t *testing.T) {
	b := quotaBench(t, engine.Quotas{Running: 3, Bytes: 1 << 20})
	b.define(operator, simple)
	id := b.start(agent, "simple", "").ID
	b.start(agent, "simple", "")
	b.SetQuotas(engine.Quotas{Running: 2})
	_, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "simple"}) // a place was free until now
	wantCode(t, err, engine.CodeTooManyInstances)
	b.SetQuotas(engine.Quotas{Bytes: 1})
	_, err = b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go"})
	wantCode(t, err, engine.CodeBytesSpent)
	b.SetQuotas(engine.Quotas{})
	b.advance(agent, id, "go", "")
	b.start(agent, "simple", "")
}
