package console_test

import (
	"os"
	"testing"

	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/internal/modules/console"
)

func TestMain(m *testing.M) {
	console.NewTestEngine = enginetest.New
	os.Exit(enginetest.Main(m))
}
