package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine/store"
)

// maxCrashes limits how many times in a row a run is adopted after its process died before any step of the
// run ended. Then the run is paused, because it may be the cause of the crashes.
const maxCrashes = 20

// adoptPage is how many runs are adopted per query.
const adoptPage = 200

// adopt takes over the runs of executors whose lease has ended.
func (r *Runs) adopt(ctx context.Context, s *session) error {
	if s.lease == nil {
		return nil
	}
	c, done := r.within(ctx)
	defer done()
	rows, err := dbos.GetWorkflowAggregates(c, dbos.GetWorkflowAggregatesInput{GroupByExecutorID: true, SelectCount: true, Status: []dbos.WorkflowStatusType{dbos.WorkflowStatusPending}})
	if err != nil {
		return fmt.Errorf("look for runs whose process has ended: %w", err)
	}
	for _, row := range rows {
		for _, executor := range row.Group {
			if executor == nil || *executor == s.executor {
				continue
			}
			if err := r.adoptFrom(ctx, s, *executor); err != nil {
				return err
			}
		}
	}
	return nil
}

// adoptFrom takes over the runs of an executor if its lease has ended.
func (r *Runs) adoptFrom(ctx context.Context, s *session, executor string) error {
	var taken store.Lease
	defer func() {
		if taken.Number > 0 {
			_ = r.config.Leases.EndLease(context.WithoutCancel(ctx), taken) // otherwise it expires
		}
	}()
	for {
		lease, err := r.config.Leases.TakeLease(ctx, leaseName(executor), s.executor, r.config.Lease)
		switch {
		case errors.Is(err, store.ErrLeaseTaken):
			return nil
		case err != nil:
			return fmt.Errorf("take over the runs of another process: %w", err)
		}
		taken = lease
		if _, err := s.lease.confirm(ctx); err != nil {
			return err
		}
		n, err := r.requeueFrom(ctx, s, executor, true)
		if err != nil {
			return err
		}
		if n > 0 {
			r.config.Logger.InfoContext(ctx, "took over chain runs of a process that has ended", "runs", n)
		}
		if n < adoptPage {
			return nil
		}
	}
}

// requeueFrom re-enqueues up to adoptPage runs of an executor that has ended, and returns how many.
// surprised reports that the executor died without closing. The crash is then counted for the runs that it
// interrupted.
func (r *Runs) requeueFrom(ctx context.Context, s *session, executor string, surprised bool) (int, error) {
	c, done := s.within(ctx)
	defer done()
	list, err := listRows(c, dbos.WithFilterStatus(dbos.WorkflowStatusPending), dbos.WithFilterExecutorIDs(executor), dbos.WithFilterLimit(adoptPage))
	if err != nil {
		return 0, fmt.Errorf("take over runs: %w", err)
	}
	if surprised {
		if err := r.countCrashes(ctx, list); err != nil {
			return 0, err
		}
	}
	queues := map[string][]string{}
	for _, w := range list {
		p := r.describeRun(w).queue
		queues[p.queue] = append(queues[p.queue], w.ID)
	}
	return len(list), requeue(c, queues)
}

// countCrashes records for each adopted run that its process died during a call, and pauses runs to which this
// has happened too often. Runs that were only waiting are not counted: otherwise one run that crashes its
// process would get them paused too.
func (r *Runs) countCrashes(ctx context.Context, list []dbos.WorkflowStatus) error {
	for _, w := range list {
		if b := readLiveState(w); b.Tried && w.Name == runName {
			if err := r.countCrash(ctx, w.ID, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Runs) countCrash(ctx context.Context, run string, b liveState) error {
	b.Tried = false // one crash counts once
	if b.Crashes++; b.Crashes > maxCrashes {
		b.Crashes = 0
		n := RunNote{Paused: true, By: "gavel", At: time.Now().UTC(), Why: fmt.Sprintf("its process ended %d times in a row before any step of the run did; find the cause, then resume or cancel the run", maxCrashes)}
		r.config.Logger.WarnContext(ctx, "a run is paused", "run", run, "why", n.Why)
		if err := r.mark(ctx, run, map[string]any{attrNote: n}); err != nil {
			return err
		}
		if err := r.recordNote(ctx, run, "", actionNote, n, map[string]any{"did": "pause"}); err != nil {
			r.config.Logger.WarnContext(ctx, "cannot record the pause of a run", "run", run, "error", err)
		}
	}
	return r.mark(ctx, run, map[string]any{attrState: b})
}

// noteCall records that this execution is about to make a call. An execution that was not taken from the
// queue is the first one of its run, and needs no write.
func (x *execution) noteCall(c Command) {
	isWait := c.Op == OpWait || c.Op == OpAsk || c.Op == OpMove && (c.Action == "wait" || c.Action == moveReview)
	if !x.fromQueue || x.tried || isWait {
		return
	}
	x.tried = true
	x.writing.Lock()
	defer x.writing.Unlock()
	x.mu.Lock()
	var shown liveState
	if under := x.control[x.run]; under != nil {
		under.state.Tried = true
		shown = under.state
	}
	x.mu.Unlock()
	if err := x.mark(x.stopped, x.run, map[string]any{attrState: shown}); err != nil && x.stopped.Err() == nil { // a lost count does no harm
		x.config.Logger.WarnContext(x.stopped, "cannot record that a run begins a call", "run", x.run, "error", err)
	}
}

// noteProgress records that a command has ended in this execution.
func (x *execution) noteProgress() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if under := x.control[x.run]; under != nil && (under.state.Tried || under.state.Crashes > 0) {
		under.state.Tried, under.state.Crashes = false, 0
		x.queuePublish(under)
	}
}

// requeueStrays re-enqueues runs that the tables assign to this process but that were not executing here at two
// consecutive checks. They were dequeued while the tables were unreachable, or their execution lost a
// conflict or could not continue.
func (r *Runs) requeueStrays(ctx context.Context, s *session) error {
	c, done := r.within(ctx)
	defer done()
	list, err := listRows(c, dbos.WithFilterName(runName), dbos.WithFilterStatus(dbos.WorkflowStatusPending), dbos.WithFilterExecutorIDs(s.executor))
	if err != nil {
		return fmt.Errorf("look for runs that no process executes: %w", err)
	}
	before := r.strays
	r.strays = nil
	queues := map[string][]string{}
	r.mu.Lock()
	for _, w := range list {
		switch {
		case r.control[w.ID] != nil:
		case slices.Contains(before, w.ID):
			p := r.describeRun(w).queue
			queues[p.queue] = append(queues[p.queue], w.ID)
		default:
			r.strays = append(r.strays, w.ID)
		}
	}
	r.mu.Unlock()
	return requeue(c, queues)
}

// requeue re-enqueues runs, grouped by queue name.
func requeue(c dbos.Context, queues map[string][]string) error {
	for queue, ids := range queues {
		if _, err := dbos.ResumeWorkflows[string](c, ids, dbos.WithResumeQueue(queue)); err != nil {
			return fmt.Errorf("take over runs: %w", err)
		}
	}
	return nil
}
