// Package script runs what strangers wrote: the validators and route conditions
// of workflow definitions.
//
// It is the host half of the sandbox. It promises that no script can make this
// process hang, crash, grow, read a file or leak into the next call, and that
// anything but a clean answer from a script blocks the transition (fail closed).
// It keeps the promise by never looking inside a script: after a cheap [gate] of
// size and shape, source and input go to a worker process with hard limits, and
// what comes back is checked again. The interpreter lives in the package worker
// and must never be called from here.
//
// The worker is a re-execution of a binary whose main (or TestMain) begins with
// worker.Main(). By default that is the running program itself:
//
//	func main() {
//		worker.Main() // serves and exits when started as a worker, else returns at once
//		...
//	}
//
//	func TestMain(m *testing.M) {
//		worker.Main() // the test binary is its own worker
//		os.Exit(m.Run())
//	}
//
// A program that cannot do so sets [Config].WorkerPath to a binary that can,
// for example gavel itself.
//
// [gate]: the checks of source length, encoding and nesting in this package
package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable reports that the sandbox itself could not give an answer: no
// worker could be started, the caller waited too long for one, or a worker died within
// its limits through no fault of the script. The call may be retried; it says
// nothing about the script. Anything that the script can cause is a Result.
var ErrUnavailable = errors.New("script sandbox unavailable")

// QuarantineError reports that another owner's script does not run for a caller whose data
// killed workers in it. It wraps ErrUnavailable.
type QuarantineError struct {
	RetryAfter time.Duration // above 0
}

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("%v: data of this caller killed workers repeatedly; try again in %v", ErrUnavailable, e.RetryAfter.Round(time.Second))
}

// Unwrap makes it match ErrUnavailable.
func (e *QuarantineError) Unwrap() error { return ErrUnavailable }

// Kind says how the source of a Script is read.
type Kind string

// The kinds of script.
const (
	// Validator is one synchronous function expression,
	// (data, context, evidence, call) => boolean | {valid, confidence, reason, ...}.
	Validator Kind = "validator"
	// Condition is one expression over data, context, evidence and call whose value
	// must be a boolean. It is what routes are made of.
	Condition Kind = "condition"
	// Schema is a JSON Schema. It runs here, not as a script, because a small one
	// can keep a processor busy for minutes. Only Check and Batch.Schema take it.
	Schema Kind = "schema"
)

// Script is one piece of source from a definition.
type Script struct {
	// Name says where the script stands, for findings (for example
	// "transitionValidators.approve" or "states.draft.transitions.submit[0].condition").
	Name   string `json:"name"`
	Kind   Kind   `json:"kind"`
	Source string `json:"source"`
}

// Owner is who wrote scripts.
type Owner struct {
	ID string // a principal
	// Trusted is true for what an operator loaded. A trusted owner never answers for the
	// data of a caller.
	Trusted bool
}

// Batch is everything that one transition asks of the sandbox, in one round
// trip: the schema, behind which nothing runs unless the document conforms; the
// routes, tried in order until one is true; and the validators, all of which run.
// Every script gets a fresh runtime. The schema's time does not count as the scripts'.
type Batch struct {
	// Caller is the principal who calls: it waits in its own line for a worker, and
	// answers for what its data does to a trusted owner's scripts.
	Caller string
	// Owner wrote the scripts, and answers for them unless it is trusted.
	Owner Owner
	// Now and Seed fix the clock and the random source that scripts see, so that
	// the same input gives the same verdict.
	Now  time.Time
	Seed int64
	// Schema is a Schema; nil: none.
	Schema *Script
	// Routes are Conditions. May be empty.
	Routes []Script
	// Validators are Validators. May be empty.
	Validators []Script
	// Data, Context and Evidence are JSON objects; nil is {}.
	Data, Context, Evidence json.RawMessage
	// Call is the call that the action stands for, {"tool", "arguments"}; nil is none, which scripts
	// see as undefined.
	Call json.RawMessage
	// Document is the JSON value that Schema applies to; nil is {}.
	Document json.RawMessage
	// Console asks for what scripts write to console, which otherwise goes nowhere.
	Console bool
}

