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
	until, _ := q.holds(owner, Script{Kind: Validator, Source: source})
	return !until.IsZero()
}

func strike(q *quarantine, owner, source string) bool {
	return q.strike(owner, Script{Kind: Validator, Source: source})
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
		if !q.suspect("o") != (i == 0) {
			t.Errorf("suspect after %d strikes: %t", i, q.suspect("o"))
		}
		strike(q, "o", fmt.Sprint("bad", i))
	}
	until, whole := q.holds("o", Script{Kind: Condition, Source: "never seen"})
	if until.IsZero() || !whole {
		t.Error("the owner is not held after ten strikes")
	}
	if held(q, "honest", "x") || q.suspect("honest") {
		t.Error("another owner is held")
	}
	q.reset("o")
	if held(q, "o", "bad1") || q.suspect("o") {
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
	q.prune(c.now())
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
