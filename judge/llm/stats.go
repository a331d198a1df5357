package llm

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Stats counts what a Client has done since it was created.
type Stats struct {
	// Questions counts calls of Complete. Replies and Errors count their results, except cancellation by
	// the caller. Calls counts HTTP requests, including those that no caller was still waiting for.
	Questions int           `json:"questions"`
	Replies   int           `json:"replies"`
	Errors    map[Class]int `json:"errors,omitempty"`
	Calls     int           `json:"calls"`
	Retries   int           `json:"retries"`
	Reasked   int           `json:"reasked"`
	CacheHits int           `json:"cacheHits"`
	Shared    int           `json:"shared"`
	Lenient   int           `json:"lenient"`
	// Token counts and CostUSD are the sums of the endpoints' reports, including unusable answers.
	// UnknownUsage counts answers without a report.
	PromptTokens     int          `json:"promptTokens"`
	CompletionTokens int          `json:"completionTokens"`
	CostUSD          float64      `json:"costUSD"`
	UnknownUsage     int          `json:"unknownUsage"`
	Models           []ModelStats `json:"models"`
}

// ModelStats are the statistics of one model.
type ModelStats struct {
	Name         string       `json:"name"`
	Capabilities Capabilities `json:"capabilities"`
	// Breaker is closed, half-open or open. It is also open while the endpoint is known to hang.
	Breaker string `json:"breaker"`
	// DownSince is when the current outage began, or zero.
	DownSince time.Time `json:"downSince,omitzero"`
	// NotBefore and LatchedUntil are zero if no calls are held back.
	NotBefore    time.Time `json:"notBefore,omitzero"`
	Latched      Class     `json:"latched,omitempty"`
	LatchedUntil time.Time `json:"latchedUntil,omitzero"`
	// Muted counts callers that are not served because their answers were mostly unusable.
	Muted int `json:"muted,omitempty"`
	// P50 and P95 are percentiles of the last 128 HTTP requests, including failures.
	P50 time.Duration `json:"-"`
	P95 time.Duration `json:"-"`
	// LastError is the most recent failure, or nil.
	LastError *LastError `json:"lastError,omitempty"`
}

// LastError is a failure and its time.
type LastError struct {
	Class   Class     `json:"class"`
	Message string    `json:"message"`
	Advice  string    `json:"advice,omitempty"`
	At      time.Time `json:"at"`
}

// Stats returns a copy of the counters.
func (c *Client) Stats() Stats {
	s := c.count.copy()
	for _, b := range c.models {
		m := ModelStats{Name: b.Name, Capabilities: b.inner.capabilities(), Breaker: b.breaker.state(), Muted: b.quality.countLatched(), DownSince: b.downSince()}
		if b.late.isDown() {
			m.Breaker = "open"
		}
		if left := b.gate.remaining(); left > 0 {
			m.NotBefore = time.Now().Add(left)
		}
		if fail, until := b.latch.current(); fail != nil {
			m.Latched, m.LatchedUntil = fail.Class, until
		}
		m.P50, m.P95, m.LastError = b.seen.figures()
		s.Models = append(s.Models, m)
	}
	return s
}

type counters struct {
	mu sync.Mutex
	s  Stats
}

func newCounters() *counters { return &counters{s: Stats{Errors: map[Class]int{}}} }

func (c *counters) add(change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.s)
}

func (c *counters) copy() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.s
	s.Errors = maps.Clone(s.Errors)
	return s
}

func (c *counters) count(r Reply, err error) {
	c.add(func(s *Stats) {
		s.Questions++
		if err != nil {
			if fail := asError(err); fail != nil {
				s.Errors[fail.Class]++
			}
			return
		}
		s.Replies++
		switch {
		case r.Shared:
			s.Shared++
		case r.CacheHit:
			s.CacheHits++
		case r.Lenient:
			s.Lenient++
		}
	})
}

// call counts one HTTP request when it is made, because several callers may wait for it and some leave before
// it ends. It also adds the request to the question's bill.
func (c *counters) call(m Model, r Reply, err error, b *bill) {
	used, cost, answered := r.Usage, r.CostUSD, err == nil
	if fail := asError(err); fail != nil {
		used, cost = fail.Usage, m.costOf(fail.Usage)
		answered = fail.Class.Traits().Success
	}
	b.add(used, cost, answered)
	c.add(func(s *Stats) {
		s.Calls++
		switch {
		case used != nil:
			s.PromptTokens += used.Prompt
			s.CompletionTokens += used.Completion
		case answered:
			s.UnknownUsage++
		}
		if cost != nil {
			s.CostUSD += *cost
		}
	})
}

type requestLog struct {
	mu   sync.Mutex
	took [128]time.Duration
	n    int
	last *LastError
}

// wrapObserve counts requests, and records their times and the last failure. Requests that the caller
// cancelled are only counted.
func (l *requestLog) wrapObserve(next Completer, m Model, count *counters) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		began := time.Now()
		reply, err := next.Complete(ctx, req)
		count.call(m, reply, err, billOf(ctx))
		l.mu.Lock()
		defer l.mu.Unlock()
		if isContext(err) {
			return reply, err
		}
		l.took[l.n%len(l.took)] = time.Since(began)
		l.n++
		if fail := asError(err); fail != nil {
			l.last = &LastError{Class: fail.Class, Message: fail.Message, Advice: fail.advice(), At: time.Now()}
		}
		return reply, err
	})
}

func (l *requestLog) figures() (p50, p95 time.Duration, last *LastError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(l.n, len(l.took))
	if n == 0 {
		return 0, 0, l.last
	}
	sorted := slices.Sorted(slices.Values(l.took[:n]))
	return sorted[(n-1)*50/100], sorted[(n-1)*95/100], l.last
}
