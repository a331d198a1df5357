package engine

import (
	"context"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// The minimum expected cost of a request, used until the principal has had a costlier one within the hour.
const (
	minWorkerCost = 5 * time.Millisecond
	minTokenCost  = 500
	tokenBytes    = 4
)

// reserve sets aside the expected cost of a request, so that concurrent requests spend no more than sequential
// ones would. It rejects a request that the remaining budget cannot pay for. The returned function replaces the
// reservation with the actual cost.
func (l *ledger) reserve(ctx context.Context, p Principal, c judge.Case) (pay func(cost), err error) {
	if p.Role != RoleOperator {
		if err := l.share(ctx, p.ID); err != nil {
			return nil, err
		}
	}
	if err := l.checkBudget(ctx, p, budgetBytes); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a, most := l.accountOf(p.ID), l.quotas.Load().limits()
	var expected cost
	if runsScripts(c) {
		expected[budgetWorker] = max(a.maxCost[budgetWorker], int64(minWorkerCost))
	}
	if c.Rubric.Enabled && c.Rubric.UseLLM {
		shown := len(c.Data.Raw()) + len(c.Context.Raw())
		if c.Call != nil {
			shown += len(c.Call.Arguments.Raw())
		}
		expected[budgetTokens] = max(a.maxCost[budgetTokens], minTokenCost+int64(shown)/tokenBytes)
	}
	for b, n := range expected {
		switch {
		case n == 0 || most[b] == 0 || p.Role == RoleOperator:
		case a.spent[b] >= most[b]:
			return nil, l.spentError(a, budget(b))
		case a.spent[b]+a.reserved[b] >= most[b]:
			return nil, fullyReservedError(budget(b))
		}
	}
	a.requests++
	for b, n := range expected {
		a.reserved[b] += n
	}
	return func(took cost) {
		l.mu.Lock()
		defer l.mu.Unlock()
		a.requests--
		for b, n := range expected {
			a.reserved[b] -= n
		}
		a = l.accountOf(p.ID) // begins a new hour if due
		for b, n := range took {
			l.spend(p.ID, a, budget(b), n)
			a.maxCost[b] = max(a.maxCost[b], n)
		}
	}, nil
}

func fullyReservedError(b budget) error {
	code, what := CodeWorkerTimeSpent, "sandbox time"
	if b == budgetTokens {
		code, what = CodeModelTokensSpent, "model tokens"
	}
	return &Error{
		Code: code, RetryAfter: time.Second, Message: "Your requests in flight may use up all " + what + " that you have left within the hour.",
		Hint: "Wait for their answers, then try again.",
	}
}

// runsScripts reports whether a case needs the sandbox: for its scripts, or for a schema that does not
// come from a trusted owner.
func runsScripts(c judge.Case) bool {
	return len(c.Checks.Validators)+len(c.Checks.Routes) > 0 || !c.Owner.Trusted && len(c.Checks.Schema) > 0
}

// chargeEvents charges the events of a commit before they are written. It rejects them if the principal's
// quota is used up. The returned function refunds the charge if they were not written.
func (l *ledger) chargeEvents(events []record.Event) (refund func(), err error) {
	most := l.quotas.Load().Bytes
	if most == 0 {
		return func() {}, nil
	}
	last := events[len(events)-1] // the event that the request is for
	l.mu.Lock()
	defer l.mu.Unlock()
	bound := last.Role != string(RoleOperator) && last.Role != string(deadlinePrincipal.Role)
	if a := l.accountOf(last.Principal); bound && a.spent[budgetBytes] >= most {
		return nil, l.spentError(a, budgetBytes)
	}
	add := func(sign int64) {
		for _, ev := range events {
			l.spend(ev.Principal, l.accountOf(ev.Principal), budgetBytes, sign*int64(len(ev.Body())))
		}
	}
	add(1)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		add(-1)
	}, nil
}
