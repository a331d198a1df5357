package judge

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Operation is the kind of request.
type Operation string

// The operations that are judged.
const (
	// Start enters the initial state. Its data is the start context.
	Start Operation = "start"
	// Advance performs an action.
	Advance Operation = "advance"
)

// Case is one question for the judge: everything that the layers may read, and nothing else. It is a
// plain value that engine/workflow builds from a definition and the facts of an instance. No layer
// reads anything outside it.
type Case struct {
	Operation Operation
	// Precheck is true for a question that will not move the instance.
	Precheck bool

	Workflow        string
	Version         int
	DefinitionHash  string
	JudgeConfigHash string
	Instance        string
	State           string
	Action          string
	// About describes the workflow, the present state and the action in the words of the definition. It
	// is shown to the model.
	About     About
	Principal string
	Role      string
	// Caller is the calling principal, to which all shared resources are charged; "" means Principal. It
	// differs if a reviewer resolves the request of another principal.
	Caller string
	// Owner wrote the definition. Its schemas and scripts run as untrusted code unless
	// Owner.Trusted.
	Owner validators.Owner

	// Path is the instance's path to its present state. It is shown to the model.
	Path Path

	// Illegal lists why the action is impossible here (unknown action, instance not running, role,
	// notBy); empty if it is legal. The transition layer reports it.
	Illegal []validators.Finding
	// Checks are applied to Data: required fields, schema, validators, and the routes that choose
	// among Candidates.
	Checks validators.Checks
	// Candidates are the states that the action can lead to, in order. With Checks.Routes, both have the
	// same length and order; otherwise there is exactly one candidate (none if the action is illegal).
	Candidates []Candidate
	// Forbidden lists violations by Data that do not depend on the target: writes and freezes. The
	// state layer reports them.
	Forbidden []validators.Finding

	// Evidence lists the facts that the gate must fetch before it decides. Only definitions of a
	// trusted Owner have any.
	Evidence []EvidenceRequest
	// RecentEvidence is previously fetched evidence that is not fetched again: the resolution of a
	// review supplies evidence that is recent enough.
	RecentEvidence []Evidence
	// Fetched holds the results for Evidence; the Pipeline sets it for later layers.
	Fetched []Evidence

	// Call is the call that will be sent if the action is approved; nil if the action is not a call.
	Call *Call

	// Data is the data of the action, Context the accumulated context before the merge, Merged the
	// context after it. All are objects, and are parsed only once.
	Data, Context, Merged document.JSON
	// MaskedData, MaskedContext and MaskedMerged are copies with every sensitive value replaced. They
	// equal the plain ones if nothing is sensitive.
	MaskedData, MaskedContext, MaskedMerged document.JSON
	// Scrub removes sensitive values from text that leaves the process. It is never nil in a Case that
	// engine/workflow built; nil means that nothing is sensitive.
	Scrub func(string) string
	// Mask replaces the sensitive values of a document. Evidence has the form
	// {"evidence": {name: content}}. nil means that nothing is sensitive.
	Mask func(json.RawMessage) (json.RawMessage, error)
	// Scrubber returns a Scrub function for the sensitive values of another document, such as evidence in
	// the form that Mask takes. nil means that nothing is sensitive.
	Scrubber func(json.RawMessage) func(string) string
	// Rejected is a person's rejection of exactly this question, nil if there is none.
	Rejected *Rejection
	// Digest computes the keyed digest of a document that holds sensitive values. If it is nil, such
	// digests are left out.
	Digest func([]byte) string

	// KeyDigests makes all digests of evidence keyed, even if nothing in it is sensitive: for answers to
	// callers that do not see the content.
	KeyDigests bool

	// Identity is a keyed digest of everything that the model would be shown and judge by, including
	// sensitive values; two cases with the same Identity are the same question. "" means that nothing
	// may be reused.
	Identity string
	// Bound is a keyed digest of the instance and the question about it. It ignores superficial differences
	// and the principal. If the model refuses the question, the structural fallback does not approve it
	// within BoundFor. "" turns this off.
	Bound string
	// Guard is the key by which the loop guard counts: a keyed digest of principal, workflow, action and
	// Fingerprint(Data), and of the instance unless IsQuestion is true for the data. "" means that
	// nothing is counted.
	Guard string
	// Passed are the layers that have approved so far. The Pipeline sets it, so that the model knows
	// which aspects need no further examination.
	Passed []LayerName

	Rubric Rubric
	// ReviewPath is true if an escalation can reach a person.
	ReviewPath bool
	// Now is the time of the decision and Seed its random seed: the same case gives the same verdict.
	Now  time.Time
	Seed int64

	// precedents are shown to the model; the model layer sets them.
	precedents []Precedent

	// unasked are the ids of the criteria whose conditions do not hold. The Pipeline sets it.
	unasked []string
	// early receives the scripts' results if the schema layer runs schema and scripts in one sandbox call.
	// It is nil if a step is needed between the two.
	early *script.Reply
}

func (c Case) caller() string { return cmp.Or(c.Caller, c.Principal) }

// Path is the path of an instance as the gate recorded it. It names no principal.
type Path struct {
	// States are the states it was in, each once, in the order of the first visit.
	States []string
	// Actions maps each performed action to a description of who performed it.
	Actions map[string]string
}

// About holds the definition's descriptions of the things that a case names; each may be
// empty.
type About struct{ Workflow, State, Action string }

