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

// Op is what a command asks for.
type Op string

// The ops.
const (
	OpCall     Op = "call"     // a tool, resource or prompt of a server
	OpComplete Op = "complete" // a model's answer to messages
	OpTest     Op = "test"     // a script that is true or false
	OpMove     Op = "move"     // a start or advance of a workflow, or waiting for its state
	OpSleep    Op = "sleep"
	OpWait     Op = "wait" // for a signal
	OpAsk      Op = "ask"  // a person, what became of a call that may have run, or what its server asks for
)

// Command is one thing that a run wants done. What came of it goes back with Machine.Resolve.
type Command struct {
	// ID counts the commands of a run.
	ID int
	// Key names the execution in the run: steps, iterations and attempts. No two commands share one. What
	// runs the machine gives a wait the key of its signal; Execution keeps the first one.
	Key       string
	Execution string
	Op        Op
	// Step is the id of the step.
	Step string
	// Repeatable says that the command may be done twice.
	Repeatable bool
	// Server, Kind and Name say what is called; of a completion Name is the model, of a move the
	// workflow.
	Server string
	Kind   Kind
	Name   string
	// Arguments are those of a call or move, the messages of a completion, the data of a script.
	Arguments any
	// Input is what the server of a call asks for, which a person is asked; of the call that goes on
	// it is what that one answered.
	Input *Input
	// Source is the script of a test.
	Source string
	// Action, Instance and Target say what a move does.
	Action   string
	Instance string
	Target   string
	// Timeout bounds the command, 0 for no bound of its own; of a sleep it is the time.
	Timeout time.Duration
	// Rest is what is left of Timeout, 0 for all of it. What runs the machine sets it.
	Rest time.Duration
	// Keep are the parts of the value that are kept; none keeps all of it.
	Keep []string
	// Run and Principal are set by what runs the machine: for whom the command is done. Chain is set where that is the
	// principal for which the operator has the chain act, and not the one that started the run.
	Run       string
	Principal engine.Principal
	Chain     string
}

// Outcome is what came of a command: a value, or an error.
type Outcome struct {
	// Key is that of the execution, where the name of the record has another one.
	Key   string     `json:"key,omitempty"`
	Value any        `json:"value,omitempty"`
	Err   *StepError `json:"err,omitempty"`
	// Text is what the server said in words, where that is not the value; Wrapped says that an SDK had put the value
	// into an object, as its member "result".
	Text    string `json:"text,omitempty"`
	Wrapped bool   `json:"wrapped,omitempty"`
	// Began is when the execution began, where its record begins later.
	Began time.Time `json:"began,omitzero"`
}

// output is the value as the output of a step.
func (o Outcome) output() any {
	if o.Text == "" && !o.Wrapped {
		return o.Value
	}
	return content{o.Value, o.Text, o.Wrapped}
}

// The codes of errors that chains themselves give.
const (
	CodeReference   = "missing_reference" // a reference has no value
	CodeOutput      = "invalid_output"    // the output's schema refuses it, or it is too long
	CodeCondition   = "invalid_condition"
	CodeExhausted   = "loop_exhausted" // a loop ended by its cap
	CodeToolError   = "tool_error"     // the tool answered isError
	CodeServerError = "server_error"   // the server answered with an error
	CodeTimeout     = "timeout"
	CodeUnknown     = "unknown"  // the call may have run, and its answer is lost
	CodeGivenUp     = "given_up" // a person ended the run
	CodeNotAllowed  = "not_allowed"
	CodeRefused     = "refused" // a move was judged and refused, or a person rejected it
	CodeModel       = "model_error"
	CodeSealed      = "sealed" // what was recorded cannot be opened any more
	CodeInput       = "input_required"
	CodeRun         = "run_error" // the run cannot be interpreted
)

// StepError is why a step failed.
type StepError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Final says that trying again cannot help.
	Final bool `json:"final,omitempty"`
	// MayHaveRun says that what was asked for may have been done.
	MayHaveRun bool `json:"mayHaveRun,omitempty"`
	// Step and Key are the step that failed and its execution, set by the machine.
	Step string `json:"step,omitempty"`
	Key  string `json:"key,omitempty"`
}

func (e *StepError) Error() string { return e.Message }

// Progress is one thing that happened to a step.
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
	// Saved are the saved variables as the run leaves them; they are kept when it succeeded.
	Saved map[string]any `json:"saved,omitempty"`
	Err   *StepError     `json:"error,omitempty"`
}

