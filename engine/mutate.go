package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// instance is an instance as a caller uses it, with the definition version that it is pinned to.
type instance struct {
	record.Instance
	definition
	by      Principal
	request *mutation // the request that changes it; nil for none
}

// key returns the idempotency key that the result of the request is bound to; nil for none.
func (i instance) key() *record.Key {
	if i.request == nil {
		return nil
	}
	return i.request.boundKey
}

// mutation describes a request to change an instance. mutate does what all such requests have in common.
type mutation struct {
	right   Right // "" for requests of gavel itself
	scope   Right // scope of the key, if it differs from right
	id      string
	key     string
	content func() []string // everything that identifies the request; only needed with a key
	check   func() error    // checks the request alone

	load            func(context.Context, *instance) error // nil loads the instance by its id
	permit          func(context.Context, instance) error  // whether this caller may change this instance
	isMove          bool                                   // the instance must be one that may move (see checkStatus)
	revision        *int64                                 // the revision that the caller expects
	verb            string                                 // for the error about an ended instance; "" allows ended ones
	requiresRunning bool                                   // with verb: reject complete instances, not only cancelled ones
	isCounted       bool                                   // it counts against the caller's quota of events
	requiresSettled bool                                   // it requires that no call is open
	action          string                                 // the action that it performs, for settled requests

	isJudged bool // a model may be asked, so retries wait in line
	noRetry  bool // it is not retried if another request overtakes it

	// Progress of the request.
	boundKey   *record.Key // the key
	conflicts  int         // attempts that were overtaken
	modelTries int         // attempts for which a model was asked
	isFinal    bool        // another attempt cannot succeed
}

// The maximum number of attempts of a request that others overtake, and of those that may ask a model. Each lost
// attempt means that another request succeeded, so it takes many callers to use them up.
const (
	maxTries      = 50
	maxModelTries = 4
)

// mutate performs a request to change an instance. It calls perform with the loaded instance once all checks of the
// mutation have passed.
//
// If the key was used before, it calls replay with the present instance and the event that was committed then.
// Concurrent duplicates wait for the first request. Errors bind no key.
func mutate[T any](ctx context.Context, e *Engine, p Principal, m mutation,
	perform func(context.Context, *instance) (T, error), replay func(context.Context, instance, record.Event) (T, error),
) (T, error) {
	var zero T
	key, err := e.checkMutation(p, m)
	if err != nil {
		return zero, err
	}
	m.boundKey = key
	do := func() (T, error) {
		return retryConflicts(ctx, e, p, &m, func() (T, error) {
			inst := instance{by: p, request: &m}
			if err := e.begin(ctx, &inst, m); err != nil {
				return zero, err
			}
			return perform(ctx, &inst)
		})
	}
	if key == nil {
		return do()
	}
	release, _ := e.keys.acquire(ctx.Done(), key.Scope)
	if release == nil {
		return zero, StoreError("wait for the request with the same idempotency key", ctx.Err())
	}
	defer release()
	if now, ev, err := e.findAnswer(ctx, p, m, key); err != nil {
		return zero, err
	} else if ev.Seq > 0 {
		return replay(ctx, now, ev)
	}
	out, err := do()
	if err == nil {
		return out, nil
	}
	// Another process may have answered the same key between the read and the write. Then this is a replay, whatever
	// error this attempt got.
	if now, ev, kerr := e.findAnswer(ctx, p, m, key); kerr == nil && ev.Seq > 0 {
		return replay(ctx, now, ev)
	} else if CodeOf(kerr) == CodeKeyReused {
		return zero, kerr
	}
	return zero, err
}

// commitResult holds the data for a result: an event, and the instance right after it. The event is new or, for a key
// that was used before, the earlier one.
type commitResult struct {
	Position
	event    record.Event
	context  json.RawMessage
	replayed bool
}

