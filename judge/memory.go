package judge

import (
	"context"
	"slices"
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
// What was unavailable or unreadable is no answer, nor is the loop guard that
// stepped in before one. v.Applied must say whether the move is made: of a pre-check
// it has to be false here.
func (v Verdict) Lesson() Lesson {
	i := slices.IndexFunc(v.Opinions, Opinion.isJudgement)
	if i < 0 {
		return Lesson{}
	}
	if v.Outcome == Approve {
		return Lesson{Cleared: v.Applied}
	}
	lesson := Lesson{Refused: true}
	// What policy turned down was an approval, and a reused refusal is kept already.
	if op := v.Opinions[i]; op.Outcome != Approve && !op.isReused() {
		lesson.Opinion = &op
	}
	return lesson
}

// isJudgement reports whether a model gave a judgement of the case: it approved,
// rejected, or said what it could not tell.
func (op Opinion) isJudgement() bool {
	return op.Layer == LayerModel && op.Outcome != "" && (op.Trouble == TroubleNone || op.Trouble == TroubleCannotAssess)
}

func (op Opinion) isReused() bool { return op.Model != nil && op.Model.Reused }

// isRefusal reports whether an opinion is one that may stand for another answer of
// the model: a judgement that does not approve.
func isRefusal(op *Opinion) bool {
	if op == nil || !op.isJudgement() || op.Outcome == Approve {
		return false
	}
	sound, err := vetOpinion(LayerModel, *op)
	return err == nil && sound.Trouble == op.Trouble
}
