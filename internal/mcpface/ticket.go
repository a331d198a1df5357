package mcpface

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
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

// tickets are the questions that clients of the era without server requests carry: the
// state that they give back with a person's answer. It passes through the hands of
// whoever is judged, so it is sealed with a key of this process, and good once.
type tickets struct {
	key   []byte
	lasts time.Duration
	now   func() time.Time

	mu    sync.Mutex
	out   map[string]time.Time // until when, by nonce
	asked *simplelru.LRU[question, count]
}

// question is what a person is asked about, whatever data comes with it.
type question struct{ instance, action string }

// count is how often a person was asked.
type count struct {
	revision int64 // of the instance, while it was counted
	times    int
}

// ticket is what a question was about.
type ticket struct {
	Nonce     string `json:"n"`
	Review    string `json:"r"`
	Revision  int64  `json:"v"` // of the instance
	Principal string `json:"p"`
	Call      string `json:"c"` // digest of the call's arguments
	Until     int64  `json:"u"` // Unix milliseconds
}

func newTickets(lasts time.Duration) *tickets {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key)                                          // it never fails: the program ends instead
	asked, _ := simplelru.NewLRU[question, count](mostCounts, nil) // the error is for a size below 1
	return &tickets{key: key, lasts: lasts, now: time.Now, out: map[string]time.Time{}, asked: asked}
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

// issue seals a ticket. It returns false while too many are out.
func (t *tickets) issue(k ticket) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for nonce, until := range t.out {
		if !now.Before(until) {
			delete(t.out, nonce)
		}
	}
	if len(t.out) >= mostTickets {
		return "", false
	}
	until := now.Add(t.lasts)
	k.Nonce, k.Until = rand.Text(), until.UnixMilli()
	t.out[k.Nonce] = until
	body := base64.RawURLEncoding.EncodeToString(encodeJSON(k))
	return body + "." + t.seal(body), true
}

// redeem opens a ticket, once, for the principal and the call that it was issued for.
func (t *tickets) redeem(sealed, principal, call string) (ticket, bool) {
	body, seal, _ := strings.Cut(sealed, ".")
	if !hmac.Equal([]byte(seal), []byte(t.seal(body))) {
		return ticket{}, false
	}
	var k ticket
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(raw, &k) != nil || k.Principal != principal || k.Call != call {
		return ticket{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, out := t.out[k.Nonce]
	delete(t.out, k.Nonce)
	return k, out && t.now().UnixMilli() < k.Until
}

// seal is the keyed digest of a ticket's text.
func (t *tickets) seal(body string) string {
	mac := hmac.New(sha256.New, t.key)
	mac.Write([]byte("gavel/mcp/ticket/v1\x00" + body))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
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
