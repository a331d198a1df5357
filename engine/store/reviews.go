package store

import (
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// Review is a review at rest: what a person needs to resolve it. It is
// written in the transaction of the events that open and end it (Commit.Reviews),
// and bound to them by Digest: a row that was changed resolves nothing.
type Review struct {
	ID     string              `json:"id"` // "rev-" and a UUIDv7
	Status record.ReviewStatus `json:"status"`

	Instance       string `json:"instance"`
	Workflow       string `json:"workflow"`
	Version        int    `json:"version"`
	DefinitionHash string `json:"definitionHash"`
	// Principal and Role asked for the move.
	Principal string `json:"principal"`
	Role      string `json:"role"`
	Action    string `json:"action"`
	From      string `json:"from"`
	Target    string `json:"target"`
	// Revision is the one that it is bound to, Seq that of the escalated event.
	Revision int64  `json:"revision"`
	Seq      int64  `json:"seq"`
	Digest   string `json:"digest"`

	Priority  record.Priority `json:"priority"`
	ParkedAt  time.Time       `json:"parkedAt"`
	ExpiresAt time.Time       `json:"expiresAt,omitzero"` // zero: never
	// OnExpire is what happens then: reject, or raise (it becomes urgent and stays).
	OnExpire string `json:"onExpire,omitempty"`

	// Data is the action's, as it will be merged. It is kept only while the review is
	// open, because it may hold what no record keeps.
	Data json.RawMessage `json:"data,omitempty"`
	// Evidence as it was fetched, with its masked content whole.
	Evidence []judge.Evidence `json:"evidence,omitempty"`

	// How it ended; zero while it is open.
	Resolution judge.Outcome  `json:"resolution,omitempty"`
	By         string         `json:"by,omitempty"`
	Channel    record.Channel `json:"channel,omitempty"`
	Reason     string         `json:"reason,omitempty"`
	ClosedAt   time.Time      `json:"closedAt,omitzero"`
}

// ReviewQuery selects reviews; an empty field selects all. They come with the
// highest priority first, and of one priority the oldest first.
type ReviewQuery struct {
	Instance, Workflow string
	// Principal is who asked for the move.
	Principal string
	Status    record.ReviewStatus
	// After continues behind a review; nil starts at the first.
	After *ReviewCursor
	Limit int // 0 is no limit
}

// ReviewCursor is a place in the order of reviews.
type ReviewCursor struct {
	Rank int // record.Priority.Rank
	ID   string
}
