package chain

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

func TestLintOnEnter(t *testing.T) {
	t.Parallel()
	format, err := schema.Compile(workflow.FormatSchema())
	if err != nil {
		t.Fatal(err)
	}
	const one = `{"name":"w","initialState":"a","states":{"a":{"onEnter":%s,"transitions":{"go":"b"}},"b":{"final":true}}}`
	for _, row := range []struct {
		name, doc, issues, says string
		agent                   bool
	}{
		{name: "an agent's", doc: fmt.Sprintf(one, `{"chain":"c"}`), agent: true, issues: "chain-not-operator /states/a/onEnter", says: "only an operator's definition may do"},
		{name: "an operator's", doc: fmt.Sprintf(one, `{"chain":"c","input":{"x":"{{context.x}}"},"wait":true,"onSuccess":"go","onFailure":"go"}`)},
		{name: "an end that does nothing known", doc: fmt.Sprintf(one, `{"chain":"c","onSuccess":"gone"}`), issues: "unknown-chain-action /states/a/onEnter/onSuccess", says: `has no action "gone"`},
		{name: "an action after a final state", doc: `{"name":"w","initialState":"a","states":{"a":{"transitions":{"x":"b"}},"b":{"final":true,"onEnter":{"chain":"c","onFailure":"x"}}}}`, issues: "unknown-chain-action /states/b/onEnter/onFailure", says: "no action follows the chain"},
		{name: "a final state that waits", doc: `{"name":"w","initialState":"a","states":{"a":{"transitions":{"x":"b"}},"b":{"final":true,"onEnter":{"chain":"c","wait":true}}}}`, issues: "unknown-chain-action /states/b/onEnter/wait"},
		{
			name:   "chains without end",
			doc:    `{"name":"w","initialState":"a","states":{"a":{"onEnter":{"chain":"c","onFailure":"x"},"transitions":{"x":"b","end":"z"}},"b":{"onEnter":{"chain":"c","onSuccess":"y"},"transitions":{"y":"a"}},"z":{"final":true}}}`,
			issues: "chain-cycle /states/a/onEnter, chain-cycle /states/b/onEnter", says: `lead from "a" to "b" to "a"`,
		},
		{name: "a chain that is tried again by somebody", doc: `{"name":"w","initialState":"a","states":{"a":{"onEnter":{"chain":"c","onFailure":"x","onSuccess":"end"},"transitions":{"x":"b","end":"z","stay":"a"}},"b":{"transitions":{"y":"a"}},"z":{"final":true}}}`},
	} {
		d, err := workflow.Parse(row.name, []byte(row.doc))
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if wrong, err := format.Validate(document.ReadTrusted([]byte(row.doc))); err != nil || len(wrong) > 0 {
			t.Errorf("%s: the schema of the format rejects it: %v, %v", row.name, wrong, err)
		}
		issues, err := d.Lint(t.Context(), workflow.LintOptions{Compiler: &validators.Compiler{}, Owner: validators.Owner{ID: "test", Trusted: !row.agent}})
		if err != nil {
			t.Fatal(err)
		}
		var got, said []string
		for _, i := range issues {
			got, said = append(got, i.Rule+" "+i.Path), append(said, i.Message)
		}
		if strings.Join(got, ", ") != row.issues || !strings.Contains(strings.Join(said, "\n"), row.says) {
			t.Errorf("%s: %q, %q", row.name, got, said)
		}
	}
	for value, rule := range map[string]string{
		`{}`: "missing", `{"chain":1}`: "type", `{"chain":"a b"}`: "value", `{"chain":"c","input":[]}`: "type", `{"chain":"c","wait":"yes"}`: "type",
		`{"chain":"c","onSuccess":""}`: "value", `{"chain":"c","onFailure":""}`: "value", `{"chain":"c","then":"x"}`: "unknown-key",
	} {
		_, err := workflow.Parse("w", fmt.Appendf(nil, one, value))
		if wrong, ok := errors.AsType[*workflow.ParseError](err); !ok || len(wrong.Issues) != 1 || wrong.Issues[0].Rule != rule {
			t.Errorf("%s: %v", value, err)
		}
	}
}
