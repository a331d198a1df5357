// Package script runs untrusted code: the validators and route conditions of workflow definitions.
//
// It is the host half of the sandbox. It promises:
//
//   - No script can make this process hang, crash, grow in memory or read a file. No script can influence
//     the next call.
//   - Any result other than a valid answer blocks the transition (fail closed).
//
// It must never parse or interpret a script itself; only package worker contains an interpreter. After cheap
// checks of length, encoding and nesting, source and input go to a worker process with hard limits. The
// worker's answers are checked again.
//
// A worker is a new process of a binary whose main (or TestMain) begins with worker.Main(). By default it is
// the running program itself:
//
//	func main() {
//		worker.Main() // serves and exits if started as a worker, otherwise returns immediately
//		...
//	}
//
//	func TestMain(m *testing.M) {
//		worker.Main() // the test binary is its own worker
//		os.Exit(m.Run())
//	}
//
// A program that cannot be its own worker sets [Config].WorkerPath to a binary that can, for example gavel
// itself.
package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable reports that the sandbox itself could not answer: no worker could be started, the call waited
// too long, or a worker died through no fault of the script. The call may be retried; the error implies
// nothing about the script. Everything that a script can cause is a Result.
var ErrUnavailable = errors.New("script sandbox unavailable")

// QuarantineError reports that another owner's script does not run for this caller, because the caller's
// data made it kill workers. It wraps ErrUnavailable.
type QuarantineError struct {
	RetryAfter time.Duration // above 0
}

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("%v: this caller's data killed workers repeatedly; try again in %v", ErrUnavailable, e.RetryAfter.Round(time.Second))
}

// Unwrap returns ErrUnavailable.
func (e *QuarantineError) Unwrap() error { return ErrUnavailable }

// Kind determines how a Script's source is interpreted.
type Kind string

// The kinds of scripts.
const (
	// Validator is one synchronous function expression,
	// (data, context, evidence, call) => boolean | {valid, confidence, reason, ...}.
	Validator Kind = "validator"
	// Condition is one expression over data, context, evidence and call whose value must be a boolean. Routes
	// consist of conditions.
	Condition Kind = "condition"
	// Schema is a JSON Schema. It runs in the sandbox because even a small one can keep a processor busy for
	// minutes. Only Check and Batch.Schema accept it.
	Schema Kind = "schema"
)

// Script is one piece of source from a definition.
type Script struct {
	// Name is the script's location in its definition, for findings (for example
	// "transitionValidators.approve" or "states.draft.transitions.submit[0].condition").
	Name   string `json:"name"`
	Kind   Kind   `json:"kind"`
	Source string `json:"source"`
}

// Owner is the author of scripts.
type Owner struct {
	ID string // a principal
	// Trusted is true if an operator loaded the scripts. Workers that die because of a caller's data never count
	// against a trusted owner.
	Trusted bool
}

// Batch is everything that one transition needs from the sandbox, in one round trip. The schema is applied
// first; if the document conforms, the routes run in order until one is true, and then all validators.
// Every script gets a fresh runtime. The schema's time does not count toward the scripts' limit.
type Batch struct {
	// Caller is the calling principal. Callers share the workers fairly. Workers that die while they run a
	// trusted owner's scripts count against the caller.
	Caller string
	// Owner is the author of the scripts. Unless it is trusted, workers that its scripts kill count against it.
	Owner Owner
	// Now and Seed fix the scripts' clock and random source, so that the same input gives the same verdict.
	Now  time.Time
	Seed int64
	// Schema is a Script of kind Schema, or nil.
	Schema *Script
	// Routes are scripts of kind Condition. It may be empty.
	Routes []Script
	// Validators are scripts of kind Validator. It may be empty.
	Validators []Script
	// Data, Context and Evidence are JSON objects; nil means {}.
	Data, Context, Evidence json.RawMessage
	// Call is the call that the action represents, {"tool", "arguments"}. If it is nil, scripts see undefined.
	Call json.RawMessage
	// Document is the JSON value to which Schema is applied; nil means {}.
	Document json.RawMessage
	// Console returns the scripts' console output in the results; otherwise it is discarded.
	Console bool
}

