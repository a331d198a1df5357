package wire

import (
	"testing"
	"testing/synctest"
	"time"
)

// Unused sessions end automatically; sessions in use do not.
func TestIdleSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := newTable(Limits{Sessions: 3, SessionsEach: 3})
		begin := func() string {
			s := &remoteSession{session: &session{requester: newRequester()}, principal: "ann"}
			sessions.add(s)
			return s.id
		}
		used, idle := begin(), begin()
		for range 3 {
			time.Sleep(4 * time.Minute) //nolint:forbidigo // within synctest's clock
			if sessions.acquire(used, "bob") != nil {
				t.Fatal("a session is its principal's")
			}
			s := sessions.acquire(used, "ann")
			if s == nil {
				t.Fatal("a session that is used has ended")
			}
			sessions.release(s)
		}
		if got := sessions.idle("", 10*time.Minute); len(got) != 1 || got[0].id != idle {
			t.Errorf("idle for ten minutes: %v, want %s", got, idle)
		}
		time.Sleep(2 * time.Minute) //nolint:forbidigo // within synctest's clock
		if got := sessions.idle("ann", time.Minute); len(got) != 2 || got[0].id != idle {
			t.Errorf("idle for a minute: %v, want %s first", got, idle)
		}
		if got := sessions.idle("bob", time.Minute); len(got) != 0 {
			t.Errorf("bob has none, got %v", got)
		}
	})
}
