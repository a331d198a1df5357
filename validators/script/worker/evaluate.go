package worker

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/dop251/goja"
	"github.com/dop251/goja/parser"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
	"github.com/gavel-mcp/gavel/validators/script"
)

// maxCalls is the maximum depth of calls between script functions.
const maxCalls = 256

// Reasons why the watchdog interrupts a script.
var (
	errSoft = errors.New("soft time limit")
	errHeap = errors.New("memory limit")
)

// limitRegexps limits the backtracking regular expression engine, which ignores interrupts. An abandoned
// match reads as "no match", which must never become a verdict. So the limit is longer than the soft limit:
// when it takes effect, the whole script has already run out of time.
func limitRegexps(setup script.Setup) {
	regexp2.SetTimeoutCheckPeriod(5 * time.Millisecond)
	regexp2.DefaultMatchTimeout = setup.Soft + 10*time.Millisecond
}

type evaluator struct {
	setup    script.Setup
	programs *simplelru.LRU[script.Source, *program]
	watch    *watchdog
}

func newEvaluator(setup script.Setup) *evaluator {
	programs, _ := simplelru.NewLRU[script.Source, *program](maxPrograms, nil) // fails for sizes below 1
	return &evaluator{setup: setup, programs: programs, watch: newWatchdog(setup)}
}

// mustRecycle reports whether the process has grown and should be replaced.
func (e *evaluator) mustRecycle() bool { return e.watch.recycle.Load() }

// warmUp triggers all initialisation that happens on first use, before the protections would block it.
func (e *evaluator) warmUp() {
	time.Sleep(time.Microsecond) // the runtime opens its poller for the first timer
	q := script.Request{Op: script.OpRun, Data: []byte(`{"a":["x",1]}`)}
	e.evaluate(&q, script.Source{Kind: script.Validator, Text: "(data, context) => ({ valid: /x/.test(data.a[0]) && new Date(0).getTime() === 0 && Math.random() < 1 })"})
}

// evaluate compiles and runs one script and reads its result. It always returns an outcome, unless the script
// ends the process; the host detects that.
func (e *evaluator) evaluate(q *script.Request, s script.Source) (o script.Outcome) {
	run := e.watch.begin(e.setup.Hard)
	defer e.watch.end()
	defer func() {
		if x := recover(); x != nil {
			o = newFault(script.Internal, "")
		}
	}()
	p, known := e.programs.Get(s)
	if !known {
		p = compileScript(s)
		e.programs.Add(s, p)
	}
	if p.fault != nil {
		return *p.fault
	}
	if s.Kind == script.Schema {
		return applySchema(p.schema, q)
	}
	vm := goja.New()
	vm.SetMaxCallStackSize(maxCalls)
	vm.SetParserOptions(parser.WithDisableSourceMaps) // also for eval: a source map would name a file
	now := time.Unix(0, q.Now).UTC()
	vm.SetTimeSource(func() time.Time { return now })
	var random *rand.Rand
	vm.SetRandSource(func() float64 {
		if random == nil {
			random = rand.New(rand.NewPCG(uint64(q.Seed), 0x67617665_6c000001)) //nolint:gosec // repeatable by design
		}
		return random.Float64()
	})
	args, err := decodeArguments(vm, q, p.params)
	if err != nil {
		return newFault(script.BadInput, err.Error())
	}
	var lines []string
	if p.logs {
		lines = make([]string, 0, script.MaxNotes)
		addConsole(vm, q.Console, &lines)
	}
	used, began := processorTime(), time.Now()
	run.start(vm, began)
	o = e.callScript(vm, p, s.Kind, args)
	// After the limit no verdict counts: a regular expression match may have been abandoned.
	if time.Since(began) > e.setup.Soft && o.Code != script.Memory {
		o = script.Outcome{Late: isStarved(processorTime()-used, e.setup.Soft), Result: script.Result{Code: script.Timeout}}
	}
	o.Console = lines
	return o
}

// addConsole gives scripts a console, because authors leave console calls in them. The output is discarded
// unless keep is set.
func addConsole(vm *goja.Runtime, keep bool, lines *[]string) {
	stringify, _ := goja.AssertFunction(vm.Get("JSON").ToObject(vm).Get("stringify")) // before the script can replace it
	write := func(call goja.FunctionCall) goja.Value {
		if keep && len(*lines) < script.MaxNotes {
			*lines = append(*lines, describeArguments(stringify, call.Arguments))
		}
		return goja.Undefined()
	}
	console := vm.NewObject()
	for _, name := range []string{"log", "info", "warn", "error", "debug", "trace", "dir", "table", "assert", "group", "groupEnd", "time", "timeEnd"} {
		_ = console.Set(name, write) // Set cannot fail on a plain object
	}
	_ = vm.Set("console", console)
}

