package llm

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// dialect is the request parameter by which an endpoint configures thinking.
type dialect string

const (
	dialectTemplate   dialect = "chat_template_kwargs" // vLLM, SGLang, llama.cpp and all unknown endpoints
	dialectEffort     dialect = "reasoning_effort"
	dialectReasoning  dialect = "reasoning" // OpenRouter's object
	dialectDeepSeek   dialect = "thinking"  // a switch, in addition to reasoning_effort
	dialectAnthropic  dialect = "budget"    // a switch with a budget of tokens
	dialectEnableFlag dialect = "enable_thinking"
)

// host describes an endpoint as known before the first call. A mistake here costs one negotiation call,
// never an answer.
type host struct {
	// name is a whole host name or, if it begins with a dot, a suffix.
	name string
	// base is the path of the API, used if the base URL has none.
	base string
	// start is the rung to try first.
	start Rung
	// thinking is how to configure thinking. efforts lists the accepted values; "" means all.
	thinking dialect
	efforts  string
	// completionTokens: the token limit is called max_completion_tokens instead of max_tokens.
	completionTokens bool
	// strictTools: "strict" makes tool calls follow their schema.
	strictTools bool
	// omit lists parameters that the host is known to reject.
	omit []string
}

var hosts = []host{
	{name: "api.openai.com", base: "/v1", thinking: dialectEffort, completionTokens: true, strictTools: true},
	{name: ".api.openai.com", base: "/v1", thinking: dialectEffort, completionTokens: true, strictTools: true},
	{name: ".openai.azure.com", base: "/openai/v1", thinking: dialectEffort, completionTokens: true, strictTools: true},
	{name: ".services.ai.azure.com", base: "/openai/v1", thinking: dialectEffort, completionTokens: true, strictTools: true},
	// Anthropic's compatible endpoint accepts response_format but ignores it.
	{name: "api.anthropic.com", base: "/v1", start: RungTool, thinking: dialectAnthropic},
	{name: "generativelanguage.googleapis.com", base: "/v1beta/openai", thinking: dialectEffort, efforts: "none minimal low medium high"},
	{name: "openrouter.ai", base: "/api/v1", thinking: dialectReasoning, efforts: "none minimal low medium high xhigh"},
	{name: "api.groq.com", base: "/openai/v1", thinking: dialectEffort, efforts: "none low medium high", completionTokens: true},
	// DeepSeek has no json_schema. Its documented base has no path; /v1 works as well.
	{name: "api.deepseek.com", base: "", start: RungJSONObject, thinking: dialectDeepSeek},
	// Mistral calls the seed random_seed and rejects seed.
	{name: "api.mistral.ai", base: "/v1", thinking: dialectEffort, efforts: "none high", omit: []string{"seed"}},
	{name: "api.x.ai", base: "/v1", thinking: dialectEffort, efforts: "none low medium high"},
	{name: "api.fireworks.ai", base: "/inference/v1", thinking: dialectEffort, efforts: "none low medium high"},
	{name: "api.deepinfra.com", base: "/v1/openai", thinking: dialectEffort, efforts: "none low medium high"},
	{name: "dashscope.aliyuncs.com", base: "/compatible-mode/v1", thinking: dialectEnableFlag},
	{name: "dashscope-intl.aliyuncs.com", base: "/compatible-mode/v1", thinking: dialectEnableFlag},
	{name: "ollama.com", base: "/v1", thinking: dialectEffort, efforts: "none low medium high"},
}

const ollamaPort = "11434"

func hostOf(u *url.URL) host {
	name := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	found := host{base: "/v1", thinking: dialectTemplate, efforts: "low medium high"}
	if u.Port() == ollamaPort {
		found = host{base: "/v1", thinking: dialectEffort, efforts: "none low medium high"}
	}
	for _, h := range hosts {
		if h.name == name || h.name[0] == '.' && strings.HasSuffix(name, h.name) {
			found = h
			break
		}
	}
	found.start = cmp.Or(found.start, RungJSONSchema)
	return found
}

