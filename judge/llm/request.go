package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	openai "github.com/sashabaranov/go-openai"

	"github.com/gavel-mcp/gavel/validators/document"
)

// The parameters that can be left out or named otherwise when an endpoint refuses
// them. What is not among them is part of the question.
const (
	paramTemperature      = "temperature"
	paramSeed             = "seed"
	paramMaxTokens        = "max_tokens"
	paramCompletionTokens = "max_completion_tokens"
	paramParallel         = "parallel_tool_calls"
	paramEffort           = "reasoning_effort"
	paramReasoning        = "reasoning"
	paramThinking         = "thinking"
	paramTemplate         = "chat_template_kwargs"
	paramEnableThinking   = "enable_thinking"
	// A word as the tool choice is read by nearly all, an object by some as "auto".
	choiceRequired = "required"
	wordAsChoice   = "tool_choice=" + choiceRequired
)

var thinkingParams = []string{paramEffort, paramReasoning, paramThinking, paramTemplate, paramEnableThinking}

// wireRequest is go-openai's request with what that lacks. Its own fields shadow those
// of the same JSON name.
type wireRequest struct {
	openai.ChatCompletionRequest
	// Temperature is a pointer because 0 must be sent: left out, it is whatever the
	// endpoint likes, mostly 1.
	Temperature *float32 `json:"temperature,omitempty"`
	// MaxTokens is marked as deprecated there, and is the only name that most others
	// than OpenAI know.
	MaxTokens      int            `json:"max_tokens,omitempty"`
	Thinking       *wireThinking  `json:"thinking,omitempty"`
	Reasoning      *wireReasoning `json:"reasoning,omitempty"`
	EnableThinking *bool          `json:"enable_thinking,omitempty"`
}

func (e *endpoint) encodeRequest(req Request, at manner) ([]byte, error) {
	schema := bytes.TrimSpace(req.Schema)
	if at.enforcesSchema() && (len(schema) == 0 || schema[0] != '{' || !json.Valid(schema)) {
		return nil, errors.New("the request has no JSON Schema of the answer")
	}
	w := e.requestParameters(at, schema, e.answerTokens(req))
	w.Messages = buildMessages(req, at)
	return document.Marshal(w)
}

func (e *endpoint) requestParameters(at manner, schema json.RawMessage, bound int) wireRequest {
	zero, seed := float32(0), 0
	w := wireRequest{Temperature: &zero}
	w.Model = e.model.ID
	// Fixed, so that a question asked twice has the better chance of one answer.
	w.Seed = &seed
	switch at.boundName(e.host.completionTokens) {
	case paramMaxTokens:
		w.MaxTokens = bound
	case paramCompletionTokens:
		w.MaxCompletionTokens = bound
	}
	switch at.rung {
	case RungJSONSchema:
		w.ResponseFormat = &openai.ChatCompletionResponseFormat{
			Type:       openai.ChatCompletionResponseFormatTypeJSONSchema,
			JSONSchema: &openai.ChatCompletionResponseFormatJSONSchema{Name: "verdict", Schema: schema, Strict: true},
		}
	case RungTool:
		w.Tools = []openai.Tool{{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
			Name: ToolName, Description: "Submit the verdict.", Strict: e.host.strictTools, Parameters: schema,
		}}}
		w.ToolChoice = choiceRequired
		if at.isRefused(wordAsChoice) {
			w.ToolChoice = openai.ToolChoice{Type: openai.ToolTypeFunction, Function: openai.ToolFunction{Name: ToolName}}
		}
		w.ParallelToolCalls = false
	case RungJSONObject:
		w.ResponseFormat = &openai.ChatCompletionResponseFormat{Type: openai.ChatCompletionResponseFormatTypeJSONObject}
	case RungPrompt:
	}
	e.host.setThinking(e.model, at, bound, &w)
	at.stripRefused(&w)
	return w
}

// dialogueTokens is how long the answer to a dialogue may be, where a verdict may not be longer.
const dialogueTokens = 4096

