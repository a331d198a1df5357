package face_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// seedTool is a tool as the seed's README documents it.
type seedTool struct {
	tool             string
	inputs, optional []string
	outputs          []string
}

// seed lists the tools of the Generic DFA MCP server, with the inputs and outputs that its README documents. Its
// clients must find all of them, with the same meaning and without further required inputs.
var seed = []seedTool{
	{"workflow.define", []string{"name", "states", "initialState"}, []string{"description"}, nil},
	{"workflow.list", nil, nil, []string{"workflows", "count"}},
	{"workflow.start", []string{"type"}, []string{"context"}, []string{"id", "state", "nextActions", "progress"}},
	{"workflow.advance", []string{"id", "action"}, []string{"data"}, []string{"state", "nextActions", "progress", "complete"}},
	{"workflow.status", []string{"id"}, nil, []string{"state", "context", "nextActions", "progress", "complete"}},
	{"workflow.checkpoint", []string{"id"}, []string{"description", "metadata"}, []string{"checkpointId", "workflowId", "state", "timestamp", "description"}},
	{"workflow.rollback", []string{"id", "checkpointId"}, nil, []string{"state", "context", "nextActions", "progress", "message"}},
	{"workflow.listCheckpoints", []string{"id"}, nil, []string{"workflowId", "checkpoints", "count"}},
	{"workflow.judge.validate", []string{"id", "action"}, []string{"data"}, []string{"approved", "confidence", "reasoning", "violations", "suggestions"}},
	{"workflow.judge.config", []string{"name"}, []string{"enabled", "strictMode", "minConfidence"}, []string{"success", "message", "config"}},
	// Without an id it searches; a call without arguments is rejected, as the seed does.
	{"workflow.judge.history", nil, []string{"id"}, []string{"workflowId", "decisions", "count"}},
}

func TestSeedSchemas(t *testing.T) {
	w := serve(t, newEngine(t), withSchemas)
	w.hello("test")
	listed := map[string]map[string]any{}
	for _, tool := range w.list() {
		listed[tool["name"].(string)] = tool
	}
	for _, s := range seed {
		tool := listed[s.tool]
		if tool == nil {
			t.Errorf("%s is missing", s.tool)
			continue
		}
		input := tool["inputSchema"].(map[string]any)
		var required []string
		for _, r := range input["required"].([]any) {
			required = append(required, r.(string))
		}
		if want := s.inputs; !slices.Equal(slices.Sorted(slices.Values(required)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%s demands %v, the seed %v", s.tool, required, want)
		}
		for _, in := range slices.Concat(s.inputs, s.optional) {
			if input["properties"].(map[string]any)[in] == nil {
				t.Errorf("%s does not take %q", s.tool, in)
			}
		}
		for _, out := range s.outputs {
			if tool["outputSchema"].(map[string]any)["properties"].(map[string]any)[out] == nil {
				t.Errorf("%s does not declare %q", s.tool, out)
			}
		}
	}
}

// Makes the calls of the seed's README word for word, and checks each documented field in each answer.
func TestSeedCalls(t *testing.T) {
	w := serve(t, newEngine(t))
	w.hello("test")
	call := func(tool, arguments string) result {
		t.Helper()
		r := w.call(tool, arguments)
		if r.IsError {
			t.Fatalf("%s: %s", tool, r.text())
		}
		i := slices.IndexFunc(seed, func(s seedTool) bool { return s.tool == tool })
		for _, field := range seed[i].outputs {
			if v, ok := r.StructuredContent[field]; !ok || v == nil {
				t.Errorf("%s answers without %q: %s", tool, field, r.text())
			}
		}
		return r
	}
	call("workflow.define", documentReview)
	call("workflow.list", `{}`)
	id := call("workflow.start", `{"type":"document-review","context":{"pr_number":123}}`).StructuredContent["id"].(string)
	call("workflow.judge.validate", `{"id":"`+id+`","action":"submit","data":{}}`)
	call("workflow.advance", `{"id":"`+id+`","action":"submit","data":{"documentId":"D-1","reviewer":"ada"}}`)
	cp := call("workflow.checkpoint", `{"id":"`+id+`","description":"before","metadata":{"k":1}}`).StructuredContent["checkpointId"].(string)
	call("workflow.status", `{"id":"`+id+`"}`)
	call("workflow.listCheckpoints", `{"id":"`+id+`"}`)
	call("workflow.rollback", `{"id":"`+id+`","checkpointId":"`+cp+`"}`)
	call("workflow.judge.config", `{"name":"document-review","enabled":true,"strictMode":true,"minConfidence":0.9}`)
	if h := call("workflow.judge.history", `{"id":"`+id+`"}`); h.StructuredContent["count"] != 3.0 {
		t.Errorf("start, pre-check and submit are decisions: %s", h.text())
	}
}

const documentReview = `{"name":"document-review","description":"Document review with strict validation",
"states":{"draft":{"transitions":{"submit":"reviewing"}},"reviewing":{"transitions":{"approve":"approved","reject":"draft"}},"approved":{"final":true}},
"initialState":"draft","judgeConfig":{"enabled":true,"strictMode":true,"minConfidence":0.8},
"stateValidators":{"reviewing":{"requiredFields":["documentId","reviewer"]}},
"transitionValidators":{"approve":"(data, context) => ({ valid: data.comments?.length >= 20, confidence: 1.0, reason: 'Detailed comments required' })"}}`

// workflow.define takes the definition as its arguments: exactly the keys of the format.
func TestDefineTakesTheFormat(t *testing.T) {
	w := serve(t, newEngine(t))
	w.hello("test")
	var format struct {
		Properties map[string]any
		Required   []string
	}
	if err := json.Unmarshal(workflow.FormatSchema(), &format); err != nil {
		t.Fatal(err)
	}
	delete(format.Properties, "$schema") // for editors; allowed like every part of a document
	for _, tool := range w.list() {
		if tool["name"] != "workflow.define" {
			continue
		}
		input := tool["inputSchema"].(map[string]any)
		for key := range format.Properties {
			if input["properties"].(map[string]any)[key] == nil {
				t.Errorf("workflow.define does not take %q", key)
			}
		}
		for key := range input["properties"].(map[string]any) {
			if format.Properties[key] == nil {
				t.Errorf("workflow.define takes %q, which no definition has", key)
			}
		}
		if len(input["required"].([]any)) != len(format.Required) {
			t.Errorf("required: %v, the format has %v", input["required"], format.Required)
		}
	}
}
