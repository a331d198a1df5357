package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/validators/document"
)

// newKey scopes an idempotency key to principal, operation and instance, and digests the request so that
// reuse of the key with another request is detected. It returns nil if no key was given.
func (e *Engine) newKey(p Principal, m mutation) (*record.Key, error) {
	if m.key == "" {
		return nil, nil //nolint:nilnil // no key is a valid, common answer
	}
	if len(m.key) > e.cfg.Limits.Key {
		return nil, tooLarge("/idempotencyKey", "The idempotency key has %d bytes; the limit is %d.", len(m.key), e.cfg.Limits.Key)
	}
	return &record.Key{
		Scope:   scopeKey(p, cmp.Or(m.scope, m.right), m.id, m.key),
		Request: e.cfg.Digester.Digest([]byte(digestParts(append([]string{"gavel/request/v2"}, m.content()...)...))),
	}, nil
}

// scopeKey returns the text under which a store keeps an idempotency key.
func scopeKey(p Principal, op Right, instance, key string) string {
	return digestParts("gavel/key/v1", p.ID, string(op), instance, key)
}

// rightCall scopes the keys of gated calls.
const rightCall Right = "call"

// digestParts returns the hex SHA-256 of its parts. Each part is preceded by its length, so that different
// lists of parts never produce the same input.
func digestParts(parts ...string) string {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// findAnswer returns the event that answered a key, and its instance; the event is zero if there is none.
// A caller that can no longer see the instance, because its credential or the workflow has changed, gets
// an error instead.
func (e *Engine) findAnswer(ctx context.Context, p Principal, m mutation, key *record.Key) (now instance, ev record.Event, err error) {
	ev, err = e.cfg.Store.ByKey(ctx, key.Scope)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return now, record.Event{}, nil
	case err != nil:
		return now, ev, StoreError("look up the idempotency key", err)
	case ev.Key == nil || ev.Key.Request != key.Request:
		return now, ev, newError(CodeKeyReused, "/idempotencyKey", "This idempotency key was used before with another request.").
			withHint("Use a new key for a new request; repeat the old request exactly to get its answer again.")
	case m.right != "": // gavel itself needs no right
		now, err = e.loadInstance(ctx, p, ev.Instance)
	}
	return now, ev, err
}

// canonicalText returns a document's canonical text, so that the order of its keys does not change the
// digest of a request.
func canonicalText(doc json.RawMessage) string {
	c, err := document.Canonical(doc)
	if err != nil {
		return string(doc)
	}
	return string(c)
}

func revisionText(r *int64) string {
	if r == nil {
		return ""
	}
	return strconv.FormatInt(*r, 10)
}
