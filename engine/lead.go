package engine

import (
	"context"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// The jobs that one process does at a time, by the names of their leases.
const (
	JobAnchor  = "anchor"
	JobRetain  = "retain"
	jobReviews = "expire reviews"
	jobCalls   = "settle calls"
)

// A job has its lease for leaseTime, and takes it again renewals times meanwhile. After a process
// that was killed in a job, the others wait for as long.
const (
	leaseTime = 30 * time.Second
	renewals  = 3
)

// How often the lease of another process is asked for again.
const (
	shortestLeaseWait = 20 * time.Millisecond
	longestLeaseWait  = 500 * time.Millisecond
)

// Lead does a job that one of the processes over a store does at a time, and waits so long for one
// that does it. All that do writes with its context is written while this process has the job's lease, and not
// otherwise. Errors: store.ErrLeaseTaken, store.ErrLeaseLost, those of the store, and those of do.
func (e *Engine) Lead(ctx context.Context, job string, wait time.Duration, do func(ctx context.Context) error) error {
	owner := newUUID() // this call's: another one in this process is like one in another
	lease, err := takeLease(ctx, e.cfg.Store, job, owner, wait)
	if err != nil {
		return err
	}
	leading, lose := context.WithCancelCause(store.UnderLease(ctx, lease))
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		renewLease(leading, e.cfg.Store, lose, lease)
	}()
	err = do(leading)
	lose(nil)
	<-renewed
	if errors.Is(context.Cause(leading), store.ErrLeaseLost) {
		return store.ErrLeaseLost
	}
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), leaseTime/renewals)
	defer done()
	_ = e.cfg.Store.EndLease(ending, lease) // else it ends by itself
	return err
}

func takeLease(ctx context.Context, db store.Store, job, owner string, wait time.Duration) (store.Lease, error) {
	until := time.Now().Add(wait)
	for pause := shortestLeaseWait; ; pause = min(2*pause, longestLeaseWait) {
		lease, err := db.TakeLease(ctx, job, owner, leaseTime)
		switch {
		case err == nil:
			return lease, nil
		case !errors.Is(err, store.ErrLeaseTaken):
			return lease, StoreError("say which process does this", err)
		case time.Now().Add(pause).After(until):
			return lease, err //nolint:wrapcheck // an error of the interface
		}
		select {
		case <-ctx.Done():
			return lease, StoreError("say which process does this", ctx.Err())
		case <-time.After(pause):
		}
	}
}

// renewLease takes a lease again and again until ctx ends, or ends it by lose.
func renewLease(ctx context.Context, db store.Store, lose context.CancelCauseFunc, lease store.Lease) {
	tick := time.NewTicker(leaseTime / renewals)
	defer tick.Stop()
	for taken := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		again, err := db.TakeLease(ctx, lease.Name, lease.Owner, leaseTime)
		switch {
		case err == nil && again.Number == lease.Number:
			taken = asked
		case err == nil, errors.Is(err, store.ErrLeaseTaken), time.Since(taken) >= leaseTime:
			lose(store.ErrLeaseLost)
			return
		}
	}
}

// leadQuietly is Lead of a job that is left to a process that does it already.
func (e *Engine) leadQuietly(ctx context.Context, job string, do func(ctx context.Context) error) error {
	err := e.Lead(ctx, job, 0, do)
	if errors.Is(err, store.ErrLeaseTaken) || errors.Is(err, store.ErrLeaseLost) {
		return nil
	}
	return err
}
