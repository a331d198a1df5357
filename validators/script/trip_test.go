package script_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/validators/script"
)

// blowUp is a schema that never finishes.
const blowUp = `{"$ref":"#/$defs/x","$defs":{"x":{"anyOf":[{"properties":{"a":{"$ref":"#/$defs/x"}},"required":["y"]},{"properties":{"a":{"$ref":"#/$defs/x"}},"required":["z"]}]}}}`

var deep = strings.Repeat(`{"a":`, 40) + `{}` + strings.Repeat(`}`, 40)

// A batch with a schema gives the same results as two batches, one with the schema and, if it passes, one with
// the scripts. It takes one trip unless a worker dies.
func TestABatchWithASchemaIsTwoInOneTrip(t *testing.T) {
	p := newPool(t, script.Config{
		Soft: 700 * time.Millisecond, Hard: 2 * time.Second, Total: 2100 * time.Millisecond, // three scripts for each trip
		ScriptStrikes: 1 << 30, OwnerStrikes: 1 << 30,
	})
	run := func(t *rapid.T, b script.Batch) (script.Reply, script.Stats) {
		before := p.Stats()
		r, err := p.Run(context.Background(), b)
		if err != nil {
			t.Fatal(err)
		}
		after := p.Stats()
		return r, script.Stats{Trips: after.Trips - before.Trips, Deaths: after.Deaths - before.Deaths, Recycled: after.Recycled - before.Recycled}
	}
	rapid.Check(t, func(t *rapid.T) {
		pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
		whole := shaped(pick("schema", `{"required":["n"]}`, `{"required":["n"]}`, `{"properties":{"n":{"maximum":3}}}`, `true`, `{"type":"banana"}`, ``),
			pick("document", `{"n":1}`, `{"n":1}`, `{"n":7}`, `[]`, ``))
		whole.Data, whole.Context = json.RawMessage(`{"n":2}`), json.RawMessage(`{"c":1}`)
		whole.Routes = conditions(rapid.SliceOfN(rapid.SampledFrom([]string{"false", "false", "data.n === 2", "true", "data.x.y", "", "1"}), 0, 3).Draw(t, "routes")...)
		whole.Validators = validators(rapid.SliceOfN(rapid.SampledFrom([]string{yes, yes, no, "(d, c) => ({ valid: d.n + c.c > 2, reason: String(d.n) })", "() => null.x", "", "() => {", panics, explode}), 0, 4).Draw(t, "validators")...)
		schema, scripts := whole, whole
		schema.Routes, schema.Validators, scripts.Schema, scripts.Document = nil, nil, nil, nil

		want, _ := run(t, schema)
		if want.Schema.Passes() {
			shape := want.Schema
			want, _ = run(t, scripts)
			want.Schema = shape
		}
		got, took := run(t, whole)
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(script.Reply{}, "Took", "Unhardened")); diff != "" {
			t.Fatalf("apart (-) and together (+):\n%s", diff)
		}
		if n := len(whole.Routes) + len(whole.Validators); took.Deaths+took.Recycled == 0 && n <= 3 && took.Trips > 1 {
			t.Fatalf("%d trips", took.Trips)
		}
	})
}

// Only the schema or script that killed a worker is charged, and nothing runs after a schema that does not
// pass.
func TestOnlyTheCulpritIsCharged(t *testing.T) {
	for name, c := range map[string]struct {
		schema, document, validator string
		wantSchema, wantScript      script.Code // codes of the whole batch; "" if not run
		held                        string      // quarantined afterwards: the schema, the script or ""
	}{
		"the script is to blame":       {`{"required":["a"]}`, `{"a":{}}`, explode, script.OK, script.Memory, "script"},
		"a script that is stuck":       {`{"required":["a"]}`, `{"a":{}}`, hang, script.OK, script.Timeout, "script"},
		"the schema is to blame":       {blowUp, deep, yes, script.Timeout, "", "schema"},
		"a violation before the worst": {`{"required":["b"]}`, `{"a":{}}`, explode, script.OK, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, script.Config{ScriptStrikes: 1})
			b := shaped(c.schema, c.document)
			b.Validators = validators(c.validator)
			ask := func(b script.Batch) (schema, first script.Code) {
				r, err := p.Run(context.Background(), b)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Results) > 0 {
					first = r.Results[0].Code
				}
				return r.Schema.Code, first
			}
			if schema, first := ask(b); schema != c.wantSchema || first != c.wantScript {
				t.Errorf("the schema ended %q, the script %q", schema, first)
			}
			apart := b
			apart.Schema, b.Validators = nil, nil
			schema, _ := ask(b)
			if (schema == script.Quarantined) != (c.held == "schema") {
				t.Errorf("then the schema ended %q", schema)
			}
			if _, first := ask(apart); (first == script.Quarantined) != (c.held == "script") {
				t.Errorf("then the script ended %q", first)
			}
		})
	}
}
