package script

import (
	"sync"
	"time"
)

// quarantine remembers who got workers killed. Scripts are told apart by owner
// and text: nobody can have another owner's script locked away by copying it.
type quarantine struct {
	now                         func() time.Time
	scriptStrikes, ownerStrikes int
	window, sentence            time.Duration

	mu      sync.Mutex
	records map[culprit]*record
}

// culprit is a script of an owner, or with empty text the owner.
type culprit struct {
	owner string
	kind  Kind
	text  string
}

type record struct {
	strikes []time.Time // within the window, oldest first
	until   time.Time   // end of the sentence
}

// maxRecords bounds what hostile owners can make us remember.
const maxRecords = 4096

func newQuarantine(c Config) *quarantine {
	return &quarantine{
		now: c.Now, scriptStrikes: c.ScriptStrikes, ownerStrikes: c.OwnerStrikes,
		window: c.StrikeWindow, sentence: c.QuarantineFor, records: map[culprit]*record{},
	}
}

// strike counts a worker killed by a script against it and its owner, and says
// whether either is quarantined now.
func (q *quarantine) strike(owner string, s Script) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	if len(q.records) >= maxRecords {
		q.prune(now)
	}
	a := q.count(culprit{owner, s.Kind, s.Source}, q.scriptStrikes, now)
	b := q.count(culprit{owner: owner}, q.ownerStrikes, now)
	return a || b
}

func (q *quarantine) count(c culprit, allowed int, now time.Time) bool {
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
	r.until = now.Add(q.sentence)
	return true
}

// prune forgets what no longer matters, and then whatever it takes to make room,
// owners last.
func (q *quarantine) prune(now time.Time) {
	for c, r := range q.records {
		if now.After(r.until) && (len(r.strikes) == 0 || now.Sub(r.strikes[len(r.strikes)-1]) > q.window) {
			delete(q.records, c)
		}
	}
	for _, owners := range []bool{false, true} {
		for c := range q.records {
			if len(q.records) < maxRecords/2 {
				return
			}
			if owners || c.text != "" {
				delete(q.records, c)
			}
		}
	}
}

// holds says until when a script or its owner is quarantined; zero: neither is.
func (q *quarantine) holds(owner string, s Script) (until time.Time, wholeOwner bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.records) == 0 { // the usual case costs no hashing of sources
		return time.Time{}, false
	}
	now := q.now()
	if r := q.records[culprit{owner: owner}]; r != nil && now.Before(r.until) {
		return r.until, true
	}
	if r := q.records[culprit{owner, s.Kind, s.Source}]; r != nil && now.Before(r.until) {
		return r.until, false
	}
	return time.Time{}, false
}

// suspect says whether an owner had a worker killed lately.
func (q *quarantine) suspect(owner string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.records[culprit{owner: owner}]
	if r == nil {
		return false
	}
	now := q.now()
	return now.Before(r.until) || len(r.strikes) > 0 && now.Sub(r.strikes[len(r.strikes)-1]) <= q.window
}

// reset forgets everything about an owner, about all of them for "".
func (q *quarantine) reset(owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for c := range q.records {
		if owner == "" || c.owner == owner {
			delete(q.records, c)
		}
	}
}
