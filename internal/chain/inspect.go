package chain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// StepView is one execution of a step: an attempt, in an iteration.
type StepView struct {
	// Key names it in the run: step, iteration and attempt.
	Key     string     `json:"key"`
	Op      Op         `json:"op"`
	Status  string     `json:"status"` // done or failed
	Started time.Time  `json:"startedAt"`
	Ended   time.Time  `json:"endedAt"`
	Error   *StepError `json:"error,omitempty"`
}

// steps are the executions of a run that have ended, in the order of their beginning, but for the first records,
// and how many records there are before the first that is missing: from these on, later reads find what is new.
// Of what the executions gave only the errors are kept: all of it may be gigabytes.
func (r *Runs) steps(ctx context.Context, run string, first int) (out []StepView, next int, err error) {
	c, done := r.within(ctx)
	defer done()
	next = first
	for offset, last := first, -1; ; offset += resultsAtOnce {
		page, err := dbos.GetWorkflowSteps(c, run, dbos.WithStepsLoadOutput(true), dbos.WithStepsOffset(offset), dbos.WithStepsLimit(resultsAtOnce))
		if err != nil {
			return nil, 0, fmt.Errorf("read the steps of the run %s: %w", run, err)
		}
		for _, step := range page {
			if step.StepID <= last {
				continue // one that began earlier has ended since the page before
			}
			last = step.StepID
			if step.StepID == next {
				next++
			}
			if v, ok := r.viewStep(ctx, step); ok {
				out = append(out, v)
			}
		}
		if len(page) < resultsAtOnce {
			return out, next, nil
		}
	}
}

// viewStep is an execution of a step; false for what is recorded for the interpreter's sake.
func (r *Runs) viewStep(ctx context.Context, step dbos.StepInfo) (StepView, bool) {
	op, key, _ := strings.Cut(step.StepName, " ")
	if !slices.Contains([]Op{OpCall, OpComplete, OpTest, OpMove, OpWait, OpAsk}, Op(op)) {
		return StepView{}, false
	}
	v := StepView{Key: key, Op: Op(op), Status: "done", Started: step.StartedAt, Ended: step.CompletedAt}
	text, err := r.open(ctx, unquote(step.Output))
	if err != nil {
		v.Status, v.Error = "unreadable", &StepError{Code: CodeSealed, Message: err.Error()}
	}
	var o struct { // an Outcome without its value
		Key string     `json:"key"`
		Err *StepError `json:"err"`
	}
	if json.Unmarshal([]byte(text), &o) == nil {
		v.Key = cmp.Or(o.Key, key)
		if o.Err != nil {
			v.Status, v.Error = "failed", o.Err
		}
	}
	return v, true
}

// pageQuery asks for runs that began until a time, newest first, after some of those that began then.
type pageQuery struct {
	owners        []string // chainOwner; none is all
	statuses      []dbos.WorkflowStatusType
	until         time.Time
	offset, limit int
	// errorSince asks only for runs of the status ERROR from that time on; zero for none.
	errorSince time.Time
	// mayMatch says of a run, before its result is read, whether it is asked for.
	mayMatch func(RunStatus) bool
}

// resultsAtOnce is how many results, of runs or of steps, are read at once: each may have MaxOutput bytes and more.
const resultsAtOnce = 100

// pass continues the query behind a run.
func (q *pageQuery) pass(known RunStatus) {
	if !known.Started.Equal(q.until) {
		q.until, q.offset = known.Started, 0
	}
	q.offset++
}

// goOn continues the query behind the runs that errorSince is about; false where there are no others.
func (q *pageQuery) goOn() bool {
	if !q.isSince() {
		return false
	}
	q.until, q.offset = q.errorSince.Add(-time.Millisecond), 0
	return true
}

func (q *pageQuery) isSince() bool { return !q.errorSince.IsZero() && !q.until.Before(q.errorSince) }

// statusesOf are those of the tables that runs of a status may have; none are all.
func statusesOf(s Status) []dbos.WorkflowStatusType {
	switch s {
	case StatusDone:
		return []dbos.WorkflowStatusType{dbos.WorkflowStatusSuccess}
	case StatusFailed:
		return []dbos.WorkflowStatusType{dbos.WorkflowStatusSuccess, dbos.WorkflowStatusError}
	case StatusCancelled:
		return []dbos.WorkflowStatusType{dbos.WorkflowStatusCancelled}
	case StatusRunning, StatusPaused, StatusQueued:
		return []dbos.WorkflowStatusType{dbos.WorkflowStatusPending, dbos.WorkflowStatusEnqueued, dbos.WorkflowStatusDelayed, dbos.WorkflowStatusMaxRecoveryAttemptsExceeded}
	}
	return nil
}

// page lists runs. The result of what is not asked for is not read, so that it counts as failed.
func (r *Runs) page(ctx context.Context, q pageQuery) ([]RunStatus, error) {
	c, done := r.within(ctx)
	defer done()
	options := []dbos.ListWorkflowsOption{
		dbos.WithFilterName(runName), dbos.WithFilterSortDesc(), dbos.WithFilterCreatedBefore(q.until),
	}
	switch {
	case q.isSince():
		options = append(options, dbos.WithFilterStatus(dbos.WorkflowStatusError), dbos.WithFilterCreatedAfter(q.errorSince))
	case len(q.statuses) > 0:
		options = append(options, dbos.WithFilterStatus(q.statuses...))
	}
	list, err := r.pageOfOwners(c, q, options)
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	out, places, ended := make([]RunStatus, len(list)), map[string]int{}, []string{}
	for i, w := range list {
		out[i] = r.describeRun(w)
		if out[i].Status == StatusFailed && q.mayMatch(out[i]) {
			places[w.ID], ended = i, append(ended, w.ID)
		}
	}
	for ids := range slices.Chunk(ended, resultsAtOnce) {
		list, err := listRows(c, dbos.WithFilterWorkflowIDs(ids...), dbos.WithFilterLoadOutput(true))
		if err != nil {
			return nil, fmt.Errorf("read the results of runs: %w", err)
		}
		for _, w := range list {
			out[places[w.ID]] = r.describeRun(w)
		}
	}
	return out, nil
}

// pageOfOwners lists runs by their owners. Those of a file are asked for one owner after the other: SQLite would
// sort all that they have.
func (r *Runs) pageOfOwners(c dbos.Context, q pageQuery, options []dbos.ListWorkflowsOption) ([]dbos.WorkflowStatus, error) {
	const few = 20
	if r.config.Database != nil || len(q.owners) < 2 || len(q.owners) > few {
		if len(q.owners) > 0 {
			options = append(options, dbos.WithFilterUser(q.owners...))
		}
		return listRows(c, append(options, dbos.WithFilterLimit(q.limit), dbos.WithFilterOffset(q.offset))...)
	}
	var all []dbos.WorkflowStatus
	for _, owner := range slices.Sorted(slices.Values(q.owners)) {
		list, err := listRows(c, append(slices.Clip(options), dbos.WithFilterUser(owner), dbos.WithFilterLimit(q.offset+q.limit))...)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b dbos.WorkflowStatus) int { return b.CreatedAt.Compare(a.CreatedAt) })
	all = all[min(q.offset, len(all)):]
	return all[:min(q.limit, len(all))], nil
}
