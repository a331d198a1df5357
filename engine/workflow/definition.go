package workflow

import (
	"encoding/json"

	"github.com/gavel-mcp/gavel/judge"
)

// Definition is a workflow type: a state machine and what guards its
// transitions. It is immutable once parsed.
type Definition struct {
	Name        string
	Description string
	Comment     string
	Tags        map[string]string
	// InitialState names the state in which instances start.
	InitialState string
	// InputSchema is the JSON Schema of the start context, empty when absent.
	InputSchema json.RawMessage
	// States by name; StateNames keeps the order of the document.
	States     map[string]*State
	StateNames []string
	// Judge is judgeConfig; nil when absent.
	Judge *JudgeSettings
	// StateValidators and TransitionValidators are the keyed forms; the keys of the
	// latter are an action or "state.action".
	StateValidators      map[string]StateChecks
	TransitionValidators map[string]string
	// Sensitive are JSON pointers into context and data.
	Sensitive []string
	// MustPassThrough: to enter the key, every listed state must have been visited.
	MustPassThrough map[string][]string
	// Retention says how long records of ended instances are kept.
	Retention Retention

	// Hash is "sha256:" and the hex digest of the canonical document: the same
	// definition has the same hash whether written as JSON or YAML, in any key order.
	Hash string
	// Document is the definition as compact JSON, key order kept.
	Document json.RawMessage

	lines map[string]int // JSON pointer -> line, for Lint
	masks *maskNode      // Sensitive, compiled; nil when empty or not made by Parse
}

// State is one state of the machine.
type State struct {
	Name        string
	Description string
	Final       bool
	// Outcome of a final state, such as "success"; "" when not given.
	Outcome string
	// Transitions by action; Actions keeps the order of the document.
	Transitions map[string]*Transition
	Actions     []string
}

// Transition is what an action does in a state.
type Transition struct {
	Action      string
	Description string
	// Routes are tried in order; a plain target is one Route without a condition.
	Routes         []Route
	RequiredFields []string
	Schema         json.RawMessage
	// Validator is inline script source, "" when absent.
	Validator string
	Judge     JudgeSettings // the transition's own settings; unset fields inherit
	// Reference and Exemplars are shown to the model.
	Reference string
	Exemplars []judge.Exemplar
	Roles     []string
	// NotBy lists actions whose performer may not perform this one ("notBy": a
	// string or a list).
	NotBy []string
	// Writes lists the top-level keys the action may set; nil means any that is not frozen.
	Writes []string
	// Freezes are JSON pointers that nobody may change after this transition.
	Freezes []string
	// Evidence is what the gate fetches itself.
	Evidence []Evidence
}

// Conditional reports whether the target depends on conditions.
func (t *Transition) Conditional() bool {
	return len(t.Routes) != 1 || t.Routes[0].Condition != ""
}

// Route is one of a transition's conditional targets.
type Route struct {
	Condition   string
	Target      string
	Description string
}

// StateChecks are the invariants of a state, on the merged context.
type StateChecks struct {
	RequiredFields []string
	Schema         json.RawMessage
}

// JudgeSettings are judge settings as written: nil means not given.
type JudgeSettings struct {
	Enabled            *bool                    `json:"enabled,omitempty"`
	UseLLM             *bool                    `json:"useLLM,omitempty"`
	StrictMode         *bool                    `json:"strictMode,omitempty"`
	MinConfidence      *float64                 `json:"minConfidence,omitempty"`
	Mode               *judge.Mode              `json:"mode,omitempty"`
	OnJudgeUnavailable *judge.UnavailablePolicy `json:"onJudgeUnavailable,omitempty"`
	RequireAssurance   *judge.Assurance         `json:"requireAssurance,omitempty"`
	Risk               *judge.Risk              `json:"risk,omitempty"`
	Criteria           []string                 `json:"criteria,omitempty"`
	Model              *string                  `json:"model,omitempty"`
	Samples            *int                     `json:"samples,omitempty"`
	OnEvidenceMissing  *judge.Outcome           `json:"onEvidenceMissing,omitempty"`
	Review             *ReviewSettings          `json:"review,omitempty"`
	// Shared lets every agent use an agent's workflow. Documents do not hold it: only an
	// operator's judge-config revision does.
	Shared *bool `json:"shared,omitempty"`
}
