// Package notify tells an address or a program of the operator's that a move waits for a
// person, and that nobody decided it in time.
//
// It promises that what it tells was committed by this process, that a message is tried a
// bounded number of times, that no move ever waits for it, and that a message holds ids, names
// and codes: no data, no context, nothing that a model or a script wrote. It does not promise
// that a message arrives, or arrives once: who has to know asks for the list of reviews.
//
// It must never run a shell, or put the address, which may be a secret, into a log.
package notify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/webhook"
)

// Config says who is told. The zero value tells nobody.
type Config struct {
	// URL gets each message by POST.
	URL string
	// Secret signs what URL gets, in the form of Standard Webhooks: whsec_ and base64.
	Secret string
	// Command is run for each message, which it reads from stdin: a program and its arguments.
	Command []string
	// Run runs a command with an input, without a shell. It is required with Command.
	Run func(ctx context.Context, argv []string, input []byte) error
	// Logger is told of messages that did not arrive.
	Logger *slog.Logger
}

const (
	queueLength = 256              // messages that wait, for each target
	workers     = 4                // messages on their way to an address at once; a command runs alone
	tryTime     = 10 * time.Second // for one try
	closeTime   = 2 * time.Second  // for all that waits at the end
)

// pauses are the times between tries.
var pauses = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}

// Notifier tells what the engine commits. It is an engine.Observer; a nil one tells nobody.
type Notifier struct {
	targets []*target
	log     *slog.Logger
	end     context.CancelFunc // of tries
	closing chan struct{}

	mu     sync.RWMutex // guards closed, and the queues against being closed
	closed bool
	ended  sync.WaitGroup

	arrived, failed, dropped atomic.Uint64
}

// target is one place that messages go to.
type target struct {
	name    string // for logs
	queue   chan webhook.Message
	workers int
	send    func(context.Context, webhook.Message) error
}

// New returns a Notifier, nil where cfg names no target. The error says what is wrong with cfg.
func New(cfg Config) (*Notifier, error) {
	if cfg.URL == "" && len(cfg.Command) == 0 {
		if cfg.Secret != "" {
			return nil, errors.New("a secret signs what an address gets, and no address is named")
		}
		return nil, nil //nolint:nilnil // nobody is told: a valid, common answer
	}
	ctx, end := context.WithCancel(context.Background())
	n := &Notifier{log: cfg.Logger, end: end, closing: make(chan struct{})}
	if cfg.URL != "" {
		var secrets []string
		if cfg.Secret != "" {
			secrets = []string{cfg.Secret}
		}
		// The address is the operator's: it may be in a private network.
		to, err := webhook.NewEndpoint(cfg.URL, true, nil, secrets...)
		if err != nil {
			end()
			return nil, err
		}
		n.targets = append(n.targets, &target{name: webhook.Host(cfg.URL), workers: workers, send: to.Send})
	}
	if len(cfg.Command) > 0 {
		n.targets = append(n.targets, &target{name: cfg.Command[0], workers: 1, send: func(ctx context.Context, m webhook.Message) error {
			return cfg.Run(ctx, cfg.Command, append(bytes.Clone(m.Body), '\n'))
		}})
	}
	for _, t := range n.targets {
		t.queue = make(chan webhook.Message, queueLength)
		for range t.workers {
			n.ended.Go(func() {
				for m := range t.queue {
					n.deliver(ctx, t, m)
				}
			})
		}
	}
	return n, nil
}

// Stats are figures since the start.
type Stats struct {
	// Arrived and Failed messages were tried; Dropped ones were not, as too many waited.
	Arrived, Failed, Dropped uint64
}

// Stats returns the figures; those of a nil Notifier are zero.
func (n *Notifier) Stats() Stats {
	if n == nil {
		return Stats{}
	}
	return Stats{n.arrived.Load(), n.failed.Load(), n.dropped.Load()}
}

// Changed implements engine.Observer.
func (*Notifier) Changed(context.Context, record.Instance) {}

// Unrecorded implements engine.Observer.
func (*Notifier) Unrecorded(context.Context, record.Event) {}

