package upstream

import (
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// continuations are the gated calls whose servers asked for something before they answer. Each
// goes on once: a requestState that comes again is refused.
type continuations struct {
	mu    sync.Mutex
	calls map[string]continuation // by call id
}

type continuation struct {
	nonce    string
	deadline time.Time
}

// put makes a result input_required go to the client with a requestState that holds the call.
func (w *continuations) put(s *Sealer, c *gatedCall, result json.RawMessage) json.RawMessage {
	nonce := rand.Text()
	b := document.AppendQuote([]byte(`{"call":`), c.callID)
	b = document.AppendQuote(append(b, `,"instance":`...), c.instance)
	b = document.AppendQuote(append(b, `,"nonce":`...), nonce)
	if state := readChecked(result).Get("requestState"); state.Kind() == document.String {
		b = append(append(b, `,"state":`...), state.Raw()...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for id, other := range w.calls {
		if now.After(other.deadline) {
			delete(w.calls, id)
		}
	}
	if w.calls == nil {
		w.calls = map[string]continuation{}
	}
	w.calls[c.callID] = continuation{nonce, c.deadline}
	return rewriteMembers(result, map[string]json.RawMessage{"requestState": document.AppendQuote(nil, s.seal(string(append(b, '}')), c.bound))})
}

// take has a call go on, once and before its deadline: after that a person may have said already
// what became of it.
func (w *continuations) take(c *gatedCall) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.calls[c.callID]
	if !ok || known.nonce != c.nonce || time.Now().After(known.deadline) {
		e := newError(CodeInvalid, c.Upstream, "Look at workflow.status: the call may wait for a person.", "The requestState was used before, or the call is no longer open.")
		e.Err = ErrState
		return e
	}
	delete(w.calls, c.callID)
	c.deadline = known.deadline
	return nil
}
