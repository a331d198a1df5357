package judge

import (
	"context"
	"time"
)

// Memory is what the judge said before. The engine implements it over its store
// and writes it together with the decision (see Verdict.Lesson), so that what it
// holds is as durable as the decisions themselves.
type Memory interface {
	// Recall says how often since a time the model did not approve what has this
	// guard key, and what it said of the identical case. Both keys are the Case's;
	// an empty one is never found.
	Recall(ctx context.Context, guard, identity string, since time.Time) (Recollection, error)
}

// Recollection is what a Memory holds of a case.
type Recollection struct {
	// Refusals counts the model's answers that did not end in an approval.
	Refusals int
	// Opinion is the model's refusal of the identical case, nil when there is none.
	// It is never an approval.
	Opinion *Opinion
}

// Lesson is what a Memory has to keep of a verdict.
type Lesson struct {
	// Refused counts one more answer that did not end in an approval.
	Refused bool
	// Opinion, when not nil, answers the identical case from now on.
	Opinion *Opinion
	// Cleared forgets the refusals: what was refused has been approved, and the move
	// was made. A pre-check clears nothing.
	Cleared bool
}

// Lesson returns what a Memory has to keep of v: nothing when no model answered.
// What was unavailable or unreadable is no answer.
func (v Verdict) Lesson() Lesson { return Lesson{} }

// Fingerprint reduces an action's data to what a rewording does not change: the
// strings, NFKC, lower-cased, letters and digits only, with keys and other values.
// It returns the text to digest, not a digest: only the caller has the key.
func Fingerprint(data []byte) []byte { return nil }
