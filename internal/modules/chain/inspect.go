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

// RunStep is one execution of a step: one attempt, in one iteration.
type RunStep struct {
	// Key identifies the execution in the run: step, iteration and attempt.
	Key     string    `json:"key"`
	Op      string    `json:"op"`
	Status  RunStatus `json:"status"` // done or failed
	Started time.Time `json:"startedAt"`
	Ended   time.Time `json:"endedAt"`
	Error   *RunError `json:"error,omitempty"`
}

// steps returns the ended executions of a run in the order of their start, beginning at record first. next
// is the number of records before the first gap: later calls start there to find new ones. Outputs are not
// kept in memory, because together they may be gigabytes.
func (r *Runs) steps(ctx context.Context, run string, first int) (out []RunStep, next int, err error) {
	next = first
	for offset, last := first, -1; ; offset += resultPage {
		page, err := r.readSteps(ctx, run, offset, resultPage, true)
		if err != nil {
			return nil, 0, err
		}
		for _, step := range page {
			if step.StepID <= last {
				continue // ended after the previous page was read
			}
			last = step.StepID
			if step.StepID == next {
				next++
			}
			if v, ok := r.viewStep(ctx, step); ok {
				out = append(out, v)
			}
		}
		if len(page) < resultPage {
			return out, next, nil
		}
	}
}

// viewStep converts a record to a RunStep, or returns false for records that only the interpreter needs.
func (r *Runs) viewStep(ctx context.Context, step dbos.StepInfo) (RunStep, bool) {
	op, key, _ := strings.Cut(step.StepName, " ")
	if !slices.Contains([]Op{OpCall, OpComplete, OpTest, OpMove, OpWait, OpAsk}, Op(op)) {
		return RunStep{}, false
	}
	v := RunStep{Key: key, Op: op, Status: "done", Started: step.StartedAt, Ended: step.CompletedAt}
	text, err := r.open(ctx, unquote(step.Output))
	if err != nil {
		v.Status, v.Error = "unreadable", &RunError{Code: CodeSealed, Message: err.Error()}
	}
	var o struct { // an Outcome without its value
		Key   string     `json:"key"`
		Err   *StepError `json:"err"`
		Began time.Time  `json:"began"`
	}
	if json.Unmarshal([]byte(text), &o) == nil {
		v.Key = cmp.Or(o.Key, key)
		if !o.Began.IsZero() {
			v.Started = o.Began
		}
		if o.Err != nil {
			v.Status, v.Error = "failed", o.Err.View()
		}
	}
	return v, true
}

// pageQuery selects runs that began at or before a time, newest first. offset skips runs that began at
// exactly that time.
type pageQuery struct {
	owners        []string // as returned by chainOwner; none means all
	chain         string   // "" means all; databases only
	statuses      []dbos.WorkflowStatusType
	until         time.Time
	offset, limit int
	// open selects runs that have not ended, instead of filtering by statuses.
	open bool
	// mayMatch reports, before the result of a run is read, whether the run may be selected.
	mayMatch func(RunState) bool
}

// resultPage limits how many results of runs or steps are read per query: each may exceed MaxOutput
// bytes.
const resultPage = 100

// pass moves the query past a run.
func (q *pageQuery) pass(known RunState) {
	if !known.Started.Equal(q.until) {
		q.until, q.offset = known.Started, 0
	}
	q.offset++
}

// statusesOf returns the statuses that a run of status s may have in the tables, except suspended ones;
// none means all.
func statusesOf(s RunStatus) []dbos.WorkflowStatusType {
	switch s {
	case StatusDone:
		return []dbos.WorkflowStatusType{dbos.WorkflowStatusSuccess}
	case StatusFailed:
		return []dbos.WorkflowStatusType{dbos.WorkflowStatusError}
	case StatusCancelled:
		return []dbos.WorkflowStatusType{dbos.WorkflowStatusCancelled}
	case StatusRunning, StatusPaused, StatusQueued:
		return openInTables
	}
	return nil
}

// page lists runs. It does not read the results of runs that cannot match, so those appear as failed.
func (r *Runs) page(ctx context.Context, q pageQuery) ([]RunState, error) {
	c, done := r.within(ctx)
	defer done()
	options := []dbos.ListWorkflowsOption{
		dbos.WithFilterName(runName), dbos.WithFilterSortDesc(), dbos.WithFilterCreatedBefore(q.until),
	}
	if len(q.statuses) > 0 {
		options = append(options, dbos.WithFilterStatus(q.statuses...))
	}
	if q.chain != "" {
		options = append(options, dbos.WithFilterAttributes(map[string]any{attrChain: q.chain}))
	}
	sources := [][]dbos.ListWorkflowsOption{options}
	if q.open {
		suspended, err := r.filterSuspended(ctx, q.chain)
		if err != nil {
			return nil, err
		}
		if suspended != nil {
			sources = append(sources, append(slices.Clip(options), suspended...))
		}
	}
	list, err := r.pageOf(c, q, r.splitByOwners(q.owners, sources))
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	out, places, ended := make([]RunState, len(list)), map[string]int{}, []string{}
	for i, w := range list {
		out[i] = r.describeRun(w)
		if out[i].Status == StatusFailed && q.mayMatch(out[i]) {
			places[w.ID], ended = i, append(ended, w.ID)
		}
	}
	for ids := range slices.Chunk(ended, resultPage) {
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

// splitByOwners adds owner filters. For a file it makes one query per owner: otherwise SQLite would sort
// all of their runs.
func (r *Runs) splitByOwners(owners []string, sources [][]dbos.ListWorkflowsOption) (out [][]dbos.ListWorkflowsOption) {
	const few = 20
	parts := [][]string{owners}
	if r.config.Database == nil && len(owners) > 1 && len(owners) <= few {
		parts = slices.Collect(slices.Chunk(slices.Sorted(slices.Values(owners)), 1))
	}
	for _, options := range sources {
		for _, part := range parts {
			if asked := slices.Clip(options); len(part) > 0 {
				out = append(out, append(asked, dbos.WithFilterUser(part...)))
			} else {
				out = append(out, asked)
			}
		}
	}
	return out
}

// pageOf merges the runs that several filters find into one list.
func (r *Runs) pageOf(c dbos.Context, q pageQuery, sources [][]dbos.ListWorkflowsOption) (all []dbos.WorkflowStatus, err error) {
	if len(sources) == 1 {
		return listRows(c, append(sources[0], dbos.WithFilterLimit(q.limit), dbos.WithFilterOffset(q.offset))...)
	}
	for _, options := range sources {
		list, err := listRows(c, append(options, dbos.WithFilterLimit(q.offset+q.limit))...)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b dbos.WorkflowStatus) int { return b.CreatedAt.Compare(a.CreatedAt) })
	all = all[min(q.offset, len(all)):]
	return all[:min(q.limit, len(all))], nil
}
