package store

import (
	"context"
	"iter"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// What a Store may be able to do beyond the interface. The engine finds out by type
// assertion, and says CodeUnavailable where an ability is missing. Both drivers of
// this module have all of them but Backuper, which a store in memory has not.

// Searcher finds recorded decisions.
type Searcher interface {
	// Decisions lists decisions as the query says, the newest first. The iterator sees a
	// consistent prefix of all events; what is committed meanwhile may or may not appear.
	Decisions(ctx context.Context, q DecisionQuery) iter.Seq2[DecisionHit, error]
}

// DecisionQuery selects decisions; an empty field selects all.
type DecisionQuery struct {
	Workflow, Instance string
	// Owner is who started the instance: what a principal that sees its own only may see.
	Owner string
	// Principal is who asked.
	Principal, Action string
	Outcome           judge.Outcome
	DecidedBy         judge.LayerName
	Assurance         judge.Assurance
	Code              string
	Degraded          *bool
	MinConfidence     *float64  // inclusive
	MaxConfidence     *float64  // inclusive
	Since, Until      time.Time // inclusive, exclusive
	Kinds             []record.Kind
	// Text is looked for in reasoning and findings: words, all of which must be there,
	// whatever their case, accents and order. A text without words matches nothing.
	Text string
	// Before continues below a position; 0 starts at the newest.
	Before int64
	// Looked, when not nil, is called now and then with a position: from there on, upwards,
	// everything was looked through. The search ends there when it returns false.
	Looked func(position int64) bool
	Limit  int // 0 is no limit
}

// DecisionHit is a decision that was found.
type DecisionHit struct {
	// Position orders all events of a store; it never changes.
	Position int64
	Event    record.Event
}

// Anchorer keeps signed anchors: what all histories were at a time.
type Anchorer interface {
	// AddAnchor appends anchor a.Number, which must be the highest present one plus 1;
	// else ErrConflict. So is the first one where the beginning of a history was removed
	// above the position a.Seen: its heads may be of before.
	AddAnchor(ctx context.Context, a Anchor) error
	// Anchors lists anchors above a number, oldest first.
	Anchors(ctx context.Context, after int64) iter.Seq2[Anchor, error]
	// LastAnchor returns the one with the highest number. ErrNotFound.
	LastAnchor(ctx context.Context) (Anchor, error)
	// LastPosition is that of the newest event: how many were ever committed. 0 is none.
	LastPosition(ctx context.Context) (int64, error)
	// Heads lists where the instances stand that have an event above a position, by id;
	// 0 is all of them. Those that move meanwhile are listed as they were or as they are.
	Heads(ctx context.Context, above int64) iter.Seq2[record.Head, error]
}

// Anchor is one anchor at rest.
type Anchor struct {
	Number int64     `json:"number"` // from 1
	At     time.Time `json:"at"`
	// Note is the signed text (C2SP tlog-checkpoint form); what it says is the engine's
	// to read.
	Note string `json:"note"`
	// Heads are the instances that it covers with their last event, as the engine encoded
	// them: what the root in Note is computed from.
	Heads []byte `json:"heads"`
	// Seen is LastPosition from before Heads were read. It is not kept.
	Seen int64 `json:"-"`
}

// Tailer tells what was committed, in the order of commits.
type Tailer interface {
	// EventsAfter lists events as the query says, oldest first. What one process committed
	// another one finds as soon as it is durable.
	EventsAfter(ctx context.Context, q TailQuery) iter.Seq2[PlacedEvent, error]
	// LastPosition is that of the newest event, 0 when there is none.
	LastPosition(ctx context.Context) (int64, error)
}

// TailQuery selects events by their position; an empty field selects all.
type TailQuery struct {
	After int64 // exclusive
	UpTo  int64 // inclusive; 0 is no bound
	Limit int   // 0 is no limit
	// Instance is an id, Workflow a name, Owner who started the instance.
	Instance, Workflow, Owner string
}

// PlacedEvent is an event with its place among all of a store.
type PlacedEvent struct {
	Position int64
	// Owner started the instance, and Version of its workflow is what it is pinned to now.
	Owner   string
	Version int
	Event   record.Event
}

// Teacher keeps a lesson that no event goes with.
type Teacher interface {
	Learn(ctx context.Context, l Lesson) error
}

// Counter counts the instances of a principal that have not ended.
type Counter interface {
	// Running counts no further than most.
	Running(ctx context.Context, owner string, most int) (int, error)
}

// Truncator removes the beginning of a history.
type Truncator interface {
	// Truncate removes the events of an instance up to and including a seq, and its
	// snapshots below floor.Revision, and stores floor as a snapshot: all of it or
	// nothing, together with c, whose last event says so (record.Truncated). Errors as
	// for Commit.
	Truncate(ctx context.Context, c Commit, upTo int64, floor record.Instance) error
}

// Backuper copies a store while it is in use.
type Backuper interface {
	// Backup writes a consistent copy of everything to a new file.
	Backup(ctx context.Context, path string) error
}