// describeArguments formats one line of console output: strings unchanged, other values as JSON. It runs code
// of the script, within the script's time.
func describeArguments(stringify goja.Callable, args []goja.Value) string {
	words := make([]string, len(args))
	for i, v := range args {
		text, isText := v.(goja.String)
		if !isText {
			words[i] = describeValue(v)
			written, err := stringify(goja.Undefined(), v)
			if text, isText = written.(goja.String); err != nil || !isText {
				continue
			}
		}
		words[i] = copyText(text, script.MaxNote)
	}
	return script.Clean(strings.Join(words, " "), script.MaxNote)
}

// inputs are the arguments of scripts, in the order of a validator's parameters.
var inputs = [...]string{"data", "context", "evidence", "call"}

// decodeArguments decodes the first params inputs. It omits an absent call.
func decodeArguments(vm *goja.Runtime, q *script.Request, params int) ([]goja.Value, error) {
	args := make([]goja.Value, 0, len(inputs))
	values := maxValues
	for i, raw := range [len(inputs)][]byte{q.Data, q.Context, q.Evidence, q.Call} {
		if i >= params || inputs[i] == "call" && len(raw) == 0 {
			break
		}
		v, err := decodeObject(vm, raw, &values)
		if err != nil {
			return nil, errors.New(inputs[i] + " is " + err.Error())
		}
		args = append(args, v)
	}
	return args, nil
}

// callScript runs the program and reads its result, all within the watchdog's limits.
func (e *evaluator) callScript(vm *goja.Runtime, p *program, kind script.Kind, args []goja.Value) (o script.Outcome) {
	reader := resultReader{vm: vm, objectPrototype: vm.NewObject().Prototype()}
	defer func() {
		// Reading the result can run code of the script outside of vm.Try.
		if x := recover(); x != nil {
			o = reader.convertFault(x)
		}
	}()
	var err error
	if exception := vm.Try(func() {
		var v goja.Value
		if v, err = e.runProgram(vm, p, kind, args); err == nil {
			o = reader.readVerdict(kind, v)
		}
	}); exception != nil {
		err = exception
	}
	if err != nil {
		return reader.convertFault(err)
	}
	return o
}

func (e *evaluator) runProgram(vm *goja.Runtime, p *program, kind script.Kind, args []goja.Value) (goja.Value, error) {
	if kind == script.Condition {
		for i, name := range inputs {
			value := goja.Undefined()
			if i < len(args) {
				value = args[i]
			}
			if err := vm.Set(name, value); err != nil {
				return nil, err
			}
		}
		return vm.RunProgram(p.code)
	}
	v, err := vm.RunProgram(p.code)
	if err != nil {
		return nil, err
	}
	f, ok := goja.AssertFunction(v)
	if !ok {
		return nil, errors.New("the source is not a function") // the compiler has rejected other sources
	}
	return f(goja.Undefined(), args...)
}

// isStarved reports whether a script that exceeded its limit used so much less processor time that the
// machine is the cause. Scripts cannot sleep or wait, so they use all the time that they get.
func isStarved(used, limit time.Duration) bool {
	return used > 0 && used < limit*3/4
}

// applySchema checks the request's document. It cannot be interrupted: if it takes too much time or memory,
// the process ends.
func applySchema(s *schema.Schema, q *script.Request) script.Outcome {
	if q.Op == script.OpCheck {
		return script.Outcome{Result: script.Result{Code: script.OK, Valid: true, Confidence: 1}}
	}
	if len(q.Document) == 0 {
		q.Document = []byte("{}")
	}
	doc := document.ReadTrusted(q.Document)
	if doc.Kind() == 0 {
		return newFault(script.BadInput, "the document is not JSON")
	}
	violations, err := s.Validate(doc)
	if err != nil {
		return newFault(script.BadSource, err.Error())
	}
	o := script.Outcome{Result: script.Result{Code: script.OK, Valid: len(violations) == 0, Confidence: 1}}
	for _, v := range violations {
		o.Objections = append(o.Objections, script.ClipViolation(script.Violation(v)))
	}
	return o
}

func formatInt(n int) string { return strconv.Itoa(n) }
