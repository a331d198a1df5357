package chain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// liveState is the state of an executing run that other processes can see, in an attribute of its row.
type liveState struct {
	// Waiting is what the run waits for or does, as last written. It is replaced as a whole, never
	// modified.
	Waiting []RunQuestion `json:"waiting,omitempty"`
	// Signals are the ids of the signals and answers that wake the run while it is suspended.
	Signals []string `json:"signals,omitempty"`
	// Tried reports that the current execution has begun a call, and that nothing has ended since.
	Tried bool `json:"tried,omitempty"`
	// Crashes counts the consecutive times that the process died in this state.
	Crashes int `json:"takenUp,omitempty"`
}

// publishDelay is how long changes of live states are batched.
const publishDelay = 50 * time.Millisecond

// refreshPoll is the polling interval for requests from other processes.
const refreshPoll = 500 * time.Millisecond

// watch applies the requests of other processes to the runs that execute here, publishes what the runs wait
// for, and adopts runs whose process has ended.
func (r *Runs) watch(ctx context.Context) {
	tick := time.NewTicker(refreshPoll)
	defer tick.Stop()
	for n := 0; ; {
		s := r.session.Load()
		var lost chan struct{}
		if s.lease != nil {
			lost = s.lease.lost
		}
		var err error
		select {
		case <-ctx.Done():
			return
		case <-lost:
			r.config.Logger.WarnContext(ctx, "this process did not renew its lease in time: others have taken over its runs of chains, and it continues under a new identity")
			r.replace(ctx, s)
		case <-tick.C:
			err = errors.Join(r.refresh(ctx), r.publish(ctx))
			if n++; n%2 == 0 {
				err = errors.Join(err, r.adopt(ctx, s))
			}
			if n%10 == 0 {
				err = errors.Join(err, r.requeueStrays(ctx, s))
			}
		case <-r.stateChanges:
			_, _ = pause(ctx, nil, publishDelay)
			err = r.publish(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.config.Logger.WarnContext(ctx, "cannot check the runs of chains; trying again", "error", err)
		}
	}
}

// refresh applies pauses, resumptions and cancellations from the tables to those of the given runs that
// execute here. Without runs it applies them to all that execute here, and notifies those whose signal or
// answer has arrived.
func (r *Runs) refresh(ctx context.Context, runs ...string) error {
	r.refreshing.Lock()
	defer r.refreshing.Unlock()
	r.mu.Lock()
	awaited := map[string]string{}
	if len(runs) == 0 {
		runs, awaited = slices.Collect(maps.Keys(r.control)), maps.Clone(r.awaited)
	}
	r.mu.Unlock()
	ids := slices.AppendSeq(runs, maps.Keys(awaited))
	if len(ids) == 0 {
		return nil
	}
	list, err := r.listRows(ctx, dbos.WithFilterWorkflowIDs(ids...))
	if err != nil {
		return fmt.Errorf("read the runs: %w", err)
	}
	for _, w := range list {
		if run, waits := awaited[w.ID]; waits {
			r.notify(run)
		} else {
			r.apply(w)
		}
	}
	return nil
}

// apply applies the tables' state of a run that executes here.
func (r *Runs) apply(w dbos.WorkflowStatus) {
	r.mu.Lock()
	under := r.control[w.ID]
	changed := under != nil && under.paused != readNote(w).Paused
	if changed {
		under.paused = !under.paused
	}
	r.mu.Unlock()
	if under != nil && w.Status == dbos.WorkflowStatusCancelled {
		under.cancelled()
		changed = true
	}
	if changed {
		r.notify(w.ID)
	}
}

// Live states that only show commands in progress require no one to act, so writing them may take at most a
// twentieth of the time. If there are many, some are written later.
const (
	maxPublished = 50
	publishPause = 20
)

// publish writes the live states that have changed.
func (r *Runs) publish(ctx context.Context) error {
	r.writing.Lock() // prevents an older state from overwriting a newer one
	defer r.writing.Unlock()
	changed, began := map[string]liveState{}, time.Now()
	most := maxPublished
	r.mu.Lock()
	if began.Before(r.publishAfter) {
		most = 0
	}
	for run, c := range r.control {
		now := c.listQuestions()
		if c.changed || len(changed) < most && !slices.Equal(now, c.state.Waiting) {
			c.state.Waiting, c.changed = now, false
			changed[run] = c.state
		}
	}
	r.mu.Unlock()
	var failed error
	for run, b := range changed {
		if err := r.mark(ctx, run, map[string]any{attrState: b}); err != nil {
			failed = err
			r.mu.Lock()
			if c := r.control[run]; c != nil {
				c.changed = true
			}
			r.mu.Unlock()
		}
	}
	if most > 0 {
		r.mu.Lock()
		r.publishAfter = time.Now().Add(publishPause * time.Since(began))
		r.mu.Unlock()
	}
	return failed
}

func readLiveState(w dbos.WorkflowStatus) (b liveState) {
	decodeAttribute(w, attrState, &b)
	return b
}

// queuePublish marks the live state of a run to be written. The caller must hold mu.
func (r *Runs) queuePublish(c *control) {
	c.changed = true
	select {
	case r.stateChanges <- struct{}{}:
	default:
	}
}

// subscribe returns a channel that is notified when a run changes; forget ends the subscription.
func (r *Runs) subscribe(run string) (notified <-chan struct{}, forget func()) {
	ch := make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiters[run] == nil {
		r.waiters[run] = map[chan struct{}]struct{}{}
	}
	r.waiters[run][ch] = struct{}{}
	return ch, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.waiters[run], ch)
		if len(r.waiters[run]) == 0 {
			delete(r.waiters, run)
		}
	}
}

func (r *Runs) notify(run string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ch := range r.waiters[run] {
		select {
		case ch <- struct{}{}:
		default: // already notified
		}
	}
}

// pause waits for a notification, or for d.
func pause(ctx context.Context, notified <-chan struct{}, d time.Duration) (wasNotified bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-notified:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// The shortest and longest interval for polling a run that is waited for.
const (
	minPoll = 5 * time.Millisecond
	maxPoll = time.Second
)

// Wait waits until a run has ended. It fails with ctx's error, or if the run does not exist or was
// cancelled.
func (r *Runs) Wait(ctx context.Context, run string) (*Result, error) {
	notified, forget := r.subscribe(run)
	defer forget()
	for look := minPoll; ; look = min(2*look, maxPoll) {
		s, err := r.Get(ctx, run)
		if err != nil {
			return nil, err
		}
		switch s.Status {
		case StatusDone, StatusFailed:
			return s.Result, nil
		case StatusCancelled:
			return nil, errors.New(strings.TrimSpace(fmt.Sprintf("the run %s was cancelled %s", run, s.Note)))
		case StatusRunning, StatusPaused, StatusQueued:
		}
		longer := look
		if r.isHere(run) {
			longer = 10 * maxPoll // its end sends a notification
		}
		wasNotified, err := pause(ctx, notified, longer)
		switch {
		case err != nil:
			return nil, err
		case wasNotified:
			look = minPoll
		}
	}
}

// isHere reports whether a run executes in this process.
func (r *Runs) isHere(run string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.control[run] != nil
}
