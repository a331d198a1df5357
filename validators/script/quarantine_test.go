package script

import (
	"fmt"
	"testing"
	"time"
)

type clock struct{ t time.Time }

func (c *clock) now() time.Time       { return c.t }
func (c *clock) pass(d time.Duration) { c.t = c.t.Add(d) }
func newClock() *clock                { return &clock{time.Unix(1_700_000_000, 0)} }
func at(c *clock) *quarantine         { return newQuarantine(Config{Now: c.now}.WithDefaults()) }

func held(q *quarantine, owner, source string) bool {
	until, _ := q.quarantinedUntil(offender{owner: owner}, Script{Kind: Validator, Source: source})
	return !until.IsZero()
}

func strike(q *quarantine, owner, source string) bool {
	return q.recordStrike(offender{owner: owner}, Script{Kind: Validator, Source: source})
}

func TestQuarantineOfAScript(t *testing.T) {
	c := newClock()
	q := at(c)
	for i := range 3 {
		if held(q, "o", "bad") {
			t.Fatalf("held after %d strikes", i)
		}
		if strike(q, "o", "bad") != (i == 2) {
			t.Fatalf("strike %d", i+1)
		}
	}
	if !held(q, "o", "bad") {
		t.Error("not held after three strikes")
	}
	if held(q, "o", "other script") || held(q, "other owner", "bad") {
		t.Error("somebody else is held")
	}
	c.pass(59 * time.Minute)
	if !held(q, "o", "bad") {
		t.Error("free too early")
	}
	c.pass(time.Minute)
	if held(q, "o", "bad") {
		t.Error("still held after an hour")
	}
}

func TestQuarantineForgetsOldStrikes(t *testing.T) {
	c := newClock()
	q := at(c)
	for range 10 {
		if strike(q, "o", "slow") {
			t.Fatal("quarantined for strikes that are far apart")
		}
		c.pass(6 * time.Minute)
	}
}

func TestQuarantineOfAnOwner(t *testing.T) {
	c := newClock()
	q := at(c)
	for i := range 10 {
		strike(q, "o", fmt.Sprint("bad", i))
	}
	until, whole := q.quarantinedUntil(offender{owner: "o"}, Script{Kind: Condition, Source: "never seen"})
	if until.IsZero() || !whole {
		t.Error("the owner is not held after ten strikes")
	}
	if held(q, "honest", "x") {
		t.Error("another owner is held")
	}
	q.reset("o")
	if held(q, "o", "bad1") {
		t.Error("still held after reset")
	}
	for range 3 {
		strike(q, "o", "bad")
		strike(q, "p", "bad")
	}
	q.reset("")
	if held(q, "o", "bad") || held(q, "p", "bad") {
		t.Error("still held after a reset of everybody")
	}
}

func TestQuarantineOutlivesTheOwnersRecord(t *testing.T) {
	c := newClock()
	q := at(c)
	for range 3 {
		strike(q, "o", "bad")
	}
	c.pass(11 * time.Minute)
	q.pruneRecords(c.now())
	if !held(q, "o", "bad") {
		t.Error("pruning set a script free")
	}
}

func TestQuarantineIsBounded(t *testing.T) {
	c := newClock()
	q := at(c)
	for i := range 5 * maxRecords {
		strike(q, fmt.Sprint("owner", i%1000), fmt.Sprint("script", i))
	}
	if n := len(q.records); n > maxRecords+2 {
		t.Errorf("%d records", n)
	}
}

// A trusted owner's script is suspended for a while for the caller whose data killed workers, and for no other
// caller. The caller's own scripts are not affected.
func TestQuarantineOfACaller(t *testing.T) {
	c := newClock()
	q := at(c)
	operator := Owner{ID: "operator", Trusted: true}
	s := Script{Kind: Validator, Source: "slow"}
	heldFor := func(caller string, owner Owner, s Script) bool {
		until, _ := q.quarantinedUntil(findOffender(caller, owner), s)
		return !until.IsZero()
	}
	for range 3 {
		q.recordStrike(findOffender("agent", operator), s)
	}
	if !heldFor("agent", operator, s) {
		t.Error("the caller is not held after three strikes")
	}
	other := Script{Kind: Validator, Source: "other"}
	if heldFor("agent", operator, other) || heldFor("honest", operator, s) || heldFor("operator", operator, s) || heldFor("honest", Owner{ID: "agent"}, s) {
		t.Error("more is held than one script for one caller")
	}
	c.pass(time.Minute)
	if heldFor("agent", operator, s) {
		t.Error("the caller is held for more than a minute")
	}
	for i := range 10 {
		q.recordStrike(findOffender("agent", operator), Script{Kind: Validator, Source: fmt.Sprint(i)})
	}
	if !heldFor("agent", operator, other) || heldFor("honest", operator, other) || heldFor("agent", Owner{ID: "agent"}, other) {
		t.Error("after ten strikes not exactly the trusted scripts are held for the caller")
	}
}
