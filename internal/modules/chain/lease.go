package chain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// DefaultLease is how long a process may be silent before others take up its runs.
const DefaultLease = 15 * time.Second

// leaseName is the lease of an executor.
func leaseName(executor string) string { return "chain executor " + executor }

// executorLease is the lease under which this process executes runs, and takes up those of others. A nil one is always held.
type executorLease struct {
	leases store.Leases
	length time.Duration

	mu      sync.Mutex
	lease   store.Lease
	asked   time.Time     // when it was asked for last and given
	renewed chan struct{} // closed and replaced at each renewal
	lost    chan struct{} // closed once another process has had it
}

// errLeaseLost reports that another process may have taken up the runs of this one.
var errLeaseLost = errors.New("another process has taken up the runs of this one")

func takeExecutorLease(ctx context.Context, leases store.Leases, executor string, length time.Duration) (*executorLease, error) {
	asked := time.Now()
	taken, err := leases.TakeLease(ctx, leaseName(executor), executor, length)
	if err != nil {
		return nil, fmt.Errorf("say which process runs chains: %w", err)
	}
	return &executorLease{leases: leases, length: length, lease: taken, asked: asked, renewed: make(chan struct{}), lost: make(chan struct{})}, nil
}

// isHeld reports whether the lease has surely not ended. A tenth of it is left for what is done next.
// The time is that of both clocks: one of them stands still while a machine sleeps.
func (l *executorLease) isHeld(now time.Time) bool {
	elapsed := max(now.Sub(l.asked), now.Round(0).Sub(l.asked.Round(0)))
	return elapsed < l.length-l.length/10
}

// confirm returns the lease while it is held. Where that is not certain it waits for the next renewal.
// Errors: errLeaseLost, and ctx's.
func (l *executorLease) confirm(ctx context.Context) (*store.Lease, error) {
	if l == nil {
		return nil, ctx.Err()
	}
	for {
		l.mu.Lock()
		lease, held, renewed := l.lease, l.isHeld(time.Now()), l.renewed
		l.mu.Unlock()
		select {
		case <-l.lost:
			return nil, errLeaseLost
		case <-ctx.Done():
			return nil, ctx.Err()
		default:
		}
		if held {
			return &lease, nil
		}
		select {
		case <-renewed:
		case <-l.lost:
		case <-ctx.Done():
		}
	}
}

// keep renews the lease until ctx ends or it is lost.
func (l *executorLease) keep(ctx context.Context) {
	tick := time.NewTicker(l.length / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l.renew(ctx) {
			return
		}
	}
}

// renew takes the lease again; lost where another process has had it in between.
func (l *executorLease) renew(ctx context.Context) (lost bool) {
	ctx, cancel := context.WithTimeout(ctx, l.length/2)
	defer cancel()
	asked := time.Now()
	again, err := l.leases.TakeLease(ctx, l.lease.Name, l.lease.Owner, l.length)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && (again.Number == l.lease.Number || again.Number == l.lease.Number+1): // one more where it had ended, and nobody took it
		l.lease, l.asked = again, asked
		close(l.renewed)
		l.renewed = make(chan struct{})
		return false
	case err == nil:
		l.lease = again // to be given back
	case !errors.Is(err, store.ErrLeaseTaken):
		return false // the store is away
	}
	close(l.lost)
	return true
}

// leaseKept is how long the lease of an executor is kept after its end. A process that comes back later is a new one.
const leaseKept = time.Hour

// dropLeases forgets the leases of executors that have ended: each start of a process makes one.
func (r *Runs) dropLeases(ctx context.Context) error {
	if r.config.Leases == nil {
		return nil
	}
	if err := r.config.Leases.DropLeases(ctx, leaseName(""), leaseKept); err != nil {
		return fmt.Errorf("forget which processes ran chains: %w", err)
	}
	return nil
}

// end gives the lease back, so that others need not wait for its end.
func (l *executorLease) end() {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.length)
	defer cancel()
	l.mu.Lock()
	lease := l.lease
	l.mu.Unlock()
	_ = l.leases.EndLease(ctx, lease) // else it ends by itself
}
