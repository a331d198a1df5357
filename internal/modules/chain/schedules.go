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

// ScheduleWorkflow is the workflow that stores schedules: each is an instance whose subject is the name of
// its chain.
const ScheduleWorkflow = "gavel.schedule"

// defineSchedules returns the workflow of schedules, with an action for each kind of change. The data of an
// action is the complete state.
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

// Schedules manages the schedules of chains, which are kept in the store. Errors are those of package
// engine.
type Schedules struct {
	Engine *engine.Engine
	// Chains are the operator's definitions by name.
	Chains func() map[string]*Definition
	// RunAs returns the principal that the runs of ticks act for, or false if the operator has configured
	// none.
	RunAs func() (engine.Principal, bool)
}

// systemPrincipal is the principal that records the outcomes of ticks, and finds and cancels the runs of earlier
// ticks.
var systemPrincipal = engine.Principal{ID: "gavel:schedules", Role: engine.RoleOperator}

// storedSchedule is the stored instance of a schedule.
type storedSchedule struct {
	id       string
	revision int64
	scheduleState
}

// ScheduleView is the current state of a schedule.
type ScheduleView struct {
	Chain  string `json:"chain"`
	Timing string `json:"timing"`
	Paused bool   `json:"paused"`
	// Note records who last paused or resumed it.
	Note RunNote `json:"note,omitzero"`
	// Next is when the next run starts; zero if none will.
	Next time.Time `json:"next,omitzero"`
	// Instance is the id of its instance in the store, or "" before a server has stored the schedule.
	Instance string       `json:"id,omitempty"`
	Last     *TickOutcome `json:"last,omitempty"`
	// Waiting is the number of ticks that wait for the end of a run, or were requested and are not decided
	// yet.
	Waiting int      `json:"waiting"`
	Running []string `json:"running,omitempty"`
	// RunAs is the principal that its runs act for. While it is "", nothing runs.
	RunAs string `json:"runAs,omitempty"`
	// Warning explains that no tick is due for a while because a clock was ahead, and what to do.
	Warning string `json:"warning,omitempty"`
}