func (h host) startFor(m Model) Rung {
	switch {
	case m.Rung != "":
		return m.Rung
	case h.thinking == dialectAnthropic && m.isThinking():
		// At Anthropic, thinking cannot be combined with a forced tool.
		return RungJSONObject
	}
	return h.start
}

func (h host) omittedParameters(m Model) []string {
	if h.thinking == dialectAnthropic && m.isThinking() {
		return append([]string{"temperature"}, h.omit...) // with thinking, only 1 is allowed
	}
	return h.omit
}

// Thinking modes that OpenAI's efforts do not include.
const (
	thinkingOff  = "off"
	thinkingAuto = "auto"
)

// efforts are the amounts of thinking, least first.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// ValidThinking returns nil if mode is valid for Model.Thinking. Otherwise it returns an error that lists the
// valid modes.
func ValidThinking(mode string) error {
	if mode == "" || mode == thinkingOff || mode == thinkingAuto || slices.Contains(efforts, mode) {
		return nil
	}
	return fmt.Errorf("thinking mode %q is not known; use %s, %s or %s (which leaves it to the endpoint)",
		mode, thinkingOff, strings.Join(efforts, ", "), thinkingAuto)
}

// effort returns "" if the endpoint decides.
func (m Model) effort() string {
	switch m.Thinking {
	case "", thinkingAuto:
		return ""
	case thinkingOff:
		return "none"
	}
	return m.Thinking
}

// isThinking reports whether the model will think, and so needs more time and tokens.
func (m Model) isThinking() bool {
	e := m.effort()
	return e != "" && e != "none"
}

func (h host) setThinking(m Model, at manner, bound int, w *wireRequest) {
	effort := m.effort()
	if effort == "" {
		return
	}
	on := effort != "none"
	switch h.thinking {
	case dialectEffort:
		w.ReasoningEffort = at.effortFor(h.nearestEffort(effort))
	case dialectReasoning:
		w.Reasoning = &wireReasoning{Effort: h.nearestEffort(effort)}
	case dialectDeepSeek:
		w.Thinking = &wireThinking{Type: "disabled"}
		if on {
			w.Thinking.Type = "enabled"
			w.ReasoningEffort = at.effortFor(h.nearestEffort(effort))
		}
	case dialectAnthropic:
		w.Thinking = &wireThinking{Type: "disabled"}
		if on {
			w.Thinking = &wireThinking{Type: "enabled", BudgetTokens: thinkingBudget(effort, bound)}
		}
	case dialectEnableFlag:
		w.EnableThinking = &on
	case dialectTemplate:
		w.ChatTemplateKwargs = map[string]any{"enable_thinking": on}
		if on {
			w.ReasoningEffort = at.effortFor(h.nearestEffort(effort))
		}
	}
}

func (h host) nearestEffort(want string) string {
	if h.efforts == "" {
		return want
	}
	at, best := slices.Index(efforts, want), ""
	for e := range strings.FieldsSeq(h.efforts) {
		if e == "none" && want != "none" {
			continue // never turn little thinking into none
		}
		if best == "" || effortDistance(e, at) < effortDistance(best, at) {
			best = e
		}
	}
	return best
}

func effortDistance(effort string, at int) int {
	d := slices.Index(efforts, effort) - at
	return max(d, -d)
}

// lowerEffort returns the effort to try after effort was rejected, or "". Models differ only at the ends of
// the scale.
func lowerEffort(effort string) string {
	switch effort {
	case "none", "minimal":
		return "low"
	case "xhigh", "max":
		return "high"
	}
	return ""
}

// minBudget is Anthropic's minimum.
const minBudget = 1024

// thinkingBudget returns how many of an answer's tokens are for thinking.
func thinkingBudget(effort string, bound int) int {
	eighths := map[string]int{"minimal": 1, "low": 2, "medium": 4}[effort]
	eighths = cmp.Or(eighths, 6)
	return max(minBudget, bound*eighths/8)
}

// wireThinking is the switch of DeepSeek and Anthropic.
type wireThinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
}

// wireReasoning is OpenRouter's object.
type wireReasoning struct {
	Effort string `json:"effort"`
}
