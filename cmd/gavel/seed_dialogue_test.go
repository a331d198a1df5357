package main

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/gavel-mcp/gavel/judge/llmtest"
	"github.com/gavel-mcp/gavel/testdata"
)

// seedModel is a scripted endpoint, with the arguments of a server that asks it.
func seedModel(t *testing.T, brain llmtest.Brain) (*llmtest.Provider, []string) {
	t.Helper()
	provider := llmtest.New(llmtest.OpenAI(), brain)
	endpoint := httptest.NewServer(provider)
	t.Cleanup(endpoint.Close)
	return provider, []string{"--store", "memory", "--tool-names", "dotted", "--llm-base-url", endpoint.URL, "--llm-model", "m"}
}

// withModelBlock is an example of the Generic DFA server with the block of its page's "Using LLM
// Judge" added, and without scripts, which would refuse before the model is asked.
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

// The examples of the Generic DFA server play with its model block, moves without data included:
// on an empty context the model is not asked, on another it judges that.
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
