package store

import (
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

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
	// Lease, when not nil, makes AddAnchor fail with ErrLeaseLost where that has ended.
	Lease *Lease `json:"-"`
}

// LastAnchor asks Store.Anchors for the newest anchor alone.
const LastAnchor = -1

// TailQuery selects events by their position; an empty field selects all.
type TailQuery struct {
	After int64 // exclusive
	UpTo  int64 // inclusive; 0 is no bound
	Limit int   // 0 is no limit
	// Instance is an id, Workflow a name, Owner who started the instance.
	Instance, Workflow, Owner string
}

// PageSize is how many events a driver reads at a time, where a page has so many: more where all are wanted,
// for next to many writers each read waits for its turn.
func (q TailQuery) PageSize(page int) int {
	if q.Instance == "" && q.Workflow == "" && q.Owner == "" {
		return 8 * page
	}
	return page
}

// PlacedEvent is an event with its place among all of a store.
type PlacedEvent struct {
	// Position orders all events of a store; it never changes.
	Position int64
	// Owner started the instance, and Version of its workflow is what it is pinned to now.
	Owner   string
	Version int
	Event   record.Event
}
