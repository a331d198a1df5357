package mcpface

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	errBusy   = errors.New("too many requests in flight")
	errSameID = errors.New("id in use")
	errEnding = errors.New("the server is ending")
)

// pending are the requests that were passed on and not answered yet, by the key
// of the id that was passed on.
type pending struct {
	mu      sync.Mutex
	max     int
	calls   map[string]*call
	waiting int           // calls that are not streams
	ending  bool          // no call is added any more
	idle    chan struct{} // closed when waiting becomes 0 while somebody drains
}

// call is one request in flight.
type call struct {
	id        json.RawMessage // as the client sent it
	tool      bool            // answered with a tool's result
	stream    bool            // lasts until the client cancels it: nobody waits for its end
	cancelled bool            // its answer is dropped
	done      chan struct{}   // closed once it is answered
}

func newPending(most int) *pending { return &pending{max: most, calls: map[string]*call{}} }

// add takes a request in under the id that it is passed on with. Pings have room
// when other requests have none any more: they ask whether the server is alive.
func (p *pending) add(passed json.RawMessage, m message) (*call, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := p.max
	if m.method == methodPing {
		most *= 2
	}
	key := idKey(passed)
	switch _, in := p.calls[key]; {
	case p.ending:
		return nil, errEnding
	case in:
		return nil, errSameID
	case len(p.calls) >= most:
		return nil, errBusy
	}
	c := &call{id: bytes.Clone(m.id), tool: m.method == methodCallTool, stream: m.method == methodListen, done: make(chan struct{})}
	p.calls[key] = c
	if !c.stream {
		p.waiting++
	}
	return c, nil
}

// cancel marks a request: by the protocol it should not be answered any more.
func (p *pending) cancel(passed json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[idKey(passed)]; c != nil {
		c.cancelled = true
	}
}

// answered takes a request out. It returns nil for an id that nobody waits for.
func (p *pending) answered(passed json.RawMessage) *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := idKey(passed)
	c := p.calls[key]
	if c == nil {
		return nil
	}
	delete(p.calls, key)
	close(c.done)
	if !c.stream {
		p.waiting--
	}
	if p.waiting == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
	return c
}

// drain adds no call any more and waits until every one is answered, at most d.
func (p *pending) drain(d time.Duration) {
	p.mu.Lock()
	p.ending = true
	if p.waiting == 0 {
		p.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	p.idle = idle
	p.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	}
}

// standIn is what an id is passed on as: itself, or for an integer that a 64-bit
// float would change, a string that the answer's id is turned back from.
func standIn(id json.RawMessage) json.RawMessage {
	if id[0] == '"' {
		if strings.HasPrefix(keyText(id), standInPrefix) { // not to be taken for one
			return slices.Concat(standInString, id[1:])
		}
		return id
	}
	const exact = 1 << 53
	if n, err := strconv.ParseInt(string(id), 10, 64); err == nil && -exact <= n && n <= exact && strconv.FormatInt(n, 10) == string(id) {
		return id
	}
	return json.RawMessage(`"` + standInPrefix + string(id) + `"`)
}

const standInPrefix = "gavel.id:"

var standInString = json.RawMessage(`"` + standInPrefix + `s:`)

// original is the id that a stand-in was made of; any other id is itself.
func original(passed json.RawMessage) json.RawMessage {
	if rest, ok := bytes.CutPrefix(passed, standInString); ok {
		return slices.Concat(json.RawMessage(`"`), rest)
	}
	rest, ok := bytes.CutPrefix(passed, []byte(`"`+standInPrefix))
	if !ok {
		return passed
	}
	return bytes.TrimSuffix(rest, []byte(`"`))
}

// idKey tells ids apart: strings by what they say, however they are escaped, and
// from numbers.
func idKey(id json.RawMessage) string {
	if len(id) > 0 && id[0] == '"' {
		return "s" + keyText(id)
	}
	return "n" + string(id)
}
