package engine

import (
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

type keyedRequest struct {
	op            Right
	instance, key string
	parts         func() []string // all that it says; asked for only where there is a key
}

// newKey scopes an idempotency key to principal, operation and instance, and
// digests the request so that the same key with another request is told apart.
// It returns nil when no key was given.
func (e *Engine) newKey(p Principal, r keyedRequest) (*record.Key, error) {
	if r.key == "" {
		return nil, nil //nolint:nilnil // no key is a valid, common answer
	}
	if len(r.key) > e.cfg.Limits.Key {
		return nil, tooLarge("/idempotencyKey", "The idempotency key has %d bytes; the limit is %d.", len(r.key), e.cfg.Limits.Key)
	}
	return &record.Key{
		Scope:   scopeKey(p, r.op, r.instance, r.key),
		Request: e.cfg.Digester.Digest([]byte(digestRequest("gavel/request/v2", r))),
	}, nil
}

func digestRequest(purpose string, r keyedRequest) string {
	return digestParts(append([]string{purpose}, r.parts()...)...)
}

// isRequest reports whether the event that has the key answered this request. Earlier versions kept
// a digest without a key.
func isRequest(ev record.Event, key *record.Key, r keyedRequest) bool {
	return ev.Key != nil && (ev.Key.Request == key.Request || ev.Key.Request == digestRequest("gavel/request/v1", r))
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

// runOnce answers a request with an idempotency key at most once: a key that was
// used is replayed, concurrent duplicates wait for the first. Errors bind no key.
func runOnce[T any](ctx context.Context, e *Engine, p Principal, r keyedRequest,
	replay func(context.Context, Principal, record.Event) (T, error), do func(context.Context, *record.Key) (T, error),
) (T, error) {
	var zero T
	key, err := e.newKey(p, r)
	if err != nil {
		return zero, err
	}
	if key == nil {
		return do(ctx, nil)
	}
	release, _ := e.keys.acquire(ctx.Done(), key.Scope)
	if release == nil {
		return zero, StoreError("wait for the request with the same idempotency key", ctx.Err())
	}
	defer release()
	if ev, ok, err := e.findAnswer(ctx, key, r); err != nil || ok {
		if err == nil {
			err = checkReplay(p, ev)
		}
		if err != nil {
			return zero, err
		}
		return replay(ctx, p, ev)
	}
	out, err := do(ctx, key)
	if err == nil {
		return out, nil
	}
	// Another process may have answered the same key between our look and our
	// write: then this is a replay, whatever our own attempt met.
	if ev, ok, kerr := e.findAnswer(ctx, key, r); kerr == nil && ok && checkReplay(p, ev) == nil {
		return replay(ctx, p, ev)
	} else if CodeOf(kerr) == CodeKeyReused {
		return zero, kerr
	}
	return zero, err
}

func (e *Engine) findAnswer(ctx context.Context, key *record.Key, r keyedRequest) (record.Event, bool, error) {
	ev, err := e.cfg.Store.ByKey(ctx, key.Scope)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return record.Event{}, false, nil
	case err != nil:
		return record.Event{}, false, StoreError("look the idempotency key up", err)
	case !isRequest(ev, key, r):
		return record.Event{}, false, newError(CodeKeyReused, "/idempotencyKey", "This idempotency key was used before with another request.").
			hint("Use a new key for a new request; repeat the old request exactly to get its answer again.")
	}
	return ev, true, nil
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