// MachineOptions are what a run needs besides its definition.
type MachineOptions struct {
	// Run is the run's id; the jitter of retries follows from it.
	Run string
	// Started is when it began, zero where that is not known.
	Started time.Time
	// Input is what CheckInput returned; Saved is what the last run left.
	Input, Saved map[string]any
	// Repeatable says whether a tool may be called twice; nil is none.
	Repeatable func(server, tool string) bool
	// RepeatableSteps are the ids of the steps that may run twice, instead of Repeatable; nil asks that.
	RepeatableSteps []string
	// Writer is the tool that writes the resources of a server; nil is none.
	Writer func(server string) (Writer, bool)
	// Progress gets what happens to steps; nil drops it. It must not block.
	Progress func(Progress)
}

// Writer is a tool that writes resources: MCP itself can only read them.
type Writer struct {
	Tool string `json:"tool"`
	// URI and Data are its arguments for the uri and the data of a step.
	URI  string `json:"uri"`
	Data string `json:"data"`
}

// writerOf is the tool of a step that writes a resource.
func (o MachineOptions) writerOf(s *Step) (w Writer, ok bool) {
	if o.Writer != nil && s.Writes {
		w, ok = o.Writer(s.Server)
	}
	return w, ok
}

// Machine interprets a definition. It is a state machine without effects: given the same outcomes
// in the same order it gives the same commands. It is not safe for concurrent use.
type Machine struct {
	definition *Definition
	options    MachineOptions
	variables  map[string]map[string]any // by scope
	top        *scope
	ended      map[*Step]bool // top-level and named steps that have run
	decided    map[*Conditional]bool

	commands []Command
	lastID   int
	passed   int // steps and iterations
	waiting  map[int]*task
	queue    []*task
	live     map[*task]bool
	result   *Result
}

// NewMachine begins a run.
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

// Commands returns the commands that were added since the last call, in their order.
func (m *Machine) Commands() []Command {
	out := m.commands
	m.commands = nil
	return out
}

// Resolve tells what came of a command. One that is not waited for is ignored.
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

// Result is how the run ended, nil while it has not.
func (m *Machine) Result() *Result { return m.result }

// Close ends the machine, wherever it is.
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

// task is one strand of a run: the chain itself, or a branch of a parallel step. It runs until it
// needs an outcome, and goes on with it.
type task struct {
	machine *Machine
	parent  *task
	next    func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	outcome Outcome
	ended   []*task // children that have ended and were not joined
	joining bool
	place   int // among the branches of its step
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

// perform asks for a command and waits for its outcome.
func (t *task) perform(c Command) Outcome {
	m := t.machine
	if m.lastID >= MaxCommands {
		return Outcome{Err: &StepError{Code: CodeExhausted, Step: c.Step, Key: c.Key, Final: true, Message: fmt.Sprintf("the run has had %d calls, tests and waits, and may have no more: split the chain, or its input", MaxCommands)}}
	}
	m.lastID++
	c.ID = m.lastID
	m.commands = append(m.commands, c)
	m.waiting[c.ID] = t
	t.suspend()
	return t.outcome
}

// pass counts a step or an iteration, of which a run may have very many without a command: then nothing
// else would end it.
func (m *Machine) pass(s *Step, key string) *StepError {
	if m.passed++; m.passed <= MaxPassed {
		return nil
	}
	return &StepError{Code: CodeExhausted, Step: s.ID, Key: key, Final: true, Message: fmt.Sprintf("the run has had %d steps and iterations, and may have no more: split the chain, or its input", MaxPassed)}
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

// scope is what names mean at a place: the outputs of steps, the item of a forEach, the failure
// that is handled. What is not in it is looked for around it.
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

// lookup finds the references of one value, for a step of a scope: MaxFilled bytes in all.
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
			return nil, fmt.Errorf("with {{%s}} the references have more than %d MiB together; refer to less", r.text, MaxFilled>>20)
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
		return nil, &missingError{r.text, "nothing has that name here"}
	}
	for at := sc; at != nil; at = at.parent {
		if output, ok := at.outputs[s.ID]; ok {
			return walkOutput(output, r)
		}
	}
	return nil, &missingError{r.text, fmt.Sprintf("the step %q gave no output", s.ID)}
}

// describe is what a script sees as data.
func (m *Machine) describe(sc *scope) map[string]any {
	out := map[string]any{}
	for at := sc; at != nil; at = at.parent {
		for id, output := range at.outputs {
			if _, inner := out[id]; !inner {
				out[id] = map[string]any{"output": valueOf(output)}
			}
		}
		if _, inner := out["item"]; at.item != nil && !inner { // the inner one may be null
			out["item"], out["index"] = at.item.value, at.item.index
		}
	}
	out["variables"] = map[string]any{"input": m.variables["input"], "global": m.variables["global"], "saved": m.variables["saved"]}
	out["saved"] = m.variables["saved"]
	return out
}

// The names of what a run knows of itself, unless the definition gives them to something else.
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

// around is the value in which a path that begins with a key is followed.
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
