package judge

import (
	"time"

	"github.com/gavel-mcp/gavel/validators"
)

// Outcome is what a layer or the whole pipeline says.
type Outcome string

// The outcomes. The zero Outcome of an Opinion means that the layer had
// nothing to check and did not speak.
const (
	Approve  Outcome = "approve"
	Reject   Outcome = "reject"
	Escalate Outcome = "escalate"
)

// Assurance says what was examined, weakest first.
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

// LayerName names what settled a decision or gave an opinion.
type LayerName string

// The layers in the order in which they are asked, then the deciders that are
// no layers.
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

// The codes that settle gives; layers' codes are their findings'.
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
	// CodeCriterionNotMet says that a criterion does not hold.
	CodeCriterionNotMet = "criterion_not_met"
	// CodeCriterionNotAssessable says that nobody could tell whether it holds: the
	// model said so, left it out, or pointed to evidence that is not there.
	CodeCriterionNotAssessable = "criterion_not_assessable"
	// CodeInstructionInData says that the data tries to instruct its judge.
	CodeInstructionInData = "instruction_in_data"
	// CodeModelObjection is what the model holds against the move beside the criteria.
	CodeModelObjection = "model_objection"
)

// Trouble says why a model that was asked gave no usable judgement.
type Trouble string

// The troubles. NotConfigured and Unavailable are the outside's fault; the case
// itself can cause the others, so they are never answered by the structural
// fallback.
const (
	TroubleNone          Trouble = ""
	TroubleNotConfigured Trouble = CodeJudgeNotConfigured
	TroubleUnavailable   Trouble = CodeJudgeUnavailable
	TroubleUnreadable    Trouble = CodeJudgeUnreadable
	TroubleCannotAssess  Trouble = CodeCannotAssess
	TroubleLoopGuard     Trouble = CodeLoopGuard
)

// Opinion is what one layer says.
type Opinion struct {
	Layer LayerName `json:"layer"`
	// Outcome "" means that the layer had nothing to check.
	Outcome Outcome `json:"outcome"`
	// Confidence is 0..1: how sure the layer is of its outcome about what it examined.
	Confidence float64 `json:"confidence"`
	// Assurance is what this layer's examination amounts to.
	Assurance   Assurance            `json:"assurance"`
	Reasoning   string               `json:"reasoning,omitempty"`
	Findings    []validators.Finding `json:"findings,omitempty"`
	Suggestions []string             `json:"suggestions,omitempty"`
	// Flags are what a reviewer should look at; the Verdict warns of them.
	Flags []string `json:"-"`
	// Fault is true when the examiner failed and not what was examined (a script
	// that threw): still a rejection, told apart.
	Fault bool `json:"fault,omitempty"`
	// Trouble is set by the model layer only; Outcome is Escalate then.
	Trouble Trouble `json:"trouble,omitempty"`
	// RetryAfter is when trying again can help, with TroubleUnavailable and
	// TroubleUnreadable; 0 when unknown.
	RetryAfter time.Duration `json:"retryAfterNs,omitempty"`
	// Route is the index of the chosen Candidate, set by the script layer when
	// the case has routes.
	Route *int `json:"route,omitempty"`
	// Sandbox lists the protections that were missing when scripts ran.
	Sandbox []string `json:"sandbox,omitempty"`
	// Evidence is what the evidence layer fetched, nil for every other layer. It is
	// recorded in the Verdict.
	Evidence []Evidence `json:"-"`
	// Model is what the model layer did, nil for every other layer.
	Model *ModelRecord `json:"model,omitempty"`
	// Took is the layer's wall time.
	Took time.Duration `json:"tookNs"`
}

