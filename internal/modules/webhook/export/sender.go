package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/modules/webhook/endpoint"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Timing of a sender.
const (
	leaseTime     = 15 * time.Second
	renewInterval = leaseTime / 3
	retryInterval = 5 * time.Second // for taking the lease, and after a store error
	moveInterval  = time.Second     // how often the cursor is stored; earlier after moveAfter positions
	closeTimeout  = 2 * time.Second // limit for sends in flight when sending ends

	minPause      = time.Second     // after the first failure; doubled after each further one
	maxPause      = 5 * time.Minute // unless the receiver asks for more
	maxRetryAfter = time.Hour       // limit for what a receiver may ask for

	// moveAfter limits how many messages are sent again after the process was killed.
	moveAfter = 64

	// downThreshold is how many instances must have failing messages, with none accepted in between, before a receiver
	// counts as down. It then gets only one message at a time, as a probe.
	downThreshold = 3
)

// unknownPosition represents a position that could not be read from the store.
const unknownPosition = -1

// Receiver sends a message once.
type Receiver interface {
	Send(ctx context.Context, m endpoint.Message) error
	Close()
}

// sender sends to a webhook.
type sender struct {
	hook   Webhook
	to     Receiver
	engine *engine.Engine
	store  Store
	owner  string
	log    *slog.Logger

	began                   int64 // the end of the log when the exporter started, or unknownPosition
	sending                 atomic.Bool
	delivered, failed, dead atomic.Uint64
}

func newSender(x *Exporter, h Webhook, to Receiver) *sender {
	return &sender{
		hook: h, to: to, engine: x.engine, store: x.store, owner: x.owner,
		log: x.log.With("webhook", h.Name, "to", h.To()),
	}
}

// errGone is returned if the receiver answered that it wants no more messages.
var errGone = errors.New("the receiver answered 410: it wants no more messages")

