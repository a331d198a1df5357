package engine

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// A decision has its times in milliseconds, and the opinions of layers are for the history only.
func TestDecisionViewHasNoOpinions(t *testing.T) {
	verdict := judge.Verdict{
		RetryAfter: document.Milliseconds(time.Minute),
		Evidence:   []judge.Evidence{{Name: "ci", Took: document.Milliseconds(time.Second), MaxAge: document.Milliseconds(time.Minute)}},
		Opinions:   []judge.Opinion{{Layer: judge.LayerModel}},
	}
	text, err := json.Marshal(decisionView(&record.Decision{Verdict: verdict}))
	if err != nil || bytes.Contains(text, []byte(`"opinions"`)) {
		t.Errorf("%s, %v", text, err)
	}
	for _, want := range []string{`"tookMs":1000`, `"maxAgeMs":60000`, `"retryAfterMs":60000`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// Roles that see all instances see the cost of a model; agents do not.
func TestWhoSeesTheCost(t *testing.T) {
	usd := 0.25
	said := []judge.Opinion{{Layer: judge.LayerTransition}, {Layer: judge.LayerModel, Model: &judge.ModelRecord{CostUSD: &usd}}}
	for role, sees := range map[Role]bool{RoleOperator: true, RoleAuditor: true, RoleReviewer: true, RoleAgent: false} {
		cost := costOf(opinionsFor(Principal{ID: "p", Role: role}, store.Definition{}, said))
		if (cost != nil) != sees || sees && *cost != usd {
			t.Errorf("%s: %v", role, cost)
		}
	}
}