// Rejection is a person's rejection of a question that is asked again. It is valid as long as the
// evidence is the same.
type Rejection struct {
	// Review is the id of the review, By the person who rejected it, Reason the given reason.
	Review, By, Reason string
	Evidence           []Evidence
}

// Candidate is one state that the action can lead to.
type Candidate struct {
	Target string
	// About is the target's description.
	About string
	// Entry are the target state's own checks; they apply to Merged.
	Entry validators.Checks
	// Unmet lists the unmet requirements on the history for entering this state (mustPassThrough).
	Unmet []validators.Finding
}

// Mode selects whether the verdict of the layers after routing is binding.
type Mode string

// The modes.
const (
	Enforce Mode = "enforce"
	// Shadow records what the layers would have decided and allows the move. Legality and routing
	// are still binding.
	Shadow Mode = "shadow"
)

// UnavailablePolicy selects what happens if a model is needed and cannot answer.
type UnavailablePolicy string

// The policies of onJudgeUnavailable.
const (
	UnavailableEscalate   UnavailablePolicy = "escalate"
	UnavailableStructural UnavailablePolicy = "structural"
	UnavailableReject     UnavailablePolicy = "reject"
)

// ContentPolicy selects what happens to words that may be meant for the judge.
type ContentPolicy string

// The policies. With ContentFlag, a flag is shown to the model and to a reviewer.
const (
	ContentFlag     ContentPolicy = ""
	ContentEscalate ContentPolicy = "escalate"
	ContentReject   ContentPolicy = "reject"
)

// Risk grades a transition.
type Risk string

// The grades. RiskHigh requires at least a calibrated model or a person.
const (
	RiskNormal Risk = ""
	RiskHigh   Risk = "high"
)

// Rubric is the judge's configuration of one transition, with every default and override
// resolved (see DefaultRubric).
type Rubric struct {
	// Enabled false drops the content layer, the model and MinConfidence. The deterministic layers,
	// RequireAssurance and Risk still apply.
	Enabled bool `json:"enabled"`
	// UseLLM asks the model after every other layer has approved.
	UseLLM bool `json:"useLLM"`
	// StrictMode approves only with confidence >= MinConfidence; without it, a low confidence is a
	// warning.
	StrictMode bool `json:"strictMode"`
	// MinConfidence is 0..1.
	MinConfidence float64 `json:"minConfidence"`
	Mode          Mode    `json:"mode"`
	// OnJudgeUnavailable defaults to escalate with StrictMode, to structural without.
	OnJudgeUnavailable UnavailablePolicy `json:"onJudgeUnavailable"`
	RequireAssurance   Assurance         `json:"requireAssurance"`
	Risk               Risk              `json:"risk,omitempty"`
	// OnEvidenceMissing selects what happens if required evidence is unavailable: Reject (also "")
	// or Escalate.
	OnEvidenceMissing Outcome `json:"onEvidenceMissing,omitempty"`
	// Content selects what happens to words that may be meant for the judge.
	Content ContentPolicy `json:"content,omitempty"`
	// Criteria are judged by the model one by one.
	Criteria []string `json:"criteria,omitempty"`
	// Proofs are additional requirements on quotes, by the text of the criterion.
	Proofs map[string]Proof `json:"proofs,omitempty"`
	// Terms are what else is said of criteria, by the text of the criterion.
	Terms map[string]Terms `json:"terms,omitempty"`
	// Model is the name of a model that an operator configured; "" is the default model.
	Model string `json:"model,omitempty"`
	// Prompt is the edition of the prompt for the model, one of prompts.RecordedIDs; "" leaves the choice to the
	// model layer. No definition names one.
	Prompt string `json:"prompt,omitempty"`
	// Reference describes a good answer; it is shown to the model.
	Reference string `json:"reference,omitempty"`
	// Exemplars are at most MaxExemplars decided cases, shown to the model.
	Exemplars []Exemplar `json:"exemplars,omitempty"`
	// ExemplarsFrom is FromHistory to also show cases that persons decided, or "".
	ExemplarsFrom string `json:"exemplarsFrom,omitempty"`
	// Samples is how often the model is asked independently: 0 and 1 mean once; otherwise it is odd and
	// at most MaxSamples.
	Samples int `json:"samples,omitempty"`
	// Panel replaces Model and Samples; nil for none.
	Panel *Panel `json:"panel,omitempty"`
}

// The maximum numbers of exemplars and samples.
const (
	MaxExemplars = 3
	MaxSamples   = 9
)

// MayEscalate reports whether policy can escalate a move to a person.
func (r Rubric) MayEscalate() bool {
	return r.OnEvidenceMissing == Escalate || !AssuranceNone.AtLeast(r.RequiredAssurance()) || r.Enabled && (r.UseLLM || r.StrictMode)
}

// Exemplar is a case that has already been decided.
type Exemplar struct {
	Data    json.RawMessage `json:"data"`
	Outcome Outcome         `json:"outcome"` // approve or reject
	Why     string          `json:"why,omitempty"`
}

// DefaultRubric returns the rubric for an absent judgeConfig: enabled, no model, not strict, 0.8,
// enforce, structural, assurance none.
func DefaultRubric() Rubric {
	return Rubric{
		Enabled: true, MinConfidence: 0.8, Mode: Enforce,
		OnJudgeUnavailable: UnavailableStructural, RequireAssurance: AssuranceNone,
	}
}
