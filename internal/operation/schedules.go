package operation

import (
	"context"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Schedules start runs of chains at times. Each call names who asks; errors are the engine's.
type Schedules interface {
	ListSchedules(context.Context, engine.Principal) ([]ScheduleView, error)
	PauseSchedule(context.Context, engine.Principal, ChangeScheduleRequest) (ScheduleView, error)
	ResumeSchedule(context.Context, engine.Principal, ChangeScheduleRequest) (ScheduleView, error)
	TriggerSchedule(context.Context, engine.Principal, ChangeScheduleRequest) (Tick, error)
}

// ScheduleView is the schedule of a chain as it stands.
type ScheduleView struct {
	Chain string `json:"chain"`
	// Timing is what its ticks follow from, as people write it.
	Timing string `json:"timing"`
	Paused bool   `json:"paused"`
	// Note says who paused or resumed it last.
	Note *RunNote `json:"note,omitempty"`
	// Next is when the next run starts; zero where none will.
	Next time.Time `json:"next,omitzero"`
	// Instance records what became of its ticks, in the store; "" before a server knew the schedule.
	Instance string       `json:"id,omitempty"`
	Last     *TickOutcome `json:"last,omitempty"`
	// Waiting counts the ticks that wait for a run to end, or were asked for and not looked at yet.
	Waiting int `json:"waiting"`
	// Running are the runs that may be under way.
	Running []string `json:"running,omitempty"`
	// RunAs is for whom its runs act; "" while the operator names nobody, and nothing runs.
	RunAs string `json:"runAs,omitempty"`
	// Warning says that no tick comes for a while because a clock was ahead, and what to do.
	Warning string `json:"warning,omitempty"`
}

// Tick is a time at which a chain runs, with its run.
type Tick struct {
	At  time.Time `json:"at"`
	Run string    `json:"run,omitempty"`
	// By and Why say who asked for it, "" for the schedule.
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
}

// TickOutcome is what became of a tick, or of several that were skipped together.
type TickOutcome struct {
	Tick
	// Since is the first of several that were skipped together; At is the last.
	Since   time.Time `json:"since,omitzero"`
	Outcome string    `json:"outcome"` // started, refused, skipped or queued
	Reason  string    `json:"reason,omitempty"`
}

// ScheduleList lists schedules by the names of their chains.
type ScheduleList struct {
	Schedules []ScheduleView `json:"schedules"`
	Count     int            `json:"count"`
}

// ChangeScheduleRequest asks to pause, resume or trigger the schedule of a chain.
type ChangeScheduleRequest struct{ Chain, Reason string }

var fieldScheduled = Field{Name: "chain", Required: true, Help: "The name of a chain that has a schedule."}

// The operations on schedules.
var (
	ListSchedules = addOperation(Operation{
		ID: "listSchedules", Group: "chains", Title: "List schedules", Right: engine.RightRead,
		Description: "List the schedules of chains: when each runs next, what became of its last tick, and who paused it. Agents see none.",
		Routes:      []Route{{At: "GET /v1/schedules"}},
	}, askChains(func(chains Chains, ctx context.Context, p engine.Principal, _ Empty) (ScheduleList, error) {
		all, err := chains.ListSchedules(ctx, p)
		return ScheduleList{Schedules: all, Count: len(all)}, err
	}))
	PauseSchedule = addOperation(Operation{
		ID: "pauseSchedule", Group: "chains", Title: "Pause a schedule", Right: engine.RightOperate,
		Description: "Let the ticks of a schedule pass without runs, until it is resumed. Runs that are under way go on.",
		Fields:      []Field{fieldScheduled, fieldReason},
		Routes:      []Route{{At: "POST /v1/schedules/{chain}/pause"}},
	}, askChains(Chains.PauseSchedule))
	ResumeSchedule = addOperation(Operation{
		ID: "resumeSchedule", Group: "chains", Title: "Resume a schedule", Right: engine.RightOperate,
		Description: "Let the ticks of a paused schedule run again, from now on. Those that passed meanwhile are skipped.",
		Fields:      []Field{fieldScheduled, fieldReason},
		Routes:      []Route{{At: "POST /v1/schedules/{chain}/resume"}},
	}, askChains(Chains.ResumeSchedule))
	TriggerSchedule = addOperation(Operation{
		ID: "triggerSchedule", Group: "chains", Title: "Trigger a schedule", Right: engine.RightOperate,
		Description: "Ask for a run now, with the rules of the schedule, also while it is paused. It starts within seconds, when a server that runs chains looks; run is the id that it will have.",
		Fields:      []Field{fieldScheduled, fieldReason},
		Routes:      []Route{{At: "POST /v1/schedules/{chain}/trigger"}},
	}, askChains(Chains.TriggerSchedule))
)
