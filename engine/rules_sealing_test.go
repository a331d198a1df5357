package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
)

// lateRules reads the rules and then runs a function once before it returns them.
type lateRules struct {
	store.Store
	then func()
}

func (l *lateRules) Rules(ctx context.Context, after int64) (store.RuleHead, []store.Rule, error) {
	head, all, err := l.Store.Rules(ctx, after)
	if then := l.then; then != nil && after >= 0 {
		l.then = nil
		then()
	}
	return head, all, err
}

// TestRulesAreSealedWhileTheyAreRead reseals all rules between reading the chain and following it: the
// rules read before must not be compared with the new chain.
func TestRulesAreSealedWhileTheyAreRead(t *testing.T) {
	ctx := t.Context()
	db := &lateRules{Store: memory.New()}
	b := newBenchWith(t, db, nil, func(c *engine.Config) { c.RuleKey = ruleKey })
	b.define(operator, fmt.Sprintf(laxPay, "pay"))
	if err := b.CheckRules(ctx); err != nil {
		t.Fatal(err)
	}
	keyless := newBenchOn(t, db) // its seals are made without the key
	keyless.define(operator, fmt.Sprintf(laxPay, "other"))
	db.then = func() {
		if sealed, err := b.SealRules(ctx, operator, engine.SealRequest{}); err != nil || sealed.Sealed != 1 {
			t.Errorf("sealed %+v: %v", sealed, err)
		}
	}
	if err := b.CheckRules(ctx); err != nil {
		t.Errorf("the rules after they were sealed: %v", err)
	}
	if db.then != nil {
		t.Error("nothing was sealed meanwhile")
	}
}
