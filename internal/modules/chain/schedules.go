package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ScheduleWorkflow is the workflow of what is kept of schedules: each is an instance, about the name of its chain.
const ScheduleWorkflow = "gavel.schedule"

// defineSchedules is the workflow of schedules: an action for each thing that may become of one. The data are the whole
// state.
func defineSchedules() []byte {
	list := func(state, other, target string) string {
		transitions := []string{fmt.Sprintf(`%q: {"target": %q, "roles": ["operator"]}`, other, target)}
		for _, action := range []string{actChange, actStart, actStarted, actRefused, actSkip, actQueue, actTrigger} {
			transitions = append(transitions, fmt.Sprintf(`%q: {"target": %q, "roles": ["operator"]}`, action, state))
		}
		return fmt.Sprintf(`%q: {"transitions": {%s}}`, state, strings.Join(transitions, ", "))
	}
	return fmt.Appendf(nil, `{"name": %q, "description": "What became of the ticks of a chain's schedule. gavel writes it.", "initialState": "active", "states": {%s, %s}}`,
		ScheduleWorkflow, list("active", actPause, "paused"), list("paused", actResume, "active"))
}

// SchedulesConfig are the settings of Schedules.
type SchedulesConfig struct {
	Engine *engine.Engine
	// Chains are the operator's definitions by name.
	Chains func() map[string]*Definition
	// RunAs is for whom the runs of ticks act; false while the operator names nobody.
	RunAs func() (engine.Principal, bool)
}

// Schedules are the schedules of chains, kept in the store. Errors are the engine's.
type Schedules struct{ config SchedulesConfig }

// NewSchedules returns the schedules of the operator's chains.
func NewSchedules(c SchedulesConfig) *Schedules { return &Schedules{config: c} }

// keeper is who writes what becomes of ticks, and looks for and cancels the runs of earlier ones.
var keeper = engine.Principal{ID: "gavel:schedules", Role: engine.RoleOperator}

// keptSchedule is a schedule's instance.
type keptSchedule struct {
	id       string
	revision int64
	scheduleState
}

// ScheduleView is a schedule as it stands.
type ScheduleView struct {
	Chain  string `json:"chain"`
	Timing string `json:"timing"`
	Paused bool   `json:"paused"`
	// Note says who paused or resumed it last.
	Note *RunNote `json:"note,omitempty"`
	// Next is when the next run starts; zero where none will.
	Next time.Time `json:"next,omitzero"`
	// Instance is the id of its instance in the store, "" before a server knew the schedule.
	Instance string       `json:"id,omitempty"`
	Last     *TickOutcome `json:"last,omitempty"`
	// Waiting counts the ticks that wait for the end of a run, or were asked for and not looked at yet.
	Waiting int      `json:"waiting"`
	Running []string `json:"running,omitempty"`
	// RunAs is for whom its runs act; "" while the operator names nobody, and nothing runs.
	RunAs string `json:"runAs,omitempty"`
	// Warning says that no tick comes for a while because a clock was ahead, and what to do.
	Warning string `json:"warning,omitempty"`
}

// ListSchedules returns the schedules of the chains that the principal may deal with, by the name of the chain.
func (s *Schedules) ListSchedules(ctx context.Context, p engine.Principal) ([]ScheduleView, error) {
	if err := engine.Authorize(p, engine.RightRead); err != nil {
		return nil, err
	}
	chains, out := s.config.Chains(), []ScheduleView{}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		if chains[name].Schedule == nil || p.Role == engine.RoleAgent || !p.InScope(WorkflowPrefix+name) {
			continue
		}
		kept, err := s.find(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, s.view(chains[name], kept))
	}
	return out, nil
}

