package judge

import (
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Outcome is the result of a layer or of the whole pipeline.
type Outcome string

// The outcomes. The zero Outcome of an Opinion means that the layer had nothing to check.
const (
	Approve  Outcome = "approve"
	Reject   Outcome = "reject"
	Escalate Outcome = "escalate"
)

// Assurance says how thoroughly a case was examined.
type Assurance string

// The levels of assurance, in rising order.
const (
	AssuranceNone          Assurance = "none" // legality only
	AssuranceStructural    Assurance = "structural"
	AssuranceValidators    Assurance = "validators"
	AssuranceLLM           Assurance = "llm"
	AssuranceLLMCalibrated Assurance = "llm_calibrated"
	AssuranceHuman         Assurance = "human"
)

// LayerName names the layer that gave an opinion, or the decider that settled a decision.
type LayerName string

// The layers in the order in which they are asked, followed by deciders that are not
// layers.
const (
	LayerTransition LayerName = "transition"
	LayerFields     LayerName = "fields"
	LayerSchema     LayerName = "schema"
	LayerEvidence   LayerName = "evidence"
	LayerScript     LayerName = "script"
	LayerState      LayerName = "state"
	LayerContent    LayerName = "content"
	LayerModel      LayerName = "model"

	ByFallback LayerName = "fallback"
	ByPolicy   LayerName = "policy"
	ByReviewer LayerName = "reviewer"
)

// The codes that settle sets; other codes come from the findings of layers.
const (
	CodeLowConfidence      = "low_confidence"
	CodeAssuranceTooLow    = "assurance_too_low"
	CodeJudgeNotConfigured = "judge_not_configured"
	CodeJudgeUnavailable   = "judge_unavailable"
	CodeJudgeUnreadable    = "judge_unreadable"
	CodeCannotAssess       = "cannot_assess"
	CodeLoopGuard          = "loop_guard"
	CodeNoRoute            = "no_route"
	CodeValidatorError     = "validator_error"
	CodeValidatorRejected  = "validator_rejected"
	CodeReviewRejected     = "review_rejected"
	CodeReviewLimit        = "review_limit"
	CodeEvidenceMissing    = "evidence_missing"
	CodeEvidenceArgument   = "evidence_argument"
	CodeEvidenceNotAllowed = "evidence_not_allowed"
	CodeEvidenceNotChecked = "evidence_not_checked"
)

// The codes of the model layer's findings.
const (
	// CodeCriterionNotMet: a criterion does not hold.
	CodeCriterionNotMet = "criterion_not_met"
	// CodeCriterionNotAssessable: it is unknown whether the criterion holds. The model could not assess
	// it, left it out, or pointed to evidence that is not there.
	CodeCriterionNotAssessable = "criterion_not_assessable"
	// CodeInstructionInData: the data tries to instruct its judge.
	CodeInstructionInData = "instruction_in_data"
	// CodeModelObjection: the model objects to the move for a reason other than the criteria.
	CodeModelObjection = "model_objection"
)

// Trouble is why a model that was asked gave no usable judgement.
type Trouble string

// The troubles. NotConfigured and Unavailable are external; the case itself can cause the others, so
// the structural fallback never applies to them.
const (
	TroubleNone          Trouble = ""
	TroubleNotConfigured Trouble = CodeJudgeNotConfigured
	TroubleUnavailable   Trouble = CodeJudgeUnavailable
	TroubleUnreadable    Trouble = CodeJudgeUnreadable
	TroubleCannotAssess  Trouble = CodeCannotAssess
	TroubleLoopGuard     Trouble = CodeLoopGuard
)

// Opinion is the result of one layer.
type Opinion struct {
	Layer LayerName `json:"layer"`
	// Outcome "" means that the layer had nothing to check.
	Outcome Outcome `json:"outcome"`
	// Confidence is 0..1: how certain the layer is of its outcome, for the part that it examined.
	Confidence float64 `json:"confidence"`
	// Assurance is the level that this layer's examination reaches.
	Assurance   Assurance            `json:"assurance"`
	Reasoning   string               `json:"reasoning,omitempty"`
	Findings    []validators.Finding `json:"findings,omitempty"`
	Suggestions []string             `json:"suggestions,omitempty"`
	// Flags are points for a reviewer to check; the Verdict includes them as warnings.
	Flags []string `json:"-"`
	// Fault is true if the examiner itself failed (a script that threw). It is still a rejection, but
	// distinguishable.
	Fault bool `json:"fault,omitempty"`
	// Trouble is set only by the model layer; Outcome is then Escalate.
	Trouble Trouble `json:"trouble,omitempty"`
	// RetryAfter is how long to wait before a retry can help, with TroubleUnavailable and
	// TroubleUnreadable; 0 if unknown.
	RetryAfter document.Milliseconds `json:"retryAfterMs,omitempty,omitzero"`
	// Route is the index of the chosen Candidate, set by the script layer if the case has routes.
	Route *int `json:"route,omitempty"`
	// NotAsked are the ids of the criteria whose conditions do not hold, set by the script layer.
	NotAsked []string `json:"notAsked,omitempty"`
	// Sandbox lists the protections that were missing when scripts ran.
	Sandbox []string `json:"sandbox,omitempty"`
	// Evidence is the evidence that the evidence layer fetched, nil for every other layer. It is
	// recorded in the Verdict.
	Evidence []Evidence `json:"-"`
	// Model records the work of the model layer, nil for every other layer.
	Model *ModelRecord `json:"model,omitempty"`
	// Took is the layer's wall time.
	Took document.Milliseconds `json:"tookMs"`
}

// ModelRecord records how a model reached its opinion, so that it can be checked later.
type ModelRecord struct {
	// Model is the configured name, Reported the name that the endpoint reports.
	Model       string `json:"model,omitempty"`
	Reported    string `json:"reported,omitempty"`
	Endpoint    string `json:"endpoint,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// PromptID and PromptDigest identify the template, CriteriaDigest the criteria. A calibration is
	// bound to the model and these.
	PromptID       string `json:"promptId,omitempty"`
	PromptDigest   string `json:"promptDigest,omitempty"`
	CriteriaDigest string `json:"criteriaDigest,omitempty"`
	// Exemplars identifies the decisions of persons that the model was shown, "" if there were none.
	Exemplars string `json:"exemplars,omitempty"`
	// Criteria are the results for each criterion, in the order of the rubric.
	Criteria []CriterionVerdict `json:"criteria,omitempty"`
	// Stated is the confidence that the model stated, 0..1.
	Stated float64 `json:"stated"`
	// Calibration is the digest of the applied calibration, "" if the stated confidence was shrunk
	// instead.
	Calibration string `json:"calibration,omitempty"`
	// Uncalibrated is why a matching calibration was not applied to an approval, "" if it was applied or
	// does not exist.
	Uncalibrated string `json:"uncalibrated,omitempty"`
	Rung         string `json:"rung,omitempty"`
	// Lenient is true if the answer was clear but not in the requested form.
	Lenient bool `json:"lenient,omitempty"`
	// Failure is the class of the failure (judge/llm.Class), "" if there was none; Detail describes
	// it for the operator.
	Failure string `json:"failure,omitempty"`
	Detail  string `json:"detail,omitempty"`
	// Calls counts HTTP requests; Reasked, CacheHit, Shared and Reused explain a number other than
	// one.
	Calls    int  `json:"calls"`
	Reasked  bool `json:"reasked,omitempty"`
	CacheHit bool `json:"cacheHit,omitempty"`
	Shared   bool `json:"shared,omitempty"`
	// Reused is true if this is the recorded refusal of the identical case.
	Reused bool `json:"reused,omitempty"`
	// Breaker is the state of the circuit breaker: closed, half-open or open.
	Breaker string `json:"breaker,omitempty"`
	// PromptTokens and the other token counts cover all Calls; nil if the endpoint did not report them.
	PromptTokens     *int     `json:"promptTokens,omitempty"`
	CompletionTokens *int     `json:"completionTokens,omitempty"`
	CachedTokens     *int     `json:"cachedTokens,omitempty"`
	CostUSD          *float64 `json:"costUSD,omitempty"`
	// Samples and Agreeing are set if the model was asked several times, or several models were asked:
	// the number of expected answers, and the number that agree with the result.
	Samples  int `json:"samples,omitempty"`
	Agreeing int `json:"agreeing,omitempty"`
	// Votes are the results of each model of a panel, in its order.
	Votes []Vote `json:"votes,omitempty"`
	// Refusals is how often the same question was refused before, RefusalLimit the number at
	// which the loop guard stops it (0: never).
	Refusals     int `json:"refusals,omitempty"`
	RefusalLimit int `json:"refusalLimit,omitempty"`
}

// CriterionVerdict is the result for one criterion.
type CriterionVerdict struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	// Status is met, not_met or cannot_assess, after code has checked the evidence.
	Status string `json:"status"`
	// Evidence is the model's quote or pointer, truncated.
	Evidence string `json:"evidence,omitempty"`
	// Basis is the origin of the evidence: BasisEvidence if the gate fetched it, BasisClaim if the agent
	// wrote it. "" if no evidence counts.
	Basis string `json:"basis,omitempty"`
	// Why explains why code changed the status: the evidence is not in the data, or the model
	// left the criterion out.
	Why string `json:"why,omitempty"`
	// Grade is the answer to a criterion with a scale; Status is the result of comparing it.
	Grade int `json:"grade,omitempty"`
	// Advisory is true if the criterion does not count for the outcome.
	Advisory bool `json:"advisory,omitempty"`
	// Says is the model's own sentence about the criterion, truncated; "" if it was not asked for one.
	Says string `json:"says,omitempty"`
}

// The values of Basis for a criterion that is met.
const (
	BasisEvidence = "evidence"
	BasisClaim    = "claim"
)

// Verdict is the pipeline's result for a case.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Proposed is the outcome before policy (thresholds, required assurance, availability); equal to
	// Outcome if policy changed nothing.
	Proposed Outcome `json:"proposed,omitempty"`
	// Applied is true if the move may happen: the outcome is Approve, or the mode is Shadow and legality
	// and routing allow it.
	Applied bool `json:"applied"`
	// Code is the machine code of a refusal or escalation: the code of the first finding, or one set by
	// policy. Empty for an approval.
	Code string `json:"code,omitempty"`
	// Target is the state that the action leads to, "" if none was determined.
	Target string `json:"target,omitempty"`
	// Confidence is 0..1: the lowest of all layers or, if a layer rejects, the highest of those that
	// reject.
	Confidence float64   `json:"confidence"`
	Assurance  Assurance `json:"assurance"`
	DecidedBy  LayerName `json:"decidedBy"`
	// Degraded is true if a judgement was needed but unavailable, and the other layers
	// decided.
	Degraded bool `json:"degraded,omitempty"`
	Fault    bool `json:"fault,omitempty"`
	Mode     Mode `json:"mode,omitempty"`
	// Reasoning is one or a few sentences for the agent and for the record.
	Reasoning   string               `json:"reasoning,omitempty"`
	Findings    []validators.Finding `json:"findings,omitempty"`
	Suggestions []string             `json:"suggestions,omitzero"`
	// Warnings report problems that did not prevent the move (a low confidence without strictMode).
	Warnings []string `json:"warnings,omitempty"`
	// RetryAfter is how long to wait before a retry can help, with CodeJudgeUnavailable and
	// CodeJudgeUnreadable; 0 if unknown.
	RetryAfter document.Milliseconds `json:"retryAfterMs,omitempty,omitzero"`
	// Sandbox lists the protections that were missing when scripts ran.
	Sandbox []string `json:"sandbox,omitempty"`
	// Evidence is the evidence that the gate fetched, in the order of the definition.
	Evidence []Evidence `json:"evidence,omitempty"`
	Opinions []Opinion  `json:"opinions,omitempty"`
}

// Violations returns the messages of the findings, never nil.
func (v Verdict) Violations() []string {
	out := make([]string, 0, len(v.Findings))
	for _, f := range v.Findings {
		out = append(out, f.Message)
	}
	return out
}

// rank returns 0 for an unknown level.
func (a Assurance) rank() int {
	switch a {
	case AssuranceNone:
		return 1
	case AssuranceStructural:
		return 2
	case AssuranceValidators:
		return 3
	case AssuranceLLM:
		return 4
	case AssuranceLLMCalibrated:
		return 5
	case AssuranceHuman:
		return 6
	}
	return 0
}

// AtLeast reports whether a is as strong as b. An unknown level is weaker than
// every known one.
func (a Assurance) AtLeast(b Assurance) bool { return a.rank() >= b.rank() }

func strongerAssurance(a, b Assurance) Assurance {
	if a.AtLeast(b) {
		return a
	}
	return b
}

func (a Assurance) describe() string {
	switch a {
	case AssuranceStructural:
		return "fields and schema"
	case AssuranceValidators:
		return "fields, schema and validators"
	case AssuranceLLM:
		return "a model"
	case AssuranceLLMCalibrated:
		return "a calibrated model"
	case AssuranceHuman:
		return "a person"
	case AssuranceNone:
	}
	return "only whether the action is legal"
}
