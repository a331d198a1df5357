package worker_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

func TestMain(m *testing.M) {
	worker.Main()
	worker.ProbeMain()
	os.Exit(m.Run())
}

func evaluate(kind script.Kind, text string) script.Outcome {
	q := script.Request{Op: script.OpRun, Data: []byte(`{"n":3}`), Context: []byte(`{"state":"draft"}`)}
	return worker.NewInProcess().Evaluate(&q, script.Source{Kind: kind, Text: text})
}

// TestContract lists what a validator may return. Everything else is a fault.
func TestContract(t *testing.T) {
	for _, c := range []struct {
		returns string
		valid   bool
		conf    float64
		fault   string // part of the detail; "" for a verdict
	}{
		{"true", true, 1, ""},
		{"false", false, 1, ""},
		{"({valid: true})", true, 1, ""},
		{"({valid: false, confidence: 0.25})", false, 0.25, ""},
		{"({valid: true, confidence: null, reason: null, violations: null})", true, 1, ""},
		{"({valid: true, confidence: undefined, reason: undefined})", true, 1, ""},
		{"({valid: true, confidence: 0})", true, 0, ""},
		{"({valid: true, confidence: -0})", true, 0, ""},
		{"({valid: true, extra: {deep: [1]}, other: () => 1})", true, 1, ""},
		{"Object.assign(Object.create(null), {valid: true})", true, 1, ""},
		{"({get valid() { return true }})", true, 1, ""},
		{"new Proxy({valid: true, confidence: 0.5}, {})", true, 0.5, ""},
		{"(() => { class V { constructor() { this.valid = true } } return new V() })()", true, 1, ""},
		// valid is read like a condition in JavaScript, and a false reason counts as absent.
		{"({valid: data.x && data.x.length > 3})", false, 1, ""},
		{"({valid: undefined})", false, 1, ""},
		{"({valid: null, reason: 'r'})", false, 1, ""},
		{"({valid: 0})", false, 1, ""},
		{"({valid: NaN})", false, 1, ""},
		{"({valid: ''})", false, 1, ""},
		{"({valid: 0n})", false, 1, ""},
		{"({valid: 1})", true, 1, ""},
		{"({valid: 'false', confidence: 0.5})", true, 0.5, ""},
		{"({valid: 'a@b'.match(/@/)})", true, 1, ""},
		{"({valid: 'ab'.match(/@/)})", false, 1, ""},
		{"({valid: {valueOf: () => false}})", true, 1, ""},
		{"({valid: true, reason: false, violations: false, suggestions: ''})", true, 1, ""},
		{"({valid: true, reason: true || 'text'})", true, 1, ""},
		{"({valid: false, violations: [data.x && 'x', undefined, null, 'y'], suggestions: [false]})", false, 1, ""},
		{"undefined", false, 0, "returned undefined"},
		{"null", false, 0, "returned null"},
		{"1", false, 0, "returned a number"},
		{"NaN", false, 0, "returned NaN"},
		{"'true'", false, 0, "returned a string"},
		{"1n", false, 0, "returned a bigint"},
		{"Symbol('x')", false, 0, "returned a symbol"},
		{"(() => true)", false, 0, "class Function"},
		{"[true]", false, 0, "class Array"},
		{"new Boolean(false)", false, 0, "class Boolean"},
		{"new Date()", false, 0, "class Date"},
		{"new Error('x')", false, 0, "class Error"},
		{"new Map([['valid', true]])", false, 0, "use !!"},
		{"Object.assign(Promise.resolve(), {valid: true})", false, 0, "must be synchronous"},
		{"Promise.resolve(true)", false, 0, "must be synchronous"},
		{"({valid: true, then() {}})", false, 0, "must be synchronous"},
		{"({})", false, 0, "valid must be true or false, or a value that counts as one"},
		{"({valid: new Boolean(true)})", false, 0, "use !!"},
		{"({valid: Promise.resolve(false)})", false, 0, "use !!"},
		{"({valid: () => false})", false, 0, "use !!"},
		{"({valid: Symbol('x')})", false, 0, "use !!"},
		{"({valid: new Date()})", false, 0, "use !!"},
		{"Object.create({valid: true})", false, 0, "use !!"},
		{"(Object.prototype.valid = true, {})", false, 0, "use !!"},
		{"new (class { get valid() { return true } })()", false, 0, "use !!"},
		{"({valid: true, confidence: NaN})", false, 0, "confidence must be"},
		{"({valid: true, confidence: -0.001})", false, 0, "confidence must be"},
		{"({valid: true, confidence: 1.001})", false, 0, "confidence must be"},
		{"({valid: true, confidence: '1'})", false, 0, "confidence must be"},
		{"({valid: true, confidence: 1n})", false, 0, "confidence must be"},
		{"({valid: false, reason: 5})", false, 0, "reason must be a string"},
		{"({valid: false, reason: new String('x')})", false, 0, "reason must be a string"},
		{"({valid: false, violations: 'x'})", false, 0, "violations must be an array"},
		{"({valid: false, violations: [1]})", false, 0, "violations must be an array"},
		{"({valid: false, violations: {length: 1}})", false, 0, "violations must be an array"},
		{"({valid: false, suggestions: [{}]})", false, 0, "suggestions must be an array"},
		{"({get valid() { throw new Error('no') }})", false, 0, "it threw Error: no"},
		{"(() => { throw {message: 'own'} })()", false, 0, "it threw own"},
		{"(() => { throw Object.create({message: 'inherited'}) })()", false, 0, "it threw (line 1)"},
		{"(() => { throw null })()", false, 0, "it threw (line 1)"},
		{"(() => { throw {get message() { throw 1 }} })()", false, 0, "it threw"},
	} {
		o := evaluate(script.Validator, "(data) => "+c.returns)
		if c.fault != "" {
			if o.Code == script.OK || o.Valid || !strings.Contains(o.Detail, c.fault) {
				t.Errorf("%s: %+v, want %q", c.returns, o, c.fault)
			}
			continue
		}
		if o.Code != script.OK || o.Valid != c.valid || o.Confidence != c.conf || math.Signbit(o.Confidence) {
			t.Errorf("%s: %+v", c.returns, o)
		}
	}
}

