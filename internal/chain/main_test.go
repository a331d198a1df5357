package chain_test

import (
	"os"
	"testing"

	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/internal/chain"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv("CHAIN_TEST_CRASH"); folder != "" {
		chain.RunUntilKilled(folder)
		return
	}
	if os.Getenv("CHAIN_TEST_PIPE") != "" {
		chain.ServePipe(os.Stdin, os.Stdout)
		return
	}
	os.Exit(enginetest.Main(m))
}
