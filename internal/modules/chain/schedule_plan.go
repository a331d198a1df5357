package chain

import (
	"fmt"
	"slices"
	"time"
)

// Tick is a time at which a chain runs, with its run.
type Tick struct {
	At  time.Time `json:"at"`
	Run string    `json:"run,omitempty"`
	// By and Why record who requested the tick and why; By is "" for the schedule itself.
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
}

// The outcomes of a tick.
const (
	TickStarted = "started"
	TickRefused = "refused" // its run could not be started
	TickSkipped = "skipped"
	TickQueued  = "queued"
)

// TickOutcome is the outcome of a tick, or of several that were skipped together.
type TickOutcome struct {
	Tick
	// Since is the first of several ticks that were skipped together; At is the last.
	Since   time.Time `json:"since,omitzero"`
	Outcome string    `json:"outcome"`
	Reason  string    `json:"reason,omitempty"`
}

// scheduleState is the stored state of a schedule, in the context of its instance. It is applied as a merge
// patch, so every field must be written each time.
type scheduleState struct {
	Chain string `json:"chain"`
	// Timing is the timing for which the ticks were last computed. A different timing takes effect when it is
	// first seen.
	Timing string `json:"timing"`
	// Passed is the time up to which all ticks are decided.
	Passed time.Time `json:"passed"`
	// Starting holds the ticks whose run was decided but may not have started yet.
	Starting []starting `json:"starting"`
	Asked    []Tick     `json:"asked"`  // requested by people, not decided yet
	Queued   []Tick     `json:"queued"` // waiting for the end of a run
	// Running are the runs that may be in progress.
	Running []string       `json:"running"`
	Last    [1]TickOutcome `json:"last"` // a list, because a merge patch replaces lists as a whole
	// Paused records the last pause or resume.
	Paused RunNote `json:"paused"`
}

// starting is a tick whose run starts after the runs that it replaces are cancelled.
type starting struct {
	Tick
	Replaces []string `json:"replaces"`
}

const (
	// missedAfter is how late a tick may be without counting as missed: the time another process needs to
	// replace one that was killed.
	missedAfter = time.Minute
	// maxQueued limits the ticks that wait for the end of a run.
	maxQueued = 100
)

// The actions of a schedule's instance.
const (
	actChange  = "change"
	actStart   = "start"
	actStarted = "started"
	actRefused = "refused"
	actSkip    = "skip"
	actQueue   = "queue"
	actTrigger = "trigger"
	actPause   = "pause"
	actResume  = "resume"
)

// isPaused reports whether the schedule is paused, so that its ticks start no runs.
func (st scheduleState) isPaused() bool { return st.Paused.Paused }

// decide returns the next decision about a schedule: an action and the state after it, or "" if nothing is
// due. It requires that Running is up to date and Starting is empty.
func (s *Schedule) decide(st scheduleState, now time.Time) (action string, next scheduleState) {
	if st.Timing != s.String() {
		st.Timing, st.Passed = s.String(), now
		return actChange, st
	}
	if len(st.Asked) > 0 {
		tick := st.Asked[0]
		st.Asked = st.Asked[1:]
		return s.admit(st, tick)
	}
	if len(st.Queued) > 0 && len(st.Running) == 0 {
		tick := st.Queued[0]
		st.Queued = st.Queued[1:]
		return st.start(tick, nil)
	}
	if st.isPaused() {
		return "", st
	}
	first, ok := s.Next(st.Passed)
	if !s.isDue(st.Chain, first, ok, now) {
		return "", st
	}
	if last := s.findLate(st.Chain, first, now); !last.IsZero() {
		return st.skip(first, last, s.explainLate())
	}
	if s.Missed != missedAll {
		last, before := first, time.Time{}
		for tick, ok := s.Next(last); s.isDue(st.Chain, tick, ok, now); tick, ok = s.Next(last) {
			last, before = tick, last
		}
		if !before.IsZero() {
			return st.skip(first, before, "missed: only the last one runs")
		}
	}
	st.Passed = first
	return s.admit(st, Tick{At: first, Run: TickRun(st.Chain, first)})
}

