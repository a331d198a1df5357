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

// The times of a sender.
const (
	leaseTime  = 15 * time.Second
	renewEvery = leaseTime / 3
	retryEvery = 5 * time.Second // to take the lease, and after an error of the store
	moveEvery  = time.Second     // the cursor, and sooner after moveAfter positions
	closeTime  = 2 * time.Second // for what is on its way at the end

	firstPause = time.Second     // after the first failure; each further one doubles it
	maxPause   = 5 * time.Minute // but for a receiver that asks for more
	maxAsked   = time.Hour       // of what it may ask for

	// moveAfter bounds what a killed process sends again.
	moveAfter = 64

	// downAfter is of how many instances messages fail, with none accepted between, until a
	// receiver counts as down: then it gets one message at a time, to see.
	downAfter = 3
)

// unknownPlace stands for a position that the store could not tell.
const unknownPlace = -1

// Receiver is sent a message once.
type Receiver interface {
	Send(ctx context.Context, m endpoint.Message) error
	Close()
}

// sender sends to one webhook.
type sender struct {
	hook   Webhook
	to     Receiver
	engine *engine.Engine
	store  Store
	owner  string
	log    *slog.Logger

	began                   int64 // the end of the log when the exporter started, or unknownPlace
	sending                 atomic.Bool
	delivered, failed, dead atomic.Uint64
}

func newSender(x *Exporter, h Webhook, to Receiver) *sender {
	return &sender{
		hook: h, to: to, engine: x.engine, store: x.store, owner: x.owner,
		log: x.log.With("webhook", h.Name, "to", h.To()),
	}
}

// errGone: the receiver answered that it wants no more.
var errGone = errors.New("the receiver answered 410: it wants no more messages")

