package judge

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Operation says what the agent asked for.
type Operation string

// The operations that are judged.
const (
	// Start enters the initial state. Its data is the start context.
	Start Operation = "start"
	// Advance performs an action.
	Advance Operation = "advance"
)

// Case is one question put to the judge: everything that the layers may look
// at, and nothing else. It is a plain value that engine/workflow builds from a
// definition and the facts of an instance; no layer reads anything beside it.
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
	// About describes the workflow, the present state and the action, in the words of
	// the definition; the model is shown them.
	About     About
	Principal string
	Role      string
	// Caller is who calls, by which everything shared is accounted; "" is Principal. It
	// differs where a reviewer resolves what another principal asked for.
	Caller string
	// Owner wrote the definition; its schemas and scripts are run as that
	// stranger's unless Owner.Trusted.
	Owner validators.Owner

	// Path is how the instance came here; the model is shown it.
	Path Path

	// Illegal holds why the action cannot happen here at all (unknown action,
	// instance not running, role, notBy). Empty: legal. The transition layer
	// says it.
	Illegal []validators.Finding
	// Checks look at Data: required fields, schema, validators, and the routes
	// that choose among Candidates.
	Checks validators.Checks
	// Candidates are the states that the action can lead to, in order. With
	// Checks.Routes they are parallel to it; without, there is exactly one
	// (none when the action is illegal).
	Candidates []Candidate
	// Forbidden holds what Data may not do whatever the target is: writes and
	// freezes. The state layer says it.
	Forbidden []validators.Finding

	// Evidence is what the gate has to fetch before it decides. Only for definitions of
	// a trusted Owner.
	Evidence []EvidenceRequest
	// RecentEvidence is evidence that was fetched before and is not to be fetched again: the
	// resolution of a review brings what is young enough.
	RecentEvidence []Evidence
	// Fetched is what came of Evidence; the Pipeline fills it in for the layers after it.
	Fetched []Evidence

	// Call is what will be sent if the action is approved; nil where it stands for no call.
	Call *Call

	// Data is the action's, Context the accumulated one before the merge, Merged
	// the one after it. All are objects; what is read of them is not read again.
	Data, Context, Merged document.JSON
	// MaskedData, MaskedContext and MaskedMerged are the same with every
	// sensitive value replaced. They equal the plain ones when nothing is sensitive.
	MaskedData, MaskedContext, MaskedMerged document.JSON
	// Scrub removes sensitive values from text that leaves the process. Never nil
	// in a Case that engine/workflow built; nil means nothing is sensitive.
	Scrub func(string) string
	// Mask replaces the sensitive values of a document, in which evidence stands as
	// {"evidence": {name: content}}. nil means that nothing is sensitive.
	Mask func(json.RawMessage) (json.RawMessage, error)
	// Scrubber is Scrub for the sensitive values of another document, such as evidence in
	// the form that Mask takes. nil means that nothing is sensitive.
	Scrubber func(json.RawMessage) func(string) string
	// Rejected is what a person rejected of exactly this question, nil for nothing.
	Rejected *Rejection
	// Digest makes the keyed digest of a document that holds sensitive values; nil
	// leaves out what it would be.
	Digest func([]byte) string

	// KeyDigests has Digest make the digests of all evidence, also of what holds nothing
	// sensitive: for answers to callers that do not see the content.
	KeyDigests bool

	// Identity is a keyed digest of everything that the model would be shown and
	// judged by, with the sensitive values in it; two cases with the same one are the
	// same question. "" means that nothing may be reused.
	Identity string
	// Bound is a keyed digest of the instance and the question about it, without what only
	// looks different and whoever asks: what the model refused of it is not approved by
	// the structural fallback within BoundFor. "" binds nothing.
	Bound string
	// Guard is a keyed digest of principal, workflow, action and Fingerprint(Data), and of the
	// instance unless the data are the question (IsQuestion): what the loop guard counts by. ""
	// means that nothing is counted.
	Guard string
	// Passed are the layers that have approved so far; the Pipeline fills it in, so
	// that the model is told what need not be examined again.
	Passed []LayerName

	Rubric Rubric
	// ReviewPath is true when somebody could resolve an escalation.
	ReviewPath bool
	// Now is the decision's time and Seed its random seed: the same case gives
	// the same verdict.
	Now  time.Time
	Seed int64

	// early is where the schema layer puts what the scripts say, when it asked the sandbox for
	// both; nil when something comes between the two.
	early *script.Reply
}

func (c Case) caller() string { return cmp.Or(c.Caller, c.Principal) }

// Path is the way of an instance, as the gate recorded it. It names no principal.
type Path struct {
	// States are those it was in, each once, in the order of the first visit.
	States []string
	// Actions are those performed, with who did.
	Actions map[string]string
}

// About is what the definition says of the things that a case names; each may be
// empty.
type About struct{ Workflow, State, Action string }

// Rejection is a person's word on a question that is asked again. It holds as long as the
// evidence is the same.
type Rejection struct {
	// Review is the id of the review, By who rejected it, Reason why.
	Review, By, Reason string
	Evidence           []Evidence
}