// Code classifies how a script ended.
type Code string

// The ways in which a script can end. All codes except OK are the script's own fault and block the transition
// (fail closed).
const (
	OK          Code = "ok"
	Threw       Code = "threw"       // it threw an exception
	BadResult   Code = "bad_result"  // it returned something that the contract does not allow
	BadSource   Code = "bad_source"  // it does not parse, or is not one synchronous function or one expression
	Timeout     Code = "timeout"     // soft or hard time limit
	Memory      Code = "memory"      // memory limit
	Internal    Code = "internal"    // it made the interpreter itself fail
	Quarantined Code = "quarantined" // it, or its owner (unless trusted), killed workers repeatedly and is suspended
)

// Result is the outcome of one script. Its strings are untrusted data: they are shortened and free of control
// characters, and must never be treated as instructions.
type Result struct {
	Name  string `json:"name"`
	Code  Code   `json:"code"`
	Valid bool   `json:"valid"`
	// Confidence is 0..1. It is 1 if the script returned none.
	Confidence  float64  `json:"confidence"`
	Reason      string   `json:"reason,omitempty"`
	Violations  []string `json:"violations,omitempty"`
	Suggestions []string `json:"suggestions,omitempty"`
	// Detail explains a Code other than OK in one sentence that a model can act on: which limit or rule was
	// violated, and how to fix it.
	Detail string `json:"detail,omitempty"`
	// Console holds the lines that the script wrote to console, if the Batch asked for them: at most MaxNotes
	// lines of MaxNote UTF-16 units.
	Console []string `json:"console,omitempty"`
}

// Reply is the result of a Batch.
type Reply struct {
	// Schema is the schema's result. If the document does not conform, nothing else ran.
	Schema SchemaReply
	// Route is the index of the first route that was true, or -1 if none was or there are no routes.
	// RouteFault is set if a condition failed before one was true; Route is then -1.
	Route      int
	RouteFault *Result
	// Results has one entry for each validator, in order. It is empty if there are routes but none was chosen,
	// or if the document does not conform to the schema.
	Results []Result
	// Unhardened lists the protections that the worker could not apply (for example "landlock", "seccomp"). It
	// is empty if all are in force.
	Unhardened []string
	// Took is the wall time from queueing to the answer.
	Took time.Duration
}

// Problem is a script that does not compile under the sandbox's rules or fails its trial run.
type Problem struct {
	Name   string // the Script's Name
	Ran    bool   // it compiled, but the run failed
	Line   int    // 1-based line in the source, 0 when unknown
	Column int
	// Message is one sentence that describes the problem and how to fix it.
	Message string
}

// Runner evaluates and checks scripts; *Pool implements it.
type Runner interface {
	// Run evaluates a batch. The error wraps ErrUnavailable or ErrInput, or is ctx's.
	Run(ctx context.Context, b Batch) (Reply, error)
	// Check compiles scripts without running them on real input (the dry run when a definition is registered).
	// Problems are faults of the scripts; the error is about the sandbox.
	Check(ctx context.Context, caller string, owner Owner, scripts []Script) ([]Problem, error)
}

// SchemaReply is the result of applying a schema to a document.
type SchemaReply struct {
	// Code is OK if the schema could be applied, with or without violations, and "" if there is no schema. All
	// other codes are the schema's own fault and block the transition.
	Code Code
	// Violations is empty if the document conforms.
	Violations []Violation
	// Detail explains a Code other than OK, like Result.Detail.
	Detail string
}

// Passes reports whether the document conforms.
func (r SchemaReply) Passes() bool { return r.Code == OK && len(r.Violations) == 0 }

// Violation is one way in which a document violates a schema.
type Violation struct {
	Path       string `json:"path"`       // JSON pointer into the document
	Keyword    string `json:"keyword"`    // the keyword that failed, such as "minLength"
	SchemaPath string `json:"schemaPath"` // JSON pointer through the schema to the keyword
	Message    string `json:"message"`    // one sentence, which quotes no value from the document
	Hint       string `json:"hint,omitempty"`
}
