package judge_test

import (
	"encoding/json"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// An untrusted schema that hits a limit of the sandbox is a fault of the workflow, and
// distinguishable from data that does not match.
func TestASchemaThatCannotBeAppliedIsAFault(t *testing.T) {
	pool, err := script.NewPool(script.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := judge.New(judge.Config{Compiler: validators.NewCompiler(pool, validators.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	// Every level is tried twice, so 40 levels cost 2^40.
	deep := `{"$defs":{"x":{"anyOf":[{"properties":{"a":{"$ref":"#/$defs/x"}},"required":["z"]},{"properties":{"a":{"$ref":"#/$defs/x"}},"required":["y"]}]}},"$ref":"#/$defs/x"}`
	data := `{}`
	for range 40 {
		data = `{"a":` + data + `}`
	}
	empty := document.ReadTrusted([]byte(`{}`))
	v, err := p.Decide(t.Context(), judge.Case{
		Operation: judge.Advance, Owner: validators.Owner{ID: "stranger"}, Rubric: judge.DefaultRubric(),
		Checks:     validators.Checks{Schema: json.RawMessage(deep)},
		Candidates: []judge.Candidate{{Target: "b"}},
		Data:       document.ReadTrusted([]byte(data)), Context: empty, Merged: document.ReadTrusted([]byte(data)),
		MaskedData: document.ReadTrusted([]byte(data)), MaskedContext: empty, MaskedMerged: document.ReadTrusted([]byte(data)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if v.Outcome != judge.Reject || !v.Fault || v.DecidedBy != judge.LayerSchema || v.Code != judge.CodeValidatorError {
		t.Errorf("%s fault %v by %s code %s: %s", v.Outcome, v.Fault, v.DecidedBy, v.Code, v.Reasoning)
	}
}
