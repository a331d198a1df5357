// Package eval measures a judge on cases whose right outcome is known.
//
// It promises that every figure it prints is one that an expert would accept: with
// its number of cases, with an interval where there is one, with the policy for what
// could not be evaluated beside it, and next to what the simplest judges would have
// reached. What cannot be certified it says. The same cases, results and seed give the
// same report, byte for byte.
//
// It must never look at a label while it judges, nor fit anything on the cases that it
// reports. How a case becomes a judge.Case is injected: this package knows no
// definitions.
package eval

import (
	"cmp"
	"encoding/json"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Split says what a case may be used for.
type Split string

// The splits: Dev is for looking at, Cal for fitting calibrations and thresholds, Test
// for reporting only.
const (
	Dev  Split = "dev"
	Cal  Split = "cal"
	Test Split = "test"
)

// Case is one golden case: one line of a JSON Lines file.
type Case struct {
	// Schema is for editors; nothing reads it.
	Schema string `json:"$schema,omitempty"`
	ID     string `json:"id"`
	// Group ties cases that are alike (a case and its mutated twin): intervals are
	// computed over groups, and a group is never in two splits. "" is the case alone.
	Group string   `json:"group,omitempty"`
	Tags  []string `json:"tags,omitempty"`
	// Workflow is {"ref": "file#name"} or a definition itself.
	Workflow json.RawMessage `json:"workflow"`
	State    string          `json:"state"`
	Action   string          `json:"action"`
	// Context before the action and Data of the action: JSON objects; absent is {}.
	Context json.RawMessage `json:"context,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
	// Evidence is what the gate would have fetched, by name; no source is asked in an
	// evaluation.
	Evidence map[string]json.RawMessage `json:"evidence,omitempty"`
	// History are the states visited before, oldest first, and who performed what.
	History []Step `json:"history,omitempty"`
	// Principal and Role ask; absent: "eval:agent" in the role agent.
	Principal string  `json:"principal,omitempty"`
	Role      string  `json:"role,omitempty"`
	Expect    Expect  `json:"expect"`
	Label     Label   `json:"label"`
	Weight    float64 `json:"weight,omitempty"` // 0 is 1
	Risk      string  `json:"risk,omitempty"`   // high, for slices
	Split     Split   `json:"split"`
	Notes     string  `json:"notes,omitempty"`
	// Digest of the whole case, SHA-256 in hex, where a Ledger kept only a part of it; ""
	// otherwise. A golden case has no such key.
	Digest string `json:"-"`
}

// Step is one move of a case's history.
type Step struct {
	Action string `json:"action"`
	State  string `json:"state"` // the one entered
	By     string `json:"by,omitempty"`
}

// Expect is the right answer.
type Expect struct {
	Outcome judge.Outcome `json:"outcome"` // approve, reject or escalate
	// Criteria by id or text: met, not_met or cannot_assess.
	Criteria map[string]string `json:"criteria,omitempty"`
	// ViolationsAny are codes of which a refusal should give at least one.
	ViolationsAny []string `json:"violations_any,omitempty"`
}

// Label says where the right answer comes from.
type Label struct {
	Source    string   `json:"source"` // human, adjudicated or synthetic
	By        string   `json:"by,omitempty"`
	Raters    int      `json:"n_raters,omitempty"`
	Agreement *float64 `json:"agreement,omitempty"` // 0..1
}

// Result is what a judge said of one case, once.
type Result struct {
	Case   string `json:"case"`
	Repeat int    `json:"repeat"` // from 0
	// Outcome is "" when there was none: Failure says why.
	Outcome judge.Outcome `json:"outcome,omitempty"`
	// Failure: the instrument failed (no cassette entry, endpoint down, case that cannot
	// be built); nothing is known about the judge then.
	Failure string `json:"failure,omitempty"`
	// Unreadable: a model answered and its answer could not be used. Outcome is what the
	// pipeline made of that.
	Unreadable bool   `json:"unreadable,omitempty"`
	Code       string `json:"code,omitempty"`
	// Codes of all findings.
	Codes     []string        `json:"codes,omitempty"`
	DecidedBy judge.LayerName `json:"decidedBy,omitempty"`
	Assurance judge.Assurance `json:"assurance,omitempty"`
	Degraded  bool            `json:"degraded,omitempty"`
	// Confidence of the verdict, 0..1. Approval is how probable it makes an approval: the
	// confidence when a model approved, 1 minus it when it did not, nil when none spoke.
	Confidence float64  `json:"confidence"`
	Approval   *float64 `json:"approval,omitempty"`
	// Stated is the confidence that the model gave itself, nil when none spoke.
	Stated    *float64 `json:"stated,omitempty"`
	Reasoning string   `json:"reasoning,omitempty"`
	// Criteria as the judge answered them.
	Criteria []judge.CriterionVerdict `json:"criteria,omitempty"`
	// Model, PromptDigest and CriteriaDigest are what a calibration is bound to.
	Model          string `json:"model,omitempty"`
	PromptDigest   string `json:"promptDigest,omitempty"`
	CriteriaDigest string `json:"criteriaDigest,omitempty"`
	Rung           string `json:"rung,omitempty"`
	Lenient        bool   `json:"lenient,omitempty"`
	Calls          int    `json:"calls,omitempty"`
	CacheHit       bool   `json:"cacheHit,omitempty"`
	// PromptTokens and the like are nil when the endpoint did not say: unknown is not 0.
	PromptTokens     *int                  `json:"promptTokens,omitempty"`
	CompletionTokens *int                  `json:"completionTokens,omitempty"`
	CostUSD          *float64              `json:"costUSD,omitempty"`
	Took             document.Milliseconds `json:"tookMs"`
	// Asked are the questions to the model and its words, from a Runner; a Ledger keeps them in
	// its views.
	Asked []Exchange `json:"-"`
}

// ResultOf is what a verdict says of a case. A model that could not be asked (no
// endpoint, no recorded answer) is a failure of the instrument; one whose answer could
// not be used is Unreadable, with the outcome that came of it.
func ResultOf(id string, repeat int, v judge.Verdict) Result {
	r := Result{
		Case: id, Repeat: repeat, Outcome: v.Outcome, Code: v.Code, DecidedBy: v.DecidedBy, Assurance: v.Assurance,
		Degraded: v.Degraded, Confidence: v.Confidence, Reasoning: v.Reasoning,
	}
	for _, f := range v.Findings {
		r.Codes = append(r.Codes, f.Code)
	}
	for _, o := range v.Opinions {
		if o.Layer == judge.LayerModel {
			r.recordOpinion(o)
		}
	}
	return r
}

func (r *Result) recordOpinion(o judge.Opinion) {
	if a := o.Model; a != nil {
		r.Model, r.PromptDigest, r.CriteriaDigest = a.Model, a.PromptDigest, a.CriteriaDigest
		r.Criteria, r.Rung, r.Lenient, r.Calls, r.CacheHit = a.Criteria, a.Rung, a.Lenient, a.Calls, a.CacheHit
		r.PromptTokens, r.CompletionTokens, r.CostUSD = a.PromptTokens, a.CompletionTokens, a.CostUSD
	}
	switch o.Trouble {
	case judge.TroubleNotConfigured, judge.TroubleUnavailable:
		why := string(o.Trouble)
		if o.Model != nil {
			why, r.Reasoning = cmp.Or(o.Model.Failure, why), cmp.Or(o.Model.Detail, o.Reasoning)
		}
		r.Outcome, r.Failure = "", FailureModel+": "+why
	case judge.TroubleUnreadable:
		r.Unreadable = true
	case judge.TroubleCannotAssess, judge.TroubleLoopGuard: // the verdict says it
	case judge.TroubleNone:
		if o.Outcome == "" || o.Model == nil {
			return
		}
		// What policy does afterwards changes neither: Confidence is that of the verdict.
		approval := r.Confidence
		if o.Outcome != judge.Approve {
			approval = 1 - approval
		}
		r.Approval, r.Stated = &approval, new(o.Model.Stated)
	}
}
