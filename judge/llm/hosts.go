package llm

import (
	"net/url"
	"strings"
)

// dialect is how an endpoint is told how much to think.
type dialect string

const (
	dialectTemplate   dialect = "chat_template_kwargs" // vLLM, SGLang, llama.cpp and whatever is unknown
	dialectEffort     dialect = "reasoning_effort"
	dialectReasoning  dialect = "reasoning" // OpenRouter's object
	dialectDeepSeek   dialect = "thinking"  // a switch, with reasoning_effort beside it
	dialectAnthropic  dialect = "budget"    // a switch with a budget of tokens
	dialectEnableFlag dialect = "enable_thinking"
)

// host is what is known of an endpoint before it was asked anything. What is wrong
// or missing here costs a call of negotiation, never an answer.
type host struct {
	// name is a whole host name or, with a dot before it, the end of one.
	name string
	// base is the path of the API, for users who leave it out.
	base string
	// start is the rung to try first.
	start Rung
	// thinking is how thinking is set; efforts are the values that it takes, "" for all.
	thinking dialect
	efforts  string
	// completionTokens: the bound is max_completion_tokens, not max_tokens.
	completionTokens bool
	// strictTools: tool calls can be held to their schema with "strict".
	strictTools bool
	// omit are parameters that are known to be refused.
	omit []string
}

// hosts are the endpoints whose documentation says how they differ.
var hosts = []host{
	{name: "api.openai.com", base: "/v1", thinking: dialectEffort, completionTokens: true, strictTools: true},
	{name: ".api.openai.com", base: "/v1", thinking: dialectEffort, completionTokens: true, strictTools: true},
	{name: ".openai.azure.com", base: "/openai/v1", thinking: dialectEffort, completionTokens: true, strictTools: true},
	{name: ".services.ai.azure.com", base: "/openai/v1", thinking: dialectEffort, completionTokens: true, strictTools: true},
	// Anthropic's compatible endpoint accepts response_format and ignores it.
	{name: "api.anthropic.com", base: "/v1", start: RungTool, thinking: dialectAnthropic},
	{name: "generativelanguage.googleapis.com", base: "/v1beta/openai", thinking: dialectEffort, efforts: "none minimal low medium high"},
	{name: "openrouter.ai", base: "/api/v1", thinking: dialectReasoning, efforts: "none minimal low medium high xhigh"},
	{name: "api.groq.com", base: "/openai/v1", thinking: dialectEffort, efforts: "none low medium high", completionTokens: true},
	// DeepSeek has no json_schema; its documented base has no path, /v1 works as well.
	{name: "api.deepseek.com", base: "", start: RungJSONObject, thinking: dialectDeepSeek},
	// Mistral's seed is called random_seed, and seed is refused.
	{name: "api.mistral.ai", base: "/v1", thinking: dialectEffort, efforts: "none high", omit: []string{"seed"}},
	{name: "api.x.ai", base: "/v1", thinking: dialectEffort, efforts: "none low medium high"},
	{name: "api.fireworks.ai", base: "/inference/v1", thinking: dialectEffort, efforts: "none low medium high"},
	{name: "api.deepinfra.com", base: "/v1/openai", thinking: dialectEffort, efforts: "none low medium high"},
	{name: "dashscope.aliyuncs.com", base: "/compatible-mode/v1", thinking: dialectEnableFlag},
	{name: "dashscope-intl.aliyuncs.com", base: "/compatible-mode/v1", thinking: dialectEnableFlag},
	{name: "ollama.com", base: "/v1", thinking: dialectEffort, efforts: "none low medium high"},
}

// ollamaPort is where Ollama listens wherever it was not told otherwise.
const ollamaPort = "11434"

// hostOf returns what is known of the host of a base URL.
func hostOf(u *url.URL) host {
	name := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	known := host{base: "/v1", thinking: dialectTemplate, efforts: "low medium high"}
	if u.Port() == ollamaPort {
		known = host{base: "/v1", thinking: dialectEffort, efforts: "none low medium high"}
	}
	for _, h := range hosts {
		if h.name == name || h.name[0] == '.' && strings.HasSuffix(name, h.name) {
			known = h
			break
		}
	}
	if known.start == "" {
		known.start = RungJSONSchema
	}
	return known
}

// startFor is the rung to try first with a model.
func (h host) startFor(m Model) Rung {
	switch {
	case m.Rung != "":
		return m.Rung
	case h.thinking == dialectAnthropic && m.isThinking():
		// Thinking and a forced tool exclude each other there.
		return RungJSONObject
	}
	return h.start
}

// omittedParameters are the parameters not to send to a model in the first place.
func (h host) omittedParameters(m Model) []string {
	if h.thinking == dialectAnthropic && m.isThinking() {
		return append([]string{"temperature"}, h.omit...) // only 1 is allowed then
	}
	return h.omit
}
