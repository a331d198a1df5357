package chain

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/engine"
)

// Op is the type of a command.
type Op string

// The types of commands.
const (
	OpCall     Op = "call"     // calls a tool, resource or prompt of a server
	OpComplete Op = "complete" // has a model answer messages
	OpTest     Op = "test"     // evaluates a script to true or false
	OpMove     Op = "move"     // starts or advances a workflow, or waits for its state
	OpSleep    Op = "sleep"
	OpWait     Op = "wait" // waits for a signal
	OpAsk      Op = "ask"  // asks a person for the outcome of a call, or for input that a server requires
)

// Command is one operation that a run needs. Its outcome is passed to Machine.Resolve.
type Command struct {
	// ID is the number of the command in its run.
	ID int
	// Key identifies the execution in the run: steps, iterations and attempts. It is unique. The caller of the
	// machine replaces the key of a wait with the key of its signal; Execution keeps the original.
	Key       string
	Execution string
	Op        Op
	// Step is the id of the step.
	Step string
	// Repeatable reports whether the command may be performed twice.
	Repeatable bool
	// Server, Kind and Name identify what is called. Name is the model for a completion, and the workflow
	// for a move.
	Server string
	Kind   Kind
	Name   string
	// Arguments are the arguments of a call or move, the messages of a completion, or the data of a script.
	Arguments any
	// Input is what a server asks for during a call. In OpAsk it holds the question for a person. In the
	// continued call it holds the answer.
	Input *Input
	// Source is the script of a test.
	Source string
	// Action, Instance and Target describe a move.
	Action   string
	Instance string
	Target   string
	// Timeout limits the command, or is the duration of a sleep. 0 sets no limit for the command.
	Timeout time.Duration
	// Rest is the remainder of Timeout, or 0 for all of it. The caller of the machine sets it.
	Rest time.Duration
	// Keep lists the parts of the value to keep; none keeps everything.
	Keep []string
	// The caller of the machine sets Run, the id of the run, and Principal, for which the command is
	// performed. It sets Chain if the operator configured that principal for the chain.
	Run       string
	Principal engine.Principal
	Chain     string
}

// Outcome is the result of a command: a value or an error.
type Outcome struct {
	// Key is the key of the execution if it differs from the name of the record.
	Key   string     `json:"key,omitempty"`
	Value any        `json:"value,omitempty"`
	Err   *StepError `json:"err,omitempty"`
	// Text is the text of the server's reply if it differs from the value. Wrapped reports that an SDK had
	// wrapped the value in an object, as its member "result".
	Text    string `json:"text,omitempty"`
	Wrapped bool   `json:"wrapped,omitempty"`
	// Began is when the execution began, if its record began later.
	Began time.Time `json:"began,omitzero"`
}

// output returns the value as the output of a step.
func (o Outcome) output() any {
	if o.Text == "" && !o.Wrapped {
		return o.Value
	}
	return content{o.Value, o.Text, o.Wrapped}
}

// Error codes that chains define.
const (
	CodeReference   = "missing_reference" // a reference has no value
	CodeOutput      = "invalid_output"    // the output violates its schema, or is too long
	CodeCondition   = "invalid_condition"
	CodeExhausted   = "loop_exhausted" // a loop reached its maximum number of iterations
	CodeToolError   = "tool_error"     // the tool returned isError
	CodeServerError = "server_error"   // the server returned an error
	CodeTimeout     = "timeout"
	CodeUnknown     = "unknown"  // the call may have run, but its answer was lost
	CodeGivenUp     = "given_up" // a person ended the run
	CodeNotAllowed  = "not_allowed"
	CodeRefused     = "refused" // a move was judged and rejected, or a person rejected it
	CodeModel       = "model_error"
	CodeSealed      = "sealed" // recorded data can no longer be opened
	CodeInput       = "input_required"
	CodeRun         = "run_error" // the run cannot be interpreted
)

// StepError describes why a step failed.
type StepError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Final reports that retrying cannot help.
	Final bool `json:"final,omitempty"`
	// MayHaveRun reports that the operation may have been done.
	MayHaveRun bool `json:"mayHaveRun,omitempty"`
	// Step and Key identify the failed step and its execution; the machine sets them.
	Step string `json:"step,omitempty"`
	Key  string `json:"key,omitempty"`
}

func (e *StepError) Error() string { return e.Message }

// Progress is an event of a step.
type Progress struct {
	Key  string
	Step string
	Kind Kind
	// Event is started, retrying, handled, done or failed.
	Event   string
	Err     *StepError
	Attempt int
}

// Result is how a run ended.
type Result struct {
	Output map[string]any `json:"output"`
	// Saved holds the saved variables at the end of the run. Later runs see them only if this one succeeded.
	Saved map[string]any `json:"saved,omitempty"`
	Err   *StepError     `json:"error,omitempty"`
}

