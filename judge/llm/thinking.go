package llm

import (
	"fmt"
	"slices"
	"strings"
)

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

// effort is the mode as an effort, "" when nothing is to be said about it.
func (m Model) effort() string {
	switch m.Thinking {
	case "", thinkingAuto:
		return ""
	case thinkingOff:
		return "none"
	}
	return m.Thinking
}

// isThinking reports whether the model is told to think, so that it needs more time and
// more tokens.
func (m Model) isThinking() bool {
	e := m.effort()
	return e != "" && e != "none"
}

// setThinking writes the model's thinking mode into a request, in the words of its host.
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

// nearestEffort returns the effort that the host takes and that is nearest to the one
// wanted.
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

// lowerEffort is the effort to try when one was refused, "" to say nothing: models differ
// in the ends of the scale, not in its middle.
func lowerEffort(effort string) string {
	switch effort {
	case "none", "minimal":
		return "low"
	case "xhigh", "max":
		return "high"
	}
	return ""
}

// leastBudget is the least that Anthropic accepts.
const leastBudget = 1024

// thinkingBudget is the share of an answer's tokens that may go into thinking; the
// rest is for the answer.
func thinkingBudget(effort string, bound int) int {
	eighths := map[string]int{"minimal": 1, "low": 2, "medium": 4}[effort]
	if eighths == 0 {
		eighths = 6
	}
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
