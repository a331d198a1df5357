// Package chain runs steps across MCP servers: tools, resources and prompts, in sequence, in
// parallel, in loops and under conditions, with what one step gave passed on to the next.
//
// It promises that a definition means what it says: an unknown key, step or variable is refused
// with its line, a value that is one reference keeps its type, and text that was put in is never
// read as a reference again. The interpreter is a pure state machine: given the same outcomes in
// the same order it gives the same commands, so that a run which was killed is brought back by
// its recorded outcomes. A step that may not happen twice is sent at most once.
//
// It must never call a server but through internal/upstream, guess what became of a call whose
// answer was lost, or decide by what a server says of itself that a call may be repeated. It is
// the only importer of DBOS.
package chain

import (
	"encoding/json"
	"iter"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/schema"
)

// Definition is a chain: steps with their variables. It is immutable once parsed.
type Definition struct {
	Name        string
	Description string
	// Tags are free labels.
	Tags map[string]string
	// Hash identifies the content: "sha256:" and the digest of the canonical document.
	Hash string
	// Document is the definition as compact JSON; parsing it gives an equal definition.
	Document json.RawMessage
	// Input, Output, Global and Saved are the values that the variables begin with.
	Input, Output, Global, Saved map[string]any
	InputSchema                  json.RawMessage
	// Steps are in the order of the document. Those that a handler or a conditional names do not
	// run in sequence; see Step.Named.
	Steps        []*Step
	Conditionals []*Conditional
	// OnError is the run's callback, nil for none.
	OnError  *Handler
	Schedule *Schedule
	// Sensitive are JSON pointers into {input, steps: {ID: {output}}, output}: what they name is
	// masked and sealed as in workflows.
	Sensitive []string
	// Concurrency is how many runs may be under way at once; 0 is unbounded.
	Concurrency int

	inputSchema *schema.Schema
	steps       map[string]*Step
	lines       map[string]int
}

// Kind is what a step does.
type Kind string

// The kinds.
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

// Step is one step. Which fields are set depends on its kind.
type Step struct {
	ID   string
	Kind Kind
	// Named reports that a handler or a conditional names the step: it runs through them only.
	Named bool

	Server, Action  string
	URI, PromptName template
	Writes          bool // of a resource: Data goes to URI
	Arguments       template
	Model           string // completes a prompt's messages; "" returns them
	Timeout         time.Duration
	OutputSchema    json.RawMessage
	Keep            []string // the parts of a long result that are kept, as paths
	SaveOutputTo    *target
	Retry           *Retry
	OnError         *Handler
	Defaults        map[string]any // by path, for what is missing

	Tasks         []*Step // of parallel
	Steps         []*Step // of loop and forEach
	Cases         []Case  // of switch
	Else          []*Step
	MaxConcurrent int
	RunAll        bool // parallel and forEach: run all, though one failed
	MaxIterations int
	Delay         time.Duration
	Until         *Condition
	Items         template

	Wait     time.Duration // of wait
	Signal   string
	Review   template // the id of a review
	Workflow string   // of workflow
	Instance template
	Perform  string // the action of an advance
	State    string // the state that is waited for
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

// Conditional runs steps by what others gave, once they have ended.
type Conditional struct {
	Name            string
	Condition       *Condition
	IfTrue, IfFalse []string
	path            string
}

// Handler is what runs when a step failed.
type Handler struct {
	Step string
	// Arguments replace those of the step; nil keeps them.
	Arguments template
	Stops     bool // the run is done when the step has succeeded
	path      string
}

// Retry says how often a step is tried.
type Retry struct {
	MaxAttempts int
	Delay       time.Duration
	Backoff     string // fixed, linear or exponential
	OnFail      *Handler
}

// target is a variable that outputs are saved to.
type target struct {
	scope string // output, global or saved
	name  string
}

// Limits of the format.
const (
	// MaxDefinition is the maximum size of a definition in bytes.
	MaxDefinition = 256 << 10
	// MaxSteps is how many steps a definition may have, nested ones included.
	MaxSteps = 1000
	// MaxTasks is how many tasks a parallel step may have.
	MaxTasks = 100
	// MaxIterations is how often a loop may run, and how many items forEach may have.
	MaxIterations = 10_000
	// MaxCommands is how many calls, tests and waits a run may have: after a kill the outcome of each is
	// read again.
	MaxCommands = 100_000
	// MaxPassed is how many steps and iterations a run may have, with and without calls.
	MaxPassed = 5 * MaxCommands
	// MaxCollected is how many bytes the outputs of one parallel or forEach may have together as JSON.
	MaxCollected = 16 << 20
	// MaxFilled is how many bytes the references of one value, such as the arguments of a call, may be replaced by.
	MaxFilled = 4 * MaxCollected
	// MaxNesting is how deep steps may be nested.
	MaxNesting = 8
	// MaxAttempts is how often a step may be tried.
	MaxAttempts = 20
	// MaxOutput is how many bytes the output of a step may have as JSON.
	MaxOutput = 256 << 10
	// MaxKept is how many parts of an output a step may keep.
	MaxKept = 100
	// DefaultConcurrent is how many branches of one step run at once unless it says otherwise.
	DefaultConcurrent = 10
)

type (
	// Issue is one thing that is wrong with a definition.
	Issue = workflow.Issue
	// ParseError is a document that is not a definition.
	ParseError = workflow.ParseError
)

// Step returns the step with an id, nil when there is none.
func (d *Definition) Step(id string) *Step { return d.steps[id] }

// ListSteps are all steps, outer ones first, in the order of the document.
func (d *Definition) ListSteps() []*Step {
	var out []*Step
	d.visitSteps(func(s *Step) { out = append(out, s) })
	return out
}

// visitSteps calls visit for every step, outer ones first, in the order of the document.
func (d *Definition) visitSteps(visit func(*Step)) { visitSteps(d.Steps, visit) }

func visitSteps(steps []*Step, visit func(*Step)) {
	for _, s := range steps {
		visit(s)
		for _, list := range s.lists() {
			visitSteps(list, visit)
		}
	}
}

// top is the top-level step that a step is in, or is.
func (s *Step) top() *Step {
	for s.parent != nil {
		s = s.parent
	}
	return s
}

// lists are the sequences inside a step; each task of a parallel is one.
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

// templates are the step's own values with references, by their keys.
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

// handlers are the step's handlers, in the order in which they are tried.
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
