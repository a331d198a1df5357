package engine

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
)

// place puts every checkpoint behind the step that it names: the last one with its state
// and context that is not later.
func (pl *plan) place() {
	all := slices.Clone(pl.in.Checkpoints)
	slices.SortStableFunc(all, func(a, b ImportCheckpoint) int {
		if c := a.Time.Compare(b.Time); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	taken := map[string]bool{}
	for _, cp := range all {
		switch {
		case pl.here.checkpoints[cp.ID]:
			continue
		case !goodID(cp.ID):
			remark(&pl.out.Differences, "%s: the id %.80q of the checkpoint cannot be kept; it is left out", cp.File, cp.ID)
			continue
		case taken[cp.ID]:
			remark(&pl.out.Differences, "%s: there is another checkpoint %s; this one is left out", cp.File, cp.ID)
			continue
		}
		taken[cp.ID] = true
		at := pl.named(cp)
		if at == nowhere {
			remark(&pl.out.Differences, "%s: the history was never in %.80q with the context of this checkpoint, or has left it behind here; it is left out", cp.File, cp.State)
			continue
		}
		behind := pl.step(at)
		behind.checkpoints = append(behind.checkpoints, pl.checkpoint(at, cp))
	}
}

// checkpoint is the event of a checkpoint that names where a step led to. Its time is
// between those of the events around it.
func (pl *plan) checkpoint(at int, cp ImportCheckpoint) record.Event {
	ev := pl.event(record.Checkpointed, 0, cp.Hash)
	ev.Time = pl.timeOf(at)
	if before := pl.step(at).checkpoints; len(before) > 0 {
		ev.Time = before[len(before)-1].Time
	}
	extra, err := fieldsOf(cp.Extra)
	if err != nil {
		extra = map[string]json.RawMessage{}
	}
	t := pl.believable(cp.Time, ev.Time)
	tooLate := at+1 < len(pl.steps) && t.After(pl.timeOf(at+1))
	switch {
	case !t.IsZero() && !tooLate:
		ev.Time = t
	case !cp.Time.IsZero():
		extra["timestamp"] = timeText(cp.Time)
	}
	withExtra(ev.Import, "checkpoint", object(extra))
	ev.Checkpoint = &record.Checkpoint{ID: cp.ID, Description: cp.Description, Metadata: cp.Metadata}
	return ev
}