func (s *Schedules) view(d *Definition, kept keptSchedule) ScheduleView {
	v := ScheduleView{
		Chain: d.Name, Timing: d.Schedule.String(), Paused: kept.isPaused(), Instance: kept.id,
		Waiting: len(kept.Asked) + len(kept.Queued), Running: kept.Running,
	}
	if who, ok := s.config.RunAs(); ok {
		v.RunAs = who.ID
	}
	if kept.Paused.By != "" {
		v.Note = &kept.Paused
	}
	if kept.Last[0].Outcome != "" {
		v.Last = &kept.Last[0]
	}
	v.Warning = explainAhead(d.Schedule, kept.scheduleState, s.config.Engine.Now())
	if kept.Timing != v.Timing {
		kept.Passed = s.config.Engine.Now()
	}
	kept.Chain = d.Name
	v.Next, _ = d.Schedule.nextStart(kept.scheduleState)
	return v
}

// PauseSchedule passes the ticks of a schedule without runs, until it is resumed.
func (s *Schedules) PauseSchedule(ctx context.Context, p engine.Principal, chain, why string) (ScheduleView, error) {
	return s.change(ctx, p, chain, why, func(_ *Schedule, kept *keptSchedule, by RunNote) (string, error) {
		if kept.isPaused() {
			return "", unchanged("The schedule of %q is paused already.", chain)
		}
		by.Paused = true
		kept.Paused = by
		return actPause, nil
	})
}

// ResumeSchedule lets the ticks of a paused schedule run again, from now on.
func (s *Schedules) ResumeSchedule(ctx context.Context, p engine.Principal, chain, why string) (ScheduleView, error) {
	return s.change(ctx, p, chain, why, func(d *Schedule, kept *keptSchedule, by RunNote) (string, error) {
		if !kept.isPaused() {
			return "", unchanged("The schedule of %q is not paused.", chain)
		}
		if first, ok := d.Next(kept.Passed); ok && !first.After(by.At) && kept.Timing == d.String() {
			_, kept.scheduleState = kept.skip(first, by.At, "paused"+kept.Paused.explain())
		}
		kept.Passed, kept.Paused = by.At, by
		return actResume, nil
	})
}

// TriggerSchedule asks for a run now, with the rules of the schedule, also where it is paused. It starts when a process
// that runs chains looks; the tick is told with the id of its run.
func (s *Schedules) TriggerSchedule(ctx context.Context, p engine.Principal, chain, why string) (Tick, error) {
	var asked Tick
	_, err := s.change(ctx, p, chain, why, func(_ *Schedule, kept *keptSchedule, by RunNote) (string, error) {
		if _, ok := s.config.RunAs(); !ok {
			return "", &engine.Error{Code: engine.CodeForbidden, Message: "The configuration does not say for whom the runs of schedules act.", Hint: "Name a principal in chains.runAs."}
		}
		if len(kept.Asked) >= maxQueued {
			return "", &engine.Error{Code: engine.CodeBusy, Message: fmt.Sprintf("%d runs are asked for already.", len(kept.Asked)), Hint: "See that a server with these chains runs."}
		}
		asked = Tick{At: by.At, Run: TickRun(chain+" "+by.At.Format(time.RFC3339Nano)+" "+by.By, by.At), By: by.By, Why: by.Why}
		kept.Asked = append(kept.Asked, asked)
		return actTrigger, nil
	})
	return asked, err
}

func unchanged(format string, args ...any) error {
	return &engine.Error{Code: engine.CodeConflict, Message: fmt.Sprintf(format, args...), Hint: "List the schedules."}
}

// change does what an operator asks of a schedule.
func (s *Schedules) change(ctx context.Context, p engine.Principal, chain, why string, do func(d *Schedule, kept *keptSchedule, by RunNote) (string, error)) (ScheduleView, error) {
	if p.Role != engine.RoleOperator {
		return ScheduleView{}, &engine.Error{Code: engine.CodeForbidden, Message: fmt.Sprintf("The role %q may not change a schedule.", p.Role), Hint: "Ask an operator."}
	}
	if err := s.config.Engine.CheckText("why", why); err != nil {
		return ScheduleView{}, err
	}
	d := s.config.Chains()[chain]
	if d == nil || d.Schedule == nil || !p.InScope(WorkflowPrefix+chain) {
		return ScheduleView{}, &engine.Error{Code: engine.CodeUnknownWorkflow, Path: "/chain", Message: fmt.Sprintf("No chain %.80q has a schedule.", chain), Hint: "List the schedules."}
	}
	for tries := 0; ; tries++ {
		kept, err := s.keep(ctx, d)
		if err != nil {
			return ScheduleView{}, err
		}
		action, err := do(d.Schedule, &kept, RunNote{By: p.ID, Why: why, At: s.config.Engine.Now()})
		if err != nil {
			return ScheduleView{}, err
		}
		kept, err = s.record(ctx, engine.Principal{ID: p.ID, Role: p.Role}, kept, action)
		if isCode(err, engine.CodeConflict) && tries < 10 {
			continue // the scheduler was faster
		}
		if err != nil {
			return ScheduleView{}, err
		}
		return s.view(d, kept), nil
	}
}

