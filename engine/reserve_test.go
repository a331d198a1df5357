package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// window delays a store and a judge, so that requests overlap. If they happen not to overlap, the test
// still passes but proves less.
const window = 30 * time.Millisecond

// lateStore delays counts and commits.
type lateStore struct{ *memory.Store }

func (s lateStore) Definitions(ctx context.Context) ([]store.Definition, error) {
	all, err := s.Store.Definitions(ctx)
	time.Sleep(window) //nolint:forbidigo // so that requests overlap
	return all, err
}

func (s lateStore) Instances(ctx context.Context, q store.InstanceQuery) iter.Seq2[record.Instance, error] {
	return func(yield func(record.Instance, error) bool) {
		var all []record.Instance
		for inst, err := range s.Store.Instances(ctx, q) {
			if err != nil {
				yield(inst, err)
				return
			}
			all = append(all, inst)
		}
		time.Sleep(window) //nolint:forbidigo // so that requests overlap
		for _, inst := range all {
			if !yield(inst, nil) {
				return
			}
		}
	}
}

func (s lateStore) Commit(ctx context.Context, c store.Commit) error {
	time.Sleep(window) //nolint:forbidigo // so that requests overlap
	return s.Store.Commit(ctx, c)
}

// atOnce makes n concurrent requests and returns how many succeeded. The others must fail with the code.
func atOnce(t *testing.T, n int, code engine.Code, ask func(i int) error) int {
	t.Helper()
	var done atomic.Int64
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			err := ask(i)
			var e *engine.Error
			switch {
			case err == nil:
				done.Add(1)
			case !errors.As(err, &e) || e.Code != code:
				t.Errorf("request %d: %v, want %s", i, err, code)
			}
		})
	}
	wait.Wait()
	return int(done.Load())
}

// TestQuotasHoldAtOnce: as many concurrent requests succeed as would one after the other.
func TestQuotasHoldAtOnce(t *testing.T) {
	t.Parallel()
	withQuotas := func(name string, q engine.Quotas, test func(t *testing.T, b *bench)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchWith(t, lateStore{memory.New()}, nil, func(c *engine.Config) {
				c.Quotas = q
				if q.ModelTokens > 0 || q.Bytes > 0 {
					c.Judge = lateJudge{costly{c.Judge}}
				}
			})
			b.define(operator, simple)
			test(t, b)
		})
	}
	withQuotas("definitions", engine.Quotas{Definitions: 3}, func(t *testing.T, b *bench) {
		if n := atOnce(t, 10, engine.CodeTooManyDefinitions, func(i int) error {
			_, err := b.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(named(simple, fmt.Sprintf("mine-%c", 'a'+i)))})
			return err
		}); n != 3 {
			t.Errorf("%d definitions, want 3", n)
		}
	})
	withQuotas("instances", engine.Quotas{Running: 5}, func(t *testing.T, b *bench) {
		started := atOnce(t, 10, engine.CodeTooManyInstances, func(i int) error {
			time.Sleep(time.Duration(i) * window / 3) //nolint:forbidigo // some count while others start
			_, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "simple"})
			return err
		})
		n := 0
		for _, err := range b.store.(lateStore).Store.Instances(t.Context(), store.InstanceQuery{Owner: agent.ID, Status: record.Running}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != started || n > 5 || n < 1 {
			t.Errorf("%d started, %d run, want 5 at most", started, n)
		}
	})
	withQuotas("bytes", engine.Quotas{Bytes: 20_000}, func(t *testing.T, b *bench) {
		var ids []string
		for range 10 {
			ids = append(ids, b.start(operator, "simple", "").ID)
		}
		data := json.RawMessage(`{"text":"` + strings.Repeat("x", 6000) + `"}`)
		reviewer := engine.Principal{ID: "rob", Role: engine.RoleReviewer}
		if n := atOnce(t, 10, engine.CodeBytesSpent, func(i int) error {
			_, err := b.Advance(t.Context(), reviewer, engine.AdvanceRequest{ID: ids[i], Action: "go", Data: document.ReadTrusted(data)})
			return err
		}); n < 2 || n > 3 { // each has 7 to 14 kB
			t.Errorf("%d moves", n)
		}
	})
	withQuotas("tokens", engine.Quotas{ModelTokens: 4200}, func(t *testing.T, b *bench) {
		b.define(operator, `{"name":"costly","initialState":"a","states":{"a":{"transitions":{"go":{"target":"a","useLLM":true,"criteria":["it is so"]}}}}}`)
		ask := func(i int) error {
			_, err := b.Decide(t.Context(), agent, engine.DecideRequest{Workflow: "costly", State: "a", Action: "go", Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
			return err
		}
		if err := ask(100); err != nil { // costs 800 tokens, so that the cost of a request is known
			t.Fatal(err)
		}
		if n := atOnce(t, 10, engine.CodeModelTokensSpent, ask); n != 5 {
			t.Errorf("%d were judged, want 5, as one after the other", n)
		}
	})
}

// lateJudge delays decisions.
type lateJudge struct{ engine.Judge }

func (s lateJudge) Decide(ctx context.Context, c judge.Case) (judge.Verdict, error) {
	time.Sleep(window) //nolint:forbidigo // so that requests overlap
	return s.Judge.Decide(ctx, c)
}
