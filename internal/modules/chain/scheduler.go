package chain

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Starter starts the runs of ticks; *Service implements it. Starting the same id again starts no second
// run.
type Starter interface {
	StartTick(ctx context.Context, p engine.Principal, req StartRun) (RunView, error)
	ReadStatus(ctx context.Context, p engine.Principal, run string) (RunView, error)
	CancelRun(ctx context.Context, p engine.Principal, run, why string) (RunView, error)
}

// jobSchedules is the name of a job that only one process of a store does at a time.
const jobSchedules = "chain schedules"

const (
	jobPoll  = time.Second     // polls for requests, and for runs that have ended
	leadPoll = 2 * time.Second // polls whether another process is still the leader
	// turnTime is how long one schedule is processed before the next one has its turn.
	turnTime = 250 * time.Millisecond
)

// RunTicks starts the runs of ticks whenever this process is the leader, until ctx ends. Decisions are
// recorded before they are carried out, so the next leader completes them if this process is killed.
func (s *Schedules) RunTicks(ctx context.Context, runs Starter, log *slog.Logger) {
	warned := map[string]time.Time{}
	warn := func(err error) {
		log.WarnContext(ctx, "cannot check the schedules of chains; trying again", "cause", err)
	}
	lead(ctx, s.Engine, jobSchedules, warn, func(ctx context.Context) error {
		for ctx.Err() == nil {
			more, err := s.pass(ctx, runs, log, warned)
			if err != nil {
				return err
			}
			if !more {
				_, _ = pause(ctx, nil, jobPoll-time.Duration(s.Engine.Now().UnixNano()%int64(jobPoll))) // ticks are whole seconds
			}
		}
		return nil
	})
}

// lead does a job whenever this process is the leader, until ctx ends. warn receives the errors.
func lead(ctx context.Context, e *engine.Engine, job string, warn func(error), do func(context.Context) error) {
	for ctx.Err() == nil {
		err := e.Lead(ctx, job, 0, do)
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrLeaseTaken) && !errors.Is(err, store.ErrLeaseLost) {
			warn(err)
		}
		_, _ = pause(ctx, nil, leadPoll)
	}
}

// pass decides and does what is due for every schedule, for up to turnTime each; unfinished reports that
// some have more to do. warned holds the schedules that wait because a clock was wrong, with the time they
// wait for.
func (s *Schedules) pass(ctx context.Context, runs Starter, log *slog.Logger, warned map[string]time.Time) (unfinished bool, _ error) {
	chains := s.Chains()
	who, ok := s.RunAs()
	if !ok {
		return false, nil
	}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		d := chains[name]
		if d.Schedule == nil {
			continue
		}
		kept, err := s.ensure(ctx, d)
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrLeaseLost) {
			log.WarnContext(ctx, "cannot read or create the record of a schedule; trying again", "chain", name, "cause", err)
			continue
		}
		if warning := explainAhead(d.Schedule, kept.scheduleState, s.Engine.Now()); warning != "" && !warned[name].Equal(kept.Passed) {
			warned[name] = kept.Passed
			log.WarnContext(ctx, "a schedule waits because its record is ahead of the clock", "chain", name, "why", warning)
		}
		begun, more := time.Now(), err == nil
		for more && time.Since(begun) < turnTime {
			kept, more, err = s.step(ctx, runs, who, d, kept)
		}
		unfinished = unfinished || more
		switch {
		case ctx.Err() != nil, errors.Is(err, store.ErrLeaseLost):
			return false, err
		case err != nil && !isCode(err, engine.CodeConflict): // a concurrent change was faster: retry next time
			log.WarnContext(ctx, "cannot decide a tick; trying again", "chain", name, "cause", err)
		}
	}
	return unfinished, nil
}

// step makes one decision about a schedule, or carries out the last one, and records it.
func (s *Schedules) step(ctx context.Context, runs Starter, who engine.Principal, d *Definition, kept storedSchedule) (_ storedSchedule, more bool, err error) {
	var action string
	if len(kept.Starting) > 0 {
		reason, err := s.startTick(ctx, runs, who, d, kept.Starting[0])
		if err != nil {
			return kept, false, err
		}
		action, kept.scheduleState = kept.confirm(d.Schedule.Overlap, reason)
	} else {
		if kept.Running, err = listUnderWay(ctx, runs, kept.Running); err != nil {
			return kept, false, err
		}
		if action, kept.scheduleState = d.Schedule.decide(kept.scheduleState, s.Engine.Now()); action == "" {
			return kept, false, nil
		}
	}
	kept, err = s.record(ctx, systemPrincipal, kept, action)
	return kept, err == nil, err
}

// startTick starts the run of a tick, or returns why it was rejected.
func (s *Schedules) startTick(ctx context.Context, runs Starter, who engine.Principal, d *Definition, tick starting) (refused string, err error) {
	for _, run := range tick.Replaces {
		if _, err := runs.CancelRun(ctx, systemPrincipal, run, "replaced by the tick of "+tick.At.Format(time.RFC3339)); err != nil && !isFinal(err) {
			return "", err
		}
	}
	_, err = runs.StartTick(ctx, who, StartRun{Chain: d.Name, Run: tick.Run})
	switch {
	case err == nil, isCode(err, engine.CodeKeyReused): // it may have been started for another principal before a kill
		return "", nil
	case isFinal(err), s.Engine.Now().Sub(tick.At) > d.Schedule.MissedWithin:
		return err.Error(), nil
	}
	return "", err
}

// isFinal reports whether retrying cannot help.
func isFinal(err error) bool {
	e, ok := errors.AsType[*engine.Error](err)
	return ok && !slices.Contains([]engine.Code{engine.CodeInternal, engine.CodeUnavailable, engine.CodeCancelled, engine.CodeBusy, engine.CodeRateLimited, engine.CodeConflict}, e.Code)
}

// listUnderWay returns the given runs that have not ended, regardless of the principal they act for.
func listUnderWay(ctx context.Context, runs Starter, all []string) ([]string, error) {
	under := []string{}
	for _, run := range all {
		switch v, err := runs.ReadStatus(ctx, systemPrincipal, run); {
		case err == nil && !v.HasEnded():
			under = append(under, run)
		case err != nil && !isCode(err, engine.CodeUnknownInstance):
			return nil, err
		}
	}
	return under, nil
}
