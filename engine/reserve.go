package engine

import (
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// cost is what a request takes of the sandbox and of models.
type cost struct {
	worker time.Duration
	tokens int64
}

// What a request is taken to cost as long as nothing dearer was seen of its principal
// within the hour.
const (
	leastWorker = 5 * time.Millisecond
	leastTokens = 500
	tokenBytes  = 4
)

// reserve sets aside what a request is expected to cost, so that requests in flight
// together spend no more than one after the other would. It refuses a request that could
// no longer be paid for. The returned function takes what the request has cost instead.
func (l *ledger) reserve(p Principal, c judge.Case) (settle func(cost), err error) {
	if p.Role != RoleOperator {
		if err := l.bytesLeft(p); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a, most := l.accountOf(p.ID), l.quotas.Load()
	var expected cost
	if runsScripts(c) {
		expected.worker = max(a.dearest.worker, leastWorker)
	}
	if c.Rubric.Enabled && c.Rubric.UseLLM {
		expected.tokens = max(a.dearest.tokens, leastTokens+int64(len(c.Data.Raw())+len(c.Context.Raw()))/tokenBytes)
	}
	worker, tokens := expected.worker > 0 && most.WorkerTime > 0, expected.tokens > 0 && most.ModelTokens > 0
	switch {
	case p.Role == RoleOperator:
	case worker && a.worker >= most.WorkerTime:
		return nil, l.workerSpent(a, most.WorkerTime)
	case tokens && a.tokens >= most.ModelTokens:
		return nil, l.tokensSpent(a, most.ModelTokens)
	case worker && a.worker+a.reserved.worker >= most.WorkerTime:
		return nil, allReserved(CodeWorkerTimeSpent, "time of the sandbox")
	case tokens && a.tokens+a.reserved.tokens >= most.ModelTokens:
		return nil, allReserved(CodeModelTokensSpent, "tokens of models")
	}
	a.requests++
	a.reserved.worker += expected.worker
	a.reserved.tokens += expected.tokens
	return func(took cost) {
		l.mu.Lock()
		defer l.mu.Unlock()
		a.requests--
		a.reserved.worker -= expected.worker
		a.reserved.tokens -= expected.tokens
		a = l.accountOf(p.ID) // begins a new hour when it is time
		a.worker += took.worker
		a.tokens += took.tokens
		a.dearest.worker = max(a.dearest.worker, took.worker)
		a.dearest.tokens = max(a.dearest.tokens, took.tokens)
	}, nil
}

// allReserved is the refusal of who has some left, but not for one more request at once.
func allReserved(code Code, what string) error {
	return &Error{
		Code: code, RetryAfter: time.Second, Message: "Your requests in flight may take all " + what + " that you have left within the hour.",
		Hint: "Wait for their answers, then try again.",
	}
}

// runsScripts reports whether a question goes to the sandbox: for its scripts, or for a
// stranger's schema.
func runsScripts(c judge.Case) bool {
	return len(c.Checks.Validators)+len(c.Checks.Routes) > 0 || !c.Owner.Trusted && len(c.Checks.Schema) > 0
}

// chargeEvents counts events of one commit before they are written, and refuses them to who has
// had too much recorded already. The returned function takes that back when they were not
// written.
func (l *ledger) chargeEvents(events []record.Event) (refund func(), err error) {
	most := l.quotas.Load().Bytes
	if most == 0 {
		return func() {}, nil
	}
	last := events[len(events)-1] // the one that was asked for
	l.mu.Lock()
	defer l.mu.Unlock()
	bound := last.Role != string(RoleOperator) && last.Role != string(clock.Role)
	if a := l.accountOf(last.Principal); bound && a.bytes >= most {
		return nil, l.bytesSpent(a, most)
	}
	add := func(sign int64) {
		for _, ev := range events {
			a := l.accountOf(ev.Principal)
			a.bytes = max(0, a.bytes+sign*int64(len(ev.Body()))) // the hour may have ended between
		}
	}
	add(1)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		add(-1)
	}, nil
}
