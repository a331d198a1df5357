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

	// Call is the id of the call that a person has to say of whether it happened, "" where the
	// review is about a move. Seq is that of the settled event then.
	Call string `json:"call,omitempty"`
	// Tool is the gate's, where the review is about a call.
	Tool string `json:"tool,omitempty"`

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

// IsStop reports whether the review says that an agent ended early, and is about no move and no call.
func (r Review) IsStop() bool { return r.Action == "" && r.Call == "" }

// StepCall and InputCall begin the ids of the calls that a chain's step made: of those of which nobody
// knows whether they happened, and of those whose server asks for input.
const (
	StepCall  = "step-"
	InputCall = StepCall + "input-"
)

// IsStep reports whether the review is of a call that a chain's step made.
func (r Review) IsStep() bool { return strings.HasPrefix(r.Call, StepCall) }

// IsInput reports whether the review is of the input that such a call's server asks for.
func (r Review) IsInput() bool { return strings.HasPrefix(r.Call, InputCall) }

// Encode is the review as it is kept: JSON without its data, which drivers keep next to it
// so that it comes back byte for byte.
func (r Review) Encode() ([]byte, error) {
	r.Data = nil
	body, err := document.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode review %s: %w", r.ID, err)
	}
	return body, nil
}

// ReviewQuery selects reviews; an empty field selects all. They come with the
// highest priority first, and of one priority the oldest first.
type ReviewQuery struct {
	ID, Instance, Workflow string
	// Principal is who asked for the move.
	Principal string
	Status    record.ReviewStatus
	// After continues behind a review; nil starts at the first.
	After *ReviewCursor
	Limit int // 0 is no limit
}

// ReviewLister is the part of a Store that lists reviews.
type ReviewLister interface {
	Reviews(ctx context.Context, q ReviewQuery) iter.Seq2[Review, error]
}

// FindReview returns one review. ErrNotFound.
func FindReview(ctx context.Context, in ReviewLister, id string) (Review, error) {
	if id == "" {
		return Review{}, fmt.Errorf("%w: a review without an id", ErrNotFound)
	}
	return First(in.Reviews(ctx, ReviewQuery{ID: id}), "review "+id)
}

// ReviewCursor is a place in the order of reviews.
type ReviewCursor struct {
	Rank int // record.Priority.Rank
	ID   string
}

// Lesson is what a decision taught about a model's refusals, written together
// with the event that records the decision. Guard and Identity are keyed digests:
// a store learns nothing about the data from them.
type Lesson struct {
	// Guard is what refusals are counted by, Identity what the same case is known by, and
	// Bound what a refusal binds to where no model can be asked (see judge.Case).
	Guard, Identity, Bound string
	// Principal, Workflow, Action and Instance (may be "") say whose refusals they are, for an
	// operator who wants them forgotten.
	Principal, Workflow, Action, Instance string
	At                                    time.Time
	// Refused counts one refusal. Opinion, when there is one, is the model's, as JSON; it
	// is found by Identity and, where that is not empty, by Bound.
	Refused bool
	Opinion json.RawMessage
	// Cleared forgets every refusal with this Guard, and every opinion with this Bound.
	// Never together with Refused.
	Cleared bool
}

// RefusalQuery selects refusals; an empty field selects all. Of an Instance it selects all that
// have a Guard in common with one of its own.
type RefusalQuery struct{ Principal, Workflow, Action, Instance string }

// MaxRefusalAge is how long stores keep refusals at least: no window of a loop
// guard may be longer.
const MaxRefusalAge = 7 * 24 * time.Hour
