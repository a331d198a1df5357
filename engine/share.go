package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// shareInterval is how often the processes over a store exchange the amounts that a principal has spent.
const shareInterval = time.Second

// freeStartDivisor divides the free starts that a process takes after a count. Otherwise, processes that count at
// the same time could each take all of them.
const freeStartDivisor = 8

// spend adds n to an account; a negative n is a refund. Callers must hold the lock.
func (l *ledger) spend(principal string, a *account, b budget, n int64) {
	a.spent[b] = max(0, a.spent[b]+n) // the hour may have ended since the charge
	if n == 0 || !l.quotas.Load().Shared {
		return
	}
	if a.unsent[b] += n; !a.isSharing {
		a.isSharing = true
		time.AfterFunc(shareInterval, func() {
			l.mu.Lock()
			a.isSharing, a.sharedAt = false, time.Time{}
			l.mu.Unlock()
			_ = l.share(context.Background(), principal) // on failure, the next request sends it
		})
	}
}

// share adds a principal's unsent amounts to the shared counters, and adopts their sum.
func (l *ledger) share(ctx context.Context, principal string) error {
	send, due := l.takeUnsent(principal)
	if !due {
		return nil
	}
	var all []store.Addition
	for b, n := range send {
		all = append(all, store.Addition{Name: fmt.Sprint("quota ", b, " ", principal), Add: n, Lifetime: accountTime})
	}
	counts, err := l.counters.Count(ctx, all...)
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountOf(principal)
	if err != nil {
		a.sharedAt = time.Time{}
		for b, n := range send {
			a.unsent[b] += n
		}
		return StoreError("update your quota usage", err)
	}
	for b, c := range counts {
		a.spent[b] = max(0, c.N+a.unsent[b])
	}
	a.since = l.now().Add(counts[0].Left - accountTime)
	return nil
}

// takeUnsent takes the amounts to send; due is false if the last exchange was less than shareInterval ago.
func (l *ledger) takeUnsent(principal string) (send cost, due bool) {
	if !l.quotas.Load().Shared {
		return cost{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountOf(principal)
	if time.Since(a.sharedAt) < shareInterval {
		return cost{}, false
	}
	send, a.unsent, a.sharedAt = a.unsent, cost{}, time.Now()
	return send, true
}
