package eval

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/judge"
)

// A drift begins when at least driftBegins of the last canaryWindow answers to canaries are wrong. It ends when at most
// driftEnds of them are wrong.
const (
	canaryWindow = 20
	driftBegins  = 3
	driftEnds    = 1
)

// CanaryConfig sets up Canaries. All fields are required.
type CanaryConfig struct {
	// Cases are asked in rotation. The judge is known to answer them correctly. They include bad twins (see TagTwin),
	// which must not be approved.
	Cases []Case
	// Rate is the number of canaries per decision, above 0 and at most 1.
	Rate float64
	// Ask puts a case to the judge. A Result with a Failure, or without an answer from a model, counts as unanswered.
	Ask func(context.Context, Case) Result
	// Watch is called when a drift begins and when it ends.
	Watch func(Drift)
}

// Drift summarises the last answers to canaries.
type Drift struct {
	// Since is when the drift began, zero if there is none. Over reports that it has just ended.
	Since time.Time
	Over  bool
	// Answers is how many answers were considered; WrongApprovals and WrongRefusals are the wrong ones among them.
	Answers, WrongApprovals, WrongRefusals int
	// Case is the id of the last case that the judge answered wrong.
	Case string
}

// CanaryStats counts all canaries so far by result; Drift summarises the last answers.
type CanaryStats struct {
	Right, WrongApprovals, WrongRefusals, Unanswered uint64
	Drift                                            Drift
}

// Canaries asks a judge known cases in the background, one at a time, while the judge decides. It asks Rate canaries
// per decision, and none while there are no decisions. A canary that becomes due while another one is waiting is
// dropped.
type Canaries struct {
	cfg  CanaryConfig
	due  chan struct{}
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	credit float64
	last   []answerOf // newest last
	stats  CanaryStats
}

type answerOf struct{ wrongApproval, wrongRefusal bool }

// StartCanaries starts asking. Callers must call Close.
func StartCanaries(cfg CanaryConfig) (*Canaries, error) {
	switch {
	case cfg.Ask == nil || cfg.Watch == nil:
		return nil, errors.New("eval: CanaryConfig.Ask and Watch are required")
	case len(cfg.Cases) == 0:
		return nil, errors.New("eval: there are no canaries")
	case !(cfg.Rate > 0 && cfg.Rate <= 1):
		return nil, fmt.Errorf("eval: the rate of canaries is %v, must be above 0 and at most 1", cfg.Rate)
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Canaries{cfg: cfg, due: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for next := 0; ; next = (next + 1) % len(cfg.Cases) {
			select {
			case <-c.due:
				one := cfg.Cases[next]
				if r := cfg.Ask(ctx, one); ctx.Err() == nil {
					c.note(one, r)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return c, nil
}

// Close stops asking, and cancels the question in progress. Calling it on nil has no effect.
func (c *Canaries) Close() {
	if c != nil {
		c.stop()
		<-c.done
	}
}

// Judged records that a model has judged a decision. It never blocks.
func (c *Canaries) Judged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.credit += c.cfg.Rate; c.credit < 1 {
		return
	}
	c.credit--
	select {
	case c.due <- struct{}{}:
	default: // one is already waiting
	}
}

// Stats returns a copy of the counts.
func (c *Canaries) Stats() CanaryStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *Canaries) note(asked Case, r Result) {
	c.mu.Lock()
	if r.Failure != "" || r.Approval == nil && r.Calls == 0 {
		c.stats.Unanswered++
		c.mu.Unlock()
		return
	}
	was, d := c.stats.Drift, &c.stats.Drift
	a := answerOf{
		wrongApproval: r.Outcome == judge.Approve && asked.Expect.Outcome != judge.Approve,
		wrongRefusal:  r.Outcome != judge.Approve && asked.Expect.Outcome == judge.Approve,
	}
	switch {
	case a.wrongApproval:
		c.stats.WrongApprovals++
		d.Case = asked.ID
	case a.wrongRefusal:
		c.stats.WrongRefusals++
		d.Case = asked.ID
	default:
		c.stats.Right++
	}
	c.last = append(c.last, a)
	c.last = c.last[max(len(c.last)-canaryWindow, 0):]
	d.Answers, d.WrongApprovals, d.WrongRefusals = len(c.last), 0, 0
	for _, a := range c.last {
		if a.wrongApproval {
			d.WrongApprovals++
		}
		if a.wrongRefusal {
			d.WrongRefusals++
		}
	}
	wrong := d.WrongApprovals + d.WrongRefusals
	var tell *Drift
	switch {
	case was.Since.IsZero() && wrong >= driftBegins:
		d.Since = time.Now()
		tell = new(*d)
	case !was.Since.IsZero() && wrong <= driftEnds:
		tell = new(*d)
		tell.Over = true
		d.Since = time.Time{}
	}
	c.mu.Unlock()
	if tell != nil {
		c.cfg.Watch(*tell)
	}
}
