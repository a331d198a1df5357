package engine

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
)

// Answers have times in milliseconds, where records have nanoseconds.
func TestTimesOfAnswers(t *testing.T) {
	fetched := judge.Evidence{Name: "ci", Took: time.Second, MaxAge: time.Minute}
	said := judge.Opinion{Layer: judge.LayerModel, Took: time.Second, RetryAfter: time.Minute}
	verdict := judge.Verdict{RetryAfter: time.Minute, Evidence: []judge.Evidence{fetched}, Opinions: []judge.Opinion{said}}
	for _, c := range []struct {
		shown any
		want  []string
	}{
		{ViewEvidence(verdict.Evidence)[0], []string{`"tookMs":1000`, `"maxAgeMs":60000`}},
		{viewOpinion(said), []string{`"tookMs":1000`, `"retryAfterMs":60000`}},
		{decisionView(&record.Decision{Verdict: verdict, Took: time.Second}), []string{`"tookMs":1000`, `"retryAfterMs":60000`}},
	} {
		text, err := json.Marshal(c.shown)
		if err != nil || bytes.Contains(text, []byte(`Ns"`)) || bytes.Contains(text, []byte(`"opinions"`)) {
			t.Errorf("%s, %v", text, err)
		}
		for _, want := range c.want {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("no %s in %s", want, text)
			}
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
