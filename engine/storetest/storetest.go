//nolint:thelper // the suite's functions are tests: a failure is theirs, not their caller's

// Package storetest is the conformance suite of store.Store: the guarantees that every driver must give, so that the
// engine need not know which driver it uses. A driver's test calls Run; a new driver is complete when it passes.
//
// It must use only the interface. Features of particular drivers (a second process, a poisoned write) are provided by
// the hooks of Driver. A test is skipped if its hook is nil.
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
	// Reopen opens the data of a closed store again; nil if the driver is not durable.
	Reopen func(t testing.TB, closed store.Store) store.Store
	// Beside opens a second store on the same data while the first is open, as another process would; nil if the data
	// cannot be shared.
	Beside func(t testing.TB, first store.Store) store.Store
	// Poison makes every later write of an event with this action fail inside the driver, after part of its commit
	// was written; nil if that is not possible.
	Poison func(t testing.TB, s store.Store, action string)
	// Stall blocks writes until release is called, so that a queue forms; nil if writes do not queue.
	Stall func(t testing.TB, s store.Store) (release func())
	// AwaitStalled waits until a write has left the queue and is blocked by Stall; nil if that cannot be observed.
	AwaitStalled func(t testing.TB, s store.Store)
	// Sample skips the tests of finding decisions, unless Long: for a driver that passes the whole suite in another
	// configuration.
	Sample bool
}

// Long reports whether tests should use the most revealing sizes regardless of cost (GAVEL_LONG=1). Otherwise they
// use samples.
func Long() bool { return os.Getenv("GAVEL_LONG") != "" }

// SkipUnlessLong skips a test that is worth its time only in a Long run.
func SkipUnlessLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("GAVEL_LONG=1 has the time")
	}
}

// SampleProperties sets how many times rapid checks each property, unless Long. Packages call it before their tests
// run. The histories are written by a single goroutine and cannot race, so that a third of the checks is enough under
// the much slower race detector.
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

// promise is a test of the suite, with its own store.
type promise struct {
	name  string
	run   func(t *testing.T, d Driver, s store.Store)
	needs need
}

// need is the hook that a test requires, with the reason for skipping without it.
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

// listPromises returns the suite without the tests of finding decisions.
func listPromises() []promise { //nolint:funlen // a list
	return []promise{
		{"round trip", roundTrip, always},
		{"documents come back as they were", testDocuments, always},
		{"large values", largeValues, always},
		{"clocks an hour apart", clocksDiffer, always},
		{"input over a limit is refused", tooLarge, always},
		{"a history that does not fit is refused", testMisfits, always},
		{"nothing is shared with callers", notShared, always},
		{"missing things are not found", notFound, always},
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
		{"reviews of a caller that cancelled", reviewsCancelled, always},
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
