package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// shareEvery is how often the processes over a store tell each other what a principal has spent.
const shareEvery = time.Second

// sharedPlaces is by how much a process takes fewer of the starts that are free than there are: as
// many processes can count at the same time without giving out more together.
const sharedPlaces = 8

// spend counts what was spent of a principal's account, or with less than 0 what was not. The caller
// holds the lock.
func (l *ledger) spend(principal string, a *account, b budget, n int64) {
	a.spent[b] = max(0, a.spent[b]+n) // the hour may have ended between
	if n == 0 || !l.quotas.Load().Shared {
		return
	}
	if a.unsent[b] += n; !a.sending {
		a.sending = true
		time.AfterFunc(shareEvery, func() {
			l.mu.Lock()
			a.sending, a.shared = false, time.Time{}
			l.mu.Unlock()
			_ = l.share(context.Background(), principal) // what is not sent now is with the next request
		})
	}
}

// share adds what a principal has spent here to what all processes count, and takes over the sum.
func (l *ledger) share(ctx context.Context, principal string) error {
	send, due := l.takeUnsent(principal)
	if !due {
		return nil
	}
	var all []store.Addition
	for b, n := range send {
		all = append(all, store.Addition{Name: fmt.Sprint("quota ", b, " ", principal), Add: n, Lasts: accountTime})
	}
	counts, err := l.counters.Count(ctx, all...)
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountOf(principal)
	if err != nil {
		a.shared = time.Time{}
		for b, n := range send {
			a.unsent[b] += n
		}
		return StoreError("count what you have used", err)
	}
	for b, c := range counts {
		a.spent[b] = max(0, c.N+a.unsent[b])
	}
	a.since = l.now().Add(counts[0].Left - accountTime)
	return nil
}

// takeUnsent takes what is to be sent; due is false where that was done a moment ago.
func (l *ledger) takeUnsent(principal string) (send cost, due bool) {
	if !l.quotas.Load().Shared {
		return cost{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accountOf(principal)
	if time.Since(a.shared) < shareEvery {
		return cost{}, false
	}
	send, a.unsent, a.shared = a.unsent, cost{}, time.Now()
	return send, true
}
