package llmtest

import (
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// Working is a provider that works, and what a client learns about it.
type Working struct {
	Name        string
	Personality Personality
	// Rung and Dropped are the final settings. Requests is the number of requests for the first question.
	Rung     llm.Rung
	Dropped  []string
	Requests int
}

// Providers returns the personalities of working providers.
func Providers() []Working {
	return []Working{
		{Name: "OpenAI", Personality: OpenAI(), Rung: llm.RungJSONSchema, Requests: 1},
		{Name: "OpenAI reasoning", Personality: Reasoning(), Rung: llm.RungJSONSchema, Dropped: []string{"temperature", "max_tokens"}, Requests: 3},
		{Name: "Azure with filters", Personality: Azure(), Rung: llm.RungJSONSchema, Requests: 1},
		{Name: "Anthropic compat", Personality: AnthropicCompat(), Rung: llm.RungTool, Requests: 2},
		{Name: "Gemini compat", Personality: Gemini(), Rung: llm.RungJSONSchema, Requests: 1},
		{Name: "Ollama thinking", Personality: Ollama(), Rung: llm.RungJSONSchema, Requests: 1},
		{Name: "vLLM without a reasoning parser", Personality: VLLM(), Rung: llm.RungJSONObject, Requests: 3},
		{Name: "vLLM", Personality: VLLMParsed(), Rung: llm.RungJSONSchema, Requests: 1},
		{Name: "LM Studio", Personality: LMStudio(), Rung: llm.RungJSONSchema, Requests: 1},
		{Name: "llama.cpp", Personality: LlamaCpp(), Rung: llm.RungJSONSchema, Requests: 2},
		{Name: "llama-cpp-python", Personality: LlamaCppPython(), Rung: llm.RungTool, Dropped: []string{"tool_choice=required"}, Requests: 3},
		{Name: "DeepSeek", Personality: DeepSeek(), Rung: llm.RungJSONObject, Requests: 3},
		{Name: "OpenRouter", Personality: OpenRouter(), Rung: llm.RungJSONSchema, Requests: 2},
		{Name: "LiteLLM proxy", Personality: LiteLLM(), Rung: llm.RungJSONSchema, Requests: 2},
		{Name: "Groq without schemas", Personality: Groq(), Rung: llm.RungTool, Requests: 2},
		{Name: "Mistral", Personality: Mistral(), Rung: llm.RungJSONSchema, Dropped: []string{"seed"}, Requests: 2},
		{Name: "prompt only", Personality: PromptOnly(), Rung: llm.RungPrompt, Requests: 4},
	}
}

// OpenRouter answers 200 with an error while its upstream provider is down, here for the first request.
func OpenRouter() Personality {
	return Then(1, Always(jsonResponse(200, map[string]any{"error": map[string]any{
		"message": "Provider returned error", "code": 502, "metadata": map[string]any{"raw": "upstream connect error", "provider_name": "Example"},
	}})), OpenAI())
}

// LiteLLM forwards upstream answers; the first one has no choices.
func LiteLLM() Personality {
	return Then(1, Always(jsonResponse(200, map[string]any{
		"id": "chatcmpl-0", "object": "chat.completion", "created": 1790000000, "model": "reported-model", "choices": []any{},
	})), LiteLLMProxy())
}

// Reasoning is one of OpenAI's reasoning models: it accepts no temperature, and has another name for the
// answer's token limit.
func Reasoning() Personality {
	return func(q Question, think func() Thought) Response {
		switch {
		case q.has("temperature"):
			return errorResponse(400, "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.", "invalid_request_error", "unsupported_value", "temperature")
		case q.has("max_tokens"):
			return errorResponse(400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "invalid_request_error", "unsupported_parameter", "max_tokens")
		}
		return formResponse(q, think())
	}
}

// Azure annotates every answer with its content filters, and rejects prompts that look like a jailbreak.
func Azure() Personality {
	return func(q Question, think func() Thought) Response {
		if strings.Contains(strings.ToLower(q.User), "jailbreak") {
			return jsonResponse(400, map[string]any{"error": map[string]any{
				"message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
				"code":    "content_filter", "param": "prompt", "status": 400,
				"innererror": map[string]any{"code": "ResponsibleAIPolicyViolation", "content_filter_result": map[string]any{"jailbreak": map[string]any{"filtered": true, "detected": true}}},
			}})
		}
		r := formResponse(q, think())
		r.Body = strings.Replace(r.Body, `"finish_reason"`, `"content_filter_results":{"hate":{"filtered":false,"severity":"safe"},"protected_material_code":[]},"finish_reason"`, 1)
		return r
	}
}

// AnthropicCompat accepts every parameter and ignores most. Unless a tool is required, the answer is wrapped
// in prose.
func AnthropicCompat() Personality {
	return func(q Question, think func() Thought) Response {
		t := think()
		if q.Rung == llm.RungTool {
			return toolCallResponse(t.text(q, ""))
		}
		return completionResponse("Here is my assessment:\n\n```json\n"+t.text(q, q.Nonce)+"\n```", "stop", nil)
	}
}

// Gemini sends its errors as lists.
func Gemini() Personality {
	return func(q Question, think func() Thought) Response {
		if q.has("seed") && q.Raw["seed"] != float64(0) {
			return jsonResponse(400, []any{map[string]any{"error": map[string]any{"code": 400, "message": "Invalid JSON payload received. Unknown name \"seed\"", "status": "INVALID_ARGUMENT"}}})
		}
		return formResponse(q, think())
	}
}

// LMStudio accepts only json_schema and text, and answers 200 to a wrong path.
func LMStudio() Personality {
	return func(q Question, think func() Thought) Response {
		if !strings.HasPrefix(q.Path, "/v1/") {
			return jsonResponse(200, map[string]any{"error": fmt.Sprintf("Unexpected endpoint or method. (POST %s)", q.Path)})
		}
		if q.Rung == llm.RungJSONObject {
			return jsonResponse(400, map[string]any{"error": "'response_format.type' must be 'json_schema' or 'text'"})
		}
		return formResponse(q, think())
	}
}

// LlamaCpp is still loading its model at the first request, and treats a tool choice that is an object as
// none.
func LlamaCpp() Personality {
	loading := jsonResponse(503, map[string]any{"error": map[string]any{"code": 503, "message": "Loading model", "type": "unavailable_error"}})
	return Then(1, Always(loading), func(q Question, think func() Thought) Response {
		if _, object := q.Raw["tool_choice"].(map[string]any); object {
			return completionResponse("I approve.", "stop", nil)
		}
		return formResponse(q, think())
	})
}

// LlamaCppPython answers 500 if it cannot parse a request, and makes the model call a tool only if the tool is
// named. llama-cpp-python 0.3.36 does this.
func LlamaCppPython() Personality {
	return func(q Question, think func() Thought) Response {
		_, named := q.Raw["tool_choice"].(map[string]any)
		switch {
		case q.Rung == llm.RungJSONSchema:
			return errorResponse(500, "1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': \"Input should be 'text' or 'json_object'\", 'input': 'json_schema', 'ctx': {'expected': \"'text' or 'json_object'\"}}\n\n  File \"/app/llama_cpp/server/app.py\", line 460, in create_chat_completion\n    POST /v1/chat/completions", "internal_server_error", "", "")
		case q.Rung == llm.RungTool && !named:
			return completionResponse("The documents say what was read, so I think that the step is fine.", "stop", nil)
		}
		return formResponse(q, think())
	}
}

// DeepSeek has JSON mode, but neither schemas nor, in this simulation, tools.
func DeepSeek() Personality {
	return func(q Question, think func() Thought) Response {
		switch q.Rung {
		case llm.RungJSONSchema:
			return errorResponse(400, "This response_format type is unavailable now: json_schema is not supported", "invalid_request_error", "invalid_request_error", "")
		case llm.RungTool:
			return errorResponse(400, "deepseek-reasoner does not support this tool_choice", "invalid_request_error", "invalid_request_error", "")
		case llm.RungJSONObject, llm.RungPrompt:
		}
		return completionResponse(think().text(q, q.Nonce), "stop", map[string]any{"reasoning_content": "thinking"})
	}
}

// Groq rejects schemas for most models.
func Groq() Personality {
	return func(q Question, think func() Thought) Response {
		if q.Rung == llm.RungJSONSchema {
			return errorResponse(400, "This model does not support response format `json_schema`. See supported models.", "invalid_request_error", "", "")
		}
		return formResponse(q, think())
	}
}

// Mistral has another name for the seed and rejects ours.
func Mistral() Personality {
	return func(q Question, think func() Thought) Response {
		if q.has("seed") {
			return jsonResponse(422, map[string]any{"detail": []any{map[string]any{"type": "extra_forbidden", "loc": []any{"body", "seed"}, "msg": "Extra inputs are not permitted", "input": 0}}})
		}
		return formResponse(q, think())
	}
}
