// Package workflow reads workflow definitions, checks that they make sense, draws them, and turns
// an action into a question for the judge.
//
// It promises:
//
//   - Everything here is a pure function of its arguments.
//   - [Parse] rejects anything that it does not understand and reports where.
//   - [Definition.Lint] finds what parses but cannot work.
//   - [Definition.Case] builds one [judge.Case] from a definition, a state, an action, its data and
//     the facts of an instance, the same way every time.
//   - The states that an action can lead to come from the definition alone.
//   - [Definition.Mask] is the only place where sensitive values are masked.
//
// It must never decide (that is the judge's job), or read a store, a clock or the network. It must never run a script
// or a schema itself: the [Compiler] runs them and keeps untrusted code in a sandbox.
package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Definition is a workflow type: a state machine and the checks that guard its
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
	// Judge holds judgeConfig; nil if absent.
	Judge *JudgeSettings
	// StateValidators and TransitionValidators are the keyed forms; the keys of the
	// latter are an action or "state.action".
	StateValidators      map[string]StateChecks
	TransitionValidators map[string]string
	// Sensitive are JSON pointers into context and data.
	Sensitive []string
	// MustPassThrough lists for each key the states that must have been visited before it is entered.
	MustPassThrough map[string][]string
	// Retention is how long records of ended instances are kept.
	Retention Retention
	// Access is AccessShared if agents share the instances; "" restricts them to their owners.
	Access string
	// Agents holds the rights that an operator's definition gives to agents.
	Agents AgentRights

	// Hash is "sha256:" and the hex digest of the canonical document: the same
	// definition has the same hash whether written as JSON or YAML, in any key order.
	Hash string
	// Document is the definition as compact JSON, key order kept.
	Document json.RawMessage

	lines map[string]int    // JSON pointer -> line, for Lint
	files map[string]string // JSON pointer -> name of the file whose text is there
	masks *maskNode         // Sensitive, compiled; nil when empty or not made by Parse
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
	// Added holds the values of the keys that AddStateKey added.
	Added map[string]any
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
	// Reference and Exemplars are shown to the model, and decisions from the history if ExemplarsFrom says so.
	Reference     string
	Exemplars     []judge.Exemplar
	ExemplarsFrom string
	Roles         []string
	// NotBy lists actions whose performer may not perform this one ("notBy": a
	// string or a list).
	NotBy []string
	// Writes lists the top-level keys the action may set; nil means any that is not frozen.
	Writes []string
	// Freezes are JSON pointers to fields that cannot change after this transition.
	Freezes []string
	// Evidence lists the facts that the gate fetches itself.
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

// JudgeSettings are the judge settings as written; a nil field was not given.
type JudgeSettings struct {
	Enabled            *bool                    `json:"enabled,omitempty"`
	UseLLM             *bool                    `json:"useLLM,omitempty"`
	StrictMode         *bool                    `json:"strictMode,omitempty"`
	MinConfidence      *float64                 `json:"minConfidence,omitempty"`
	Mode               *judge.Mode              `json:"mode,omitempty"`
	OnJudgeUnavailable *judge.UnavailablePolicy `json:"onJudgeUnavailable,omitempty"`
	RequireAssurance   *judge.Assurance         `json:"requireAssurance,omitempty"`
	Risk               *judge.Risk              `json:"risk,omitempty"`
	Content            *judge.ContentPolicy     `json:"content,omitempty"`
	Criteria           []string                 `json:"criteria,omitempty"`
	Proofs             map[string]judge.Proof   `json:"proofs,omitempty"` // by the text of the criterion
	Terms              map[string]judge.Terms   `json:"terms,omitempty"`  // by the text of the criterion
	Model              *string                  `json:"model,omitempty"`
	Samples            *int                     `json:"samples,omitempty"`
	Panel              *judge.Panel             `json:"panel,omitempty"`
	OnEvidenceMissing  *judge.Outcome           `json:"onEvidenceMissing,omitempty"`
	Review             *ReviewSettings          `json:"review,omitempty"`
	// Shared lets every agent use an agent's workflow. Documents do not hold it: only an
	// operator's judge-config revision does.
	Shared *bool `json:"shared,omitempty"`
}

// Severity is how serious an Issue is.
type Severity string

// Errors block define and load; warnings and notes are returned with the definition. A note reports
// nothing wrong and never fails a check.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityNote    Severity = "note"
)

