package memory_test

import (
	"testing"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Driver{Open: func(testing.TB) store.Store { return memory.New() }})
}
