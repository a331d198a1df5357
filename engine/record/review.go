package record

import (
	"time"

	"github.com/gavel-mcp/gavel/judge"
)

// ReviewStatus is where a review is in its life: open, then one of the others for
// good.
type ReviewStatus string

// The statuses of a review.
const (
	// ReviewOpen waits for a person.
	ReviewOpen ReviewStatus = "open"
	// ReviewResolved was approved or rejected by a person.
	ReviewResolved ReviewStatus = "resolved"
	// ReviewStale was overtaken: the instance moved, or what was fetched has changed.
	ReviewStale ReviewStatus = "stale"
	// ReviewExpired was not resolved in time.
	ReviewExpired ReviewStatus = "expired"
	// ReviewSuperseded gave way to a newer one of the same action with other data.
	ReviewSuperseded ReviewStatus = "superseded"
)

// Priority orders reviews for those who resolve them.
type Priority string

// The priorities, lowest first.
const (
	PriorityLow    Priority = "low"
	PriorityNormal Priority = "normal"
	PriorityHigh   Priority = "high"
	PriorityUrgent Priority = "urgent"
)

// Rank is 0 for PriorityLow to 3 for PriorityUrgent; what is unknown counts as normal.
func (p Priority) Rank() int {
	switch p {
	case PriorityLow:
		return 0
	case PriorityHigh:
		return 2
	case PriorityUrgent:
		return 3
	default:
		return 1
	}
}

// Channel says how a person's word reached the gate.
type Channel string

// The channels.
const (
	// ChannelCLI is a command on the machine that holds the store.
	ChannelCLI Channel = "cli"
	// ChannelMCP is a tool call of a reviewer's own client.
	ChannelMCP Channel = "mcp"
	// ChannelAPI is a program over the engine's Go or HTTP interface.
	ChannelAPI Channel = "api"
	// ChannelClient is a form that the agent's own client showed: what it says came
	// from a person only if that client is honest.
	ChannelClient Channel = "human_via_client"
)

// Review is what an event says of a review: that it was opened (an escalated
// event), or how it ended (a reviewed event).
type Review struct {
	ID     string       `json:"id"` // "rev-" and a UUIDv7
	Status ReviewStatus `json:"status"`
	// Digest binds an open review to exactly what was asked: a keyed digest over
	// instance, revision, action, data, context, evidence and definition.
	Digest string `json:"digest,omitempty"`
	// Priority and ExpiresAt (zero: never) of an open one.
	Priority  Priority  `json:"priority,omitempty"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Resolution is approve or reject, By who resolved it, through which Channel.
	Resolution judge.Outcome `json:"resolution,omitempty"`
	By         string        `json:"by,omitempty"`
	Channel    Channel       `json:"channel,omitempty"`
	// Reason is the reviewer's, or why it is stale.
	Reason string `json:"reason,omitempty"`
}

// OpenReview is what the fold of an instance knows of a review that waits.
type OpenReview struct {
	ID     string `json:"id"`
	Action string `json:"action"`
	Digest string `json:"digest"`
	// Seq is that of the escalated event.
	Seq int64 `json:"seq"`
}
