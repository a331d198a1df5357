package store

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Review is a stored review: everything a person needs to resolve it. It is written in the transaction of the events
// that open and close it (Commit.Reviews). Digest binds it to them: a row that was altered cannot resolve anything.
type Review struct {
	ID     string              `json:"id"` // "rev-" and a UUIDv7
	Status record.ReviewStatus `json:"status"`

	Instance       string `json:"instance"`
	Workflow       string `json:"workflow"`
	Version        int    `json:"version"`
	DefinitionHash string `json:"definitionHash"`
	// Principal and Role requested the move.
	Principal string `json:"principal"`
	Role      string `json:"role"`
	Action    string `json:"action"`
	From      string `json:"from"`
	Target    string `json:"target"`
	// Revision is the instance revision to which the review is bound. Seq is that of the escalated event.
	Revision int64  `json:"revision"`
	Seq      int64  `json:"seq"`
	Digest   string `json:"digest"`

	Priority  record.Priority `json:"priority"`
	ParkedAt  time.Time       `json:"parkedAt"`
	ExpiresAt time.Time       `json:"expiresAt,omitzero"` // zero: never
	// OnExpire is the effect of expiry: reject, or raise (the review becomes urgent and stays open).
	OnExpire string `json:"onExpire,omitempty"`

	// Call is the id of a call if a person must confirm whether that call happened; "" if the review is about a move.
	// For a call, Seq is that of the settled event.
	Call string `json:"call,omitempty"`
	// Tool is the gate's tool if the review is about a call.
	Tool string `json:"tool,omitempty"`

	// Data is the action's data as it will be merged. It is kept only while the review is open, because it may
	// contain values that records must not keep.
	Data json.RawMessage `json:"data,omitempty"`
	// Evidence is the evidence as fetched, with its complete masked content.
	Evidence []judge.Evidence `json:"evidence,omitempty"`

	// How the review ended; all zero while it is open.
	Resolution judge.Outcome  `json:"resolution,omitempty"`
	By         string         `json:"by,omitempty"`
	Channel    record.Channel `json:"channel,omitempty"`
	Reason     string         `json:"reason,omitempty"`
	ClosedAt   time.Time      `json:"closedAt,omitzero"`
}

// IsStop reports whether the review is about an agent that stopped early, and not about a move or a call.
func (r Review) IsStop() bool { return r.Action == "" && r.Call == "" }

// StepCall and InputCall are the prefixes of the ids of calls made by the steps of a run. StepCall marks calls that may
// or may not have happened, InputCall those whose server asks for input.
const (
	StepCall  = "step-"
	InputCall = StepCall + "input-"
)

// IsStep reports whether the review is about a call made by a step of a run.
func (r Review) IsStep() bool { return strings.HasPrefix(r.Call, StepCall) }

// IsInput reports whether the review is about input requested by the server of such a call.
func (r Review) IsInput() bool { return strings.HasPrefix(r.Call, InputCall) }

// Encode returns the review as stored: JSON without Data. Drivers store Data separately so that it is returned byte
// for byte.
func (r Review) Encode() ([]byte, error) {
	r.Data = nil
	body, err := document.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode review %s: %w", r.ID, err)
	}
	return body, nil
}

// ReviewQuery selects reviews; an empty field matches all. Results are ordered by priority, highest first, then by
// age, oldest first.
type ReviewQuery struct {
	ID, Instance, Workflow string
	// Principal requested the move.
	Principal string
	Status    record.ReviewStatus
	// After starts the list after this review; nil starts at the first.
	After *ReviewCursor
	Limit int // 0 is no limit
}

// ReviewLister is the part of a Store that lists reviews.
type ReviewLister interface {
	Reviews(ctx context.Context, q ReviewQuery) iter.Seq2[Review, error]
}

// FindReview returns one review. Errors: ErrNotFound.
func FindReview(ctx context.Context, in ReviewLister, id string) (Review, error) {
	if id == "" {
		return Review{}, fmt.Errorf("%w: a review without an id", ErrNotFound)
	}
	return First(in.Reviews(ctx, ReviewQuery{ID: id}), "review "+id)
}

// ReviewCursor is a position in the order of reviews.
type ReviewCursor struct {
	Rank int // record.Priority.Rank
	ID   string
}

// Lesson is the change that a decision makes to the stored refusals of a model. It is written together with the event
// that records the decision. Guard and Identity are keyed digests, so that the store learns nothing about the data.
type Lesson struct {
	// Guard is the key by which refusals are counted. Identity is the same for equal questions to the model. Bound is
	// the key under which a refusal still applies when no model can be asked (see judge.Case).
	Guard, Identity, Bound string
	// Principal, Workflow, Action and Instance (may be "") identify the refused requests, so that an operator can
	// clear them.
	Principal, Workflow, Action, Instance string
	At                                    time.Time
	// Refused adds one refusal. Opinion is the model's opinion as JSON, nil if there is none. It is found by Identity
	// and, if not empty, by Bound.
	Refused bool
	Opinion json.RawMessage
	// Cleared deletes every refusal with this Guard and every opinion with this Bound. It is never set together with
	// Refused.
	Cleared bool
}

// RefusalQuery selects refusals; an empty field matches all. With Instance set, it selects all refusals that share a
// Guard with one of that instance.
type RefusalQuery struct{ Principal, Workflow, Action, Instance string }

// MaxRefusalAge is the minimum time for which stores keep refusals. The window of a loop guard must not be longer.
const MaxRefusalAge = 7 * 24 * time.Hour
