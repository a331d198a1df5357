package mcpface

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

var (
	errBusy   = errors.New("too many requests in flight")
	errSameID = errors.New("id in use")
)

// pending are the requests that were passed on and not answered yet, by the JSON
// of their id.
type pending struct {
	mu   sync.Mutex
	max  int
	ids  map[string]bool // true: cancelled, its answer is dropped
	idle chan struct{}   // closed when ids becomes empty while somebody drains
}

func newPending(most int) *pending { return &pending{max: most, ids: map[string]bool{}} }

func (p *pending) add(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, in := p.ids[id]; in {
		return errSameID
	}
	if len(p.ids) >= p.max {
		return errBusy
	}
	p.ids[id] = false
	return nil
}

// cancel marks a request: by the protocol it should not be answered any more.
func (p *pending) cancel(id []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, in := p.ids[string(id)]; in {
		p.ids[string(id)] = true
	}
}

// answered takes a request out and reports whether its answer is to be dropped.
func (p *pending) answered(id []byte) (drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	drop = p.ids[string(id)]
	delete(p.ids, string(id))
	if len(p.ids) == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
	return drop
}

// drain waits until every request is answered, at most d.
func (p *pending) drain(d time.Duration) {
	p.mu.Lock()
	if len(p.ids) == 0 {
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

// lineWriter is the one writer of stdout: whole lines, one at a time.
type lineWriter struct {
	out     io.Writer
	pending *pending
	mu      sync.Mutex
	err     error // the first failure
}

// Write takes one whole message, as mcp-go writes them.
func (w *lineWriter) Write(line []byte) (int, error) {
	if id := responseID(line); id != nil && w.pending.answered(id) {
		return len(line), nil
	}
	return w.write(line)
}

func (w *lineWriter) write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.out.Write(line)
	w.err = err
	return n, err
}

func (w *lineWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// refuse answers a message that was not passed on. A client that is gone is
// noticed by the next write of the server.
func (w *lineWriter) refuse(id json.RawMessage, code int, name, message, hint string) {
	if id == nil {
		id = json.RawMessage("null")
	}
	line, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": id,
		"error": map[string]any{
			"code": code, "message": message + " " + hint,
			"data": map[string]string{"code": name, "message": message, "hint": hint},
		},
	})
	if err == nil {
		_, _ = w.write(append(line, '\n'))
	}
}

var responseStart = []byte(`{"jsonrpc":"2.0","id":`)

// responseID is the JSON of a response's id, nil for anything else.
func responseID(line []byte) []byte {
	rest, ok := bytes.CutPrefix(line, responseStart)
	if !ok {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(line, &m) != nil || m.Method != "" {
			return nil
		}
		return m.ID
	}
	if len(rest) > 0 && rest[0] == '"' {
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return normalID(rest[:i+1])
			}
		}
		return nil
	}
	if i := bytes.IndexAny(rest, ",}"); i > 0 {
		return rest[:i]
	}
	return nil
}

// normalID is a string id as this program writes it, so that two spellings of
// one string are one id.
func normalID(id []byte) []byte {
	if len(id) == 0 || id[0] != '"' || bytes.IndexByte(id, '\\') < 0 {
		return id
	}
	var s string
	if json.Unmarshal(id, &s) != nil {
		return id
	}
	out, err := json.Marshal(s)
	if err != nil {
		return id
	}
	return out
}
