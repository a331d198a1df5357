package workflow_test

import (
	"encoding/json"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// The requirements of an action are known before it is tried: the fields that its data must have,
// and what else the move depends on.
func TestDescribeActions(t *testing.T) {
	t.Parallel()
	d, err := workflow.Parse("next.yaml", []byte(`
name: next
initialState: open
states:
  open:
    transitions:
      plain: { target: done }
      fields: { target: done, requiredFields: [why, /deep/er] }
      schema: { target: done, requiredFields: [why], schema: { type: object, required: [why, n], properties: { n: { type: number } } } }
      state: review
      both: { target: review, requiredFields: [author] }
      either: [{ condition: 'data.big', target: review }, { condition: 'true', target: signed }]
      maybe: [{ condition: 'data.big', target: review }, { condition: 'true', target: done }]
      proven: { target: done, evidence: [{ name: tests, source: tests }] }
      judged: { target: done, useLLM: true }
      risky: { target: done, useLLM: true, risk: high }
      human: { target: done, requireAssurance: human }
      unreachable: { target: done, requireAssurance: llm }
      guarded: { target: done, writes: [note] }
      silent: { target: done, writes: [] }
      shadowed: { target: done, requireAssurance: human, mode: shadow }
  review: { transitions: { finish: done } }
  signed: { transitions: { finish: done } }
  done: { final: true }
stateValidators:
  review: { requiredFields: [author, title], schema: { required: [kind] } }
  signed: { requiredFields: [author, signature] }
`))
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	for _, c := range []struct {
		action, context string
		overlays        []workflow.Overlay
		want            string
	}{
		{action: "plain", want: `{"action":"plain"}`},
		{action: "fields", want: `{"action":"fields","requires":["why","/deep/er"]}`},
		{action: "fields", context: `{"why":"in the context, and not in the data"}`, want: `{"action":"fields","requires":["why","/deep/er"]}`},
		{action: "schema", want: `{"action":"schema","requires":["why","n"]}`},
		{action: "state", want: `{"action":"state","requires":["author","title","kind"]}`},
		{action: "state", context: `{"author":"ada","title":" ","kind":null}`, want: `{"action":"state","requires":["title"]}`},
		{action: "both", context: `{"author":"ada","title":"t","kind":1}`, want: `{"action":"both","requires":["author"]}`},
		{action: "either", want: `{"action":"either","requires":["author"]}`},
		{action: "maybe", want: `{"action":"maybe"}`},
		{action: "proven", want: `{"action":"proven","needs":["evidence"]}`},
		{action: "judged", want: `{"action":"judged","needs":["model"]}`},
		{action: "plain", overlays: []workflow.Overlay{{Settings: workflow.JudgeSettings{UseLLM: &yes}}}, want: `{"action":"plain","needs":["model"]}`},
		{action: "risky", want: `{"action":"risky","needs":["model","person"]}`},
		{action: "human", want: `{"action":"human","needs":["person"]}`},
		{action: "unreachable", want: `{"action":"unreachable","needs":["person"]}`},
		{action: "guarded", want: `{"action":"guarded","writes":["note"]}`},
		{action: "silent", want: `{"action":"silent","writes":[]}`},
		{action: "shadowed", want: `{"action":"shadowed"}`},
	} {
		got, err := json.Marshal(d.DescribeActions("open", []string{c.action, "no such action"}, json.RawMessage(c.context), c.overlays))
		if err != nil || string(got) != "["+c.want+"]" {
			t.Errorf("%s with %s: %s %v\nwant %s", c.action, c.context, got, err, c.want)
		}
	}
}
