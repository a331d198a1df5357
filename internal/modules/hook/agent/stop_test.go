package agent_test

import (
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
)

// TestStopsOfSessions: each session is held for the configured number of attempts, independently of earlier
// sessions.
func TestStopsOfSessions(t *testing.T) {
	t.Parallel()
	b := newDeciderBench(t, releaseRules)
	b.answer(b.event(agent.PhaseStart), agent.Neutral)
	for _, session := range []string{"s1", "s2"} {
		stop := b.event(agent.PhaseStop)
		stop.Session = session
		b.answer(stop, agent.Continue, `may end in "done"`)
		stop.Continued = true
		b.answer(stop, agent.Continue)
		b.answer(stop, agent.Neutral)
	}
	if s := b.at(); len(s.Reviews) != 1 {
		t.Errorf("%d reviews say that an agent ended early, want one: %+v", len(s.Reviews), s.Reviews)
	}
}
