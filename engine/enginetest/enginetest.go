// Package enginetest provides the fixtures for tests that need the real engine: one sandbox for a test
// binary, an engine over a store in memory, and repeatable clocks and ids.
//
// It must not wrap or replace the engine: New returns the engine that programs use.
package enginetest

import (
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

// Digester makes the digests of every engine of this package.
var Digester = record.NewDigester([]byte("0123456789abcdef0123456789abcdef"))

// Main runs the tests for TestMain and returns the exit code. The test binary is its own script worker. Main fails if
// goroutines still run after the stop functions have released the shared resources.
func Main(m *testing.M, stop ...func()) int {
	worker.Main(workflow.AnswerLintRequest)
	flag.Parse()
	pool := Pool() // created outside the synctest bubbles of tests
	code := m.Run()
	err := pool.Close()
	for _, end := range stop {
		end()
	}
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		slog.Error("after the tests", "error", err)
		return 1
	}
	return code
}

// Pool returns the sandbox of the test binary. Its limits are generous, so that scripts do not time out on a busy
// machine.
var Pool = sync.OnceValue(func() *script.Pool {
	p, err := script.NewPool(script.Config{Soft: time.Second, Hard: 5 * time.Second, Total: 20 * time.Second})
	if err != nil {
		panic(err)
	}
	return p
})

// New returns an engine over a store in memory; j configures its judge, which uses the sandbox. Options change the
// configuration of the engine. The test must close the store.
func New(t testing.TB, j judge.Config, options ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	compiler := validators.NewCompiler(Pool(), validators.Options{})
	j.Compiler = compiler
	pipeline, err := judge.New(j)
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{Store: memory.New(), Judge: pipeline, Compiler: compiler, Digester: Digester, ValueKey: []byte("the key that wraps all data keys")}
	for _, o := range options {
		o(&cfg)
	}
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// FixedTime is a clock for a judge that makes all durations zero.
func FixedTime() time.Time { return time.Time{} }

// Deterministic gives an engine a clock that advances by step each time it is read, and sequential ids.
func Deterministic(step time.Duration) func(*engine.Config) {
	return func(cfg *engine.Config) {
		var mu sync.Mutex
		ids, now := 0, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		cfg.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(step)
			return now
		}
		cfg.NewID = func() string {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return fmt.Sprintf("00000000-0000-7000-8000-%03d", ids)
		}
	}
}