// Candidate is one state that the action can lead to.
type Candidate struct {
	Target string
	// About is the target's description.
	About string
	// Entry are the target state's own validators; they look at Merged.
	Entry validators.Checks
	// Unmet holds what the history must show before this state may be entered
	// and does not (mustPassThrough).
	Unmet []validators.Finding
}

// Mode says whether the verdict of the layers after routing binds.
type Mode string

// The modes.
const (
	Enforce Mode = "enforce"
	// Shadow records what the layers would have decided and lets the move happen.
	// Legality and routing bind all the same.
	Shadow Mode = "shadow"
)

// UnavailablePolicy says what happens when a model is asked for and cannot answer.
type UnavailablePolicy string

// The policies of onJudgeUnavailable.
const (
	UnavailableEscalate   UnavailablePolicy = "escalate"
	UnavailableStructural UnavailablePolicy = "structural"
	UnavailableReject     UnavailablePolicy = "reject"
)

// ContentPolicy says what happens to words that may be meant for the judge.
type ContentPolicy string

// The policies. A flag is shown to the model and to a reviewer.
const (
	ContentFlag     ContentPolicy = ""
	ContentEscalate ContentPolicy = "escalate"
	ContentReject   ContentPolicy = "reject"
)

// Risk grades a transition.
type Risk string

// The grades. RiskHigh demands at least a calibrated model or a person.
const (
	RiskNormal Risk = ""
	RiskHigh   Risk = "high"
)

// Rubric is the judge's configuration of one transition, with every default
// and override already resolved (see DefaultRubric).
type Rubric struct {
	// Enabled false drops the content layer, the model and MinConfidence; the
	// deterministic layers, RequireAssurance and Risk still bind.
	Enabled bool `json:"enabled"`
	// UseLLM asks the model after every other layer has approved.
	UseLLM bool `json:"useLLM"`
	// StrictMode approves only with confidence >= MinConfidence; otherwise a low
	// confidence is a warning.
	StrictMode bool `json:"strictMode"`
	// MinConfidence is 0..1.
	MinConfidence float64 `json:"minConfidence"`
	Mode          Mode    `json:"mode"`
	// OnJudgeUnavailable: by default escalate when strict, structural when not.
	OnJudgeUnavailable UnavailablePolicy `json:"onJudgeUnavailable"`
	RequireAssurance   Assurance         `json:"requireAssurance"`
	Risk               Risk              `json:"risk,omitempty"`
	// OnEvidenceMissing says what happens when required evidence cannot be had: Reject
	// ("" too) or Escalate.
	OnEvidenceMissing Outcome `json:"onEvidenceMissing,omitempty"`
	// Content says what happens to words that may be meant for the judge.
	Content ContentPolicy `json:"content,omitempty"`
	// Criteria are judged one by one by the model.
	Criteria []string `json:"criteria,omitempty"`
	// Proofs are what quotes have to be beyond the usual, by the text of the criterion.
	Proofs map[string]Proof `json:"proofs,omitempty"`
	// Model names one that an operator configured; empty is the default one.
	Model string `json:"model,omitempty"`
	// Prompt is the edition of the prompt that the model is asked with, as prompts.Find takes it;
	// "" leaves it to the model's layer.
	Prompt string `json:"prompt,omitempty"`
	// Reference is what a good answer looks like, shown to the model.
	Reference string `json:"reference,omitempty"`
	// Exemplars are at most MaxExemplars decided cases, shown to the model.
	Exemplars []Exemplar `json:"exemplars,omitempty"`
	// Samples is how often the model is asked, independently: 0 and 1 are once, else
	// odd and at most MaxSamples.
	Samples int `json:"samples,omitempty"`
	// Panel takes the place of Model and Samples; nil is none.
	Panel *Panel `json:"panel,omitempty"`
	// Cascade is asked before them, at most MaxStages.
	Cascade []Stage `json:"cascade,omitempty"`
}

// The most exemplars and samples.
const (
	MaxExemplars = 3
	MaxSamples   = 9
)

// MayEscalate reports whether policy can take a move to a person.
func (r Rubric) MayEscalate() bool {
	return r.OnEvidenceMissing == Escalate || !AssuranceNone.AtLeast(r.RequiredAssurance()) || r.Enabled && (r.UseLLM || r.StrictMode)
}

// Exemplar is a case that has been decided before.
type Exemplar struct {
	Data    json.RawMessage `json:"data"`
	Outcome Outcome         `json:"outcome"` // approve or reject
	Why     string          `json:"why,omitempty"`
}

// DefaultRubric is what an absent judgeConfig means: enabled, no model, not
// strict, 0.8, enforce, structural, assurance none.
func DefaultRubric() Rubric {
	return Rubric{
		Enabled: true, MinConfidence: 0.8, Mode: Enforce,
		OnJudgeUnavailable: UnavailableStructural, RequireAssurance: AssuranceNone,
	}
}