// The console exists and does not change results. Its output is kept, within limits, if the request asks for
// it.
func TestConsole(t *testing.T) {
	p := worker.NewInProcess()
	for text, want := range map[string][]string{
		`(d) => { console.log("n is", d.n, {a: [1]}, undefined, null, true); return true }`:                    {`n is 3 {"a":[1]} undefined null true`},
		`(d) => { console.warn(1); console.error("two\n"); return console.table([]) === undefined }`:           {"1", "two ", "[]"},
		`(d) => { delete globalThis.JSON; console.log({a: 1}, {toJSON() { throw 1 }}, () => 1); return true }`: {`{"a":1} an object an object`},
		`(d) => { for (let i = 0; i < 100; i++) console.debug("x".repeat(1e3)); return true }`:                 slices.Repeat([]string{strings.Repeat("x", script.MaxNote)}, script.MaxNotes),
		`(d) => { const console = {log() {}}; console.log(1); return true }`:                                   nil,
		`(d) => { console.log("before"); return d.a.b }`:                                                       {"before"},
	} {
		for _, keep := range []bool{true, false} {
			q := script.Request{Op: script.OpRun, Data: []byte(`{"n":3}`), Console: keep}
			o := p.Evaluate(&q, script.Source{Kind: script.Validator, Text: text})
			if fails := strings.Contains(text, "d.a.b"); (o.Code == script.OK) == fails || o.Valid == fails {
				t.Errorf("%s: %+v", text, o)
			}
			if keep && !slices.Equal(o.Console, want) || !keep && len(o.Console) > 0 {
				t.Errorf("%s: %q, want %q", text, o.Console, want)
			}
		}
	}
}

func TestStringsAreCutAndCleaned(t *testing.T) {
	o := evaluate(script.Validator, `() => ({valid: false, reason: 'a\u001b[1m\ud800b\u202e' + '\u4e2d'.repeat(1e6), violations: Array(1000).fill('v\n'.repeat(1e4)), suggestions: ['s']})`)
	if o.Code != script.OK || !strings.HasPrefix(o.Reason, "a[1m\ufffdb中中") || len(utf16.Encode([]rune(o.Reason))) != script.MaxReason {
		t.Errorf("%s, reason of %d bytes", o.Code, len(o.Reason))
	}
	if len(o.Violations) != script.MaxNotes || len(o.Violations[0]) != script.MaxNote || strings.Contains(o.Violations[0], "\n") || o.Suggestions[0] != "s" {
		t.Errorf("%d violations of %d", len(o.Violations), len(o.Violations[0]))
	}
}

func TestConditionsMustBeBoolean(t *testing.T) {
	for text, want := range map[string]script.Result{
		"data.n > 2":                {Code: script.OK, Valid: true, Confidence: 1},
		"context.state === 'x'":     {Code: script.OK, Confidence: 1},
		"evidence.build === 'x'":    {Code: script.OK, Confidence: 1},
		"!!data.n // n":             {Code: script.OK, Valid: true, Confidence: 1},
		"data.n":                    {Code: script.BadResult, Detail: "not a number; use !!(...)"},
		"data.m":                    {Code: script.BadResult, Detail: "not undefined; use !!(...)"},
		"({valid: true})":           {Code: script.BadResult, Detail: "not an object; use !!(...)"},
		"data.m.x":                  {Code: script.Threw, Detail: "TypeError"},
		"(data) => true":            {Code: script.BadSource, Detail: "a condition is not a function"},
		"true, false":               {Code: script.BadSource, Detail: "it is not one expression"},
		"if (data.n) true":          {Code: script.BadSource, Detail: "Unexpected token if"},
		"undeclared = true":         {Code: script.Threw, Detail: "ReferenceError"},
		"data.n > 2) || (true":      {Code: script.BadSource, Detail: "write one expression"},
		"true]; [true":              {Code: script.BadSource, Detail: "not one expression"},
		"...[true]":                 {Code: script.BadSource, Detail: "not one expression"},
		"Math.random() < 1":         {Code: script.OK, Valid: true, Confidence: 1},
		"(() => data.n === 3)()":    {Code: script.OK, Valid: true, Confidence: 1},
		"typeof require === 'x'":    {Code: script.OK, Confidence: 1},
		"#!/bin/sh":                 {Code: script.BadSource, Detail: "not one expression"},
		"Object.keys(this) && this": {Code: script.BadResult, Detail: "an object"},
	} {
		o := evaluate(script.Condition, text)
		if o.Code != want.Code || o.Valid != want.Valid || !strings.Contains(o.Detail, want.Detail) {
			t.Errorf("%s: %+v", text, o)
		}
	}
}

