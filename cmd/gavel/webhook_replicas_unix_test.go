//go:build unix

package main

import (
	"testing"

	"github.com/gavel-mcp/gavel/engine/storetest"
)

// Two servers over one database send to one receiver, and one or both are killed in mid-load, again and
// again: every event arrives, those of one instance in their order, and what arrives twice is the same message.
func TestReplicasMissNoWebhook(t *testing.T) {
	t.Parallel()
	receiver, config := startReceiver(t, 400)
	r := startReplicas(t, "--config", config)
	defer func() {
		if t.Failed() {
			receiver.logMissing(t, r.open())
		}
	}()
	rounds := 3
	if storetest.Long() {
		rounds = max(6, *killRounds) // each kind twice
	}
	r.write(2, true) // more would only make the receiver's backlog longer
	for round := range rounds {
		receiver.waitFor(t, receiver.count()+20)
		r.await(10)
		kinds := [][]int{{0}, {1}, {0, 1}}
		for _, n := range kinds[round%3] {
			r.kill(n)
		}
		if round%3 != 0 || !storetest.Long() { // else the other one waits for the end of the lease
			endLease(t, r.open(), "webhook:audit")
		}
		for _, n := range kinds[round%3] {
			r.serve(n)
		}
		if t.Failed() {
			break
		}
	}
	r.settle()
	want := committedIDs(t, r.open())
	receiver.waitFor(t, len(want))
	r.finish()
	arrived, tries := receiver.check(t, want)
	t.Logf("%d kills, %d events arrived with %d tries, none lost", rounds, arrived, tries)
}