// MachineOptions are the inputs of a run besides its definition.
type MachineOptions struct {
	// Run is the run's id; the jitter of retries is derived from it.
	Run string
	// Started is when the run began; zero if unknown.
	Started time.Time
	// Input is the result of CheckInput. Saved holds the variables that the last run saved.
	Input, Saved map[string]any
	// Repeatable reports whether a tool may be called twice; nil means no tool.
	Repeatable func(server, tool string) bool
	// RepeatableSteps lists the repeatable steps by id. If not nil, it is used instead of Repeatable.
	RepeatableSteps []string
	// Writer returns the tool that writes the resources of a server; nil means there are none.
	Writer func(server string) (Writer, bool)
	// Progress receives the events of steps; nil drops them. It must not block.
	Progress func(Progress)
}

// Writer is a tool that writes resources, which MCP itself cannot do.
type Writer struct {
	Tool string `json:"tool"`
	// URI and Data are the names of its arguments for the uri and the data of a step.
	URI  string `json:"uri"`
	Data string `json:"data"`
}

// writerOf returns the tool for a step that writes a resource.
func (o MachineOptions) writerOf(s *Step) (w Writer, ok bool) {
	if o.Writer != nil && s.Writes {
		w, ok = o.Writer(s.Server)
	}
	return w, ok
}

// Machine interprets a definition. It is a state machine without side effects: the same outcomes in the
// same order produce the same commands. It is not safe for concurrent use.
type Machine struct {
	definition *Definition
	options    MachineOptions
	variables  map[string]map[string]any // by scope
	top        *scope
	ended      map[*Step]bool // top-level and named steps that have run
	decided    map[*Conditional]bool

	commands []Command
	lastID   int
	passed   int // number of steps and iterations so far
	waiting  map[int]*task
	queue    []*task
	live     map[*task]bool
	result   *Result
}

// NewMachine starts a run.
func NewMachine(d *Definition, o MachineOptions) *Machine {
	m := &Machine{
		definition: d, options: o, top: &scope{outputs: map[string]any{}}, ended: map[*Step]bool{}, decided: map[*Conditional]bool{},
		waiting: map[int]*task{}, live: map[*task]bool{},
		variables: map[string]map[string]any{"input": o.Input, "output": cloneValues(d.Output), "global": cloneValues(d.Global), "saved": cloneValues(d.Saved)},
	}
	maps.Copy(m.variables["saved"], cloneValues(o.Saved))
	if _, declared := d.Global[startTime]; !declared && !o.Started.IsZero() {
		m.variables["global"][startTime] = o.Started.Format(time.RFC3339Nano)
	}
	m.spawn(nil, m.runChain)
	m.drain()
	return m
}

// Commands returns the commands added since the last call, in order.
func (m *Machine) Commands() []Command {
	out := m.commands
	m.commands = nil
	return out
}

// Resolve passes the outcome of a command to the machine. It ignores commands that are not pending.
func (m *Machine) Resolve(id int, o Outcome) {
	t := m.waiting[id]
	if t == nil {
		return
	}
	delete(m.waiting, id)
	t.outcome = o
	m.queue = append(m.queue, t)
	m.drain()
}

// Result returns how the run ended, or nil while it is open.
func (m *Machine) Result() *Result { return m.result }

// Close releases the machine's tasks, in any state.
func (m *Machine) Close() {
	for t := range m.live {
		t.stop()
	}
	clear(m.live)
}

func (m *Machine) drain() {
	for len(m.queue) > 0 {
		t := m.queue[0]
		m.queue = m.queue[1:]
		if _, runs := t.next(); !runs {
			delete(m.live, t)
			if p := t.parent; p != nil {
				p.ended = append(p.ended, t)
				if p.joining {
					p.joining = false
					m.queue = append(m.queue, p)
				}
			}
		}
	}
}

// task is a coroutine of a run: the chain itself, or a branch of a step. It runs until it needs an outcome,
// and resumes when the outcome arrives.
type task struct {
	machine *Machine
	parent  *task
	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	outcome Outcome
	ended   []*task // children that have ended and are not yet joined
	joining bool
	place   int // index among the branches of its step
	value   any
	err     *StepError
}

// errClosed ends a task whose machine was closed.
type errClosed struct{}

func (m *Machine) spawn(parent *task, body func(*task)) *task {
	t := &task{machine: m, parent: parent}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil {
				if _, closed := r.(errClosed); !closed {
					panic(r)
				}
			}
		}()
		t.yield = yield
		body(t)
	})
	m.live[t] = true
	m.queue = append(m.queue, t)
	return t
}

func (t *task) suspend() {
	if !t.yield(struct{}{}) {
		panic(errClosed{})
	}
}

// perform issues a command and waits for its outcome.
func (t *task) perform(c Command) Outcome {
	m := t.machine
	if m.lastID >= MaxCommands {
		return Outcome{Err: &StepError{Code: CodeExhausted, Step: c.Step, Key: c.Key, Final: true, Message: fmt.Sprintf("the run has reached the limit of %d calls, tests and waits: split the chain, or its input", MaxCommands)}}
	}
	m.lastID++
	c.ID = m.lastID
	m.commands = append(m.commands, c)
	m.waiting[c.ID] = t
	t.suspend()
	return t.outcome
}