// TestSourceMapsAreNotRead: a comment in a source can name a file for the parser to read.
func TestSourceMapsAreNotRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "missing.map") // reading it fails
	comment := "//# sourceMappingURL=file://" + name
	for _, text := range []string{
		"() => true\n" + comment,
		"() => eval('true\\n" + comment + "')",
		"() => Function('return true\\n" + comment + "')()",
	} {
		if o := evaluate(script.Validator, text); o.Code != script.OK || !o.Valid {
			t.Errorf("%s: %+v", text, o)
		}
	}
}

func TestProgramCache(t *testing.T) {
	p := worker.NewInProcess()
	q := script.Request{Op: script.OpRun}
	ask := func(i int) {
		o := p.Evaluate(&q, script.Source{Kind: script.Validator, Text: fmt.Sprintf("() => ({ valid: true, reason: '%d' })", i)})
		if o.Reason != fmt.Sprint(i) {
			t.Fatalf("program %d answers %+v", i, o)
		}
	}
	for i := range 3 * worker.MaxPrograms {
		ask(i)
		ask(0) // used all the time, so never evicted
		ask(i / 2)
	}
	if n := p.Cached(); n != worker.MaxPrograms {
		t.Errorf("%d programs are kept", n)
	}
	same := "data.n === 3"
	if o := p.Evaluate(&q, script.Source{Kind: script.Condition, Text: same}); o.Code != script.OK {
		t.Errorf("%+v", o)
	}
	if o := p.Evaluate(&q, script.Source{Kind: script.Validator, Text: same}); o.Code != script.BadSource {
		t.Errorf("the kind is no part of the key: %+v", o)
	}
}

// FuzzContract builds results of many shapes. The outcome must always follow the contract.
func FuzzContract(f *testing.F) {
	f.Add(0, 0.5, "reason", 2)
	f.Add(3, 1.5, "\u202e\x1b", 40)
	f.Add(7, math.Copysign(0, -1), "😀", 0)
	values := []string{"true", "false", "1", "'true'", "null", "undefined", "{}", "[]", "NaN", "new Boolean(true)"}
	p := worker.NewInProcess()
	f.Fuzz(func(t *testing.T, valid int, confidence float64, reason string, notes int) {
		notes &= 63
		q := script.Request{Op: script.OpRun, Data: fmt.Appendf(nil, `{"reason":%q}`, "x")}
		text := fmt.Sprintf("() => ({ valid: %s, confidence: %v, reason: String.fromCharCode(%s), violations: Array(%d).fill('v') })",
			values[uint(valid)%uint(len(values))], number(confidence), units(reason), notes)
		o := p.Evaluate(&q, script.Source{Kind: script.Validator, Text: text})
		says := values[uint(valid)%uint(len(values))]
		ok := says != "new Boolean(true)" && confidence >= 0 && confidence <= 1
		yes := !slices.Contains([]string{"false", "null", "undefined", "NaN"}, says)
		if (o.Code == script.OK) != ok {
			t.Fatalf("%s: %+v", text, o)
		}
		if ok && (o.Valid != yes || o.Confidence != confidence || o.Reason != script.Clean(o.Reason, script.MaxReason) || len(o.Violations) != min(notes, script.MaxNotes)) {
			t.Fatalf("%s: %+v", text, o)
		}
	})
}

func number(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return fmt.Sprint(f)
}

func units(s string) string {
	var b strings.Builder
	for i, u := range utf16.Encode([]rune(s)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, u)
	}
	return b.String()
}

func TestStarved(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	for used, want := range map[time.Duration]bool{
		0:                     false, // unknown
		time.Millisecond:      true,
		37 * time.Millisecond: true,
		38 * time.Millisecond: false,
		limit:                 false,
		4 * limit:             false, // the garbage collector runs on other processors
	} {
		if got := worker.IsStarved(used, limit); got != want {
			t.Errorf("%v of %v: %t", used, limit, got)
		}
	}
}

func TestProcessorTimeGrowsWithWork(t *testing.T) {
	t.Parallel()
	if worker.ProcessorTime() == 0 {
		t.Skip("this system does not say")
	}
	before, x := worker.ProcessorTime(), 0
	for began := time.Now(); worker.ProcessorTime() == before && time.Since(began) < 20*time.Second; x++ {
	}
	if worker.ProcessorTime() <= before {
		t.Errorf("stands still after %d rounds", x)
	}
}
