package main

import (
	"context"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/chain"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// schedules are the schedules of the chains, which are in the store: any process over it may change them.
func (c *chains) schedules() *chain.Schedules {
	return chain.NewSchedules(chain.SchedulesConfig{Engine: c.sys.Engine, Chains: c.catalogue.list, RunAs: c.runAs})
}

func (f chainsFace) ListSchedules(ctx context.Context, p engine.Principal) ([]operation.ScheduleView, error) {
	all, err := f.schedules().ListSchedules(ctx, p)
	views := make([]operation.ScheduleView, len(all))
	for i, v := range all {
		views[i] = viewSchedule(v)
	}
	return views, err
}

func (f chainsFace) PauseSchedule(ctx context.Context, p engine.Principal, req operation.ChangeScheduleRequest) (operation.ScheduleView, error) {
	v, err := f.schedules().PauseSchedule(ctx, p, req.Chain, req.Reason)
	return viewSchedule(v), err
}

func (f chainsFace) ResumeSchedule(ctx context.Context, p engine.Principal, req operation.ChangeScheduleRequest) (operation.ScheduleView, error) {
	v, err := f.schedules().ResumeSchedule(ctx, p, req.Chain, req.Reason)
	return viewSchedule(v), err
}

func (f chainsFace) TriggerSchedule(ctx context.Context, p engine.Principal, req operation.ChangeScheduleRequest) (operation.Tick, error) {
	tick, err := f.schedules().TriggerSchedule(ctx, p, req.Chain, req.Reason)
	return operation.Tick(tick), err
}

// viewSchedule is a schedule as operations answer with it.
func viewSchedule(v chain.ScheduleView) operation.ScheduleView {
	s := operation.ScheduleView{
		Chain: v.Chain, Timing: v.Timing, Paused: v.Paused, Note: (*operation.RunNote)(v.Note), Next: v.Next, Instance: v.Instance,
		Waiting: v.Waiting, Running: v.Running, RunAs: v.RunAs, Warning: v.Warning,
	}
	if v.Last != nil {
		s.Last = &operation.TickOutcome{Tick: operation.Tick(v.Last.Tick), Since: v.Last.Since, Outcome: v.Last.Outcome, Reason: v.Last.Reason}
	}
	return s
}
