package validators_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func TestMain(m *testing.M) {
	worker.Main() // the test binary is its own sandbox
	goleak.VerifyTestMain(m)
}
