package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// Only an operator can lift the loop guard: over REST, over MCP and with the command. The guard applies to the
// refused instance and to no other.
func TestOperatorsLiftTheLoopGuard(t *testing.T) {
	t.Parallel()
	provider := llmtest.New(llmtest.OpenAI(), llmtest.Rejecter)
	endpoint := httptest.NewServer(provider)
	t.Cleanup(endpoint.Close)
	s := serveGavel(t, "--llm-base-url", endpoint.URL, "--llm-model", "m", "--no-reviews")
	s.must(s.owner, http.MethodPost, "/v1/definitions", `{"name":"pr","initialState":"open","judgeConfig":{"useLLM":true},
		"states":{"open":{"transitions":{"approve":{"target":"merged","criteria":["The tests pass"]}}},"merged":{"final":true}}}`)
	held := s.begin(s.agent, "pr")
	asked := 0
	try := func(id string) string { // the same data formatted differently, so that no cache matches
		asked++
		answer := s.must(s.agent, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"approve","data":{"merge_strategy":"squash`+strings.Repeat("!", asked)+`"}}`)
		decision, _ := answer["decision"].(object)
		code, _ := decision["code"].(string)
		return code
	}
	if code := s.mcp(s.agent, "workflow.judge.clear", `{"workflow":"pr"}`); code != "forbidden" {
		t.Errorf("the agent itself: %q", code)
	}
	for way, lift := range map[string]func(){
		"REST": func() { s.must(s.owner, http.MethodPost, "/v1/refusals/clear", `{"workflow":"pr","action":"approve"}`) },
		"MCP": func() {
			if code := s.mcp(s.owner, "workflow.judge.clear", `{"workflow":"pr"}`); code != "" {
				t.Errorf("MCP: %s", code)
			}
		},
		"CLI": func() {
			out := runGavel(t, "judge", "clear", "--workflow", "pr", "--server", s.url, "--token-file", tokenFile(t, s.owner))
			if !strings.Contains(string(out), "4 refusals cleared") {
				t.Errorf("CLI: %s", out)
			}
		},
	} {
		for range 3 {
			try(held)
		}
		before := provider.Count()
		if code := try(held); code != "loop_guard" || provider.Count() != before {
			t.Fatalf("%s: the fourth is %s after %d questions", way, code, provider.Count()-before)
		}
		if code := try(s.begin(s.agent, "pr")); code != "criterion_not_met" {
			t.Errorf("%s: another instance: %s", way, code)
		}
		before = provider.Count()
		lift()
		if code := try(held); code != "criterion_not_met" || provider.Count() != before+1 {
			t.Errorf("%s: lifted, and %s after %d questions", way, code, provider.Count()-before)
		}
		s.must(s.owner, http.MethodPost, "/v1/refusals/clear", `{"workflow":"pr"}`)
	}
}