// Code classifies how one script ended.
type Code string

// The ways a script can end. All but OK are the script's own fault and block
// the transition (fail closed).
const (
	OK          Code = "ok"
	Threw       Code = "threw"       // it threw
	BadResult   Code = "bad_result"  // it returned something the contract does not allow
	BadSource   Code = "bad_source"  // it does not parse, or is not one synchronous function / one expression
	Timeout     Code = "timeout"     // soft or hard time limit
	Memory      Code = "memory"      // memory limit
	Internal    Code = "internal"    // it made the interpreter itself fail
	Quarantined Code = "quarantined" // it (or its owner, never a trusted one) killed workers repeatedly and is not run for now
)

// Result is what one script said. Strings in it are data from a stranger:
// already cut and stripped of control characters, never instructions.
type Result struct {
	Name  string `json:"name"`
	Code  Code   `json:"code"`
	Valid bool   `json:"valid"`
	// Confidence is 0..1; 1 when the script gave none.
	Confidence  float64  `json:"confidence"`
	Reason      string   `json:"reason,omitempty"`
	Violations  []string `json:"violations,omitempty"`
	Suggestions []string `json:"suggestions,omitempty"`
	// Detail explains a Code other than OK in one sentence that a model can act on:
	// which limit was hit or which rule was broken, and how to write it instead.
	Detail string `json:"detail,omitempty"`
	// Console are the lines that it wrote to console, where the Batch asked for them: at most
	// MaxNotes of MaxNote.
	Console []string `json:"console,omitempty"`
}

// Reply answers a Batch.
type Reply struct {
	// Schema is what the schema says. Unless it passes, the rest was not asked.
	Schema SchemaReply
	// Route is the index of the first route that was true, -1 when none was, or
	// when there are no routes. RouteFault is set when a condition failed before
	// one was true; Route is -1 then.
	Route      int
	RouteFault *Result
	// Results has one entry per validator, in order. It is empty when a route was
	// asked for and none was chosen, or when the schema does not pass.
	Results []Result
	// Unhardened lists the protections that the worker could not apply
	// (for example "landlock", "seccomp"), empty when all are in force.
	Unhardened []string
	// Took is the wall time from queueing to answer.
	Took time.Duration
}

// Problem is a script that does not compile under the sandbox's rules, or fails its trial run.
type Problem struct {
	Name   string // the Script's Name
	Ran    bool   // it compiles, and the run did not end well
	Line   int    // 1-based within the source, 0 when unknown
	Column int
	// Message is one sentence that says what is wrong and how to write it.
	Message string
}

// Runner is what this package offers to callers; *Pool implements it.
type Runner interface {
	// Run evaluates a batch. The error wraps ErrUnavailable or ErrInput, or is ctx's.
	Run(ctx context.Context, b Batch) (Reply, error)
	// Check compiles scripts without running them on real input (the dry run of
	// registration). Problems are the scripts' faults; the error is the sandbox's.
	Check(ctx context.Context, caller string, owner Owner, scripts []Script) ([]Problem, error)
}

// SchemaReply is what a schema says about a document.
type SchemaReply struct {
	// Code is OK when the schema could be applied, whatever it said, and "" when there is
	// none. All others are the schema's own fault and block the transition.
	Code Code
	// Violations is empty when the document conforms.
	Violations []Violation
	// Detail explains a Code other than OK, as Result's does.
	Detail string
}

// Passes reports that the document conforms.
func (r SchemaReply) Passes() bool { return r.Code == OK && len(r.Violations) == 0 }

// Violation is one way in which a document breaks a schema.
type Violation struct {
	Path       string `json:"path"`       // JSON pointer into the document
	Keyword    string `json:"keyword"`    // that failed, such as "minLength"
	SchemaPath string `json:"schemaPath"` // place of the keyword
	Message    string `json:"message"`    // one sentence without a value of the document
	Hint       string `json:"hint,omitempty"`
}
