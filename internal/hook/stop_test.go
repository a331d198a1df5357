package hook_test

import (
	"testing"

	"github.com/gavel-mcp/gavel/internal/hook"
)

// Each session is held as often as is configured, whatever the sessions before it did.
func TestStopsOfSessions(t *testing.T) {
	t.Parallel()
	b := newDoorBench(t, releaseRules)
	b.answer(b.event(hook.PhaseStart), hook.Neutral)
	for _, session := range []string{"s1", "s2"} {
		stop := b.event(hook.PhaseStop)
		stop.Session = session
		b.answer(stop, hook.GoOn, `may end in "done"`)
		stop.Continued = true
		b.answer(stop, hook.GoOn)
		b.answer(stop, hook.Neutral)
	}
	if s := b.at(); len(s.Reviews) != 1 {
		t.Errorf("%d reviews say that an agent ended early, want one: %+v", len(s.Reviews), s.Reviews)
	}
}
