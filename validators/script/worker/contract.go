package worker

import (
	"math"
	"reflect"
	"slices"

	"github.com/dop251/goja"

	"github.com/gavel-mcp/gavel/validators/script"
)

// resultReader reads what a script returned or threw. Reading may run code of the script, so each value is
// read only once and within the script's time.
type resultReader struct {
	vm              *goja.Runtime
	objectPrototype *goja.Object // the original Object.prototype
}

func newFault(code script.Code, detail string) script.Outcome {
	return script.Outcome{Result: script.Result{Code: code, Detail: detail}}
}

func newBadResult(detail string) script.Outcome { return newFault(script.BadResult, detail) }

const (
	detailBoolean    = "valid must be true or false, or a value that counts as one, such as 1 or undefined; use !!(...)"
	detailShape      = "it must return true, false or { valid, confidence, reason }; it returned "
	detailConfidence = "confidence must be a number from 0 to 1, or absent"
	detailReason     = "reason must be a string, or absent" // false and similar values mean absent: cond && 'text'
)

var (
	boolType    = reflect.TypeFor[bool]()
	promiseType = reflect.TypeFor[*goja.Promise]()
)

// readVerdict applies the contract of results. Anything other than a clear yes or no is a fault of the script.
func (r *resultReader) readVerdict(kind script.Kind, v goja.Value) script.Outcome {
	if verdict, ok := readBool(v); ok {
		return script.Outcome{Result: script.Result{Code: script.OK, Valid: verdict, Confidence: 1}}
	}
	if kind == script.Condition {
		return newBadResult("a condition must be true or false, not " + describeValue(v) + "; use !!(...)")
	}
	object, ok := v.(*goja.Object)
	if !ok {
		return newBadResult(detailShape + describeValue(v))
	}
	if object.ExportType() == promiseType {
		return newBadResult(wantSync)
	}
	if class := object.ClassName(); class != "Object" {
		return newBadResult(detailShape + "an object of class " + script.Clean(class, 40))
	}
	return r.readObject(object)
}

func (r *resultReader) readObject(object *goja.Object) script.Outcome {
	if then, ok := goja.AssertFunction(r.getOwn(object, "then")); ok && then != nil {
		return newBadResult(wantSync)
	}
	valid, ok := readTruth(r.getOwn(object, "valid"))
	if !ok {
		return newBadResult(detailBoolean)
	}
	o := script.Outcome{Result: script.Result{Code: script.OK, Valid: valid}}
	if o.Confidence, ok = readConfidence(r.getOwn(object, "confidence")); !ok {
		return newBadResult(detailConfidence)
	}
	if reason := r.getOwn(object, "reason"); !isEmptyValue(reason) {
		text, ok := reason.(goja.String)
		if !ok {
			return newBadResult(detailReason)
		}
		o.Reason = copyText(text, script.MaxReason)
	}
	if o.Violations, ok = r.readNotes(object, "violations"); !ok {
		return newBadResult("violations must be an array of strings, or absent")
	}
	if o.Suggestions, ok = r.readNotes(object, "suggestions"); !ok {
		return newBadResult("suggestions must be an array of strings, or absent")
	}
	return o
}

// readNotes reads an optional array of strings. Entries after the first MaxNotes are dropped.
func (r *resultReader) readNotes(object *goja.Object, name string) ([]string, bool) {
	v := r.getOwn(object, name)
	if isEmptyValue(v) {
		return nil, true
	}
	array, ok := v.(*goja.Object)
	if !ok || array.ClassName() != "Array" {
		return nil, false
	}
	length := array.Get("length")
	if length == nil || !goja.IsNumber(length) { // a Proxy may return anything
		return nil, false
	}
	var list []string
	for i := range int(min(length.ToInteger(), script.MaxNotes)) {
		entry := array.Get(formatInt(i))
		if isEmptyValue(entry) {
			continue
		}
		text, ok := entry.(goja.String)
		if !ok {
			return nil, false
		}
		list = append(list, copyText(text, script.MaxNote))
	}
	return list, true
}

// getOwn reads a property of the object itself, or returns nil if it has none. The script did not return an
// inherited property; it may have been planted in a prototype.
func (r *resultReader) getOwn(object *goja.Object, name string) goja.Value {
	v := object.Get(name)
	if v == nil {
		return nil
	}
	switch prototype := object.Prototype(); {
	case prototype == nil:
		return v
	case prototype == r.objectPrototype && r.objectPrototype.Get(name) == nil:
		return v
	}
	if slices.Contains(object.GetOwnPropertyNames(), name) {
		return v
	}
	return nil
}

