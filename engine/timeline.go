package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// TimelineEntry is one event of an instance, of any kind, without its documents.
type TimelineEntry struct {
	Seq       int64         `json:"seq"`
	Revision  int64         `json:"revision"`
	Time      time.Time     `json:"time"`
	Kind      record.Kind   `json:"kind"`
	Principal string        `json:"principal"`
	Role      string        `json:"role"`
	Action    string        `json:"action,omitempty"`
	From      string        `json:"from,omitempty"`
	To        string        `json:"to"`
	Status    record.Status `json:"status"`
	Version   int           `json:"version"`
	// Outcome is the outcome of the decision, if there is one.
	Outcome judge.Outcome `json:"outcome,omitempty"`
	// Restores is the revision that an undo, a redo or a rollback restored.
	Restores     int64  `json:"restores,omitempty"`
	CheckpointID string `json:"checkpointId,omitempty"`
	ReviewID     string `json:"reviewId,omitempty"`
	// CallID, Tool and CallOutcome describe a gated call, or the call that a decision is about.
	CallID      string      `json:"callId,omitempty"`
	Tool        string      `json:"tool,omitempty"`
	CallOutcome CallOutcome `json:"callOutcome,omitempty"`
	// Stop reports that the agent tried to end in a state where it may not end.
	Stop bool `json:"stop,omitempty"`
	// FromVersion is the version before a migration.
	FromVersion int `json:"fromVersion,omitempty"`
	// Removed is how many events have been removed in total, for a truncation.
	Removed int64  `json:"removed,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Hash    string `json:"hash"`
}

// TimelineResult answers Timeline.
type TimelineResult struct {
	Instance string          `json:"id"`
	Events   []TimelineEntry `json:"events"` // never nil
	Count    int             `json:"count"`  // of this page
	// NextAfter continues the listing; 0 at the end.
	NextAfter int64 `json:"nextAfter,omitempty"`
}

// Timeline lists all events of an instance, oldest first: the decisions that History returns, and also
// checkpoints, rollbacks, undos, migrations and every other kind.
func (e *Engine) Timeline(ctx context.Context, p Principal, req HistoryRequest) (TimelineResult, error) {
	past, err := showPast(ctx, e, p, req, nil, func(ctx context.Context, show *view, ev record.Event) (TimelineEntry, error) {
		entry := timelineEntry(ev)
		var err error
		entry.Action, entry.Reason, err = show.renderWords(ctx, ev, entry.Reason)
		return entry, err
	})
	if err != nil {
		return TimelineResult{}, err
	}
	return TimelineResult{Instance: req.ID, Events: past.shown, Count: len(past.shown), NextAfter: past.next}, nil
}

func timelineEntry(ev record.Event) TimelineEntry {
	out := TimelineEntry{
		Seq: ev.Seq, Revision: ev.Revision, Time: ev.Time, Kind: ev.Kind, Principal: ev.Principal, Role: ev.Role,
		Action: ev.Action, From: ev.From, To: ev.To, Status: ev.Status, Version: ev.Version, Reason: ev.Reason, Hash: ev.Hash,
	}
	if ev.Decision != nil {
		out.Outcome = ev.Decision.Outcome
	}
	if ev.IsStop() {
		out.Stop, out.Reason = true, ev.Decision.Reasoning
	}
	if ev.Rollback != nil {
		out.Restores, out.CheckpointID = ev.Rollback.Restores, ev.Rollback.CheckpointID
	}
	if ev.Checkpoint != nil {
		out.CheckpointID, out.Reason = ev.Checkpoint.ID, ev.Checkpoint.Description
	}
	if ev.Review != nil {
		out.ReviewID, out.Reason = ev.Review.ID, cmp.Or(ev.Review.Reason, out.Reason)
	}
	if ev.Call != nil {
		out.CallID, out.Tool, out.CallOutcome = ev.Call.ID, ev.Call.Gate, ev.Call.Outcome
	}
	if ev.Migration != nil {
		out.FromVersion = ev.Migration.FromVersion
	}
	if ev.Transcript != nil {
		out.Reason = formatCount(len(ev.Transcript.Messages)+ev.Transcript.Omitted, "message") + " of the user"
	}
	if ev.Truncation != nil {
		out.Removed = ev.Truncation.Count
	}
	return out
}
