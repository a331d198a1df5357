//go:build unix

package main

import (
	"testing"

	"github.com/gavel-mcp/gavel/engine/storetest"
)

// Two servers over one database send to one receiver, and one or both are repeatedly killed under load. Every
// event arrives, events of one instance in order, and duplicates are identical.
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
		rounds = max(6, *killRounds) // each kind of kill twice
	}
	r.write(2, true) // more writers would only grow the receiver's backlog
	for round := range rounds {
		receiver.waitFor(t, receiver.count()+20)
		r.await(10)
		kinds := [][]int{{0}, {1}, {0, 1}}
		for _, n := range kinds[round%3] {
			r.kill(n)
		}
		if round%3 != 0 || !storetest.Long() { // otherwise the other server waits for the lease to expire
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
