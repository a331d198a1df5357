package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
)

// The number of rows that one transaction of a sweep deletes: runs with all their steps, or signals, which
// have no steps.
const (
	sweptRuns = 20
	sweptRows = 200
)

// endedInTables lists the statuses of runs that no longer execute.
var endedInTables = []dbos.WorkflowStatusType{
	dbos.WorkflowStatusSuccess, dbos.WorkflowStatusError, dbos.WorkflowStatusCancelled, dbos.WorkflowStatusMaxRecoveryAttemptsExceeded,
}

// Sweep deletes the runs that ended before a time, with their steps and signals, and returns how many. It
// keeps the last successful run of each chain and principal, because the next run reads the variables it
// saved. The store's records of runs are kept too.
func (r *Runs) Sweep(ctx context.Context, before time.Time) (swept int, err error) {
	savers := map[string]string{} // the run to keep, by chainOwner
	swept, err = r.sweepRows(ctx, sweptRuns, func(ended []dbos.WorkflowStatus, keep map[string]bool) (err error) {
		for _, w := range ended {
			saver, known := savers[w.AuthenticatedUser]
			if !known {
				if saver, _, err = r.findSaved(ctx, w.AuthenticatedUser); err != nil {
					return err
				}
				savers[w.AuthenticatedUser] = saver
			}
			keep[w.ID] = w.ID == saver || isSuspended(w)
		}
		return nil
	}, dbos.WithFilterName(runName), dbos.WithFilterStatus(endedInTables...), dbos.WithFilterCompletedBefore(before))
	if err != nil {
		return swept, err
	}
	return swept, r.sweepSignals(ctx, before)
}

// sweepRows deletes the rows that match the filters page by page, except those that choose marks in keep,
// and returns how many it deleted.
func (r *Runs) sweepRows(ctx context.Context, page int, choose func(rows []dbos.WorkflowStatus, keep map[string]bool) error, filters ...dbos.ListWorkflowsOption) (swept int, err error) {
	for kept := 0; ; {
		rows, err := r.listRows(ctx, append(filters, dbos.WithFilterLimit(page), dbos.WithFilterOffset(kept))...)
		if err != nil {
			return swept, fmt.Errorf("list the rows of ended runs: %w", err)
		}
		keep, over := map[string]bool{}, []string(nil)
		if err := choose(rows, keep); err != nil {
			return swept, err
		}
		for _, w := range rows {
			if keep[w.ID] {
				kept++
			} else {
				over = append(over, w.ID)
			}
		}
		if err := r.delete(ctx, over); err != nil {
			return swept, err
		}
		if swept += len(over); len(rows) < page {
			return swept, nil
		}
	}
}

// sweepSignals deletes signals and answers from before a time whose runs no longer exist.
func (r *Runs) sweepSignals(ctx context.Context, before time.Time) error {
	_, err := r.sweepRows(ctx, sweptRows, func(signals []dbos.WorkflowStatus, keep map[string]bool) error {
		runs := map[string]bool{}
		for _, w := range signals {
			runs[runOfSignal(w.ID)] = false
		}
		if err := r.markPresent(ctx, runs); err != nil {
			return err
		}
		for _, w := range signals {
			keep[w.ID] = runs[runOfSignal(w.ID)]
		}
		return nil
	}, dbos.WithFilterName(signalName), dbos.WithFilterCreatedBefore(before))
	return err
}

// runOfSignal returns the run to which a signal or an answer belongs.
func runOfSignal(id string) string {
	run, _, _ := strings.Cut(id, "/")
	return run
}

// markPresent sets the entries of rows that exist to true.
func (r *Runs) markPresent(ctx context.Context, runs map[string]bool) error {
	if len(runs) == 0 {
		return nil
	}
	list, err := r.listRows(ctx, dbos.WithFilterWorkflowIDs(slices.Collect(maps.Keys(runs))...))
	if err != nil {
		return fmt.Errorf("check which rows exist: %w", err)
	}
	for _, w := range list {
		runs[w.ID] = true
	}
	return nil
}

func (r *Runs) delete(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	c, done := r.within(ctx)
	defer done()
	if err := dbos.DeleteWorkflows(c, ids); err != nil {
		return fmt.Errorf("delete runs that have ended: %w", err)
	}
	return nil
}

// jobSweep is the name of a job that only one process of a store does at a time.
const jobSweep = "sweep chains"

// Intervals for deleting runs whose retention is over, and for checking for changed definitions.
const (
	sweepInterval  = time.Hour
	limitsInterval = time.Second
)

// RunSweeps deletes runs whose retention is over, immediately and then hourly. It also keeps the
// concurrency limits of the queues in line with the definitions. It returns when ctx ends.
func (s *Service) RunSweeps(ctx context.Context, retention func() time.Duration, log *slog.Logger) {
	var bounds map[string]int
	failing := false
	for next := time.Now(); ctx.Err() == nil; _, _ = pause(ctx, nil, limitsInterval) {
		due, chains := !time.Now().Before(next), s.config.Chains()
		if due {
			next = time.Now().Add(sweepInterval)
			s.sweep(ctx, retention(), log)
		}
		now := map[string]int{}
		for name, d := range chains {
			now[name] = d.Concurrency
		}
		if !due && maps.Equal(now, bounds) {
			continue
		}
		err := s.config.Runs.SetLimits(ctx, chains)
		if err == nil {
			bounds = now
		} else if ctx.Err() == nil && !failing {
			log.WarnContext(ctx, "cannot change the concurrency limits of chains; trying again", "error", err)
		}
		failing = err != nil
	}
}

// sweep does the hourly work, unless another process does it.
func (s *Service) sweep(ctx context.Context, retention time.Duration, log *slog.Logger) {
	err := s.config.Engine.Lead(ctx, jobSweep, 0, func(ctx context.Context) error {
		swept, err := s.config.Runs.Sweep(ctx, s.config.Engine.Now().Add(-retention))
		if swept > 0 {
			log.InfoContext(ctx, "deleted the steps of runs whose retention is over; their record stays", "runs", swept)
		}
		return errors.Join(err, s.config.Runs.dropLeases(ctx))
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrLeaseTaken) {
		log.WarnContext(ctx, "cannot delete the steps of runs whose retention is over; trying again in an hour", "error", err)
	}
}

// readRecord returns a run of which only the store's record remains, with that record. It fails with
// CodeUnknownInstance if there is none that the principal may see.
func (s *Service) readRecord(ctx context.Context, p engine.Principal, run string) (RunView, json.RawMessage, error) {
	if s.config.Runs.config.Ledger == nil {
		return RunView{}, nil, unknownRun(run)
	}
	kept, err := s.config.Engine.Status(ctx, p, engine.RunInstance(run))
	var shown struct {
		Chain   string
		ActsFor string
		Output  json.RawMessage
		Error   *RunError
	}
	switch {
	case isCode(err, engine.CodeUnknownInstance), isCode(err, engine.CodeInvalidArgument):
		return RunView{}, nil, unknownRun(run)
	case err != nil:
		return RunView{}, nil, err
	case json.Unmarshal(kept.Context, &shown) != nil || kept.Workflow != WorkflowPrefix+shown.Chain:
		return RunView{}, nil, unknownRun(run)
	}
	v := RunView{
		Run: run, Chain: shown.Chain, Status: RunStatus(kept.State), Principal: kept.Owner, ActsFor: shown.ActsFor, Instance: kept.ID,
		Started: kept.CreatedAt, Output: shown.Output, Error: shown.Error, Swept: true,
	}
	if v.HasEnded() {
		v.Ended = kept.UpdatedAt
	}
	return v, kept.Context, nil
}
