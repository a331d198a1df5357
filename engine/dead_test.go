package engine_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// TestAThousandAdvancesAgainstADeadModel: all are answered in time, with few model calls, and no goroutine
// is left over. The questions of one principal wait in its own line, so most of them end as busy.
func TestAThousandAdvancesAgainstADeadModel(t *testing.T) {
	pool() // started outside the bubble, because it outlives it
	for name, fault := range map[string]llmtest.Personality{"refused": llmtest.RefuseConnections(), "hanging": llmtest.Hang()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { thousandAdvances(t, fault) })
		})
	}
}

func thousandAdvances(t *testing.T, fault llmtest.Personality) {
	const callers, deadline = 1000, 20 * time.Second
	provider := llmtest.New(fault, llmtest.Approver)
	client, err := llm.New(llm.Config{
		Models: []llm.Model{{Name: "m", ID: "m", BaseURL: "https://dead.example/v1"}}, Doer: provider, Deadline: deadline,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	eng := judgedEngine(t, client)
	if _, err := eng.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(judgedFlow)}); err != nil {
		t.Fatal(err)
	}
	ids := make([]string, callers)
	for i := range ids {
		started, err := eng.Start(t.Context(), agent, engine.StartRequest{Type: "judged"})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = started.ID
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()

	began := time.Now()
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			got, err := eng.Advance(t.Context(), agent, engine.AdvanceRequest{
				ID: id, Action: "close", Data: document.ReadTrusted([]byte(fmt.Sprintf(`{"note":"did part %d of it"}`, i))),
			})
			if errors.Is(err, judge.ErrBusy) {
				return
			}
			if err != nil {
				t.Errorf("%s: %v", id, err)
				return
			}
			if d := got.Decision; d.Outcome == judge.Approve && (!d.Degraded || d.Confidence > 0.5) {
				t.Errorf("%s: approved without a judgement: %+v", id, d)
			}
		})
	}
	synctest.Wait() // every caller is waiting now
	if now := runtime.NumGoroutine() - goroutines; now > 3*callers {
		t.Errorf("%d goroutines for %d callers", now, callers)
	}
	wg.Wait()
	if took := time.Since(began); took > deadline {
		t.Errorf("the last answer came after %v", took)
	}
	// Permits and the breaker limit the calls; no caller has permits of its own. About 10 calls are usual.
	// On a busy machine callers arrive one after the other, the first ones retry for seconds, and the
	// breaker opens later: at most 207 so far. Without a breaker there are about 530.
	if calls := provider.Count(); calls > 400 {
		t.Errorf("%d calls to a dead endpoint", calls)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("%d MB more heap than before", grown>>20)
	}
	t.Logf("%d calls, %v", provider.Count(), time.Since(began))
}

func judgedEngine(t *testing.T, client *llm.Client) *engine.Engine {
	t.Helper()
	store := memory.New()
	compiler := validators.NewCompiler(pool(), validators.Options{})
	model, err := judge.NewModel(judge.ModelConfig{Completer: client, Memory: engine.NewMemory(store)})
	if err != nil {
		t.Fatal(err)
	}
	pipeline, err := judge.New(judge.Config{Compiler: compiler, Model: model})
	if err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New(engine.Config{
		Store: store, Judge: pipeline, Compiler: compiler, Digester: record.NewDigester([]byte("a key of thirty-two bytes length")), Models: client.Names(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return eng
}
