package measure_test

import (
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func TestMain(m *testing.M) {
	worker.Main(workflow.AnswerLintRequest)
	m.Run()
}
