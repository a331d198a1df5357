package store

import (
	"encoding/json"
	"time"
)

// Lesson is what a decision taught about a model's refusals, written together
// with the event that records the decision. Guard and Identity are keyed digests:
// a store learns nothing about the data from them.
type Lesson struct {
	// Guard is what refusals are counted by, Identity what the same case is known by, and
	// Bound what a refusal binds to where no model can be asked (see judge.Case).
	Guard, Identity, Bound string
	// Principal, Workflow and Action say whose refusals they are, for an operator who
	// wants them forgotten.
	Principal, Workflow, Action string
	At                          time.Time
	// Refused counts one refusal. Opinion, when there is one, is the model's, as JSON; it
	// is found by Identity and, where that is not empty, by Bound.
	Refused bool
	Opinion json.RawMessage
	// Cleared forgets every refusal with this Guard, and every opinion with this Bound.
	// Never together with Refused.
	Cleared bool
}

// RefusalQuery selects refusals; an empty field selects all.
type RefusalQuery struct{ Principal, Workflow, Action string }

// MaxRefusalAge is how long stores keep refusals at least: no window of a loop
// guard may be longer.
const MaxRefusalAge = 7 * 24 * time.Hour
