package worker_test

import (
	"os"
	"testing"

	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func TestMain(m *testing.M) {
	worker.Main()
	worker.ProbeMain()
	os.Exit(m.Run())
}