func (s *Schedule) isDue(chain string, tick time.Time, ok bool, now time.Time) bool {
	return ok && !s.startOf(chain, tick).After(now)
}

// latestStart returns how late a tick may be and still run.
func (s *Schedule) latestStart() time.Duration {
	if s.Missed == missedSkip {
		return missedAfter
	}
	return s.MissedWithin
}

func (s *Schedule) explainLate() string {
	if s.Missed == missedSkip {
		return "missed"
	}
	return fmt.Sprintf("missed for more than %s", s.MissedWithin)
}

// findLate returns the last tick, starting with first, that is too late to run, or zero if first is not too
// late.
func (s *Schedule) findLate(chain string, first, now time.Time) (last time.Time) {
	bound := now.Add(-s.latestStart())
	tick, ok := first, true
	if sure := bound.Add(-s.Jitter - time.Second); sure.After(first) { // skip ahead instead of visiting every tick
		last = sure.Truncate(time.Second)
		tick, ok = s.Next(last)
	}
	for ok && s.startOf(chain, tick).Before(bound) {
		last = tick
		tick, ok = s.Next(tick)
	}
	return last
}

// admit decides what happens to a tick that is due, depending on the runs in progress.
func (s *Schedule) admit(st scheduleState, tick Tick) (action string, next scheduleState) {
	if len(st.Running) == 0 && len(st.Queued) == 0 || s.Overlap == overlapAllow {
		return st.start(tick, nil)
	}
	switch s.Overlap {
	case overlapReplace:
		return st.start(tick, st.Running)
	case overlapQueue:
		if len(st.Queued) < maxQueued {
			st.Queued = append(slices.Clone(st.Queued), tick)
			st.Last[0] = TickOutcome{Tick: tick, Outcome: TickQueued, Reason: "a run is under way"}
			return actQueue, st
		}
		st.Last[0] = TickOutcome{Tick: tick, Outcome: TickSkipped, Reason: fmt.Sprintf("%d ticks are already waiting", maxQueued)}
	default:
		st.Last[0] = TickOutcome{Tick: tick, Outcome: TickSkipped, Reason: "a run is under way"}
	}
	st.Last[0].Run = ""
	return actSkip, st
}

func (st scheduleState) start(tick Tick, replaces []string) (string, scheduleState) {
	st.Starting = []starting{{tick, replaces}}
	return actStart, st
}

// skip marks the ticks from first to last as skipped.
func (st scheduleState) skip(first, last time.Time, reason string) (string, scheduleState) {
	st.Passed = last
	st.Last[0] = TickOutcome{Tick: Tick{At: last}, Outcome: TickSkipped, Reason: reason}
	if first.Before(last) {
		st.Last[0].Since = first
	}
	return actSkip, st
}

// confirm returns the state after the run of the starting tick was started, or rejected for a reason.
func (st scheduleState) confirm(overlap, reason string) (string, scheduleState) {
	begun := st.Starting[0]
	st.Starting = []starting{}
	st.Last[0] = TickOutcome{Tick: begun.Tick, Outcome: TickStarted}
	if reason != "" {
		st.Last[0].Outcome, st.Last[0].Reason = TickRefused, reason
		return actRefused, st
	}
	if len(begun.Replaces) > 0 {
		st.Last[0].Reason = "it replaced a run"
	}
	st.Running = append(slices.Clone(st.Running), begun.Run)
	if overlap == overlapAllow {
		st.Running = []string{begun.Run}
	}
	return actStarted, st
}

// explainAhead explains that no tick is due for a while because a clock was ahead, and what to do; "" if no
// clock was.
func explainAhead(s *Schedule, st scheduleState, now time.Time) string {
	if st.isPaused() || st.Timing != s.String() || st.Passed.Sub(now) <= missedAfter {
		return ""
	}
	return fmt.Sprintf("The clock was ahead: no tick before %s. Pause and resume the schedule.", st.Passed.UTC().Format(time.RFC3339))
}

// nextStart returns when the next tick starts, or false if there is none.
func (s *Schedule) nextStart(st scheduleState) (time.Time, bool) {
	tick, ok := s.Next(st.Passed)
	if !ok || st.isPaused() {
		return time.Time{}, false
	}
	return s.startOf(st.Chain, tick), true
}