// run sends while this process has the lease, until ctx ends.
func (s *sender) run(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := s.store.TakeLease(ctx, s.hook.Cursor(), s.owner, leaseTime)
		if err == nil {
			s.sending.Store(true)
			err = s.send(ctx, &lease)
			s.sending.Store(false)
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
			_ = s.store.EndLease(ending, lease) // else it ends by itself
			cancel()
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errGone):
			s.log.ErrorContext(ctx, "nothing more is sent until the webhook changes or gavel starts anew", "cause", err)
			<-ctx.Done()
			return
		case errors.Is(err, store.ErrLeaseTaken), errors.Is(err, store.ErrLeaseLost), errors.Is(err, store.ErrConflict):
		default:
			s.log.WarnContext(ctx, "cannot read or keep the place of a webhook; trying again", "cause", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// findPlace is the cursor, made where it is missing.
func (s *sender) findPlace(ctx context.Context, lease *store.Lease) (position int64, err error) {
	all, err := s.store.Cursors(ctx)
	if err != nil {
		return 0, err
	}
	if at := slices.IndexFunc(all, func(c store.Cursor) bool { return c.Name == s.hook.Cursor() }); at >= 0 {
		return all[at].Position, nil
	}
	if !s.hook.FromStart {
		if position = s.began; position == unknownPlace {
			if position, err = s.store.LastPosition(ctx); err != nil {
				return 0, err
			}
		}
	}
	return position, s.store.MoveCursor(ctx, store.Cursor{Name: s.hook.Cursor(), Position: position, Filter: s.hook.Filter.String()}, store.NoCursor, lease)
}

// sending is one run of a sender under one lease.
type sending struct {
	*sender
	lease   *store.Lease
	taken   time.Time // the lease, by this process's clock
	window  *window
	moved   int64 // where the cursor is
	results chan result
	flying  int

	failures int             // in a row
	failing  map[string]bool // instances of these failures
	accepted time.Time       // when a message was accepted last
	pause    time.Time       // nothing is sent before
}

type result struct {
	*delivery
	err error
}

// send delivers what is behind the cursor until ctx or the lease ends, or the store fails.
func (s *sender) send(ctx context.Context, lease *store.Lease) (err error) {
	position, err := s.findPlace(ctx, lease)
	if err != nil {
		return err
	}
	sends, cancel := context.WithCancel(context.WithoutCancel(ctx))
	run := &sending{
		sender: s, lease: lease, taken: time.Now(), window: newWindow(position), moved: position, results: make(chan result), failing: map[string]bool{},
	}
	defer func() { run.end(ctx, sends, cancel, err) }()
	follower := s.engine.Feed().Follow(-1)
	defer follower.Leave()
	renew, move := time.NewTicker(renewEvery), time.NewTicker(moveEvery)
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
			if err = run.take(ctx, r); err == nil && run.window.passed()-run.moved >= moveAfter {
				err = run.moveCursor(ctx)
			}
		case <-changed:
			// Asked for anew only here: it may be closed while another case is being handled.
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

// header is what a sender reads of an event; see engine.EventView.
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

// payload is a message in the form of Standard Webhooks.
type payload struct {
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// newDelivery is an event as it is sent to a webhook, nil where that does not get it.
func newDelivery(ctx context.Context, e *engine.Engine, hook Webhook, item engine.FeedItem) (*delivery, error) {
	var h header
	if err := json.Unmarshal(item.JSON, &h); err != nil {
		return nil, fmt.Errorf("read the event at %d: %w", item.Position, err)
	}
	if !hook.Filter.selects(h) {
		return nil, nil //nolint:nilnil // most may be for others
	}
	p, id := payload{Type: "workflow." + string(h.Kind), Timestamp: h.Time, Data: item.JSON}, h.Instance+"_"+strconv.FormatInt(h.Seq, 10)
	if hook.Reviews {
		var err error
		if p, id, err = newNotice(ctx, e, viewer(hook), h); err != nil || id == "" {
			return nil, err
		}
	}
	body, err := document.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode the event at %d: %w", item.Position, err)
	}
	return &delivery{position: item.Position, instance: h.Instance, seq: h.Seq, message: endpoint.Message{ID: id, Body: body}}, nil
}

// viewer is as whom a webhook sees events.
func viewer(h Webhook) engine.Principal {
	return engine.Principal{ID: h.Cursor(), Role: engine.RoleAuditor}
}

// readPage reads what follows into the window, and whether there is more.
func (r *sending) readPage(ctx context.Context) (more bool, err error) {
	page, err := r.engine.Feed().Page(ctx, viewer(r.hook), engine.TailRequest{After: r.window.read})
	if err != nil {
		return false, err //nolint:wrapcheck // it says what failed
	}
	for _, item := range page.Items {
		d, err := newDelivery(ctx, r.engine, r.hook, item)
		if err != nil {
			return false, err
		}
		if d != nil {
			r.window.add(d)
		}
	}
	r.window.read = page.Next
	return page.More, nil
}

// start starts the deliveries whose turn it is, and returns what tells that there may be others;
// nil where only a result or an event can.
func (r *sending) start(ctx context.Context) <-chan time.Time {
	now := time.Now()
	most := r.hook.Parallel
	if len(r.failing) >= downAfter {
		most = 1
	}
	for r.flying < most {
		if wait := r.pause.Sub(now); wait > 0 {
			return time.After(wait)
		}
		d, wait := r.window.pick(now)
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
		r.flying++
		go func() {
			ctx, cancel := context.WithTimeout(ctx, r.hook.Timeout)
			defer cancel()
			r.results <- result{d, r.to.Send(ctx, d.message)}
		}()
	}
	return nil
}

// take takes in what became of a try.
func (r *sending) take(ctx context.Context, got result) error {
	r.flying--
	d, now := got.delivery, time.Now()
	d.sending = false
	if got.err == nil {
		r.delivered.Add(1)
		r.window.finish(d)
		r.failures, r.accepted, r.pause = 0, now, time.Time{}
		clear(r.failing)
		return nil
	}
	r.failed.Add(1)
	if r.failures++; r.failures == 1 {
		r.log.WarnContext(ctx, "a message is not accepted; trying again", "message", d.message.ID, "cause", got.err)
	}
	r.failing[d.instance] = true
	answer, _ := errors.AsType[*endpoint.AnswerError](got.err)
	switch {
	case answer != nil && answer.Status == http.StatusGone:
		return errGone
	case d.tries >= r.hook.Tries && (isRefusal(answer) || r.accepted.After(d.firstTry)):
		return r.bury(ctx, d, got.err, now)
	}
	d.notBefore = now.Add(backoff(d.tries))
	if len(r.failing) >= downAfter {
		r.pause = now.Add(backoff(r.failures))
	}
	if answer != nil && answer.RetryAfter > 0 {
		r.pause = now.Add(min(answer.RetryAfter, maxAsked))
	}
	return nil
}

// isRefusal reports whether an answer is about the message, and not about the receiver.
func isRefusal(answer *endpoint.AnswerError) bool {
	return answer != nil && slices.Contains([]int{
		http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	}, answer.Status)
}

// backoff is how long to wait after so many failures: about twice as long after each.
func backoff(failures int) time.Duration {
	wait := maxPause
	if doubled := min(failures-1, 16); firstPause<<doubled < maxPause {
		wait = firstPause << doubled
	}
	return wait/2 + rand.N(wait/2+1) //nolint:gosec // not a secret
}

// bury makes a dead letter of a delivery, so that what follows it goes on.
func (r *sending) bury(ctx context.Context, d *delivery, cause error, now time.Time) error {
	err := r.store.AddDeadLetter(ctx, store.DeadLetter{
		Cursor: r.hook.Cursor(), Position: d.position, Instance: d.instance, Seq: d.seq, Tries: d.tries, Cause: cause.Error(), At: now.UTC(),
	}, r.lease)
	if err != nil {
		return err //nolint:wrapcheck // it says what failed
	}
	r.dead.Add(1)
	r.log.ErrorContext(ctx, "a message is not accepted and is now a dead letter", "message", d.message.ID, "tries", d.tries, "cause", cause)
	r.window.finish(d)
	return nil
}

// renew takes the lease again in time.
func (r *sending) renew(ctx context.Context) error {
	before := time.Now()
	again, err := r.store.TakeLease(ctx, r.lease.Name, r.owner, leaseTime)
	switch {
	case err == nil && again.Number != r.lease.Number:
		*r.lease = again // somebody else may have sent between
		return store.ErrLeaseLost
	case err == nil:
		*r.lease, r.taken = again, before
		return nil
	case errors.Is(err, store.ErrLeaseTaken), time.Since(r.taken) > leaseTime:
		return err //nolint:wrapcheck // it says what failed
	}
	return nil // there is time for another try
}

// moveCursor notes in the store what is delivered.
func (r *sending) moveCursor(ctx context.Context) error {
	to := r.window.passed()
	if to == r.moved {
		return nil
	}
	err := r.store.MoveCursor(ctx, store.Cursor{Name: r.hook.Cursor(), Position: to, Filter: r.hook.Filter.String()}, r.moved, r.lease)
	if err == nil {
		r.moved = to
	}
	return err //nolint:wrapcheck // it says what failed
}

// end waits a little for what is on its way, unless somebody else may send by now, and notes how
// far it came. What was committed last is sent before, so that a short session leaves nothing for the next one.
func (r *sending) end(ctx, sends context.Context, cancel context.CancelFunc, cause error) {
	mine := ctx.Err() != nil || errors.Is(cause, errGone)
	patience := time.After(closeTime)
	if !mine {
		cancel()
	}
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), 2*closeTime)
	defer done()
	if mine && !errors.Is(cause, errGone) {
		if _, err := r.readPage(ending); err == nil {
			r.start(sends)
		}
	}
	for r.flying > 0 {
		select {
		case got := <-r.results:
			_ = r.take(ending, got) // it is tried again from the cursor on
		case <-patience:
			cancel()
		}
	}
	cancel()
	if mine {
		if err := r.moveCursor(ending); err != nil {
			r.log.WarnContext(ending, "cannot keep the place of a webhook; some messages will be sent again", "cause", err)
		}
	}
}
