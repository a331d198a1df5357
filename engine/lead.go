package engine

import (
	"context"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// The names of the leases of jobs that only one process runs at a time.
const (
	JobAnchor  = "anchor"
	JobRetain  = "retain"
	jobReviews = "expire reviews"
	jobCalls   = "settle calls"
)

// A lease lasts leaseTime and is renewed renewals times within it. If a process is killed during a job,
// the others have to wait up to leaseTime.
const (
	leaseTime = 30 * time.Second
	renewals  = 3
)

// The pauses between attempts to take a lease that another process holds.
const (
	minLeaseWait = 20 * time.Millisecond
	maxLeaseWait = 500 * time.Millisecond
)

// Lead runs a job that only one of the processes over a store may run at a time. If another process is running
// it, Lead waits at most the given time. Writes with the context that do receives succeed only while this
// process holds the job's lease.
//
// The error is store.ErrLeaseTaken, store.ErrLeaseLost, or that of the store or of do.
func (e *Engine) Lead(ctx context.Context, job string, wait time.Duration, do func(ctx context.Context) error) error {
	owner := newUUID() // unique to this call, so that calls within one process also exclude each other
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
	_ = e.cfg.Store.EndLease(ending, lease) // if this fails, the lease expires
	return err
}

func takeLease(ctx context.Context, db store.Store, job, owner string, wait time.Duration) (store.Lease, error) {
	until := time.Now().Add(wait)
	for pause := minLeaseWait; ; pause = min(2*pause, maxLeaseWait) {
		lease, err := db.TakeLease(ctx, job, owner, leaseTime)
		switch {
		case err == nil:
			return lease, nil
		case !errors.Is(err, store.ErrLeaseTaken):
			return lease, StoreError("take the job's lease", err)
		case time.Now().Add(pause).After(until):
			return lease, err //nolint:wrapcheck // an error of the interface
		}
		select {
		case <-ctx.Done():
			return lease, StoreError("take the job's lease", ctx.Err())
		case <-time.After(pause):
		}
	}
}

// renewLease renews a lease until ctx ends. If the lease is lost, it cancels ctx with lose.
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

// tryLead is Lead for a job that can be skipped while another process runs it.
func (e *Engine) tryLead(ctx context.Context, job string, do func(ctx context.Context) error) error {
	err := e.Lead(ctx, job, 0, do)
	if errors.Is(err, store.ErrLeaseTaken) || errors.Is(err, store.ErrLeaseLost) {
		return nil
	}
	return err
}
