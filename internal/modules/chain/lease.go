package chain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// DefaultLease is how long a process may be silent before other processes take over its runs.
const DefaultLease = 15 * time.Second

// leaseName returns the name of an executor's lease.
func leaseName(executor string) string { return "chain executor " + executor }

// executorLease is the lease under which this process executes runs and adopts those of others. A nil lease
// counts as always held.
type executorLease struct {
	leases store.Leases
	length time.Duration

	mu      sync.Mutex
	lease   store.Lease
	asked   time.Time     // when the current lease was requested
	renewed chan struct{} // closed and replaced at each renewal
	lost    chan struct{} // closed once another process has held the lease
}

// errLeaseLost reports that another process may have taken over the runs of this one.
var errLeaseLost = errors.New("another process has taken over the runs of this one")

func takeExecutorLease(ctx context.Context, leases store.Leases, executor string, length time.Duration) (*executorLease, error) {
	asked := time.Now()
	taken, err := leases.TakeLease(ctx, leaseName(executor), executor, length)
	if err != nil {
		return nil, fmt.Errorf("record which process runs chains: %w", err)
	}
	return &executorLease{leases: leases, length: length, lease: taken, asked: asked, renewed: make(chan struct{}), lost: make(chan struct{})}, nil
}

// isHeld reports whether the lease is certainly still held. It reserves a tenth of the lease for the next
// operation. It uses both the monotonic and the wall clock, because one of them stops while a machine
// sleeps.
func (l *executorLease) isHeld(now time.Time) bool {
	elapsed := max(now.Sub(l.asked), now.Round(0).Sub(l.asked.Round(0)))
	return elapsed < l.length-l.length/10
}

// confirm returns the lease while it is held. If that is uncertain, it waits for the next renewal. The
// error is errLeaseLost or that of ctx.
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

// renew takes the lease again. It reports lost if another process held it in between.
func (l *executorLease) renew(ctx context.Context) (lost bool) {
	ctx, cancel := context.WithTimeout(ctx, l.length/2)
	defer cancel()
	asked := time.Now()
	again, err := l.leases.TakeLease(ctx, l.lease.Name, l.lease.Owner, l.length)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && (again.Number == l.lease.Number || again.Number == l.lease.Number+1): // one higher if it had expired and no one took it
		l.lease, l.asked = again, asked
		close(l.renewed)
		l.renewed = make(chan struct{})
		return false
	case err == nil:
		l.lease = again // so that end releases it
	case !errors.Is(err, store.ErrLeaseTaken):
		return false // the store is unreachable
	}
	close(l.lost)
	return true
}

// leaseKept is how long the lease of an executor is kept after it ends. A process that returns later counts
// as new.
const leaseKept = time.Hour

// dropLeases deletes old leases of executors that have ended: each start of a process creates one.
func (r *Runs) dropLeases(ctx context.Context) error {
	if r.config.Leases == nil {
		return nil
	}
	if err := r.config.Leases.DropLeases(ctx, leaseName(""), leaseKept); err != nil {
		return fmt.Errorf("delete the leases of ended processes: %w", err)
	}
	return nil
}

// end releases the lease, so that others need not wait until it expires.
func (l *executorLease) end() {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.length)
	defer cancel()
	l.mu.Lock()
	lease := l.lease
	l.mu.Unlock()
	_ = l.leases.EndLease(ctx, lease) // otherwise it expires
}