// Issue is one problem that Parse or Lint found.
type Issue struct {
	// Rule is a stable id such as "unknown-target".
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// Path is a JSON pointer into the definition; Line is 1-based (0 if unknown).
	Path    string `json:"path"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// String formats the issue on one line: place, message, and the rule in brackets.
func (i Issue) String() string {
	var b strings.Builder
	if i.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", i.Line)
	}
	if i.Path != "" {
		b.WriteString(i.Path)
		b.WriteString(": ")
	}
	fmt.Fprintf(&b, "%s [%s]", i.Message, i.Rule)
	return b.String()
}

// ParseError reports a document that is not a valid definition, with all its problems.
type ParseError struct {
	// Source is the document's name as given to Parse.
	Source string
	// Issues are in the order of their lines; there is at least one.
	Issues []Issue
}

// Error lists every issue, one per line when there are several.
func (e *ParseError) Error() string {
	var b strings.Builder
	if e.Source != "" {
		b.WriteString(e.Source)
		b.WriteString(": ")
	}
	if len(e.Issues) != 1 {
		fmt.Fprintf(&b, "%d problems:\n  ", len(e.Issues))
	}
	for n, i := range e.Issues {
		if n > 0 {
			b.WriteString("\n  ")
		}
		b.WriteString(i.String())
	}
	return b.String()
}

func sortIssues(issues []Issue) {
	slices.SortStableFunc(issues, func(a, b Issue) int { return a.Line - b.Line })
}

// Retention is how long records of an instance are kept after its end. The zero value
// keeps everything.
type Retention struct {
	// Events is how long the whole history is kept; 0 means forever.
	Events time.Duration
}

// MinRetention is the shortest allowed retention of a whole history: retries with an idempotency
// key are answered from it, and an operator may still roll back.
const MinRetention = 7 * 24 * time.Hour

func (p *parser) parseRetention(o *document.ObjectReader) Retention {
	if !o.Has("retention") {
		return Retention{}
	}
	c := o.Object("retention")
	p.checkKeys(c, &retentionObject)
	if c.Node() == nil {
		return Retention{}
	}
	r := Retention{Events: p.parseDuration(c, "events", maxDuration)}
	if r.Events != 0 && r.Events < MinRetention {
		p.rejectValue(c.Value("events"), "events must be at least 7d, the minimum time for which every complete history is kept")
		r.Events = 0
	}
	return r
}

// checkRetentionOwner rejects retention in an agent's definition: agents must not remove the record of
// how they were judged.
func checkRetentionOwner(s *linter) {
	if !s.trusted && s.Retention != (Retention{}) {
		s.addIssue("/retention", "only an operator may set retention; remove it, or have an operator define the workflow")
	}
}

// AccessShared is the value of access that lets every agent with the right to a workflow read and move its instances.
const AccessShared = "shared"

// checkAccessOwner rejects access in an agent's definition: only an operator may give agents access to others'
// instances.
func checkAccessOwner(s *linter) {
	if !s.trusted && s.Access != "" {
		s.addIssue("/access", "only an operator may set access; remove it, or have an operator define the workflow")
	}
}

// AgentRights are the rights of agents on an operator's definition, beyond following it. The
// zero value is what an absent "agents" means.
type AgentRights struct {
	// Rollback allows rollback, undo and redo on their own instances.
	Rollback bool
	// Redefine allows defining new versions of the workflow, for everyone.
	Redefine bool
	// Judge limits how they may change the judge of their own instances.
	Judge JudgeRight
}

// JudgeRight is how an agent may change the judge of its instances of an operator's definition.
// The zero value allows only tightening: enabled true, strictMode true and a higher minConfidence.
type JudgeRight string

const (
	// JudgeKeep allows no change.
	JudgeKeep JudgeRight = "none"
	// JudgeSet allows any value of enabled, strictMode, minConfidence and useLLM.
	JudgeSet JudgeRight = "set"
)

func (p *parser) parseAgents(o *document.ObjectReader) AgentRights {
	if !o.Has("agents") {
		return AgentRights{}
	}
	c := o.Object("agents")
	p.checkKeys(c, &agentsObject)
	if c.Node() == nil {
		return AgentRights{}
	}
	return AgentRights{Rollback: c.Bool("rollback"), Redefine: c.Bool("redefine"), Judge: JudgeRight(c.Enum("configureJudge", "tighten", "none", "set"))}
}

// checkAgentsOwner reports agents in an agent's definition. It has no effect there: owners need no
// permission for their own definitions.
func checkAgentsOwner(s *linter) {
	if !s.trusted && s.Agents != (AgentRights{}) {
		s.addIssue("/agents", "agents applies only to an operator's definition, so it has no effect here; remove it")
	}
}
