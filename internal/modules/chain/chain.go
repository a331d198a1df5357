// Package chain runs steps across MCP servers: tools, resources and prompts, in sequence, in parallel, in
// loops and under conditions. Each step can use the outputs of earlier ones.
//
// It promises:
//   - Unknown keys, steps and variables are rejected with their line.
//   - A value that consists of one reference keeps its type. The text that replaces a reference is never
//     itself parsed for references.
//   - The interpreter is a pure state machine: the same outcomes in the same order produce the same
//     commands. A killed run is therefore restored from its recorded outcomes.
//   - A step that is not repeatable is sent at most once.
//
// It must never:
//   - call a server except through internal/upstream,
//   - guess the result of a call whose answer was lost,
//   - trust a server's own statement that a call may be repeated.
//
// It is the only importer of DBOS.
package chain

import (
	"encoding/json"
	"iter"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/schema"
)

// Definition is a chain: its steps and variables. It is immutable once parsed.
type Definition struct {
	Name        string
	Description string
	// Tags are free-form labels.
	Tags map[string]string
	// Hash identifies the content: "sha256:" and the digest of the canonical document.
	Hash string
	// Document is the definition as compact JSON; parsing it gives an equal definition.
	Document json.RawMessage
	// Input, Output, Global and Saved are the initial values of the variables.
	Input, Output, Global, Saved map[string]any
	InputSchema                  json.RawMessage
	// Steps are in document order. Steps that a handler or a conditional names do not run in sequence; see
	// Step.Named.
	Steps        []*Step
	Conditionals []*Conditional
	// OnError is the callback of a failed run, or nil.
	OnError  *Handler
	Schedule *Schedule
	// Sensitive holds JSON pointers into {input, steps: {ID: {output}}, output}. The values that they name
	// are masked and sealed, as in workflows.
	Sensitive []string
	// Concurrency limits how many runs execute at the same time; 0 is unlimited.
	Concurrency int

	inputSchema *schema.Schema
	steps       map[string]*Step
	lines       map[string]int
}

// Kind is the type of a step.
type Kind string

// The kinds of steps.
const (
	KindTool     Kind = "tool"
	KindResource Kind = "resource"
	KindPrompt   Kind = "prompt"
	KindParallel Kind = "parallel"
	KindLoop     Kind = "loop"
	KindForEach  Kind = "forEach"
	KindSwitch   Kind = "switch"
	KindWait     Kind = "wait"
	KindWorkflow Kind = "workflow"
)

// Step is one step. Its kind decides which fields are set.
type Step struct {
	ID   string
	Kind Kind
	// Named reports that a handler or a conditional names the step; it then runs only through them.
	Named bool

	Server, Action  string
	URI, PromptName template
	Writes          bool // resource only: Data is written to URI, which is otherwise read
	Arguments       template
	Model           string // the model that answers a prompt's messages; "" returns them unanswered
	Timeout         time.Duration
	OutputSchema    json.RawMessage
	Keep            []string // the parts of a long result to keep, as paths
	SaveOutputTo    *target
	Retry           *Retry
	OnError         *Handler
	Defaults        map[string]any // fallback values for missing references, by path

	Tasks         []*Step // parallel only
	Steps         []*Step // loop and forEach only
	Cases         []Case  // switch only
	Else          []*Step
	MaxConcurrent int
	RunAll        bool // parallel and forEach: run all branches even if one fails
	MaxIterations int
	Delay         time.Duration
	Until         *Condition
	Items         template

	Wait     time.Duration // wait only
	Signal   string
	Review   template // the id of a review
	Workflow string   // workflow only
	Instance template
	Perform  string // the action to perform for "advance"
	State    string // the state to wait for
	Data     template

	outputSchema *schema.Schema
	path         string // JSON pointer
	parent       *Step
}

// Case is one branch of a switch.
type Case struct {
	When  *Condition
	Steps []*Step
}

// Conditional runs steps depending on the outputs of other steps, once those have ended.
type Conditional struct {
	Name            string
	Condition       *Condition
	IfTrue, IfFalse []string
	path            string
}

