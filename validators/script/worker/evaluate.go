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

// maxCalls is how deep calls between script functions may nest.
const maxCalls = 256

// Reasons for which the watchdog interrupts a script.
var (
	errSoft = errors.New("soft time limit")
	errHeap = errors.New("memory limit")
)

// limitRegexps bounds the backtracking regular expression engine, which looks at
// no interrupt. A match that is given up reads as "no match", which must never
// become a verdict: the limit lies behind the soft one, so that the script as a
// whole is out of time when it strikes.
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

// mustRecycle reports that the process has grown and should be replaced.
func (e *evaluator) mustRecycle() bool { return e.watch.recycle.Load() }

// warmUp runs what is initialised on first use, before the kernel locks it away.
func (e *evaluator) warmUp() {
	time.Sleep(time.Microsecond) // the runtime opens its poller for the first timer
	q := script.Request{Op: script.OpRun, Data: []byte(`{"a":["x",1]}`)}
	e.evaluate(&q, script.Source{Kind: script.Validator, Text: "(data, context) => ({ valid: /x/.test(data.a[0]) && new Date(0).getTime() === 0 && Math.random() < 1 })"})
}

// evaluate compiles and runs one script and reads its answer. It always returns an
// outcome; the host notices when a script ends the process.
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
	vm.SetParserOptions(parser.WithDisableSourceMaps) // for eval: a source map is a file name
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
	// Past the limit no verdict counts: a regular expression may have been cut short.
	if time.Since(began) > e.setup.Soft && o.Code != script.Memory {
		o = script.Outcome{Late: isStarved(processorTime()-used, e.setup.Soft), Result: script.Result{Code: script.Timeout}}
	}
	o.Console = lines
	return o
}

// addConsole gives scripts a console, which people leave in them. What is written there goes
// nowhere, unless it is kept.
func addConsole(vm *goja.Runtime, keep bool, lines *[]string) {
	stringify, _ := goja.AssertFunction(vm.Get("JSON").ToObject(vm).Get("stringify")) // as it is before the script runs
	write := func(call goja.FunctionCall) goja.Value {
		if keep && len(*lines) < script.MaxNotes {
			*lines = append(*lines, describeArguments(stringify, call.Arguments))
		}
		return goja.Undefined()
	}
	console := vm.NewObject()
	for _, name := range []string{"log", "info", "warn", "error", "debug", "trace", "dir", "table", "assert", "group", "groupEnd", "time", "timeEnd"} {
		_ = console.Set(name, write) // a plain object takes it
	}
	_ = vm.Set("console", console)
}

// describeArguments is a line of console: texts as they are, all else as JSON. It runs code of
// the script, within its time.
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

// inputs are what scripts see, in the order of a validator's parameters.
var inputs = [...]string{"data", "context", "evidence", "call"}

// decodeArguments decodes as many of the inputs as the script can see, and no call where there is none.
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

// callScript runs the program and reads its answer, all within the watchdog's limits.
func (e *evaluator) callScript(vm *goja.Runtime, p *program, kind script.Kind, args []goja.Value) (o script.Outcome) {
	reader := resultReader{vm: vm, objectPrototype: vm.NewObject().Prototype()}
	defer func() {
		// Reading the answer calls back into the script outside of a call of ours.
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
		return nil, errors.New("the source is no function") // compile has made sure that it is
	}
	return f(goja.Undefined(), args...)
}

// isStarved reports whether a script that took longer than its limit used so much
// less processor time that the machine is to blame. A script that cannot sleep or
// wait uses all the time that it is given.
func isStarved(used, limit time.Duration) bool {
	return used > 0 && used < limit*3/4
}

// applySchema checks the request's document. Nothing can interrupt it: what takes
// too long or too much memory ends with the process.
func applySchema(s *schema.Schema, q *script.Request) script.Outcome {
	if q.Op == script.OpCheck {
		return script.Outcome{Result: script.Result{Code: script.OK, Valid: true, Confidence: 1}}
	}
	if len(q.Document) == 0 {
		q.Document = []byte("{}")
	}
	doc := document.Known(q.Document)
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
