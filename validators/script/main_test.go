package script_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func TestMain(m *testing.M) {
	worker.Main() // this test binary is its own worker
	goleak.VerifyTestMain(m)
}