// ListSchedules returns the schedules of the chains in the principal's scope, by the name of the chain.
func (s *Schedules) ListSchedules(ctx context.Context, p engine.Principal) ([]ScheduleView, error) {
	if err := engine.Authorize(p, engine.RightRead); err != nil {
		return nil, err
	}
	chains, out := s.Chains(), []ScheduleView{}
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

func (s *Schedules) view(d *Definition, kept storedSchedule) ScheduleView {
	v := ScheduleView{
		Chain: d.Name, Timing: d.Schedule.String(), Paused: kept.isPaused(), Instance: kept.id,
		Note: kept.Paused, Waiting: len(kept.Asked) + len(kept.Queued), Running: kept.Running,
	}
	if who, ok := s.RunAs(); ok {
		v.RunAs = who.ID
	}
	if kept.Last[0].Outcome != "" {
		v.Last = &kept.Last[0]
	}
	v.Warning = explainAhead(d.Schedule, kept.scheduleState, s.Engine.Now())
	if kept.Timing != v.Timing {
		kept.Passed = s.Engine.Now()
	}
	kept.Chain = d.Name
	v.Next, _ = d.Schedule.nextStart(kept.scheduleState)
	return v
}

// PauseSchedule pauses a schedule: its ticks start no runs until it is resumed.
func (s *Schedules) PauseSchedule(ctx context.Context, p engine.Principal, chain, why string) (ScheduleView, error) {
	return s.change(ctx, p, chain, why, func(_ *Schedule, kept *storedSchedule, by RunNote) (string, error) {
		if kept.isPaused() {
			return "", unchanged("The schedule of %q is already paused.", chain)
		}
		by.Paused = true
		kept.Paused = by
		return actPause, nil
	})
}

// ResumeSchedule resumes a paused schedule from now on.
func (s *Schedules) ResumeSchedule(ctx context.Context, p engine.Principal, chain, why string) (ScheduleView, error) {
	return s.change(ctx, p, chain, why, func(d *Schedule, kept *storedSchedule, by RunNote) (string, error) {
		if !kept.isPaused() {
			return "", unchanged("The schedule of %q is not paused.", chain)
		}
		if first, ok := d.Next(kept.Passed); ok && !first.After(by.At) && kept.Timing == d.String() {
			_, kept.scheduleState = kept.skip(first, by.At, "paused "+kept.Paused.String())
		}
		kept.Passed, kept.Paused = by.At, by
		return actResume, nil
	})
}

// TriggerSchedule requests a run now, under the rules of the schedule, even if it is paused. A process that
// runs chains starts it at its next poll. The returned tick contains the id of the run.
func (s *Schedules) TriggerSchedule(ctx context.Context, p engine.Principal, chain, why string) (Tick, error) {
	var asked Tick
	_, err := s.change(ctx, p, chain, why, func(_ *Schedule, kept *storedSchedule, by RunNote) (string, error) {
		if _, ok := s.RunAs(); !ok {
			return "", &engine.Error{Code: engine.CodeForbidden, Message: "Scheduled runs have no principal.", Hint: "Name one in chains.runAs."}
		}
		if len(kept.Asked) >= maxQueued {
			return "", &engine.Error{Code: engine.CodeBusy, Message: fmt.Sprintf("%d runs are already requested.", len(kept.Asked)), Hint: "Check that a server with these chains runs."}
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

// change applies an operator's request to a schedule.
func (s *Schedules) change(ctx context.Context, p engine.Principal, chain, why string, do func(d *Schedule, kept *storedSchedule, by RunNote) (string, error)) (ScheduleView, error) {
	if p.Role != engine.RoleOperator {
		return ScheduleView{}, &engine.Error{Code: engine.CodeForbidden, Message: fmt.Sprintf("The role %q may not change a schedule.", p.Role), Hint: "Ask an operator."}
	}
	if err := s.Engine.CheckText("why", why); err != nil {
		return ScheduleView{}, err
	}
	d := s.Chains()[chain]
	if d == nil || d.Schedule == nil || !p.InScope(WorkflowPrefix+chain) {
		return ScheduleView{}, &engine.Error{Code: engine.CodeUnknownWorkflow, Path: "/chain", Message: fmt.Sprintf("No chain %.80q has a schedule.", chain), Hint: "List the schedules."}
	}
	for tries := 0; ; tries++ {
		kept, err := s.ensure(ctx, d)
		if err != nil {
			return ScheduleView{}, err
		}
		action, err := do(d.Schedule, &kept, RunNote{By: p.ID, Why: why, At: s.Engine.Now()})
		if err != nil {
			return ScheduleView{}, err
		}
		kept, err = s.record(ctx, engine.Principal{ID: p.ID, Role: p.Role}, kept, action)
		if isCode(err, engine.CodeConflict) && tries < 10 {
			continue // a concurrent change by the scheduler was faster
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

// find returns the stored state of a schedule, or a zero value if there is none.
func (s *Schedules) find(ctx context.Context, chain string) (storedSchedule, error) {
	position, err := s.Engine.FindSubject(ctx, systemPrincipal, ScheduleWorkflow, chain)
	if isCode(err, engine.CodeUnknownInstance) {
		return storedSchedule{}, nil
	}
	if err != nil {
		return storedSchedule{}, err
	}
	status, err := s.Engine.Status(ctx, systemPrincipal, position.ID)
	if err != nil {
		return storedSchedule{}, err
	}
	kept := storedSchedule{id: position.ID, revision: status.Revision}
	if err := json.Unmarshal(status.Context, &kept.scheduleState); err != nil {
		return storedSchedule{}, engine.InternalError(fmt.Sprintf("the record of the schedule of %q is damaged", chain), err)
	}
	return kept, nil
}

// ensure is like find, but creates the state if there is none. Times before its creation are not ticks of
// the schedule.
func (s *Schedules) ensure(ctx context.Context, d *Definition) (storedSchedule, error) {
	kept, err := s.find(ctx, d.Name)
	if err != nil || kept.id != "" {
		return kept, err
	}
	if _, err := s.Engine.Define(ctx, systemPrincipal, engine.DefineRequest{Source: ScheduleWorkflow, Document: defineSchedules()}); err != nil {
		return storedSchedule{}, err
	}
	raw, err := json.Marshal(scheduleState{
		Chain: d.Name, Timing: d.Schedule.String(), Passed: s.Engine.Now(),
		Starting: []starting{}, Asked: []Tick{}, Queued: []Tick{}, Running: []string{},
	})
	if err != nil {
		return storedSchedule{}, engine.InternalError("encode a schedule", err)
	}
	began, err := s.Engine.Start(ctx, systemPrincipal, engine.StartRequest{Type: ScheduleWorkflow, Subject: d.Name, Context: raw})
	switch {
	case isCode(err, engine.CodeSubjectTaken): // another process was faster
	case err != nil:
		return storedSchedule{}, err
	case began.ID == "":
		return storedSchedule{}, engine.InternalError("begin a schedule", errors.New("its start was refused"))
	}
	return s.find(ctx, d.Name)
}

// record writes a decision about a schedule. It fails with CodeConflict if another decision was written
// first.
func (s *Schedules) record(ctx context.Context, p engine.Principal, kept storedSchedule, action string) (storedSchedule, error) {
	raw, err := json.Marshal(kept.scheduleState)
	if err != nil {
		return kept, engine.InternalError("encode a schedule", err)
	}
	moved, err := s.Engine.Advance(ctx, p, engine.AdvanceRequest{ID: kept.id, Action: action, Data: document.ReadTrusted(raw), ExpectedRevision: &kept.revision})
	if err != nil {
		return kept, err
	}
	if moved.Decision.Outcome != judge.Approve {
		return kept, engine.InternalError("record the outcome of a tick", fmt.Errorf("%s: %v", moved.Decision.Outcome, moved.Decision.Findings))
	}
	kept.revision = moved.Revision
	return kept, nil
}
