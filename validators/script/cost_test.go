package script_test

import (
	"math"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/costtest"
	"github.com/gavel-mcp/gavel/validators/script"
)

var loaded = time.Now()

// workerTime returns the processor time of a pool's workers, including those that have ended, so that other
// load on the machine does not count. If the platform does not report it, it returns elapsed time.
var workerTime = func(*script.Pool) time.Duration { return time.Since(loaded) }

// fuzzCost limits the cost of checking a source that repeats a unit: both the workers' time and this
// process's.
func fuzzCost(f *testing.F, kind script.Kind, size int) {
	p := newPool(f, script.Config{ScriptStrikes: 1 << 30, OwnerStrikes: 1 << 30})
	f.Fuzz(func(t *testing.T, head, unit, tail []byte) {
		source := costtest.Repeat(head, unit, tail, size)
		least := time.Duration(math.MaxInt64)
		check := func() {
			before := workerTime(p)
			_, _ = p.Check(t.Context(), "agent", script.Owner{ID: "agent"}, []script.Script{{Name: "s", Kind: kind, Source: string(source)}})
			least = min(least, workerTime(p)-before)
		}
		costtest.CheckBound(t, max(len(source), 64<<10), check)
		for range 2 {
			if least <= costtest.Time {
				return
			}
			check()
		}
		t.Errorf("%d bytes took the worker %v", len(source), least)
	})
}

func FuzzCostScript(f *testing.F) {
	for _, s := range [][3]string{
		{"() => true", "", ""},
		{"() => ", "(", ""},
		{"() => ", "[", "]"},
		{"() => { ", "for (;;) ", "{} }"},
		{"() => `", "${`", "`"},
		{"() => 1", "+1", ""},
		{"() => /", "(a+)+", "/.test('aaaaaaaaaaaaaaaaaaaaaaaa!')"},
		{"() => '", "x", "'.repeat(1e9)"},
		{"() => { const a = [", "{},", "]; while (a.push(a.slice())) {} }"},
		{"async ", "async ", "() => 1"},
	} {
		f.Add([]byte(s[0]), []byte(s[1]), []byte(s[2]))
	}
	fuzzCost(f, script.Validator, 16<<10)
}

func FuzzCostSchema(f *testing.F) {
	for _, s := range [][3]string{
		{`{"type":"object"`, "", "}"},
		{"", `{"not":`, "{}"},
		{`{"allOf":[`, `{"$ref":"#"},`, `{}]}`},
		{`{"pattern":"`, "(a+)+", `"}`},
		{`{"pattern":"`, "(a{1,99}){1,99}", `"}`},
		{`{"properties":{`, `"a":{},`, `"b":{}}}`},
		{`{"enum":[`, `1,`, `1]}`},
		{`{"$defs":{"a":`, `{"anyOf":[{"$ref":"#/$defs/a"},`, `{}]}}}`},
		{`{"multipleOf":1e`, "9", "}"},
		{`{"minimum":`, "9", "}"},
		{`{"required":[`, `"a",`, `"b"]}`},
		{`{"$id":"`, "a/../", `"}`},
	} {
		f.Add([]byte(s[0]), []byte(s[1]), []byte(s[2]))
	}
	fuzzCost(f, script.Schema, 64<<10)
}
