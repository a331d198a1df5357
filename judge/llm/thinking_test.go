package llm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidThinking(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "off", "none", "minimal", "low", "medium", "high", "xhigh", "max", "auto"} {
		if err := ValidThinking(mode); err != nil {
			t.Errorf("ValidThinking(%q) = %v", mode, err)
		}
	}
	for _, mode := range []string{"on", "Off", "low ", "true", "0", "very high"} {
		err := ValidThinking(mode)
		if err == nil {
			t.Errorf("ValidThinking(%q) = nil", mode)
			continue
		}
		for _, allowed := range []string{"off", "none", "minimal", "low", "medium", "high", "xhigh", "max", "auto"} {
			if !strings.Contains(err.Error(), allowed) {
				t.Errorf("ValidThinking(%q) = %v, which does not name %s", mode, err, allowed)
			}
		}
	}
}

func TestThinks(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]bool{
		"": false, "auto": false, "off": false, "none": false,
		"minimal": true, "low": true, "medium": true, "high": true, "xhigh": true, "max": true,
	} {
		if got := (Model{Thinking: mode}).isThinking(); got != want {
			t.Errorf("thinks with %q = %v, want %v", mode, got, want)
		}
	}
}

// Each row has the parameters about thinking that are sent for a provider and mode, byte for byte.
func TestThinkingOnTheWire(t *testing.T) {
	t.Parallel()
	const (
		openAI     = "https://api.openai.com"
		azure      = "https://r.openai.azure.com"
		anthropic  = "https://api.anthropic.com"
		gemini     = "https://generativelanguage.googleapis.com"
		openRouter = "https://openrouter.ai"
		groq       = "https://api.groq.com"
		deepSeek   = "https://api.deepseek.com"
		mistral    = "https://api.mistral.ai"
		dashScope  = "https://dashscope.aliyuncs.com"
		ollama     = "http://localhost:11434"
		vllm       = "http://localhost:8000"
	)
	cases := []struct {
		base, mode string
		want       map[string]string
	}{
		{openAI, "", nil},
		{openAI, "auto", nil},
		{openAI, "off", map[string]string{"reasoning_effort": `"none"`}},
		{openAI, "none", map[string]string{"reasoning_effort": `"none"`}},
		{openAI, "minimal", map[string]string{"reasoning_effort": `"minimal"`}},
		{openAI, "xhigh", map[string]string{"reasoning_effort": `"xhigh"`}},
		{openAI, "max", map[string]string{"reasoning_effort": `"max"`}},
		{azure, "medium", map[string]string{"reasoning_effort": `"medium"`}},
		{anthropic, "auto", nil},
		{anthropic, "off", map[string]string{"thinking": `{"type":"disabled"}`}},
		{anthropic, "minimal", map[string]string{"thinking": `{"type":"enabled","budget_tokens":1024}`}},
		{anthropic, "low", map[string]string{"thinking": `{"type":"enabled","budget_tokens":2048}`}},
		{anthropic, "medium", map[string]string{"thinking": `{"type":"enabled","budget_tokens":4096}`}},
		{anthropic, "max", map[string]string{"thinking": `{"type":"enabled","budget_tokens":6144}`}},
		{gemini, "off", map[string]string{"reasoning_effort": `"none"`}},
		{gemini, "minimal", map[string]string{"reasoning_effort": `"minimal"`}},
		{gemini, "max", map[string]string{"reasoning_effort": `"high"`}},
		{openRouter, "", nil},
		{openRouter, "off", map[string]string{"reasoning": `{"effort":"none"}`}},
		{openRouter, "low", map[string]string{"reasoning": `{"effort":"low"}`}},
		{openRouter, "max", map[string]string{"reasoning": `{"effort":"xhigh"}`}},
		{groq, "minimal", map[string]string{"reasoning_effort": `"low"`}},
		{deepSeek, "auto", nil},
		{deepSeek, "off", map[string]string{"thinking": `{"type":"disabled"}`}},
		{deepSeek, "low", map[string]string{"thinking": `{"type":"enabled"}`, "reasoning_effort": `"low"`}},
		{deepSeek, "max", map[string]string{"thinking": `{"type":"enabled"}`, "reasoning_effort": `"max"`}},
		{mistral, "off", map[string]string{"reasoning_effort": `"none"`}},
		{mistral, "minimal", map[string]string{"reasoning_effort": `"high"`}},
		{mistral, "low", map[string]string{"reasoning_effort": `"high"`}},
		{dashScope, "none", map[string]string{"enable_thinking": `false`}},
		{dashScope, "high", map[string]string{"enable_thinking": `true`}},
		{ollama, "off", map[string]string{"reasoning_effort": `"none"`}},
		{ollama, "minimal", map[string]string{"reasoning_effort": `"low"`}},
		{ollama, "xhigh", map[string]string{"reasoning_effort": `"high"`}},
		{vllm, "auto", nil},
		{vllm, "off", map[string]string{"chat_template_kwargs": `{"enable_thinking":false}`}},
		{vllm, "minimal", map[string]string{"chat_template_kwargs": `{"enable_thinking":true}`, "reasoning_effort": `"low"`}},
		{vllm, "max", map[string]string{"chat_template_kwargs": `{"enable_thinking":true}`, "reasoning_effort": `"high"`}},
	}
	for _, c := range cases {
		t.Run(c.base+" "+c.mode, func(t *testing.T) {
			t.Parallel()
			e := mustEndpoint(t, Model{ID: "m", BaseURL: c.base, Thinking: c.mode}, Config{})
			sent := sentBy(t, e, testRequest())
			got := map[string]string{}
			for _, p := range thinkingParams {
				if v, ok := sent[p]; ok {
					got[p] = string(v)
				}
			}
			if c.want == nil {
				c.want = map[string]string{}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
		})
	}
}

func TestThinkingChangesOtherParameters(t *testing.T) {
	t.Parallel()
	on := sentBy(t, mustEndpoint(t, Model{ID: "m", BaseURL: "https://api.anthropic.com", Thinking: "low"}, Config{MaxTokens: 100}), testRequest())
	for _, absent := range []string{"temperature", "tools", "tool_choice"} {
		if v, ok := on[absent]; ok {
			t.Errorf("Anthropic with thinking: %s = %s is sent, which excludes thinking there", absent, v)
		}
	}
	if got := string(on["max_tokens"]); got != "2048" {
		t.Errorf("Anthropic with thinking: max_tokens = %s, want 2048, more than the least budget", got)
	}
	off := sentBy(t, mustEndpoint(t, Model{ID: "m", BaseURL: "https://api.anthropic.com"}, Config{}), testRequest())
	if string(off["temperature"]) != "0" || string(off["tool_choice"]) != `"required"` || string(off["max_tokens"]) != "1024" {
		t.Errorf("Anthropic without thinking: %s", mustJSON(t, off))
	}
	deep := sentBy(t, mustEndpoint(t, Model{ID: "m", BaseURL: "https://x.example", Thinking: "high"}, Config{}), testRequest())
	if string(deep["max_tokens"]) != "8192" {
		t.Errorf("thinking: max_tokens = %s, want 8192", deep["max_tokens"])
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
