package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine/record"
)

// A run that only waits is suspended: its function returns errSuspended, so the run uses no memory. DBOS
// records this with the status ERROR, but only for an execution that still owns the run. An attribute of
// the row marks the run as waiting. A run is woken by rewinding it to the end of its records. DBOS refuses to
// rewind an active run, so only one of several concurrent attempts succeeds. A run that is woken too early
// waits again. Each execution clears the attribute before it does anything else.

// DefaultUnload is how long a run waits in memory before it is suspended.
const DefaultUnload = 5 * time.Second

// replayCost is added to Config.Unload for each record, because a woken run replays all its records.
const replayCost = 5 * time.Millisecond

// The attributes of a run.
const (
	attrSuspended = "suspended"
	attrCancelled = "cancelled" // cancelled by someone, regardless of the status
	attrState     = "board"
	attrNote      = "note"
)

var errSuspended = errors.New("the run waits and was suspended")

// isMarked reports whether a boolean attribute of a run is true.
func isMarked(w dbos.WorkflowStatus, name string) bool {
	is, _ := w.Attributes[name].(bool)
	return is
}

func isSuspended(w dbos.WorkflowStatus) bool {
	return w.Status == dbos.WorkflowStatusError && isMarked(w, attrSuspended)
}

// mark sets attributes of a run and keeps the others.
func (r *Runs) mark(ctx context.Context, run string, attributes map[string]any) error {
	c, done := r.within(ctx)
	defer done()
	if err := dbos.SetWorkflowAttributes(c, run, attributes, dbos.WithMergeAttributes()); err != nil {
		return fmt.Errorf("store the state of the run %s: %w", run, err)
	}
	return nil
}

// waiting is the context of a step that may wait for a long time. It waits outside the step, so that
// nothing is recorded for the step if the execution ends during the wait.
type waiting struct {
	dbos.Context
	wait func() error
}

func (w waiting) RunAsStep(_ dbos.Context, record dbos.StepFunc, options ...dbos.StepOption) (any, error) {
	if err := w.wait(); err != nil {
		return nil, err
	}
	return w.Context.RunAsStep(w.Context, record, options...)
}

// suspendAfter returns how long an execution waits before it checks whether it can be suspended.
func (x *execution) suspendAfter() time.Duration {
	if x.config.Unload <= 0 || x.isBounded {
		return math.MaxInt64
	}
	records, _ := dbos.GetStepID(x.ctx)
	return x.config.Unload + time.Duration(records)*replayCost
}

// suspend marks the run as suspended and returns errSuspended, if all that the execution does is wait for a
// long time. Otherwise it returns nil.
func (x *execution) suspend() error {
	b, waits := x.describeWait()
	if !waits || x.session.isDraining() {
		return nil
	}
	if err := cmp.Or(x.writeKnown(), x.confirm(x.stopped)); err != nil {
		return err
	}
	if err := x.mark(x.stopped, x.run, map[string]any{attrState: b, attrSuspended: true}); err != nil {
		return err
	}
	x.mu.Lock()
	x.suspended[x.run] = &suspendedRun{liveState: b}
	x.mu.Unlock()
	return errSuspended
}