// run sends while this process holds the lease, until ctx ends.
func (s *sender) run(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := s.store.TakeLease(ctx, s.hook.Cursor(), s.owner, leaseTime)
		if err == nil {
			s.sending.Store(true)
			err = s.send(ctx, &lease)
			s.sending.Store(false)
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			_ = s.store.EndLease(ending, lease) // otherwise it expires
			cancel()
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errGone):
			s.log.ErrorContext(ctx, "nothing more is sent until the webhook changes or gavel restarts", "cause", err)
			<-ctx.Done()
			return
		case errors.Is(err, store.ErrLeaseTaken), errors.Is(err, store.ErrLeaseLost), errors.Is(err, store.ErrConflict):
		default:
			s.log.WarnContext(ctx, "cannot read or store the position of a webhook; trying again", "cause", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// findPosition returns the position of the cursor, which it creates if it is missing.
func (s *sender) findPosition(ctx context.Context, lease *store.Lease) (position int64, err error) {
	all, err := s.store.Cursors(ctx)
	if err != nil {
		return 0, err
	}
	if at := slices.IndexFunc(all, func(c store.Cursor) bool { return c.Name == s.hook.Cursor() }); at >= 0 {
		return all[at].Position, nil
	}
	if !s.hook.FromStart {
		if position = s.began; position == unknownPosition {
			if position, err = s.store.LastPosition(ctx); err != nil {
				return 0, err
			}
		}
	}
	return position, s.store.MoveCursor(ctx, store.Cursor{Name: s.hook.Cursor(), Position: position, Filter: s.hook.Filter.String()}, store.NoCursor, lease)
}

// sending is the work of a sender during one lease.
type sending struct {
	*sender
	lease    *store.Lease
	leasedAt time.Time // when the lease was taken, by this process's clock
	window   *window
	cursor   int64 // the cursor's position
	results  chan result
	inFlight int

	failures int             // consecutive failures
	failing  map[string]bool // instances of these failures
	accepted time.Time       // when a message was last accepted
	pause    time.Time       // nothing is sent before this time
}

type result struct {
	*delivery
	err error
}

// send delivers the events after the cursor until ctx or the lease ends, or the store fails.
func (s *sender) send(ctx context.Context, lease *store.Lease) (err error) {
	position, err := s.findPosition(ctx, lease)
	if err != nil {
		return err
	}
	sends, cancel := context.WithCancel(context.WithoutCancel(ctx))
	run := &sending{
		sender: s, lease: lease, leasedAt: time.Now(), window: newWindow(position), cursor: position, results: make(chan result), failing: map[string]bool{},
	}
	defer func() { run.end(ctx, sends, cancel, err) }()
	follower := s.engine.Feed().Follow(-1)
	defer follower.Unfollow()
	renew, move := time.NewTicker(renewInterval), time.NewTicker(moveInterval)
	defer renew.Stop()
	defer move.Stop()
	changed := follower.Changed()
	for more := true; err == nil; {
		for more && !run.window.isFull() {
			if more, err = run.readPage(ctx); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r := <-run.results:
			if err = run.handleResult(ctx, r); err == nil && run.window.passed()-run.cursor >= moveAfter {
				err = run.moveCursor(ctx)
			}
		case <-changed:
			// Replaced only here, because the channel may be closed while another case is being handled.
			changed, more = follower.Changed(), true
		case <-run.start(sends):
		case <-renew.C:
			err = run.renew(ctx)
		case <-move.C:
			err = run.moveCursor(ctx)
		}
	}
	return err
}

// header holds the fields of an event that a sender reads; see engine.EventView.
type header struct {
	Instance string      `json:"id"`
	Workflow string      `json:"workflow"`
	Seq      int64       `json:"seq"`
	Time     time.Time   `json:"time"`
	Kind     record.Kind `json:"kind"`
	Decision struct {
		Outcome judge.Outcome `json:"outcome"`
		Code    string        `json:"code"`
	} `json:"decision"`
	Version      int                 `json:"version"`
	From         string              `json:"from"`
	To           string              `json:"to"`
	Action       string              `json:"action"`
	ReviewID     string              `json:"reviewId"`
	ReviewStatus record.ReviewStatus `json:"reviewStatus"`
}

// payload is a message in the format of Standard Webhooks.
type payload struct {
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// newDelivery returns an event as a message to a webhook; nil if the webhook does not select it.
func newDelivery(ctx context.Context, e *engine.Engine, hook Webhook, item engine.FeedItem) (*delivery, error) {
	var h header
	if err := json.Unmarshal(item.JSON, &h); err != nil {
		return nil, fmt.Errorf("read the event at %d: %w", item.Position, err)
	}
	if !hook.Filter.selects(h) {
		return nil, nil //nolint:nilnil // most events may be for others
	}
	p, id := payload{Type: "workflow." + string(h.Kind), Timestamp: h.Time, Data: item.JSON}, h.Instance+"_"+strconv.FormatInt(h.Seq, 10)
	if hook.Reviews {
		var err error
		if p, id, err = newNotice(ctx, e, hook, h); err != nil || id == "" {
			return nil, err
		}
	}
	body, err := document.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode the event at %d: %w", item.Position, err)
	}
	return &delivery{position: item.Position, instance: h.Instance, seq: h.Seq, message: endpoint.Message{ID: id, Body: body}}, nil
}

// viewer returns the principal as which a webhook reads events.
func viewer(h Webhook) engine.Principal {
	return engine.Principal{ID: h.Cursor(), Role: engine.RoleAuditor}
}

// readPage reads the next page of events into the window, and reports whether there are more.
func (s *sending) readPage(ctx context.Context) (more bool, err error) {
	page, err := s.engine.Feed().Page(ctx, viewer(s.hook), engine.TailRequest{After: s.window.read})
	if err != nil {
		return false, err //nolint:wrapcheck // the error is already specific
	}
	for _, item := range page.Items {
		d, err := newDelivery(ctx, s.engine, s.hook, item)
		if err != nil {
			return false, err
		}
		if d != nil {
			s.window.add(d)
		}
	}
	s.window.read = page.Next
	return page.More, nil
}

// start starts the deliveries that are due. It returns a channel that fires when more may be due; nil if only a
// result or an event can make one due.
func (s *sending) start(ctx context.Context) <-chan time.Time {
	now := time.Now()
	most := s.hook.Parallel
	if len(s.failing) >= downThreshold {
		most = 1
	}
	for s.inFlight < most {
		if wait := s.pause.Sub(now); wait > 0 {
			return time.After(wait)
		}
		d, wait := s.window.pick(now)
		switch {
		case d == nil && wait > 0:
			return time.After(wait)
		case d == nil:
			return nil
		}
		if d.sending = true; d.tries == 0 {
			d.firstTry = now
		}
		d.tries++
		s.inFlight++
		go func() {
			ctx, cancel := context.WithTimeout(ctx, s.hook.Timeout)
			defer cancel()
			s.results <- result{d, s.to.Send(ctx, d.message)}
		}()
	}
	return nil
}

// handleResult processes the result of a try.
func (s *sending) handleResult(ctx context.Context, got result) error {
	s.inFlight--
	d, now := got.delivery, time.Now()
	d.sending = false
	if got.err == nil {
		s.delivered.Add(1)
		s.window.finish(d)
		s.failures, s.accepted, s.pause = 0, now, time.Time{}
		clear(s.failing)
		return nil
	}
	s.failed.Add(1)
	if s.failures++; s.failures == 1 {
		s.log.WarnContext(ctx, "a message is not accepted; trying again", "message", d.message.ID, "cause", got.err)
	}
	s.failing[d.instance] = true
	answer, _ := errors.AsType[*endpoint.AnswerError](got.err)
	switch {
	case answer != nil && answer.Status == http.StatusGone:
		return errGone
	case d.tries >= s.hook.Tries && (isRefusal(answer) || s.accepted.After(d.firstTry)):
		return s.addDeadLetter(ctx, d, got.err, now)
	}
	d.notBefore = now.Add(backoff(d.tries))
	if len(s.failing) >= downThreshold {
		s.pause = now.Add(backoff(s.failures))
	}
	if answer != nil && answer.RetryAfter > 0 {
		s.pause = now.Add(min(answer.RetryAfter, maxRetryAfter))
	}
	return nil
}

// isRefusal reports whether an answer is about the message, and not about the receiver.
func isRefusal(answer *endpoint.AnswerError) bool {
	return answer != nil && slices.Contains([]int{
		http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	}, answer.Status)
}

// backoff returns the pause after this many failures; it roughly doubles each time.
func backoff(failures int) time.Duration {
	wait := maxPause
	if doubled := min(failures-1, 16); minPause<<doubled < maxPause {
		wait = minPause << doubled
	}
	return wait/2 + rand.N(wait/2+1) //nolint:gosec // not a secret
}

// addDeadLetter turns a delivery into a dead letter, so that the events after it can be sent.
func (s *sending) addDeadLetter(ctx context.Context, d *delivery, cause error, now time.Time) error {
	err := s.store.AddDeadLetter(ctx, store.DeadLetter{
		Cursor: s.hook.Cursor(), Position: d.position, Instance: d.instance, Seq: d.seq, Tries: d.tries, Cause: cause.Error(), At: now.UTC(),
	}, s.lease)
	if err != nil {
		return err //nolint:wrapcheck // the error is already specific
	}
	s.dead.Add(1)
	s.log.ErrorContext(ctx, "a message is not accepted and is now a dead letter", "message", d.message.ID, "tries", d.tries, "cause", cause)
	s.window.finish(d)
	return nil
}

// renew renews the lease before it ends.
func (s *sending) renew(ctx context.Context) error {
	before := time.Now()
	again, err := s.store.TakeLease(ctx, s.lease.Name, s.owner, leaseTime)
	switch {
	case err == nil && again.Number != s.lease.Number:
		*s.lease = again // another process may have sent in between
		return store.ErrLeaseLost
	case err == nil:
		*s.lease, s.leasedAt = again, before
		return nil
	case errors.Is(err, store.ErrLeaseTaken), time.Since(s.leasedAt) > leaseTime:
		return err //nolint:wrapcheck // the error is already specific
	}
	return nil // there is time for another try
}

// moveCursor stores the position up to which everything was delivered.
func (s *sending) moveCursor(ctx context.Context) error {
	to := s.window.passed()
	if to == s.cursor {
		return nil
	}
	err := s.store.MoveCursor(ctx, store.Cursor{Name: s.hook.Cursor(), Position: to, Filter: s.hook.Filter.String()}, s.cursor, s.lease)
	if err == nil {
		s.cursor = to
	}
	return err //nolint:wrapcheck // the error is already specific
}

// end ends the work of a lease. If another process may be sending by now, it cancels the sends in flight.
// Otherwise it waits briefly for them and stores the position reached. Unless the receiver is gone, it first sends
// the newest events, so that a short session leaves nothing to the next one.
func (s *sending) end(ctx, sends context.Context, cancel context.CancelFunc, cause error) {
	mine := ctx.Err() != nil || errors.Is(cause, errGone)
	patience := time.After(closeTimeout)
	if !mine {
		cancel()
	}
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), 2*closeTimeout)
	defer done()
	if mine && !errors.Is(cause, errGone) {
		if _, err := s.readPage(ending); err == nil {
			s.start(sends)
		}
	}
	for s.inFlight > 0 {
		select {
		case got := <-s.results:
			_ = s.handleResult(ending, got) // it is tried again from the cursor
		case <-patience:
			cancel()
		}
	}
	cancel()
	if mine {
		if err := s.moveCursor(ending); err != nil {
			s.log.WarnContext(ending, "cannot store the position of a webhook; some messages will be sent again", "cause", err)
		}
	}
}