// Handler names the step that runs after another step has failed.
type Handler struct {
	Step string
	// Arguments replace the step's own; nil keeps them.
	Arguments template
	Stops     bool // the run ends as done once the handler's step has succeeded
	path      string
}

// Retry configures the attempts of a step.
type Retry struct {
	MaxAttempts int
	Delay       time.Duration
	Backoff     string // fixed, linear or exponential
	OnFail      *Handler
}

// target is the variable that a step's output is saved to.
type target struct {
	scope string // output, global or saved
	name  string
}

// Limits of the format.
const (
	// MaxDefinition is the maximum size of a definition in bytes.
	MaxDefinition = 256 << 10
	// MaxSteps is the maximum number of steps in a definition, nested ones included.
	MaxSteps = 1000
	// MaxTasks is the maximum number of tasks in a parallel step.
	MaxTasks = 100
	// MaxIterations is the maximum number of iterations of a loop, and of items of a forEach.
	MaxIterations = 10_000
	// MaxCommands is the maximum number of calls, tests and waits in a run. A run that continues after a kill
	// reads the outcome of each again.
	MaxCommands = 100_000
	// MaxPassed is the maximum number of steps and iterations in a run, including those without calls.
	MaxPassed = 5 * MaxCommands
	// MaxCollected is the maximum combined size of the outputs of one parallel or forEach step, in bytes of
	// JSON.
	MaxCollected = 16 << 20
	// MaxFilled is the maximum number of bytes that the references of one value, such as a call's
	// arguments, expand to.
	MaxFilled = 4 * MaxCollected
	// MaxNesting is the maximum depth of nested steps.
	MaxNesting = 8
	// MaxAttempts is the maximum number of attempts of a step.
	MaxAttempts = 20
	// MaxOutput is the maximum size of a step's output, in bytes of JSON.
	MaxOutput = 256 << 10
	// MaxKept is the maximum number of output parts that a step may keep.
	MaxKept = 100
	// DefaultConcurrent is how many branches of a step run in parallel by default.
	DefaultConcurrent = 10
)

type (
	// Issue is one problem in a definition.
	Issue = workflow.Issue
	// ParseError reports that a document is not a valid definition.
	ParseError = workflow.ParseError
)

// ListSteps returns all steps in document order, outer ones first.
func (d *Definition) ListSteps() []*Step {
	var out []*Step
	d.visitSteps(func(s *Step) { out = append(out, s) })
	return out
}

// visitSteps calls visit for every step in document order, outer ones first.
func (d *Definition) visitSteps(visit func(*Step)) { visitSteps(d.Steps, visit) }

func visitSteps(steps []*Step, visit func(*Step)) {
	for _, s := range steps {
		visit(s)
		for _, list := range s.lists() {
			visitSteps(list, visit)
		}
	}
}

// top returns the top-level step that contains s, or s itself.
func (s *Step) top() *Step {
	for s.parent != nil {
		s = s.parent
	}
	return s
}

// lists returns the sequences inside a step; each task of a parallel step is its own sequence.
func (s *Step) lists() [][]*Step {
	out := [][]*Step{}
	for i := range s.Tasks {
		out = append(out, s.Tasks[i:i+1])
	}
	out = append(out, s.Steps)
	for _, c := range s.Cases {
		out = append(out, c.Steps)
	}
	return append(out, s.Else)
}

// templates yields the step's own values that may contain references, with their keys.
func (s *Step) templates() iter.Seq2[string, template] {
	all := []struct {
		key   string
		value template
	}{{"uri", s.URI}, {"prompt_name", s.PromptName}, {"arguments", s.Arguments}, {"items", s.Items}, {"instance", s.Instance}, {"data", s.Data}, {"review", s.Review}}
	return func(yield func(string, template) bool) {
		for _, t := range all {
			if t.value != nil && !yield(t.key, t.value) {
				return
			}
		}
	}
}

// handlers returns the step's handlers in the order in which they are tried.
func (s *Step) handlers() []*Handler {
	var out []*Handler
	if s.Retry != nil && s.Retry.OnFail != nil {
		out = append(out, s.Retry.OnFail)
	}
	if s.OnError != nil {
		out = append(out, s.OnError)
	}
	return out
}
