package workflow_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// A key that holds an instance until a call of a gate was made.
func init() {
	workflow.AddStateKey(workflow.StateKey{
		Name: "awaits", Doc: "What an instance waits for.", About: "A call that must be made first.",
		Keys: []workflow.ObjectKey{
			{Name: "gate", Doc: "The gate.", Shape: `{"type":"string","minLength":1,"maxLength":128}`},
			{Name: "comment", Doc: "A note.", Shape: `{"type":"string"}`},
		},
		Required: []string{"gate"},
		Parse: func(r *workflow.StateReader) any {
			if n := r.Value("comment"); r.String("comment") == "bad" {
				r.Reject(n, "a bad comment")
			}
			return r.Label("gate")
		},
		FindHold: func(gate any, s *workflow.State, f workflow.Facts) *workflow.Hold {
			if f.CallsMade(gate.(string)) > 0 {
				return nil
			}
			return &workflow.Hold{Gate: gate.(string), Finding: validators.Finding{Code: "awaited", Message: s.Name + " waits."}}
		},
		Rules: []workflow.Rule{workflow.NewRule("awaits-never", workflow.SeverityWarning, "A state waits for never.", func(d *workflow.Definition, operator bool, report func(string, string, ...any)) {
			for _, name := range d.StateNames {
				if d.States[name].Added["awaits"] == "never" {
					report(string(document.PointerOf("states", name, "awaits")), "%q waits, and the owner is an operator: %v", name, operator)
				}
			}
		})},
		Codes: []workflow.CodeInfo{{Code: "awaited", Meaning: "A state waits.", Do: "Wait."}},
	})
}

func TestAddedKey(t *testing.T) {
	d := parse(t, machine("", `"awaits":{"gate":"g"}`, "", "", ""))
	h := d.FindHold("a", workflow.Facts{})
	if h == nil || h.Gate != "g" || h.Finding.Message != "a waits." {
		t.Errorf("%+v", h)
	}
	for _, state := range []string{"b", "unknown"} {
		if h := d.FindHold(state, workflow.Facts{}); h != nil {
			t.Errorf("%s: %+v", state, h)
		}
	}
	find := func(gate string, moves bool) bool {
		out := d.FindCallObstacles(workflow.CallRule{Gate: gate, States: []string{"a"}, Moves: moves}, "a", "", workflow.Facts{}, document.JSON{}, document.JSON{})
		return slices.ContainsFunc(out, func(f validators.Finding) bool { return f.Code == "awaited" })
	}
	if !find("other", true) || find("g", true) || find("other", false) {
		t.Error("only a call of the gate, or one that moves nothing, is free of the hold")
	}
	if !slices.ContainsFunc(workflow.Codes, func(c workflow.CodeInfo) bool { return c.Code == "awaited" }) {
		t.Error("the code is not documented")
	}
	for doc, rule := range map[string]string{
		`"awaits":{}`: "missing", `"awaits":{"gate":""}`: "value", `"awaits":{"gate":"g","comment":"bad"}`: "value", `"awaits":{"gate":"g","more":1}`: "unknown-key",
	} {
		_, err := workflow.Parse("test", []byte(machine("", doc, "", "", "")))
		if pe, ok := errors.AsType[*workflow.ParseError](err); !ok || len(pe.Issues) != 1 || pe.Issues[0].Rule != rule {
			t.Errorf("%s: %v", doc, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a key was added twice")
		}
	}()
	workflow.AddStateKey(workflow.StateKey{Name: "awaits"})
}
