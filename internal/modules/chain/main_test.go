package chain_test

import (
	"os"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/internal/pgtest"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func TestMain(m *testing.M) {
	worker.Main(workflow.AnswerLintRequest)
	if folder := os.Getenv("CHAIN_TEST_CRASH"); folder != "" {
		chain.RunUntilKilled(folder)
		return
	}
	if os.Getenv("CHAIN_TEST_PIPE") != "" {
		chain.ServePipe(os.Stdin, os.Stdout)
		return
	}
	if folder := os.Getenv("CHAIN_TEST_REPLICA"); folder != "" {
		runReplica(folder, os.Getenv("CHAIN_TEST_URL"), os.Getenv("CHAIN_TEST_NAME"))
		return
	}
	chain.NewTestEngine = func(t testing.TB) *engine.Engine { return enginetest.New(t, judge.Config{Clock: enginetest.FixedTime}) }
	os.Exit(enginetest.Main(m, pgtest.StopShared))
}
