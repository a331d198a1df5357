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
	"flag"
	"os"
	"strconv"
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
	// AwaitStalled waits until a write has left the queue and stands still behind Stall; nil
	// when that cannot be seen.
	AwaitStalled func(t testing.TB, s store.Store)
	// Sample leaves out what is about finding decisions, unless Long: for a driver that
	// passes the whole suite in another setting.
	Sample bool
}

// Long reports whether tests are to take the sizes that show most, whatever it costs:
// GAVEL_LONG=1. The others are samples.
func Long() bool { return os.Getenv("GAVEL_LONG") != "" }

// SampleProperties has rapid check each property so many times, unless Long: a package that
// uses it calls it before its tests run. The histories are of one goroutine, in which there is
// no race: under the race detector, many times slower, a third of them will do.
func SampleProperties(checks int) {
	if Long() {
		return
	}
	if RaceDetector {
		checks = (checks + 2) / 3
	}
	if err := flag.Set("rapid.checks", strconv.Itoa(checks)); err != nil {
		panic(err)
	}
}

// promise is one test of the suite, with a store of its own.
type promise struct {
	name  string
	run   func(t *testing.T, d Driver, s store.Store)
	needs need
}

// need is the hook without which a promise cannot be tested, with why.
type need struct {
	without string
	has     func(Driver) bool
}

var (
	always need
	reopen = need{"the driver is not durable", func(d Driver) bool { return d.Reopen != nil }}
	beside = need{"the driver's data cannot be shared", func(d Driver) bool { return d.Beside != nil }}
	poison = need{"there is no way to make a write fail", func(d Driver) bool { return d.Poison != nil }}
	stall  = need{"writes do not queue", func(d Driver) bool { return d.Stall != nil }}
)

