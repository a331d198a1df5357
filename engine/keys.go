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

// newKey scopes an idempotency key to principal, operation and instance, and
// digests the request so that the same key with another request is told apart.
// It returns nil when no key was given.
func (e *Engine) newKey(p Principal, m mutation) (*record.Key, error) {
	if m.key == "" {
		return nil, nil //nolint:nilnil // no key is a valid, common answer
	}
	if len(m.key) > e.cfg.Limits.Key {
		return nil, tooLarge("/idempotencyKey", "The idempotency key has %d bytes; the limit is %d.", len(m.key), e.cfg.Limits.Key)
	}
	return &record.Key{
		Scope:   scopeKey(p, cmp.Or(m.scope, m.right), m.id, m.key),
		Request: e.cfg.Digester.Digest([]byte(digestParts(append([]string{"gavel/request/v2"}, m.says()...)...))),
	}, nil
}

// scopeKey is what a store knows an idempotency key by.
func scopeKey(p Principal, op Right, instance, key string) string {
	return digestParts("gavel/key/v1", p.ID, string(op), instance, key)
}

// rightCall scopes the keys of gated calls.
const rightCall Right = "call"

// digestParts is the hex SHA-256 of its parts, each with its length before it so that
// no two lists of parts read the same.
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

// findAnswer finds the event that answered a key, and its instance; the zero event for none. A caller that does not
// see the instance any more, since its credential or the workflow has changed, does not get the answer again.
func (e *Engine) findAnswer(ctx context.Context, p Principal, m mutation, key *record.Key) (now instance, ev record.Event, err error) {
	ev, err = e.cfg.Store.ByKey(ctx, key.Scope)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return now, record.Event{}, nil
	case err != nil:
		return now, ev, StoreError("look the idempotency key up", err)
	case ev.Key == nil || ev.Key.Request != key.Request:
		return now, ev, newError(CodeKeyReused, "/idempotencyKey", "This idempotency key was used before with another request.").
			hint("Use a new key for a new request; repeat the old request exactly to get its answer again.")
	case m.right != "": // gavel itself sees all
		now, err = e.loadInstance(ctx, p, ev.Instance)
	}
	return now, ev, err
}

// canonicalText is a document's canonical text: the same request has the same digest
// in whatever order its keys were sent.
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