// ModelRecord records how a model came to its opinion, so that it can be checked later.
type ModelRecord struct {
	// Model is the configured name, Reported what the endpoint calls it.
	Model       string `json:"model,omitempty"`
	Reported    string `json:"reported,omitempty"`
	Endpoint    string `json:"endpoint,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// PromptID and PromptDigest name the template; CriteriaDigest the criteria. A
	// calibration is bound to the model and these.
	PromptID       string `json:"promptId,omitempty"`
	PromptDigest   string `json:"promptDigest,omitempty"`
	CriteriaDigest string `json:"criteriaDigest,omitempty"`
	// Criteria are judged one by one, in the order of the rubric.
	Criteria []CriterionVerdict `json:"criteria,omitempty"`
	// Stated is the confidence that the model gave itself, 0..1.
	Stated float64 `json:"stated"`
	// Calibration is the digest of the calibration that was applied, "" when the
	// stated confidence was shrunk instead.
	Calibration string `json:"calibration,omitempty"`
	// Uncalibrated is why a calibration bound to all of this was not applied to an approval, ""
	// when it was or there is none.
	Uncalibrated string `json:"uncalibrated,omitempty"`
	Rung         string `json:"rung,omitempty"`
	// Lenient is true when the answer was unmistakable but not in the form asked for.
	Lenient bool `json:"lenient,omitempty"`
	// Failure is the class of what went wrong (judge/llm.Class), ""
	// when nothing did; Detail is a sentence about it for the operator.
	Failure string `json:"failure,omitempty"`
	Detail  string `json:"detail,omitempty"`
	// Calls counts HTTP requests; Reasked, CacheHit, Shared and Reused say why they
	// may be more or fewer than one.
	Calls    int  `json:"calls"`
	Reasked  bool `json:"reasked,omitempty"`
	CacheHit bool `json:"cacheHit,omitempty"`
	Shared   bool `json:"shared,omitempty"`
	// Reused is true when this is the recorded refusal of the identical case.
	Reused bool `json:"reused,omitempty"`
	// Breaker is the state of the circuit breaker: closed, half-open or open.
	Breaker string `json:"breaker,omitempty"`
	// PromptTokens and the like count all Calls; nil when the endpoint did not say.
	PromptTokens     *int     `json:"promptTokens,omitempty"`
	CompletionTokens *int     `json:"completionTokens,omitempty"`
	CachedTokens     *int     `json:"cachedTokens,omitempty"`
	CostUSD          *float64 `json:"costUSD,omitempty"`
	// Samples and Agreeing are set when the model was asked several times, or several models
	// were: how many answers were expected, and how many agree with what came of it.
	Samples  int `json:"samples,omitempty"`
	Agreeing int `json:"agreeing,omitempty"`
	// Votes are what each model of a panel or cascade came to, in the order in which they are
	// configured, those of the cascade first.
	Votes []Vote `json:"votes,omitempty"`
	// Refusals is how often the same question was refused before, RefusalLimit the
	// number at which the loop guard steps in (0: never).
	Refusals     int `json:"refusals,omitempty"`
	RefusalLimit int `json:"refusalLimit,omitempty"`
}

// CriterionVerdict is what came of one criterion.
type CriterionVerdict struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	// Status is met, not_met or cannot_assess, after code has looked the evidence up.
	Status string `json:"status"`
	// Evidence is the model's quote or pointer, cut.
	Evidence string `json:"evidence,omitempty"`
	// Basis says where the evidence stands: BasisEvidence when the gate fetched it
	// itself, BasisClaim when the agent wrote it. "" without evidence that counts.
	Basis string `json:"basis,omitempty"`
	// Why says why code changed the status: the evidence is not in the data, the model
	// left the criterion out.
	Why string `json:"why,omitempty"`
	// Says is the model's own sentence on it, cut; "" when it was not asked for one.
	Says string `json:"says,omitempty"`
}

// The bases of a criterion that is met.
const (
	BasisEvidence = "evidence"
	BasisClaim    = "claim"
)

// Verdict is what the pipeline says of a case.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Proposed is what would have been without policy (thresholds, required
	// assurance, availability); equal to Outcome when policy changed nothing.
	Proposed Outcome `json:"proposed"`
	// Applied says that the move may happen: the outcome is Approve, or the mode
	// is Shadow and legality and routing allow it.
	Applied bool `json:"applied"`
	// Code is the machine code of a refusal or escalation: the first finding's, or
	// the policy's own. Empty on an approval.
	Code string `json:"code,omitempty"`
	// Target is the state that the action leads to, "" when none was determined.
	Target string `json:"target,omitempty"`
	// Confidence is 0..1, of the weakest layer that spoke.
	Confidence float64   `json:"confidence"`
	Assurance  Assurance `json:"assurance"`
	DecidedBy  LayerName `json:"decidedBy"`
	// Degraded is true when a judgement that was asked for was unavailable and
	// the rest decided.
	Degraded bool `json:"degraded"`
	Fault    bool `json:"fault,omitempty"`
	Mode     Mode `json:"mode"`
	// Reasoning is one or a few sentences for the agent and for the record.
	Reasoning   string               `json:"reasoning"`
	Findings    []validators.Finding `json:"findings,omitempty"`
	Suggestions []string             `json:"suggestions,omitempty"`
	// Warnings tell of what was let pass (a low confidence without strictMode).
	Warnings []string `json:"warnings,omitempty"`
	// RetryAfter is when trying again can help, with CodeJudgeUnavailable and
	// CodeJudgeUnreadable; 0 when unknown.
	RetryAfter time.Duration `json:"retryAfterNs,omitempty"`
	// Sandbox lists the protections that were missing when scripts ran.
	Sandbox []string `json:"sandbox,omitempty"`
	// Evidence is what the gate fetched, in the order of the definition.
	Evidence []Evidence `json:"evidence,omitempty"`
	Opinions []Opinion  `json:"opinions"`
}

// Violations are the findings' messages, never nil.
func (v Verdict) Violations() []string {
	out := make([]string, 0, len(v.Findings))
	for _, f := range v.Findings {
		out = append(out, f.Message)
	}
	return out
}

// rank is 0 for an unknown level.
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
