package llm

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
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

// host is what is known of an endpoint before the first call. A mistake here costs a
// call of negotiation, never an answer.
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
		// Thinking and a forced tool exclude each other there.
		return RungJSONObject
	}
	return h.start
}

func (h host) omittedParameters(m Model) []string {
	if h.thinking == dialectAnthropic && m.isThinking() {
		return append([]string{"temperature"}, h.omit...) // only 1 is allowed then
	}
	return h.omit
}

// The thinking modes that are none of OpenAI's efforts.
const (
	thinkingOff  = "off"
	thinkingAuto = "auto"
)

// efforts are the amounts of thinking, least first.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// ValidThinking returns nil for the thinking modes that Model knows, "" included,
// and otherwise an error that names them.
func ValidThinking(mode string) error {
	if mode == "" || mode == thinkingOff || mode == thinkingAuto || slices.Contains(efforts, mode) {
		return nil
	}
	return fmt.Errorf("thinking mode %q is not known; use %s, %s or %s (which leaves it to the endpoint)",
		mode, thinkingOff, strings.Join(efforts, ", "), thinkingAuto)
}

// effort is "" when the endpoint decides.
func (m Model) effort() string {
	switch m.Thinking {
	case "", thinkingAuto:
		return ""
	case thinkingOff:
		return "none"
	}
	return m.Thinking
}

// isThinking reports whether the model will think, and needs more time and tokens.
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
			continue // to think a little is not to think not at all
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

// lowerEffort is the effort to try when one was refused, "" for none: models differ at
// the ends of the scale, not in its middle.
func lowerEffort(effort string) string {
	switch effort {
	case "none", "minimal":
		return "low"
	case "xhigh", "max":
		return "high"
	}
	return ""
}

// leastBudget is Anthropic's minimum.
const leastBudget = 1024

// thinkingBudget is the share of an answer's tokens for thinking.
func thinkingBudget(effort string, bound int) int {
	eighths := map[string]int{"minimal": 1, "low": 2, "medium": 4}[effort]
	eighths = cmp.Or(eighths, 6)
	return max(leastBudget, bound*eighths/8)
}

// wireThinking is DeepSeek's and Anthropic's switch.
type wireThinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
}

// wireReasoning is OpenRouter's.
type wireReasoning struct {
	Effort string `json:"effort"`
}