// describeWait returns what an execution waits for, or false if anything else is in progress or a wait ends
// soon.
func (x *execution) describeWait() (liveState, bool) {
	for _, c := range x.commands {
		if c.outcome != nil || !slices.Contains([]Op{OpSleep, OpWait, OpAsk, OpMove}, c.Op) {
			return liveState{}, false
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	under := x.control[x.run]
	if under == nil || len(under.questions) != len(x.commands) {
		return liveState{}, false
	}
	b := under.state
	b.Waiting, b.Signals = nil, nil
	for _, q := range under.questions {
		if q.isUnderWay() || q.isAboutCall() && q.Review == "" || q.Kind != QuestionSleep && !q.checked {
			return liveState{}, false
		}
		b.Waiting = append(b.Waiting, q.RunQuestion)
	}
	for id, run := range x.awaited {
		if run == x.run {
			b.Signals = append(b.Signals, id)
		}
	}
	until := b.until()
	return b, until.IsZero() || time.Until(until) > x.config.Unload
}

// until returns when the first wait ends; zero for never.
func (b liveState) until() (first time.Time) {
	for _, q := range b.Waiting {
		if !q.Until.IsZero() && (first.IsZero() || q.Until.Before(first)) {
			first = q.Until
		}
	}
	return first
}

func (b liveState) hasPassed() bool {
	until := b.until()
	return !until.IsZero() && time.Now().After(until)
}

// suspendedRun is a suspended run.
type suspendedRun struct {
	liveState
	// settled reports that the run was seen suspended in the tables, and that a later check found none of its
	// signals. The sender of a later signal wakes the run.
	settled bool
}

// Polling intervals for waits that are over, and for runs that other processes suspended.
const (
	wakePoll      = 500 * time.Millisecond
	suspendedPoll = 30 * time.Second
)

// wakeRuns wakes suspended runs whose waits are over, until ctx ends. Polling reviews and states takes at
// most a twentieth of the time.
func (r *Runs) wakeRuns(ctx context.Context) {
	var found, next time.Time
	for ; ctx.Err() == nil; _, _ = pause(ctx, nil, wakePoll) {
		began := time.Now()
		var err error
		if began.Sub(found) >= suspendedPoll {
			if err = r.loadSuspended(ctx); err == nil {
				found = began
			}
		}
		looked := time.Now()
		looks := !looked.Before(next)
		err = errors.Join(err, r.wakeDue(ctx, looks))
		if looks {
			next = time.Now().Add(20 * time.Since(looked))
		}
		if err != nil && ctx.Err() == nil {
			r.config.Logger.WarnContext(ctx, "cannot check suspended runs of chains; trying again", "error", err)
		}
	}
}

// loadSuspended loads the suspended runs from the tables.
func (r *Runs) loadSuspended(ctx context.Context) error {
	rows, err := r.listSuspended(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.suspended { // another process may have woken it
		s.settled = false
	}
	for _, w := range rows {
		r.suspended[w.ID] = &suspendedRun{liveState: readLiveState(w)}
	}
	return nil
}

// wakeDue wakes the suspended runs whose waits are over; looks enables polling of reviews and instances.
func (r *Runs) wakeDue(ctx context.Context, looks bool) error {
	r.mu.Lock()
	asleep, unsettled := maps.Clone(r.suspended), map[string]bool{}
	for run, s := range asleep {
		unsettled[run] = !s.settled
	}
	r.mu.Unlock()
	var failed error
	look := map[string]*suspendedRun{}
	for run, s := range asleep {
		if unsettled[run] || s.hasPassed() || looks && r.isOver(ctx, s.Waiting) {
			look[run] = s
		}
	}
	for runs := range slices.Chunk(slices.Collect(maps.Keys(look)), maxOwners) {
		failed = errors.Join(failed, r.wakeBatch(ctx, runs, look))
	}
	return failed
}

// wakeBatch wakes the given runs whose waits are over, and forgets those that are no longer suspended.
func (r *Runs) wakeBatch(ctx context.Context, runs []string, asleep map[string]*suspendedRun) error {
	rows, err := r.listRows(ctx, dbos.WithFilterWorkflowIDs(runs...))
	if err != nil {
		return fmt.Errorf("read suspended runs: %w", err)
	}
	suspended, signals := map[string]dbos.WorkflowStatus{}, map[string]bool{}
	ends := map[string]bool{}
	for _, run := range runs {
		ends[run] = true
	}
	for _, w := range rows {
		switch {
		case isSuspended(w):
			suspended[w.ID], ends[w.ID] = w, false
			for _, id := range asleep[w.ID].Signals {
				signals[id] = false
			}
		case w.Status == dbos.WorkflowStatusPending && isMarked(w, attrSuspended): // its function has not returned yet
			ends[w.ID] = false
		}
	}
	if err := r.markPresent(ctx, signals); err != nil { // must follow the check that the runs are suspended
		return err
	}
	for run, w := range suspended {
		s := asleep[run]
		due := isMarked(w, attrCancelled) || s.hasPassed() || slices.ContainsFunc(s.Signals, func(id string) bool { return signals[id] })
		if due || r.isOver(ctx, s.Waiting) {
			failed := r.wake(ctx, run)
			ends[run], err = failed == nil, errors.Join(err, failed)
			continue
		}
		r.mu.Lock()
		s.settled = true
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for run, over := range ends {
		if over && r.suspended[run] == asleep[run] {
			delete(r.suspended, run)
		}
	}
	return err
}

// isOver reports whether an awaited review or instance appears to have changed; the run checks again
// itself.
func (r *Runs) isOver(ctx context.Context, waits []RunQuestion) bool {
	return r.config.Ledger != nil && slices.ContainsFunc(waits, func(q RunQuestion) bool {
		switch {
		case q.Review != "":
			view, err := r.config.Ledger.Review(ctx, systemPrincipal, q.Review)
			return err == nil && view.Status != record.ReviewOpen || err != nil && !isTemporary(err)
		case q.Kind == QuestionState:
			now, err := r.config.Ledger.Status(ctx, systemPrincipal, q.Instance)
			return err == nil && (now.State == q.State || now.Status != record.Running) || err != nil && !isTemporary(err)
		}
		return false
	})
}

// wake continues a suspended run. It succeeds if another process has already done so.
func (r *Runs) wake(ctx context.Context, run string) error {
	c, done := r.within(ctx)
	defer done()
	_, err := dbos.RewindWorkflow[string](c, run, dbos.WithRewindQueue(queueName), dbos.WithRewindStartStep(math.MaxInt32))
	if err == nil {
		return nil
	}
	if rows, failed := listRows(c, dbos.WithFilterWorkflowIDs(run)); failed == nil && (len(rows) == 0 || !isSuspended(rows[0])) {
		return nil
	}
	return fmt.Errorf("wake the run %s: %w", run, err)
}

// listSuspended lists the suspended runs that match the filters.
func (r *Runs) listSuspended(ctx context.Context, filters ...dbos.ListWorkflowsOption) ([]dbos.WorkflowStatus, error) {
	suspended, err := r.filterSuspended(ctx, "")
	if err != nil || suspended == nil {
		return nil, err
	}
	list, err := r.listRows(ctx, append(suspended, filters...)...)
	if err != nil {
		return nil, fmt.Errorf("list suspended runs: %w", err)
	}
	return list, nil
}
