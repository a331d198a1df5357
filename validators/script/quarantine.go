package script

import (
	"hash/maphash"
	"log/slog"
	"sync"
	"time"
)

// quarantine counts lost workers by offender and script.
type quarantine struct {
	now                         func() time.Time
	scriptStrikes, ownerStrikes int
	window                      time.Duration
	ownerPeriod                 time.Duration
	callerPeriod                time.Duration
	seed                        maphash.Seed

	mu      sync.Mutex
	records map[strikeKey]*record
}

// offender is charged for a lost worker. It is the owner of the script, or the caller if the owner is
// trusted. An operator can allow others to call an untrusted owner's script. The offender is then the pair
// of owner and caller, so that neither can have the script quarantined for others. No caller can get
// another owner's script quarantined by copying it or by feeding it data.
type offender struct {
	owner  string // "" for all trusted owners
	caller string // "" if only the owner is charged
}

func findOffender(caller string, owner Owner) offender {
	switch {
	case owner.Trusted:
		return offender{caller: caller}
	case caller == owner.ID:
		return offender{owner: owner.ID}
	}
	return offender{owner: owner.ID, caller: caller}
}

// appliesToCaller reports whether quarantine applies to the caller rather than to the script itself.
func (o offender) appliesToCaller() bool { return o.owner == "" || o.caller != "" }

// logAttr returns the offender for the log.
func (o offender) logAttr() slog.Attr {
	switch {
	case o.owner == "":
		return slog.String("caller", o.caller)
	case o.caller == "":
		return slog.String("owner", o.owner)
	}
	return slog.Group("", slog.String("owner", o.owner), slog.String("caller", o.caller))
}

// strikeKey identifies one script of an offender, or all of them.
type strikeKey struct {
	offender
	script uint64 // keyed hash of kind and source; 0 means all scripts
}

type record struct {
	strikes []time.Time // within the window, oldest first
	until   time.Time   // end of the quarantine
}

// maxRecords limits the memory that hostile owners can use.
const maxRecords = 4096

func newQuarantine(c Config) *quarantine {
	return &quarantine{
		now: c.Now, scriptStrikes: c.ScriptStrikes, ownerStrikes: c.OwnerStrikes,
		window: c.StrikeWindow, ownerPeriod: c.QuarantineFor, callerPeriod: c.CallerQuarantineFor,
		seed: maphash.MakeSeed(), records: map[strikeKey]*record{},
	}
}

// recordStrike charges a lost worker to the offender, for this script and for all its scripts. It reports
// whether either is quarantined now.
func (q *quarantine) recordStrike(who offender, s Script) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	if len(q.records) >= maxRecords {
		q.pruneRecords(now)
	}
	a := q.countStrike(strikeKey{who, q.hashScript(s)}, q.scriptStrikes, now)
	b := q.countStrike(strikeKey{who, 0}, q.ownerStrikes, now)
	return a || b
}

// hashScript returns the keyed hash of a script, never 0.
func (q *quarantine) hashScript(s Script) uint64 {
	var h maphash.Hash
	h.SetSeed(q.seed)
	_, _ = h.WriteString(string(s.Kind))
	_ = h.WriteByte(0)
	_, _ = h.WriteString(s.Source)
	return max(h.Sum64(), 1)
}

func (q *quarantine) countStrike(c strikeKey, allowed int, now time.Time) bool {
	r := q.records[c]
	if r == nil {
		r = &record{}
		q.records[c] = r
	}
	for len(r.strikes) > 0 && now.Sub(r.strikes[0]) > q.window {
		r.strikes = r.strikes[1:]
	}
	r.strikes = append(r.strikes, now)
	if len(r.strikes) < allowed {
		return false
	}
	r.strikes = nil
	r.until = now.Add(q.ownerPeriod)
	if c.appliesToCaller() {
		r.until = now.Add(q.callerPeriod)
	}
	return true
}

// pruneRecords drops expired records. Then it drops others until half are left; records of all scripts of an
// offender go last.
func (q *quarantine) pruneRecords(now time.Time) {
	for c, r := range q.records {
		if now.After(r.until) && (len(r.strikes) == 0 || now.Sub(r.strikes[len(r.strikes)-1]) > q.window) {
			delete(q.records, c)
		}
	}
	for _, whole := range []bool{false, true} {
		for c := range q.records {
			if len(q.records) < maxRecords/2 {
				return
			}
			if whole || c.script != 0 {
				delete(q.records, c)
			}
		}
	}
}

// quarantinedUntil returns the end of the quarantine of a script for an offender, and whether it covers all
// scripts. The time is zero if the script may run.
func (q *quarantine) quarantinedUntil(who offender, s Script) (until time.Time, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.records) == 0 { // avoids hashing sources in the usual case
		return time.Time{}, false
	}
	now := q.now()
	if r := q.records[strikeKey{who, 0}]; r != nil && now.Before(r.until) {
		return r.until, true
	}
	if r := q.records[strikeKey{who, q.hashScript(s)}]; r != nil && now.Before(r.until) {
		return r.until, false
	}
	return time.Time{}, false
}

// reset drops the records of a principal, both as owner and as caller. An empty id drops all.
func (q *quarantine) reset(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.records {
		if id == "" || c.owner == id || c.caller == id {
			delete(q.records, c)
		}
	}
}