// pass counts a step or an iteration, and returns an error above MaxPassed. Nothing else limits steps and
// iterations that issue no command.
func (m *Machine) pass(s *Step, key string) *StepError {
	if m.passed++; m.passed <= MaxPassed {
		return nil
	}
	return &StepError{Code: CodeExhausted, Step: s.ID, Key: key, Final: true, Message: fmt.Sprintf("the run has reached the limit of %d steps and iterations: split the chain, or its input", MaxPassed)}
}

// join waits until a child has ended.
func (t *task) join() *task {
	if len(t.ended) == 0 {
		t.joining = true
		t.suspend()
	}
	child := t.ended[0]
	t.ended = t.ended[1:]
	return child
}

// scope resolves names: outputs of steps, the item of a forEach, the failure being handled. Names that are
// not found are resolved in the parent.
type scope struct {
	parent  *scope
	outputs map[string]any
	item    *item
	failure *StepError
}

type item struct {
	value any
	index int
}

func (m *Machine) newScope(parent *scope) *scope {
	return &scope{parent: parent, outputs: map[string]any{}}
}

// lookup returns a function that resolves the references of one value of step s. Together they may expand
// to at most MaxFilled bytes.
func (m *Machine) lookup(sc *scope, s *Step) lookup {
	left := MaxFilled
	return func(r reference) (any, error) {
		v, err := m.find(sc, r)
		if _, missing := err.(*missingError); missing && s != nil { //nolint:errorlint // find wraps nothing
			if fallback, ok := s.Defaults[r.text]; ok {
				v, err = fallback, nil
			}
		}
		if err != nil {
			return nil, err
		}
		if left -= countBytes(v); left < 0 {
			return nil, fmt.Errorf("with {{%s}}, the referenced values exceed %d MiB in total; refer to less", r.text, MaxFilled>>20)
		}
		return copyValue(v), nil
	}
}

func (m *Machine) find(sc *scope, r reference) (any, error) {
	switch first := r.segments[0]; first {
	case "variables":
		scopes := map[string]any{}
		for _, name := range []string{"input", "global", "saved"} {
			scopes[name] = m.variables[name]
		}
		return walkPath(scopes, r, 1)
	case "saved":
		return walkPath(m.variables["saved"], r, 1)
	case "item", "index":
		for at := sc; at != nil; at = at.parent {
			switch {
			case at.item != nil && first == "item":
				return walkPath(at.item.value, r, 1)
			case at.item != nil:
				return json.Number(strconv.Itoa(at.item.index)), nil
			}
		}
	case "error", "failed_step":
		for at := sc; at != nil; at = at.parent {
			if at.failure != nil {
				return walkPath(map[string]any{"message": at.failure.Message, "id": at.failure.Step, "code": at.failure.Code}, r, 1)
			}
		}
	}
	s := m.definition.stepOf(r)
	switch {
	case s == nil && r.segments[0] == runReference && !m.options.Started.IsZero():
		return walkPath(map[string]any{"id": m.options.Run, "startedAt": m.options.Started.Format(time.RFC3339Nano)}, r, 1)
	case s == nil:
		return nil, &missingError{r.text, "nothing has this name"}
	}
	for at := sc; at != nil; at = at.parent {
		if output, ok := at.outputs[s.ID]; ok {
			return walkOutput(output, r)
		}
	}
	return nil, &missingError{r.text, fmt.Sprintf("the step %q has no output", s.ID)}
}

// describe returns the data that a script sees.
func (m *Machine) describe(sc *scope) map[string]any {
	out := map[string]any{}
	for at := sc; at != nil; at = at.parent {
		for id, output := range at.outputs {
			if _, inner := out[id]; !inner {
				out[id] = map[string]any{"output": valueOf(output)}
			}
		}
		if _, inner := out["item"]; at.item != nil && !inner { // an inner item takes precedence, even if null
			out["item"], out["index"] = at.item.value, at.item.index
		}
	}
	out["variables"] = map[string]any{"input": m.variables["input"], "global": m.variables["global"], "saved": m.variables["saved"]}
	out["saved"] = m.variables["saved"]
	return out
}

// Names of the run's own properties, unless the definition defines them itself.
const (
	runReference = "run"
	startTime    = "start_time" // in variables.global
)

// walkOutput follows a path into the output of a step.
func walkOutput(output any, r reference) (any, error) {
	if len(r.segments) == 2 && r.segments[1] == "output" {
		return output, nil
	}
	value := valueOf(output)
	if c, ok := output.(content); ok && len(r.segments) > 2 {
		value = c.around(r.segments[2])
	}
	return walkPath(map[string]any{"output": value}, r, 1)
}

// around returns the value in which a path that begins with key is resolved. For the key of the wrapper,
// that is the wrapping object.
func (c content) around(key string) any {
	if c.wrapped && key == wrapKey {
		return map[string]any{wrapKey: c.value}
	}
	return c.value
}

func (m *Machine) report(p Progress) {
	if m.options.Progress != nil {
		m.options.Progress(p)
	}
}

func (m *Machine) save(to *target, value any) {
	if to != nil {
		m.variables[to.scope][to.name] = copyValue(valueOf(value))
	}
}

func cloneValues(values map[string]any) map[string]any {
	out, _ := copyValue(values).(map[string]any)
	return out
}
