package store

import (
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// DecisionQuery selects decisions; an empty field matches all.
type DecisionQuery struct {
	Workflow, Instance string
	// Owner started the instance. It restricts a principal that may see only its own instances.
	Owner string
	// Principal made the request.
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
	// Text is searched in reasoning and findings. All its words must occur, regardless of case, accents and order. A
	// text without words matches nothing.
	Text string
	// Before limits results to positions below it; 0 starts at the newest.
	Before int64
	// OnScan, if not nil, is called from time to time with a position: every decision at or above it has been
	// examined. The search stops if it returns false.
	OnScan func(position int64) bool
	Limit  int // 0 is no limit
}

// Anchor is a stored anchor.
type Anchor struct {
	Number int64     `json:"number"` // from 1
	At     time.Time `json:"at"`
	// Note is the signed text (C2SP tlog-checkpoint form). Only the engine interprets it.
	Note string `json:"note"`
	// Heads lists the covered instances with their last events, as encoded by the engine. The root in Note is
	// computed from it.
	Heads []byte `json:"heads"`
	// Seen is the LastPosition read before Heads. It is not stored.
	Seen int64 `json:"-"`
	// Lease, if not nil, makes AddAnchor fail with ErrLeaseLost once the lease has ended.
	Lease *Lease `json:"-"`
}

// LastAnchor makes Store.Anchors return the newest anchor only.
const LastAnchor = -1

// TailQuery selects events by position; an empty field matches all.
type TailQuery struct {
	After int64 // exclusive
	UpTo  int64 // inclusive; 0 is no bound
	Limit int   // 0 is no limit
	// Instance is an id, Workflow a name, and Owner the principal that started the instance.
	Instance, Workflow, Owner string
}

// PageSize returns how many events a driver should read at a time if its usual page has page events. A query without
// filters reads more: with many writers, each read waits its turn.
func (q TailQuery) PageSize(page int) int {
	if q.Instance == "" && q.Workflow == "" && q.Owner == "" {
		return 8 * page
	}
	return page
}

// PlacedEvent is an event with its position among all events of a store.
type PlacedEvent struct {
	// Position orders all events of a store and never changes.
	Position int64
	// Owner started the instance. Version is the workflow version to which the instance is pinned now.
	Owner   string
	Version int
	Event   record.Event
}
