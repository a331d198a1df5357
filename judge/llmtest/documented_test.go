package llmtest

import (
	"encoding/json"
	"strings"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// Bodies from the documentation of three servers, including everything around an answer. They also contain the
// model's thinking, with a verdict that must not be used. CONTENT, CALLS and FINISH are placeholders.
const (
	// docs.vllm.ai, reasoning outputs and tool calling (0.11): reasoning used to be called reasoning_content.
	// Unused members are null.
	vllmBody = `{"id":"chatcmpl-6f1c","object":"chat.completion","created":1790000000,"model":"Qwen/Qwen3-8B",
	"choices":[{"index":0,"message":{"role":"assistant","content":CONTENT,"refusal":null,"annotations":null,"audio":null,"function_call":null,
	"tool_calls":CALLS,"reasoning":"{\"approved\":false,\"confidence\":0.1}","reasoning_content":"{\"approved\":false,\"confidence\":0.1}"},
	"logprobs":null,"finish_reason":"FINISH","stop_reason":null,"token_ids":null}],
	"service_tier":null,"system_fingerprint":null,"usage":{"prompt_tokens":800,"total_tokens":900,"completion_tokens":100,"prompt_tokens_details":null},
	"prompt_logprobs":null,"prompt_token_ids":null,"kv_transfer_params":null}`

	// docs.ollama.com, OpenAI compatibility: the fingerprint is always the same.
	ollamaBody = `{"id":"chatcmpl-318","object":"chat.completion","created":1790000000,"model":"qwen3:8b","system_fingerprint":"fp_ollama",
	"choices":[{"index":0,"message":{"role":"assistant","content":CONTENT,"reasoning":"I first thought {\"approved\": false, \"confidence\": 0.1}.",
	"tool_calls":CALLS},"finish_reason":"FINISH"}],"usage":{"prompt_tokens":800,"completion_tokens":100,"total_tokens":900}}`

	// docs.litellm.ai, output and reasoning content: additions of the upstream provider also appear under
	// provider_specific_fields.
	liteLLMBody = `{"id":"chatcmpl-b2d0","created":1790000000,"model":"claude","object":"chat.completion","system_fingerprint":null,
	"choices":[{"finish_reason":"FINISH","index":0,"message":{"content":CONTENT,"role":"assistant","tool_calls":CALLS,"function_call":null,
	"reasoning_content":"{\"approved\":false,\"confidence\":0.1}",
	"thinking_blocks":[{"type":"thinking","thinking":"{\"approved\":false,\"confidence\":0.1}","signature":"c2ln"}],
	"provider_specific_fields":{"citations":null,"thinking_blocks":[{"type":"thinking","thinking":"{\"approved\":false,\"confidence\":0.1}","signature":"c2ln"}]}},
	"provider_specific_fields":{"native_finish_reason":"end_turn"}}],
	"usage":{"completion_tokens":100,"prompt_tokens":800,"total_tokens":900,"completion_tokens_details":{"reasoning_tokens":40},
	"prompt_tokens_details":{"audio_tokens":null,"cached_tokens":0},"cache_creation_input_tokens":0,"cache_read_input_tokens":0}}`
)

// VLLMParsed is vLLM with a reasoning parser. A call of the named tool has the finish reason stop.
func VLLMParsed() Personality { return answerIn(vllmBody, "[]", "stop") }

// Ollama sends tool_calls only if there are some; otherwise it is null here.
func Ollama() Personality { return answerIn(ollamaBody, "null", "tool_calls") }

// LiteLLMProxy forwards the answers of an upstream provider.
func LiteLLMProxy() Personality { return answerIn(liteLLMBody, "null", "tool_calls") }

func answerIn(body, noCalls, finishOfCall string) Personality {
	quoted := func(s string) string {
		raw, err := json.Marshal(s)
		if err != nil {
			panic("llmtest: " + err.Error()) // strings can always be marshalled
		}
		return string(raw)
	}
	return func(q Question, think func() Thought) Response {
		content, calls, finish := quoted(think().text(q, q.Nonce)), noCalls, "stop"
		if q.Rung == llm.RungTool {
			calls = `[{"id":"call_1","index":0,"type":"function","function":{"name":"` + llm.ToolName + `","arguments":` + quoted(think().text(q, "")) + `}}]`
			content, finish = `""`, finishOfCall
		}
		return Response{Status: 200, Header: jsonHeader(), Body: strings.NewReplacer("CONTENT", content, "CALLS", calls, "FINISH", finish).Replace(body)}
	}
}
