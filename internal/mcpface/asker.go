package mcpface

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// mostAsked is how many forms may wait for a person at once. Each keeps a call waiting.
const mostAsked = 4

var (
	errAskedEnough = errors.New("too many questions wait already")
	errNoAnswer    = errors.New("the client answered with an error")
	errAskEnded    = errors.New("the client is gone")
)

// asker sends requests to a client of the era in which servers may, and hands their
// answers to whoever waits. They do not pass through the library: its read loop can
// wait for a call that waits for an answer that only the loop would read.
type asker struct {
	write func(line []byte) error

	mu      sync.Mutex
	n       int
	waiting map[string]chan json.RawMessage
	over    bool
	ended   chan struct{} // closed once nobody can answer any more
}

func newAsker(write func([]byte) error) *asker {
	return &asker{write: write, waiting: map[string]chan json.RawMessage{}, ended: make(chan struct{})}
}

// ask returns the result that the client answers a request with. A question that is
// given up is cancelled.
func (a *asker) ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	id, reply, err := a.open()
	if err != nil {
		return nil, err
	}
	defer a.close(id)
	write := a.write
	if out := replyOf(ctx); out != nil { // over HTTP a question goes to whoever made the call that it is about
		write = out.push
	}
	if err := write(rpcLine(map[string]any{"id": id, "method": method, "params": params})); err != nil {
		return nil, err
	}
	select {
	case result := <-reply:
		if result == nil {
			return nil, errNoAnswer
		}
		return result, nil
	case <-a.ended:
		return nil, errAskEnded
	case <-ctx.Done():
		// If this cannot be written, whoever serves the connection knows.
		_ = write(rpcLine(map[string]any{"method": methodCancelled, "params": map[string]any{"requestId": id, "reason": "The answer did not come in time."}}))
		return nil, context.Cause(ctx)
	}
}

func rpcLine(m map[string]any) []byte {
	m["jsonrpc"] = mcp.JSONRPC_VERSION
	return append(encode(m), '\n')
}

func (a *asker) open() (id string, reply chan json.RawMessage, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over:
		return "", nil, errAskEnded
	case len(a.waiting) >= mostAsked:
		return "", nil, errAskedEnough
	}
	a.n++
	id, reply = "gavel-"+strconv.Itoa(a.n), make(chan json.RawMessage, 1)
	a.waiting[id] = reply
	return id, reply, nil
}

func (a *asker) close(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, id)
}

// answered takes an answer, and is false for one that nobody waits for.
func (a *asker) answered(m message) bool {
	if len(m.id) == 0 || m.id[0] != '"' {
		return false
	}
	id := keyText(m.id)
	a.mu.Lock()
	defer a.mu.Unlock()
	reply := a.waiting[id]
	if reply == nil {
		return false
	}
	delete(a.waiting, id) // a second answer is one that nobody waits for
	reply <- m.result
	return true
}

// end tells those who wait that nobody can answer any more.
func (a *asker) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.over = true
		close(a.ended)
	}
}
