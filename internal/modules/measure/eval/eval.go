// Package eval measures a judge on cases whose right outcome is known.
//
// It promises figures that an expert would accept:
//   - Each figure comes with its number of cases, and with an interval if one exists.
//   - A report names the policy for cases that could not be evaluated.
//   - A report compares the judge with trivial judges.
//   - The same cases, results and seed give the same report, byte for byte.
//
// It must never:
//   - look at a label while it judges;
//   - fit anything on the cases that it reports.
//
// The conversion of a case into a judge.Case is injected: this package knows no definitions.
package eval

import (
	"cmp"
	"encoding/json"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Split determines what a case may be used for.
type Split string

// The splits: Dev is for inspection, Cal for fitting calibrations and thresholds, Test for reporting only.
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
	// Group joins similar cases, such as a case and its mutated twin. Intervals are computed over groups, and a group
	// is never in two splits. "" means that the case is a group of its own.
	Group string   `json:"group,omitempty"`
	Tags  []string `json:"tags,omitempty"`
	// Workflow is {"ref": "file#name"} or a definition itself.
	Workflow json.RawMessage `json:"workflow"`
	State    string          `json:"state"`
	Action   string          `json:"action"`
	// Context is the context before the action, Data the data of the action. Both are JSON objects; absent means {}.
	Context json.RawMessage `json:"context,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
	// Evidence holds the evidence that the gate would have fetched, by name. An evaluation queries no source.
	Evidence map[string]json.RawMessage `json:"evidence,omitempty"`
	// History lists the earlier moves, oldest first: the states visited, and who performed which action.
	History []Step `json:"history,omitempty"`
	// Principal and Role identify the requester; the default is "eval:agent" with the role agent.
	Principal string `json:"principal,omitempty"`
	Role      string `json:"role,omitempty"`
	Expect    Expect `json:"expect"`
	Label     Label  `json:"label"`
	Risk      string `json:"risk,omitempty"` // "high" or ""; defines a slice
	Split     Split  `json:"split"`
	Notes     string `json:"notes,omitempty"`
	// Digest is the SHA-256 of the complete case in hex if a Ledger kept only part of the case, otherwise "". It is not
	// part of a golden file.
	Digest string `json:"-"`
}

// Step is one move of a case's history.
type Step struct {
	Action string `json:"action"`
	State  string `json:"state"` // the state that it entered
	By     string `json:"by,omitempty"`
}

// Expect is the right answer.
type Expect struct {
	Outcome judge.Outcome `json:"outcome"` // approve, reject or escalate
	// Criteria holds the label of each criterion, by id or text: met, not_met or cannot_assess.
	Criteria map[string]string `json:"criteria,omitempty"`
	// ViolationsAny lists codes; a refusal should give at least one of them.
	ViolationsAny []string `json:"violations_any,omitempty"`
}

// Label describes the origin of the right answer.
type Label struct {
	Source    string   `json:"source"` // human, adjudicated or synthetic
	By        string   `json:"by,omitempty"`
	Raters    int      `json:"n_raters,omitempty"`
	Agreement *float64 `json:"agreement,omitempty"` // 0..1
}

// Result is a judge's answer to one case in one repeat.
type Result struct {
	Case   string `json:"case"`
	Repeat int    `json:"repeat"` // from 0
	// Outcome is "" if there was none; then Failure gives the reason.
	Outcome judge.Outcome `json:"outcome,omitempty"`
	// Failure is set if the evaluation itself failed (no cassette entry, endpoint down, a case that cannot be built).
	// Then nothing is known about the judge.
	Failure string `json:"failure,omitempty"`
	// Unreadable reports that a model answered, but its answer could not be used. Outcome is then what the pipeline
	// decided.
	Unreadable bool   `json:"unreadable,omitempty"`
	Code       string `json:"code,omitempty"`
	// Codes lists the codes of all findings.
	Codes     []string        `json:"codes,omitempty"`
	DecidedBy judge.LayerName `json:"decidedBy,omitempty"`
	Assurance judge.Assurance `json:"assurance,omitempty"`
	Degraded  bool            `json:"degraded,omitempty"`
	// Confidence is that of the verdict, 0..1. Approval is the probability that an approval is right: Confidence if a
	// model approved, 1 - Confidence if it did not. Approval is nil if no model answered.
	Confidence float64  `json:"confidence"`
	Approval   *float64 `json:"approval,omitempty"`
	// Stated is the confidence that the model itself stated; nil if no model answered.
	Stated    *float64 `json:"stated,omitempty"`
	Reasoning string   `json:"reasoning,omitempty"`
	// Criteria holds the judge's answers to the criteria.
	Criteria []judge.CriterionVerdict `json:"criteria,omitempty"`
	// Model, PromptDigest and CriteriaDigest identify what a calibration is bound to.
	Model          string `json:"model,omitempty"`
	PromptDigest   string `json:"promptDigest,omitempty"`
	CriteriaDigest string `json:"criteriaDigest,omitempty"`
	Rung           string `json:"rung,omitempty"`
	Lenient        bool   `json:"lenient,omitempty"`
	Calls          int    `json:"calls,omitempty"`
	CacheHit       bool   `json:"cacheHit,omitempty"`
	// PromptTokens, CompletionTokens and CostUSD are nil if the endpoint did not report them: unknown is not 0.
	PromptTokens     *int                  `json:"promptTokens,omitempty"`
	CompletionTokens *int                  `json:"completionTokens,omitempty"`
	CostUSD          *float64              `json:"costUSD,omitempty"`
	Took             document.Milliseconds `json:"tookMs"`
	// Asked holds the questions to the model and its answers, if the result comes from a Runner. A Ledger keeps them
	// in its views.
	Asked []Exchange `json:"-"`
}

// ResultOf returns the result that a verdict gives for a case. If the model could not be asked (no endpoint, no
// recorded answer), the result has a Failure. If its answer could not be used, the result is Unreadable and has the
// outcome of the verdict.
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
	case judge.TroubleCannotAssess, judge.TroubleLoopGuard: // the verdict already reflects it
	case judge.TroubleNone:
		if o.Outcome == "" || o.Model == nil {
			return
		}
		// r.Confidence is that of the verdict. Policy applied later changes neither it nor the model's outcome.
		approval := r.Confidence
		if o.Outcome != judge.Approve {
			approval = 1 - approval
		}
		r.Approval, r.Stated = &approval, new(o.Model.Stated)
	}
}