// commitPlan is mutate for a request that is not judged: plan returns what to commit.
func commitPlan[T any](ctx context.Context, e *Engine, p Principal, m mutation, plan func(context.Context, *instance) (change, error), answer func(commitResult) T) (T, error) {
	perform := func(ctx context.Context, inst *instance) (out T, err error) {
		do, err := plan(ctx, inst)
		if err != nil {
			return out, err
		}
		w, err := e.commit(ctx, *inst, do)
		if err != nil {
			return out, err
		}
		return answer(commitResult{w.next.position(), w.event, w.next.Context, false}), nil
	}
	return mutate(ctx, e, p, m, perform, func(ctx context.Context, now instance, ev record.Event) (out T, err error) {
		then, err := e.instanceAfter(ctx, now, ev)
		if err != nil {
			return out, err
		}
		return answer(commitResult{then.position(), ev, then.Context, true}), nil
	})
}

func (e *Engine) checkMutation(p Principal, m mutation) (*record.Key, error) {
	if m.right != "" {
		if err := Authorize(p, m.right); err != nil {
			return nil, err
		}
	}
	if m.check != nil {
		if err := m.check(); err != nil {
			return nil, err
		}
	}
	return e.newKey(p, m)
}

// begin loads the instance, and rejects the request if the caller may not make it on the instance as it is.
func (e *Engine) begin(ctx context.Context, inst *instance, m mutation) (err error) {
	if m.load == nil {
		inst.ID = m.id
		err = e.reload(ctx, inst)
	} else {
		err = m.load(ctx, inst)
	}
	if err == nil && m.permit != nil {
		err = m.permit(ctx, *inst)
	}
	if err == nil && m.isMove {
		err = inst.checkNotTakenOver()
	}
	switch {
	case err != nil:
		return err
	case m.revision != nil && *m.revision != inst.Revision:
		return inst.conflict()
	case m.verb != "" && (inst.Status == record.Cancelled || m.requiresRunning && inst.Status != record.Running):
		return inst.hasEnded(m.verb)
	}
	if m.isCounted {
		if err := e.checkEventQuota(ctx, *inst); err != nil {
			return err
		}
	}
	if m.requiresSettled {
		return e.checkMove(ctx, inst, m.action)
	}
	return nil
}

// retryConflicts retries a request without an expected revision if the instance moved between the read and the
// write. The caller asked for the action whatever the instance's state. Overtaken attempts are not recorded and
// count only against the caller's quotas.
//
// The attempts of one caller on one instance run one at a time, and its later requests wait in line. So they do not
// overtake each other again, and a model is not asked about outdated states. Different callers do not wait for each
// other.
func retryConflicts[T any](ctx context.Context, e *Engine, p Principal, m *mutation, do func() (T, error)) (T, error) {
	var zero T
	m.isFinal = m.noRetry || m.revision != nil
	scope := p.ID + "\x00" + m.id
	if m.isFinal || !m.isJudged || !e.retries.isLocked(scope) {
		out, err := do()
		if !errors.Is(err, store.ErrConflict) {
			return out, err
		}
		if !m.countConflict() {
			return zero, e.conflictFor(ctx, p, err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, maxGuardWait)
	defer cancel()
	if m.isJudged {
		release, _ := e.retries.acquire(bounded.Done(), scope)
		if release == nil {
			return zero, queueError(ctx, "the same instance")
		}
		defer release()
	}
	for {
		out, err := do()
		if !errors.Is(err, store.ErrConflict) {
			return out, err
		}
		if !m.countConflict() || bounded.Err() != nil {
			return zero, e.conflictFor(ctx, p, err)
		}
	}
}

// countConflict counts an attempt that was overtaken, and reports whether another one makes sense.
func (m *mutation) countConflict() (retry bool) {
	m.conflicts++
	return !m.isFinal && m.conflicts < maxTries && m.modelTries < maxModelTries
}

// queueError returns the error for a request that waited too long in line, or whose caller left.
func queueError(ctx context.Context, about string) error {
	if ctx.Err() != nil {
		return judgeError(ctx.Err())
	}
	return &Error{
		Code: CodeBusy, RetryAfter: time.Second, Message: "Earlier requests of yours about " + about + " are still being judged.",
		Hint: "Try again when they are answered; nothing was recorded.",
	}
}
