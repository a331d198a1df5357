package engine_test

import (
	"context"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/judge"
)

// TestAskModelWithinQuota: tokens are charged to the principal whatever they were used for.
func TestAskModelWithinQuota(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t, judge.Config{}, func(c *engine.Config) { c.Quotas.ModelTokens = 1000 })
	asked := 0
	ask := func(context.Context) (int64, error) { asked++; return 900, context.Canceled }
	for _, row := range []struct {
		id   string
		role engine.Role
		code engine.Code
	}{{"ann", engine.RoleAgent, ""}, {"ann", engine.RoleAgent, ""}, {"ann", engine.RoleAgent, engine.CodeModelTokensSpent}, {"ben", engine.RoleAgent, ""}, {"ann", engine.RoleOperator, ""}} {
		if err := e.AskModel(t.Context(), engine.Principal{ID: row.id, Role: row.role}, ask); row.code != "" && engine.CodeOf(err) != row.code || row.code == "" && err != context.Canceled { //nolint:errorlint // it is handed on as it is
			t.Errorf("%s: %v", row.id, err)
		}
	}
	if asked != 4 {
		t.Errorf("asked %d times", asked)
	}
}