// listPromises are the suite but for what is about finding decisions.
func listPromises() []promise { //nolint:funlen // a list
	return []promise{
		{"round trip", roundTrip, always},
		{"documents come back as they were", testDocuments, always},
		{"large values", largeValues, always},
		{"clocks an hour apart", clocksDiffer, always},
		{"what is over a limit is refused", tooLarge, always},
		{"a history that does not fit is refused", testMisfits, always},
		{"nothing is shared with callers", notShared, always},
		{"what is missing is not found", notFound, always},
		{"snapshots", testSnapshots, always},
		{"fold equals load at every revision", foldEqualsLoad, always},

		{"one winner per seq", oneWinner, always},
		{"contended instance", testContention, always},
		{"instances in parallel", testParallel, always},
		{"two stores on one set of data", testBeside, beside},

		{"a key is taken once", keyTaken, always},
		{"a key is taken once by concurrent advances", keyConcurrentAdvances, always},
		{"a key is taken once by concurrent starts", keyConcurrentStarts, always},
		{"a key outlives the process", outlives(keyReopened), reopen},

		{"a failed write leaves nothing", failedWrite, poison},
		{"a failing member spares its neighbours and their reviews", testNeighbours, poison},
		{"a cancelled write", testCancelled, always},
		{"a write cancelled while it waits", cancelledInQueue, stall},

		{"events query", eventsQuery, always},
		{"events under writes", eventsUnderWrites, always},
		{"instances query", instancesQuery, always},
		{"instances under writes", instancesUnderWrites, always},
		{"iterators begin anew each time", iteratorsBeginAnew, always},

		{"instances with open calls", testCalls, always},
		{"instances with open calls outlive the process", outlives(callsReopened), reopen},
		{"a subject has one instance", testSubjects, always},
		{"stops are counted", testStops, always},

		{"definitions", testDefinitions, always},
		{"definitions race", definitionsRace, always},
		{"judge configs", judgeConfigs, always},
		{"judge configs race", judgeConfigsRace, always},

		{"rules are one chain", testRules, always},
		{"rules race", rulesRace, always},
		{"rules are sealed", rulesAreSealed, always},
		{"rules outlive the process", outlives(rulesReopened), reopen},

		{"refusals", testRefusals, always},
		{"a refusal binds by a key of its own", boundRefusals, always},
		{"refusals are written with their commit or not at all", refusalsAreAtomic, always},
		{"refusals are cleared", refusalsAreCleared, always},
		{"refusals grow old", refusalsGrowOld, always},
		{"refusals outlive the process", outlives(refusalsReopened), reopen},
		{"refusals of two stores on one set of data", refusalsBeside, beside},
		{"refusals of a failed write", refusalsOfAFailedWrite, poison},
		{"refusals of a replay", refusalsOfAReplay, always},

		{"reviews", testReviews, always},
		{"reviews are replaced whole", reviewsAreReplaced, always},
		{"reviews query", reviewsQuery, always},
		{"reviews under writes", reviewsUnderWrites, always},
		{"reviews page by page", reviewsWalk, always},
		{"reviews of a caller who has gone", reviewsCancelled, always},
		{"reviews are written with their commit or not at all", reviewsAreAtomic, always},
		{"reviews of a replay", reviewsOfAReplay, always},
		{"reviews of a failed write", reviewsOfAFailedWrite, always},
		{"reviews outlive the process", outlives(reviewsReopened), reopen},
		{"reviews of two stores on one set of data", reviewsBeside, beside},
		{"reviews are not shared with callers", reviewsNotShared, always},

		{"truncation", testTruncation, always},
		{"truncation is all or nothing", truncationIsAllOrNothing, always},
		{"truncation outlives the process", outlives(truncationReopened), reopen},

		{"anchors", testAnchors, always},
		{"anchors race", anchorsRace, always},
		{"anchors and removals", anchorsAndRemovals, always},
		{"anchors outlive the process", outlives(anchorsReopened), reopen},
		{"heads", testHeads, always},

		{"leases", withOther(testLeases), always},
		{"leases race and end", withOther(leasesRace), always},
		{"a lost lease writes nothing", withOther(leasesFence), always},
		{"a lost lease writes nothing under load", withOther(fenceUnderLoad), always},
		{"open questions of two processes", withOther(questionsOfTwo), always},
		{"cursors", withOther(testCursors), always},
		{"dead letters", withOther(testDeadLetters), always},
		{"many dead letters", manyDeadLetters, always},
		{"dead letters outlive the process", outlives(deadLettersReopened), reopen},
		{"data keys", withOther(testDataKeys), always},
		{"data keys in order", dataKeysInOrder, always},
		{"leases, cursors and data keys outlive the process", outlives(sharedReopened), reopen},

		{"events in the order of commits", testTail, always},
		{"events of some", tailFilters, always},
		{"who follows has every event once", followWriters, beside},
		{"who waits is woken", withOther(testWaking), beside},
		{"positions while a write is held up", positionsOfSlowWrites, stall},
		{"the present version of an event's instance", tailVersions, always},
		{"decisions are looked through from above", decisionsLooked, always},
		{"lessons without an event", testLessons, always},
		{"running instances", testRunning, always},

		{"counters", testCounters, always},
		{"counters end", countersEnd, always},
		{"counters race", countersRace, always},
		{"counters outlive the process", outlives(countersReopened), reopen},
		{"counters of two stores on one set of data", countersBeside, beside},

		{"reopen", testReopen, reopen},
		{"close is final and idempotent", testClosing, always},
		{"close drains", testDraining, always},
	}
}

// Run runs the suite.
func Run(t *testing.T, d Driver) {
	promises := listPromises()
	if !d.Sample || Long() {
		promises = append(promises, decisionPromises...)
	}
	for _, tt := range promises {
		t.Run(tt.name, func(t *testing.T) {
			if tt.needs.has != nil && !tt.needs.has(d) {
				t.Skip(tt.needs.without)
			}
			ignore := goleak.IgnoreCurrent()
			s := d.Open(t)
			defer goleak.VerifyNone(t, ignore)
			defer closeStore(t, s)
			tt.run(t, d, s)
		})
	}
}