func readBool(v goja.Value) (value, ok bool) {
	if v == nil || v.ExportType() != boolType {
		return false, false
	}
	if _, isObject := v.(*goja.Object); isObject { // new Boolean(false) is truthy
		return false, false
	}
	return v.ToBoolean(), true
}

// readTruth reads valid as a JavaScript condition would, without running code of the script. Scripts return
// such values: data.x && data.x.length > 3, or data.mail.match(/@/). It rejects values that are unlikely to
// be meant as an answer: an absent value, a symbol, a function that was not called, a promise.
func readTruth(v goja.Value) (value, ok bool) {
	switch v := v.(type) {
	case nil, *goja.Symbol:
		return false, false
	case *goja.Object:
		class := v.ClassName()
		return true, (class == "Object" || class == "Array") && v.ExportType() != promiseType
	}
	return v.ToBoolean(), true
}

// isEmptyValue reports whether an optional value counts as absent: undefined, null, a boolean, or an empty
// value, as cond && 'text' and ok || 'text' can produce.
func isEmptyValue(v goja.Value) bool {
	if _, isObject := v.(*goja.Object); isObject {
		return false
	}
	return isAbsent(v) || v.ExportType() == boolType || !v.ToBoolean()
}

func isAbsent(v goja.Value) bool {
	return v == nil || goja.IsUndefined(v) || goja.IsNull(v)
}

func readConfidence(v goja.Value) (float64, bool) {
	if isAbsent(v) {
		return 1, true
	}
	if !goja.IsNumber(v) {
		return 0, false
	}
	f := v.ToFloat()
	if math.IsNaN(f) || f < 0 || f > 1 {
		return 0, false
	}
	return f + 0, true // -0 becomes 0
}

// copyText copies at most limit UTF-16 units of a string out of the runtime and cleans them. The string itself
// may be hundreds of megabytes long.
func copyText(text goja.String, limit int) string {
	if text.Length() > 2*limit { // allows for characters that Clean removes
		text = text.Substring(0, 2*limit)
	}
	return script.Clean(text.String(), limit)
}

// describeValue names a kind of value without running any code of the script.
func describeValue(v goja.Value) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case *goja.Object:
		return "an object"
	case goja.String:
		return "a string"
	case *goja.Symbol:
		return "a symbol"
	default:
		switch {
		case goja.IsUndefined(v):
			return "undefined"
		case goja.IsNull(v):
			return "null"
		case goja.IsNaN(v):
			return "NaN"
		case goja.IsBigInt(v):
			return "a bigint"
		}
		return "a number"
	}
}

// convertFault converts an error or a recovered panic into an outcome. It does not unwrap: unwrapping an
// exception runs code of the script.
func (r *resultReader) convertFault(x any) script.Outcome {
	switch err := x.(type) {
	case *goja.InterruptedError:
		if err.Value() == errHeap { //nolint:errorlint // the same value that the watchdog passed
			return newFault(script.Memory, "")
		}
		return newFault(script.Timeout, "")
	case *goja.StackOverflowError:
		return newFault(script.Threw, "calls nest deeper than "+formatInt(maxCalls)+" levels; use a loop instead of recursion")
	case *goja.Exception:
		return r.describeThrown(err)
	}
	return newFault(script.Internal, "")
}

// describeThrown describes a thrown value: its text if it is a string, otherwise its own message. It reads
// nothing else.
func (r *resultReader) describeThrown(exception *goja.Exception) (o script.Outcome) {
	o = newFault(script.Threw, "it threw")
	defer func() {
		if x := recover(); x != nil { // message was an accessor
			if _, again := x.(*goja.Exception); !again {
				o = r.convertFault(x)
			}
		}
	}()
	where := ""
	if stack := exception.Stack(); len(stack) > 0 {
		for _, frame := range stack { // the innermost frame in the script, not in a built-in
			if at := frame.Position(); at.Line > 1 {
				where = " (line " + formatInt(at.Line-1) + ")"
				break
			}
		}
	}
	message := ""
	_ = r.vm.Try(func() {
		switch v := exception.Value().(type) {
		case goja.String:
			message = copyText(v, script.MaxNote)
		case *goja.Object:
			if text, ok := r.getOwn(v, "message").(goja.String); ok {
				message = copyText(text, script.MaxNote)
			}
			if name, ok := v.Get("name").(goja.String); ok && v.ClassName() == "Error" {
				message = copyText(name, 40) + ": " + message
			}
		}
	})
	if message != "" {
		o.Detail += " " + message
	}
	o.Detail += where + "; a validator must not throw: test for missing fields first, for example data.name?.length"
	return o
}
