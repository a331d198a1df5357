package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// instance is an instance as a caller deals with it, with the definition version that it is pinned to.
type instance struct {
	record.Instance
	definition
	by      Principal
	request *mutation // that changes it, nil for none
}

// key is the idempotency key that the answer to the request is bound to, nil without one.
func (i instance) key() *record.Key {
	if i.request == nil {
		return nil
	}
	return i.request.bound
}

// mutation is a request to change an instance: what it needs. mutate does what all of them have in common.
type mutation struct {
	right Right // "" for what only gavel itself asks
	scope Right // of the key, where that is not the right
	id    string
	key   string
	says  func() []string // all that the request says; needed only where there is a key
	check func() error    // looks at the request alone

	load     func(context.Context, *instance) error // nil loads the instance by its id
	permit   func(context.Context, instance) error  // this caller, on this instance
	moves    bool                                   // it follows the rules of the definition
	revision *int64                                 // the one that the caller expects
	verb     string                                 // what a cancelled instance cannot be; "" allows it
	running  bool                                   // nor can one that is complete
	counted  bool                                   // it uses the caller's quota of events
	settled  bool                                   // it waits until no call is open
	action   string                                 // the one that it performs, where it is settled

	judged bool // a model may be asked, so that tries take turns
	once   bool // it is not tried again when another request overtakes it

	// How it fares.
	bound *record.Key // the key
	lost  int         // tries that were overtaken
	asked int         // tries for which a model was asked
	over  bool        // another try cannot succeed
}

// The most tries of a request that others overtake, and how many of them may ask a model.
// Another one always got through then, so that it takes many callers to use them up.
const (
	mostTries      = 50
	mostModelTries = 4
)

// mutate answers a request to change an instance. perform gets the instance as it was loaded, once all that
// mutation names allows it. A key that was used is answered by replay, with the instance as it is now and the event that was committed then,
// and concurrent duplicates wait for the first; errors bind no key.
func mutate[T any](ctx context.Context, e *Engine, p Principal, m mutation,
	perform func(context.Context, *instance) (T, error), replay func(context.Context, instance, record.Event) (T, error),
) (T, error) {
	var zero T
	key, err := e.checkMutation(p, m)
	if err != nil {
		return zero, err
	}
	m.bound = key
	do := func() (T, error) {
		return retryOvertaken(ctx, e, p, &m, func() (T, error) {
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
	// Another process may have answered the same key between our look and our
	// write: then this is a replay, whatever our own attempt met.
	if now, ev, kerr := e.findAnswer(ctx, p, m, key); kerr == nil && ev.Seq > 0 {
		return replay(ctx, now, ev)
	} else if CodeOf(kerr) == CodeKeyReused {
		return zero, kerr
	}
	return zero, err
}

// answered is what an answer is made of: an event and what the instance was right after it, now or, for a key
// that was used before, then.
type answered struct {
	Position
	event    record.Event
	context  json.RawMessage
	replayed bool
}

// commitOnce is mutate of a request that nothing judges: plan says what to commit.
func commitOnce[T any](ctx context.Context, e *Engine, p Principal, m mutation, plan func(context.Context, *instance) (change, error), answer func(answered) T) (T, error) {
	perform := func(ctx context.Context, inst *instance) (out T, err error) {
		do, err := plan(ctx, inst)
		if err != nil {
			return out, err
		}
		w, err := e.commit(ctx, *inst, do)
		if err != nil {
			return out, err
		}
		return answer(answered{w.next.position(), w.event, w.next.Context, false}), nil
	}
	return mutate(ctx, e, p, m, perform, func(ctx context.Context, now instance, ev record.Event) (out T, err error) {
		then, err := e.instanceAfter(ctx, now, ev)
		if err != nil {
			return out, err
		}
		return answer(answered{then.position(), ev, then.Context, true}), nil
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

// begin loads the instance, and refuses what the caller may not do to it as it is.
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
	if err == nil && m.moves {
		err = inst.mayMove()
	}
	switch {
	case err != nil:
		return err
	case m.revision != nil && *m.revision != inst.Revision:
		return inst.conflict()
	case m.verb != "" && (inst.Status == record.Cancelled || m.running && inst.Status != record.Running):
		return inst.hasEnded(m.verb)
	}
	if m.counted {
		if err := e.checkEventQuota(ctx, *inst); err != nil {
			return err
		}
	}
	if m.settled {
		return e.mayMoveNow(ctx, inst, m.action)
	}
	return nil
}

// retryOvertaken tries a request that names no revision again when the instance moved
// between the look and the write: the caller asked for the action in whatever state it
// finds. A try that was overtaken is recorded and counted nowhere but in the caller's
// quotas.
//
// Those tries of one caller at one instance take turns, and its later requests wait
// behind them, so that they do not overtake each other again and a model is not asked
// about states that are past. Callers do not wait for each other.
func retryOvertaken[T any](ctx context.Context, e *Engine, p Principal, m *mutation, do func() (T, error)) (T, error) {
	var zero T
	m.over = m.once || m.revision != nil
	scope := p.ID + "\x00" + m.id
	if m.over || !m.judged || !e.overtaken.hasTurn(scope) {
		out, err := do()
		if !errors.Is(err, store.ErrConflict) {
			return out, err
		}
		if !m.countLost() {
			return zero, e.conflictFor(ctx, p, err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, longestTurn)
	defer cancel()
	if m.judged {
		release, _ := e.overtaken.acquire(bounded.Done(), scope)
		if release == nil {
			return zero, turnError(ctx, "the same instance")
		}
		defer release()
	}
	for {
		out, err := do()
		if !errors.Is(err, store.ErrConflict) {
			return out, err
		}
		if !m.countLost() || bounded.Err() != nil {
			return zero, e.conflictFor(ctx, p, err)
		}
	}
}

// countLost counts a try that was overtaken, and reports whether another one makes sense.
func (m *mutation) countLost() (retry bool) {
	m.lost++
	return !m.over && m.lost < mostTries && m.asked < mostModelTries
}

// turnError is the answer to a request that did not get its turn in time, or whose caller left.
func turnError(ctx context.Context, about string) error {
	if ctx.Err() != nil {
		return judgeError(ctx.Err())
	}
	return &Error{
		Code: CodeBusy, RetryAfter: time.Second, Message: "Earlier requests of yours about " + about + " are still being judged.",
		Hint: "Try again when they are answered; nothing was recorded.",
	}
}
