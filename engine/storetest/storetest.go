//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

// Package storetest is the conformance suite of store.Store: one set of
// promises that every driver must keep, so that the engine need not know which
// one it has. A driver's test calls Run; a new driver is done when it passes.
//
// It must never look behind the interface: what only one driver can do (a second
// process, a poisoned write) comes in through Driver's hooks, and is skipped
// where a hook is nil.
package storetest

import (
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/engine/store"
)

// Driver is a driver under test.
type Driver struct {
	// Open returns a new, empty store. The suite closes it.
	Open func(t testing.TB) store.Store
	// Reopen opens again what a store that was closed has kept; nil when the driver
	// is not durable.
	Reopen func(t testing.TB, closed store.Store) store.Store
	// Beside opens a second store on the same data while the first is open, as
	// another process would; nil when the driver cannot be shared.
	Beside func(t testing.TB, first store.Store) store.Store
	// Poison makes every later write of an event with this action fail inside the
	// driver, after something of its commit was written; nil when there is no way.
	Poison func(t testing.TB, s store.Store, action string)
	// Stall keeps writes from proceeding until release is called, so that a queue
	// forms; nil when writes do not queue.
	Stall func(t testing.TB, s store.Store) (release func())
}

// Long reports whether tests are to take the sizes that show most, whatever it costs:
// GAVEL_LONG=1. The others are samples.
func Long() bool { return os.Getenv("GAVEL_LONG") != "" }

// promise is one test of the suite, with a store of its own.
type promise struct {
	name string
	run  func(t *testing.T, d Driver, s store.Store)
}

// listPromises are the suite but for what is about finding decisions.
func listPromises() []promise { //nolint:funlen // a list
	return []promise{
		{"round trip", roundTrip},
		{"documents come back as they were", testDocuments},
		{"large values", largeValues},
		{"what is over a limit is refused", tooLarge},
		{"a history that does not fit is refused", testMisfits},
		{"nothing is shared with callers", notShared},
		{"what is missing is not found", notFound},
		{"snapshots", testSnapshots},
		{"fold equals load at every revision", foldEqualsLoad},

		{"one winner per seq", oneWinner},
		{"contended instance", testContention},
		{"instances in parallel", testParallel},
		{"two stores on one set of data", testBeside},

		{"a key is taken once", keyTaken},
		{"a key is taken once by concurrent advances", keyConcurrentAdvances},
		{"a key is taken once by concurrent starts", keyConcurrentStarts},
		{"a key outlives the process", keyReopened},

		{"a failed write leaves nothing", failedWrite},
		{"a failing member spares its neighbours", testNeighbours},
		{"a cancelled write", testCancelled},
		{"a write cancelled while it waits", cancelledInQueue},

		{"events query", eventsQuery},
		{"events under writes", eventsUnderWrites},
		{"instances query", instancesQuery},
		{"instances under writes", instancesUnderWrites},

		{"definitions", testDefinitions},
		{"definitions race", definitionsRace},
		{"judge configs", judgeConfigs},
		{"judge configs race", judgeConfigsRace},

		{"rules are one chain", testRules},
		{"rules race", rulesRace},
		{"rules are sealed", rulesAreSealed},
		{"rules outlive the process", rulesReopened},

		{"refusals", testRefusals},
		{"a refusal binds by a key of its own", boundRefusals},
		{"refusals are written with their commit or not at all", refusalsAreAtomic},
		{"refusals are cleared", refusalsAreCleared},
		{"refusals grow old", refusalsGrowOld},
		{"refusals outlive the process", refusalsReopened},
		{"refusals of two stores on one set of data", refusalsBeside},
		{"refusals of a failed write", refusalsOfAFailedWrite},
		{"refusals of a replay", refusalsOfAReplay},

		{"reviews", testReviews},
		{"reviews are replaced whole", reviewsAreReplaced},
		{"reviews query", reviewsQuery},
		{"reviews under writes", reviewsUnderWrites},
		{"reviews page by page", reviewsWalk},
		{"reviews of a caller who has gone", reviewsCancelled},
		{"reviews are written with their commit or not at all", reviewsAreAtomic},
		{"reviews of a replay", reviewsOfAReplay},
		{"reviews of a failed write", reviewsOfAFailedWrite},
		{"reviews beside a failing member", reviewsOfNeighbours},
		{"reviews outlive the process", reviewsReopened},
		{"reviews of two stores on one set of data", reviewsBeside},
		{"reviews are not shared with callers", reviewsNotShared},

		{"truncation", testTruncation},
		{"truncation is all or nothing", truncationIsAllOrNothing},
		{"truncation outlives the process", truncationReopened},

		{"anchors", testAnchors},
		{"anchors race", anchorsRace},
		{"anchors and removals", anchorsAndRemovals},
		{"anchors outlive the process", anchorsReopened},
		{"heads", testHeads},

		{"events in the order of commits", testTail},
		{"events of some", tailFilters},
		{"the present version of an event's instance", tailVersions},
		{"decisions are looked through from above", decisionsLooked},
		{"lessons without an event", testLessons},
		{"running instances", testRunning},

		{"reopen", testReopen},
		{"close is final and idempotent", testClosing},
		{"close drains", testDraining},
	}
}

// Run runs the suite.
func Run(t *testing.T, d Driver) {
	for _, tt := range slices.Concat(listPromises(), decisionPromises) {
		t.Run(tt.name, func(t *testing.T) {
			ignore := goleak.IgnoreCurrent()
			s := d.Open(t)
			defer goleak.VerifyNone(t, ignore)
			defer closeStore(t, s)
			tt.run(t, d, s)
		})
	}
}