// Committed implements engine.Observer: it puts what is to be told into the queues.
func (n *Notifier) Committed(_ context.Context, events []record.Event) {
	for i := range events {
		m, ok := newMessage(&events[i])
		if !ok {
			continue
		}
		for _, t := range n.targets {
			n.enqueue(t, m)
		}
	}
}

func (n *Notifier) enqueue(t *target, m webhook.Message) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if !n.closed {
		select {
		case t.queue <- m:
			return
		default:
		}
	}
	n.dropped.Add(1)
	n.log.Warn("a notification is dropped: too many wait, or the process ends", "to", t.name, "notification", m.ID)
}

// Close lets what waits be tried once more, for two seconds at most, and ends.
func (n *Notifier) Close() {
	if n == nil {
		return
	}
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.closed = true
	close(n.closing)
	for _, t := range n.targets {
		close(t.queue)
	}
	n.mu.Unlock()
	defer time.AfterFunc(closeTime, n.end).Stop()
	n.ended.Wait()
	n.end()
}

// deliver tries to tell a message until it arrives, or was tried often enough.
func (n *Notifier) deliver(ctx context.Context, t *target, m webhook.Message) {
	for try := 0; ; try++ {
		err := n.try(ctx, t, m)
		if err == nil {
			n.arrived.Add(1)
			return
		}
		if try == len(pauses) || !n.pause(pauses[try]) {
			n.failed.Add(1)
			n.log.Warn("a notification did not arrive", "to", t.name, "notification", m.ID, "tries", try+1, "cause", err)
			return
		}
	}
}

func (n *Notifier) try(ctx context.Context, t *target, m webhook.Message) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	return t.send(ctx, m)
}

// pause reports whether there is time for another try.
func (n *Notifier) pause(d time.Duration) bool {
	select {
	case <-n.closing:
		return false
	case <-time.After(d):
		return true
	}
}

// The types of messages.
const (
	typeOpened  = "review.opened"  // a move waits for a person
	typeExpired = "review.expired" // nobody decided it in time, and it is over
	typeRaised  = "review.raised"  // nobody decided it in time, and it waits on as urgent
)

// payload is a message in the form of Standard Webhooks.
type payload struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      subject   `json:"data"`
}

// subject names the review, in the words of the REST API.
type subject struct {
	ReviewID    string `json:"reviewId"`
	WorkflowID  string `json:"id"` // the instance
	Workflow    string `json:"workflow"`
	Version     int    `json:"version"`
	State       string `json:"state"`
	Action      string `json:"action"`
	RequestedBy string `json:"requestedBy"`
	// Reason is the code of why a person is asked, of an opened one.
	Reason    string          `json:"reason,omitempty"`
	Priority  record.Priority `json:"priority,omitempty"`
	ExpiresAt time.Time       `json:"expiresAt,omitzero"`
}

// newMessage is what an event is told as, with an id that is the same for every process that would
// tell the same; false where there is nothing to tell.
func newMessage(ev *record.Event) (webhook.Message, bool) {
	if ev.Review == nil {
		return webhook.Message{}, false
	}
	p := payload{Timestamp: ev.Time, Data: subject{
		ReviewID: ev.Review.ID, WorkflowID: ev.Instance, Workflow: ev.Workflow, Version: ev.Version, State: cmp.Or(ev.From, ev.To),
		Action: ev.Action, RequestedBy: ev.Review.RequestedBy, Priority: ev.Review.Priority, ExpiresAt: ev.Review.ExpiresAt,
	}}
	switch {
	case ev.Kind == record.Escalated && ev.Decision != nil:
		p.Type, p.Data.Reason = typeOpened, ev.Decision.Code
	case ev.Kind == record.Settled && ev.Review.Status == record.ReviewOpen:
		p.Type, p.Data.Reason = typeOpened, "call_unknown"
	case ev.Kind == record.Reviewed && ev.Review.Status == record.ReviewExpired:
		p.Type = typeExpired
	case ev.Kind == record.Reviewed && ev.Review.Status == record.ReviewOpen:
		p.Type = typeRaised
	default:
		return webhook.Message{}, false
	}
	body, err := json.Marshal(p)
	if err != nil {
		return webhook.Message{}, false // strings, numbers and times always encode
	}
	return webhook.Message{ID: ev.Review.ID + "." + strings.TrimPrefix(p.Type, "review."), Body: body}, true
}
