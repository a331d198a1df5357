package mcpface

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// mostTickets is how many questions may be out at once with clients that ask a
	// person on their own time.
	mostTickets = 32
	// mostTimes is how often a person is asked about one action while the instance
	// stays at its revision: an agent that repeats its call until somebody presses the other
	// button gets nowhere, and neither does one that brings other data each time, which
	// is another review.
	mostTimes = 3
	// mostCounts is how many actions are counted. To have one forgotten takes as many
	// questions about others.
	mostCounts = 1024
)

// tickets are the questions that clients of the era without server requests carry. The state
// that they give back with a person's answer passes through the hands of whoever is judged:
// it is a random name for what is kept here, and good once.
type tickets struct {
	lasts time.Duration
	now   func() time.Time

	mu    sync.Mutex
	out   map[string]ticket // by state
	asked *simplelru.LRU[question, count]
}

// question is what a person is asked about, whatever data comes with it.
type question struct{ instance, action string }

// count is how often a person was asked.
type count struct {
	revision int64 // of the instance, while it was counted
	times    int
}

type ticket struct {
	review    string
	revision  int64 // of the instance
	principal string
	call      string // digest of the call's arguments
	until     time.Time
}

func newTickets(lasts time.Duration) *tickets {
	asked, _ := simplelru.NewLRU[question, count](mostCounts, nil) // the error is for a size below 1
	return &tickets{lasts: lasts, now: time.Now, out: map[string]ticket{}, asked: asked}
}

// mayAsk counts a question at a revision of the instance, and reports whether it may be
// asked.
func (t *tickets) mayAsk(q question, revision int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, _ := t.asked.Get(q)
	if revision > c.revision {
		c = count{revision: revision}
	}
	ok := c.times < mostTimes
	if ok {
		c.times++
	}
	t.asked.Add(q, c)
	return ok
}

// issue keeps a ticket under a new state. It returns false while too many are out.
func (t *tickets) issue(k ticket) (state string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	maps.DeleteFunc(t.out, func(_ string, old ticket) bool { return !now.Before(old.until) })
	if len(t.out) >= mostTickets {
		return "", false
	}
	state, k.until = rand.Text(), now.Add(t.lasts)
	t.out[state] = k
	return state, true
}

// redeem takes a ticket, once, for the principal and the call that it was issued for.
func (t *tickets) redeem(state, principal, call string) (ticket, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.out[state]
	if !ok || k.principal != principal || k.call != call {
		return ticket{}, false
	}
	delete(t.out, state)
	return k, t.now().Before(k.until)
}

// callDigest tells calls apart by what their arguments say, however they are written.
func callDigest(raw json.RawMessage) string {
	var v any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return ""
	}
	sum := sha256.Sum256(encodeJSON(v))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
