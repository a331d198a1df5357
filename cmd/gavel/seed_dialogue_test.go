package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge/llmtest"
	"github.com/gavel-mcp/gavel/testdata"
)

// seedModel starts a scripted endpoint. It returns the endpoint and the arguments of a server that uses it.
func seedModel(t *testing.T, brain llmtest.Brain) (*llmtest.Provider, []string) {
	t.Helper()
	provider := llmtest.New(llmtest.OpenAI(), brain)
	endpoint := httptest.NewServer(provider)
	t.Cleanup(endpoint.Close)
	return provider, []string{"--store", "memory", "--tool-names", "dotted", "--llm-base-url", endpoint.URL, "--llm-model", "m"}
}

// withModelBlock returns an example of the Generic DFA server with the block from its page's "Using LLM Judge". It
// has no scripts, which would refuse before the model is asked.
func withModelBlock(t *testing.T, name string) object {
	t.Helper()
	raw, err := testdata.Workflows.ReadFile("workflows/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	definition := object{}
	if err := json.Unmarshal(raw, &definition); err != nil {
		t.Fatal(err)
	}
	delete(definition, "transitionValidators")
	definition["judgeConfig"] = object{"enabled": true, "useLLM": true, "strictMode": true, "minConfidence": 0.8}
	return definition
}

// The examples of the Generic DFA server work with its model block, including moves without data. If the context
// is empty, the model is not asked; otherwise it judges the context.
func TestMovesWithoutDataPlayWithAModel(t *testing.T) {
	t.Parallel()
	provider, args := seedModel(t, llmtest.Approver)
	s := launch(t, args...)
	for name, actions := range map[string][]string{
		"todo-tracker":        {"start", "pause", "resume", "complete"},
		"deployment-pipeline": {"deploy", "success", "pass"},
		"form-wizard":         {"next", "next", "submit", "success"},
		"approval-process":    {"submit", "approve"},
		"code-review":         {"assign", "request_changes", "resubmit", "approve"},
	} {
		defined := s.must("workflow.define", withModelBlock(t, name))
		if issues, _ := defined.Body["warnings"].([]any); len(issues) == 0 {
			t.Errorf("%s: nothing says that a move may leave the model nothing to judge", name)
		}
		for _, start := range []struct {
			context   object
			decidedBy string
			asked     int
		}{{object{}, "transition", 0}, {object{"title": "Buy milk and bread", "number": 7}, "model", len(actions)}} {
			before := provider.Count()
			id := s.must("workflow.start", object{"type": name, "context": start.context}).field("id")
			for _, action := range actions {
				moved := s.must("workflow.advance", object{"id": id, "action": action})
				decision, _ := moved.Body["decision"].(object)
				if decision["decidedBy"] != start.decidedBy {
					t.Errorf("%s, %s: %v", name, action, decision)
				}
			}
			if status := s.must("workflow.status", object{"id": id}); status.Body["complete"] != true || provider.Count()-before != start.asked {
				t.Errorf("%s: %v after %d questions", name, status.Body, provider.Count()-before)
			}
		}
	}
}

// The Generic DFA server's page shows `approve {}` twice: its structural judge refuses with the validator's
// reason, its model with richer words and suggestions. Both work here, the second with an endpoint that answers in
// that server's format.
func TestApproveDialoguesPlay(t *testing.T) {
	t.Parallel()
	_, args := seedModel(t, llmtest.Says(`{"approved": false, "confidence": 0.95,
		"reasoning": "Approval without comments lacks accountability. In document review workflows, approvals should include: 1) What was reviewed, 2) Key findings, 3) Any conditions. This creates an audit trail.",
		"violations": ["Approval without comments lacks accountability."],
		"suggestions": ["Add detailed approval comments", "Include review findings", "Mention any follow-up requirements"]}`))
	s := launch(t, args...)
	asWritten, err := testdata.Workflows.ReadFile("workflows/document-review.json")
	if err != nil {
		t.Fatal(err)
	}
	withModel := withModelBlock(t, "document-review")
	withModel["name"] = "document-review-model"
	// The model would refuse this step too. The dialogue is about the next one.
	withModel["states"].(object)["draft"] = object{"transitions": object{"submit": object{"target": "reviewing", "useLLM": false}}}
	s.define(string(asWritten))
	s.must("workflow.define", withModel)
	for workflow, want := range map[string]struct {
		decidedBy string
		says      []string
	}{
		"document-review":       {"script", []string{"Detailed comments required"}},
		"document-review-model": {"model", []string{"lacks accountability", "This creates an audit trail", "Add detailed approval comments", "Mention any follow-up requirements"}},
	} {
		id := s.must("workflow.start", object{"type": workflow, "context": object{"documentId": "DOC-7", "reviewer": "ann"}}).field("id")
		s.must("workflow.advance", object{"id": id, "action": "submit"})
		for _, tool := range []string{"workflow.judge.validate", "workflow.advance"} {
			r := s.call(tool, object{"id": id, "action": "approve", "data": object{}})
			decision, _ := r.Body["decision"].(object)
			if r.IsError != (tool == "workflow.advance") || decision["outcome"] != "reject" || decision["decidedBy"] != want.decidedBy {
				t.Errorf("%s, %s: %s", workflow, tool, r.Raw)
			}
			for _, text := range want.says {
				if !strings.Contains(fmt.Sprint(r.Body), text) {
					t.Errorf("%s, %s: %q is not in %v", workflow, tool, text, r.Body)
				}
			}
		}
	}
}