func isCode(err error, code engine.Code) bool {
	e, ok := errors.AsType[*engine.Error](err)
	return ok && e.Code == code
}

// find returns what is kept of a schedule, nothing where nothing is.
func (s *Schedules) find(ctx context.Context, chain string) (keptSchedule, error) {
	position, err := s.config.Engine.FindSubject(ctx, keeper, ScheduleWorkflow, chain)
	if isCode(err, engine.CodeUnknownInstance) {
		return keptSchedule{}, nil
	}
	if err != nil {
		return keptSchedule{}, err
	}
	status, err := s.config.Engine.Status(ctx, keeper, position.ID)
	if err != nil {
		return keptSchedule{}, err
	}
	kept := keptSchedule{id: position.ID, revision: status.Revision}
	if err := json.Unmarshal(status.Context, &kept.scheduleState); err != nil {
		return keptSchedule{}, engine.InternalError(fmt.Sprintf("the record of the schedule of %q is damaged", chain), err)
	}
	return kept, nil
}

// keep is find, and begins a schedule of which nothing is kept: what comes before is no tick of it.
func (s *Schedules) keep(ctx context.Context, d *Definition) (keptSchedule, error) {
	kept, err := s.find(ctx, d.Name)
	if err != nil || kept.id != "" {
		return kept, err
	}
	if _, err := s.config.Engine.Define(ctx, keeper, engine.DefineRequest{Source: ScheduleWorkflow, Document: defineSchedules()}); err != nil {
		return keptSchedule{}, err
	}
	raw, err := json.Marshal(scheduleState{
		Chain: d.Name, Timing: d.Schedule.String(), Passed: s.config.Engine.Now(),
		Starting: []starting{}, Asked: []Tick{}, Queued: []Tick{}, Running: []string{},
	})
	if err != nil {
		return keptSchedule{}, engine.InternalError("encode a schedule", err)
	}
	began, err := s.config.Engine.Start(ctx, keeper, engine.StartRequest{Type: ScheduleWorkflow, Subject: d.Name, Context: raw})
	switch {
	case isCode(err, engine.CodeSubjectTaken): // another process was faster
	case err != nil:
		return keptSchedule{}, err
	case began.ID == "":
		return keptSchedule{}, engine.InternalError("begin a schedule", errors.New("its start was refused"))
	}
	return s.find(ctx, d.Name)
}

// record writes a decision about a schedule. CodeConflict where it was decided otherwise meanwhile.
func (s *Schedules) record(ctx context.Context, p engine.Principal, kept keptSchedule, action string) (keptSchedule, error) {
	raw, err := json.Marshal(kept.scheduleState)
	if err != nil {
		return kept, engine.InternalError("encode a schedule", err)
	}
	moved, err := s.config.Engine.Advance(ctx, p, engine.AdvanceRequest{ID: kept.id, Action: action, Data: document.Known(raw), ExpectedRevision: &kept.revision})
	if err != nil {
		return kept, err
	}
	if moved.Decision.Outcome != judge.Approve {
		return kept, engine.InternalError("record what became of a schedule", fmt.Errorf("%s: %v", moved.Decision.Outcome, moved.Decision.Findings))
	}
	kept.revision = moved.Revision
	return kept, nil
}