func (e *endpoint) answerTokens(req Request) int {
	n := e.maxTokens
	if len(req.Dialogue) > 0 {
		n = max(n, dialogueTokens)
	}
	if req.MaxTokens > 0 {
		n = req.MaxTokens
	}
	if e.host.thinking == dialectAnthropic && e.model.isThinking() {
		n = max(n, 2*leastBudget) // or nothing would be left for the answer
	}
	return n
}

// buildMessages puts the data last, followed only by what was wrong with an earlier
// answer.
func buildMessages(req Request, at manner) []openai.ChatCompletionMessage {
	system := req.System
	if !at.enforcesSchema() && req.Shape != "" {
		system = strings.TrimSpace(system + "\n\n" + req.Shape)
	}
	if at.rung == RungJSONObject && !strings.Contains(strings.ToLower(system), "json") {
		// Without the word, OpenAI and others refuse the mode.
		system = strings.TrimSpace(system + "\n\nAnswer with one JSON object.")
	}
	var out []openai.ChatCompletionMessage
	add := func(role, text string) {
		if text != "" {
			out = append(out, openai.ChatCompletionMessage{Role: role, Content: text})
		}
	}
	for _, m := range req.Dialogue {
		add(m.Role, m.Text)
	}
	if len(req.Dialogue) > 0 {
		return out
	}
	add(openai.ChatMessageRoleSystem, system)
	user := req.User
	if req.Complaint != "" { // not a message of its own: some templates want the roles to take turns
		user += "\n\n" + req.Complaint
	}
	add(openai.ChatMessageRoleUser, user)
	return out
}

func (e *endpoint) sendsParameter(at manner, param string) bool {
	b, err := document.Marshal(e.requestParameters(at, json.RawMessage("{}"), e.maxTokens))
	if err != nil {
		return false
	}
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(b, &sent); err != nil {
		return false
	}
	_, ok := sent[param]
	return ok
}

// manner is how an endpoint is asked. It is immutable.
type manner struct {
	rung Rung
	// refused are the parameters not to send, sorted; name=value is a value not to send.
	refused []string
}

// enforcesSchema reports whether the endpoint gets the schema as a parameter, so that
// the prompt need not describe it.
func (at manner) enforcesSchema() bool { return at.rung == RungJSONSchema || at.rung == RungTool }

func (at manner) isRefused(param string) bool { return slices.Contains(at.refused, param) }

func (at manner) without(params ...string) manner {
	refused := slices.Concat(at.refused, params)
	slices.Sort(refused)
	return manner{at.rung, slices.Compact(refused)}
}

func (at manner) nextLower() (manner, bool) {
	i := slices.Index(rungs, at.rung) + 1
	if i >= len(rungs) {
		return at, false
	}
	return manner{rungs[i], at.refused}, true
}

func (at manner) equal(other manner) bool {
	return at.rung == other.rung && slices.Equal(at.refused, other.refused)
}

// boundName is the parameter that limits the answer, "" when both were refused.
func (at manner) boundName(completion bool) string {
	names := []string{paramMaxTokens, paramCompletionTokens}
	if completion {
		slices.Reverse(names)
	}
	for _, n := range names {
		if !at.isRefused(n) {
			return n
		}
	}
	return ""
}

func (at manner) effortFor(want string) string {
	for want != "" && at.isRefused(paramEffort+"="+want) {
		want = lowerEffort(want)
	}
	return want
}

func (at manner) stripRefused(w *wireRequest) {
	for _, p := range at.refused {
		switch p {
		case paramTemperature:
			w.Temperature = nil
		case paramSeed:
			w.Seed = nil
		case paramParallel:
			w.ParallelToolCalls = nil
		case paramEffort:
			w.ReasoningEffort = ""
		case paramReasoning:
			w.Reasoning = nil
		case paramThinking:
			w.Thinking = nil
		case paramTemplate:
			w.ChatTemplateKwargs = nil
		case paramEnableThinking:
			w.EnableThinking = nil
		}
	}
}
