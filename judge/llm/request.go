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

// Parameters that can be omitted or renamed if an endpoint rejects them. All others are part of the question.
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
	// Nearly all endpoints accept a word as the tool choice; some treat an object as "auto".
	choiceRequired = "required"
	wordAsChoice   = "tool_choice=" + choiceRequired
)

var thinkingParams = []string{paramEffort, paramReasoning, paramThinking, paramTemplate, paramEnableThinking}

// wireRequest extends go-openai's request. Its own fields shadow those with the same JSON name.
type wireRequest struct {
	openai.ChatCompletionRequest
	// Temperature is a pointer because 0 must be sent: without it, the endpoint chooses, usually 1.
	Temperature *float32 `json:"temperature,omitempty"`
	// MaxTokens is deprecated in go-openai, but the only name that most other endpoints know.
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
	// A fixed seed makes it more likely that a repeated question gets the same answer.
	w.Seed = &seed
	switch at.limitParameter(e.host.completionTokens) {
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

// dialogueTokens is the minimum token limit for the answer to a dialogue.
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
		n = max(n, 2*minBudget) // otherwise no tokens would be left for the answer
	}
	return n
}

// buildMessages puts the data last, followed only by the complaint about an earlier answer.
func buildMessages(req Request, at manner) []openai.ChatCompletionMessage {
	system := req.System
	if !at.enforcesSchema() && req.Shape != "" {
		system = strings.TrimSpace(system + "\n\n" + req.Shape)
	}
	if at.rung == RungJSONObject && !strings.Contains(strings.ToLower(system), "json") {
		// OpenAI and others reject the mode if the word is missing.
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
	if req.Complaint != "" { // not a separate message: some templates require alternating roles
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

// manner is the way in which an endpoint is asked: a rung and the parameters to leave out. It is immutable.
type manner struct {
	rung Rung
	// refused lists the parameters not to send, sorted; name=value is a value not to send.
	refused []string
}

// enforcesSchema reports whether the endpoint gets the schema as a parameter, so that the prompt need not
// describe it.
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

// limitParameter returns the parameter that limits the answer, or "" if both were rejected.
func (at manner) limitParameter(completion bool) string {
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
