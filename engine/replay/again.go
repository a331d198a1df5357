package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Reasons why a decision was not judged again, next to the Missing ones; Says explains them.
const (
	ReasonState         = "state_unknown"
	ReasonEvidence      = "evidence_not_recorded"
	ReasonNotAsked      = "model_not_asked"
	ReasonOtherQuestion = "model_question_changed"
	ReasonOtherPrompt   = "model_prompt_changed"
	ReasonModel         = "model_unavailable"
	ReasonUndecided     = "not_decided"
)

type reasonError struct{ reason string }

func (r *reasonError) Error() string { return "replay: " + r.reason }

type result struct {
	verdict judge.Verdict
	// reason says why there is none, detail more.
	reason, detail string
	// rubric is the one that was judged by.
	rubric judge.Rubric
	// reused says that a recorded answer of a model counted, otherChecks that other checks
	// had passed before it then.
	reused, otherChecks bool
}

func (cfg Config) judgeAgain(ctx context.Context, q Question) result {
	switch {
	case cfg.ShadowOnly:
		return result{}
	case q.Missing != "":
		return result{reason: string(q.Missing)}
	}
	def := q.Definition
	other, changed := cfg.Change.Definitions[q.Event.Workflow]
	if changed {
		def = other
	}
	if q.Input.Operation == judge.Advance && def.States[q.Input.State] == nil {
		return result{reason: ReasonState, detail: fmt.Sprintf("no state %.80q", q.Input.State)}
	}
	c, err := def.Case(q.Input)
	if err != nil {
		return result{reason: ReasonUndecided, detail: err.Error()}
	}
	cfg.Change.apply(&c.Rubric)
	out := result{rubric: c.Rubric}
	model := cfg.Model
	if model == nil {
		model = recordedAnswer{q: q, changed: changed, prompt: cfg.Change.PromptDigest, out: &out}
	}
	pipeline, err := judge.New(judge.Config{Compiler: cfg.Compiler, Fetcher: recordedEvidence(q.Evidence), Model: model})
	if err != nil {
		return result{reason: ReasonUndecided, detail: err.Error()}
	}
	if q.By != nil {
		out.verdict, err = pipeline.Approve(ctx, c, *q.By)
	} else {
		out.verdict, err = pipeline.Decide(ctx, c)
	}
	if known, ok := errors.AsType[*reasonError](err); ok {
		return result{reason: known.reason}
	}
	if cfg.Model != nil && errors.Is(err, judge.ErrBusy) {
		return result{reason: ReasonModel, detail: err.Error()}
	}
	if err != nil {
		return result{reason: ReasonUndecided, detail: err.Error()}
	}
	if cfg.Model != nil {
		for _, op := range out.verdict.Opinions {
			if op.Trouble == judge.TroubleNotConfigured || op.Trouble == judge.TroubleUnavailable {
				return result{reason: ReasonModel, detail: op.Reasoning}
			}
		}
	}
	return out
}

func (c Change) apply(r *judge.Rubric) {
	if c.MinConfidence != nil {
		r.MinConfidence = *c.MinConfidence
	}
	if c.StrictMode != nil {
		r.StrictMode = *c.StrictMode
	}
	if c.Prompt != "" {
		r.Prompt = c.Prompt
	}
	if c.DefaultModel {
		r.Model = ""
	}
}

// recordedEvidence fetches what was fetched then, and nothing else.
type recordedEvidence []HeldEvidence

// Fetch implements judge.Fetcher.
func (all recordedEvidence) Fetch(_ context.Context, r judge.EvidenceRequest, _ bool) (judge.FetchResult, error) {
	for _, e := range all {
		switch {
		case e.Name != r.Name || e.Source != r.Source || !sameJSON(e.Arguments, maskedArgumentsOf(r)):
		case e.Missing != "":
			return judge.FetchResult{}, &reasonError{string(e.Missing)}
		default:
			return judge.FetchResult{Content: e.Content, Truncated: e.Truncated, Failure: e.Failure, Detail: e.Detail}, nil
		}
	}
	return judge.FetchResult{}, &reasonError{ReasonEvidence}
}

// maskedArgumentsOf are the arguments as they are recorded.
func maskedArgumentsOf(r judge.EvidenceRequest) json.RawMessage {
	if r.MaskedArguments == nil {
		return r.Arguments
	}
	return r.MaskedArguments
}

func sameJSON(a, b json.RawMessage) bool {
	x, errX := document.Canonical(a)
	y, errY := document.Canonical(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// recordedAnswer says what the model said of the same question then.
type recordedAnswer struct {
	q       Question
	changed bool // the definition is another one
	prompt  string
	out     *result
}

func (recordedAnswer) Name() judge.LayerName { return judge.LayerModel }

func (a recordedAnswer) Weigh(_ context.Context, c judge.Case) (judge.Opinion, error) {
	d := a.q.Event.Decision
	at := slices.IndexFunc(d.Opinions, func(op judge.Opinion) bool { return op.Layer == judge.LayerModel })
	if at < 0 {
		return judge.Opinion{}, &reasonError{ReasonNotAsked}
	}
	op := d.Opinions[at]
	if a.changed {
		same, err := a.sameQuestion(c)
		if err != nil {
			return judge.Opinion{}, err
		}
		if !same {
			return judge.Opinion{}, &reasonError{ReasonOtherQuestion}
		}
	}
	if a.prompt != "" && (op.Model == nil || op.Model.PromptDigest != a.prompt) {
		return judge.Opinion{}, &reasonError{ReasonOtherPrompt}
	}
	a.out.reused, a.out.otherChecks = true, !slices.Equal(listPassedLayers(d, at), c.Passed)
	return op, nil
}

func listPassedLayers(d *record.Decision, model int) []judge.LayerName {
	var out []judge.LayerName
	for _, op := range d.Opinions[:model] {
		if op.Outcome == judge.Approve {
			out = append(out, op.Layer)
		}
	}
	return out
}

// sameQuestion compares what the model was shown then with what it would be shown now,
// but for the list of checks that had passed before.
func (a recordedAnswer) sameQuestion(now judge.Case) (bool, error) {
	then, err := a.q.Definition.Case(a.q.Input)
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(then.Candidates, func(c judge.Candidate) bool { return c.Target == a.q.Event.Decision.Target })
	if at < 0 || len(now.Candidates) != 1 || !then.Rubric.AsksLike(now.Rubric) {
		return false, nil
	}
	target := then.Candidates[at]
	target.Entry = now.Candidates[0].Entry
	then.Candidates, then.Checks, then.Evidence = []judge.Candidate{target}, now.Checks, now.Evidence
	if len(a.q.Evidence) != len(now.Fetched) {
		return false, nil
	}
	for _, e := range a.q.Evidence {
		i := slices.IndexFunc(now.Fetched, func(f judge.Evidence) bool { return f.Name == e.Name })
		if i < 0 {
			return false, nil
		}
		then.Fetched = append(then.Fetched, now.Fetched[i])
	}
	before, err := judge.Show(then)
	if err != nil {
		return false, err
	}
	after, err := judge.Show(now)
	if err != nil {
		return false, err
	}
	return before.System == after.System && before.User == after.User && before.Shape == after.Shape, nil
}
