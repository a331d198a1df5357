package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// finished answers with the given finish reason and message members.
func finished(reason string, message map[string]any) llmtest.Personality {
	raw, err := json.Marshal(map[string]any{
		"choices": []any{map[string]any{"message": message, "finish_reason": reason}}, "usage": map[string]any{"prompt_tokens": 7, "completion_tokens": 5},
	})
	if err != nil {
		panic(err)
	}
	return llmtest.Always(llmtest.Response{Status: 200, Header: map[string]string{"Content-Type": "application/json"}, Body: string(raw)})
}

// TestDialogue: a dialogue is answered in text, whatever form the endpoint uses for verdicts.
func TestDialogue(t *testing.T) {
	t.Parallel()
	noTemperature := func(q llmtest.Question, think func() llmtest.Thought) llmtest.Response {
		if _, sent := q.Raw["temperature"]; sent {
			return llmtest.Response{Status: 400, Header: map[string]string{"Content-Type": "application/json"}, Body: `{"error":{"message":"Unsupported parameter: 'temperature'","type":"invalid_request_error","param":"temperature","code":"unsupported_parameter"}}`}
		}
		return llmtest.OpenAI()(q, think)
	}
	for _, row := range []struct {
		name     string
		provider llmtest.Personality
		text     string
		class    llm.Class
	}{
		{"a text", llmtest.OpenAI(), "It is fine.", ""},
		{"thinking in the text", llmtest.VLLM(), "It is fine.", ""},
		{"a parameter that is refused", noTemperature, "It is fine.", ""},
		{"two choices of form are not asked for", llmtest.PromptOnly(), "Sure! It is fine.", ""},
		{"cut off", finished("length", map[string]any{"content": "It is"}), "", llm.ClassTruncated},
		{"nothing", finished("stop", map[string]any{"content": " "}), "", llm.ClassEmpty},
		{"a refusal", finished("stop", map[string]any{"refusal": "No."}), "", llm.ClassRefusal},
		{"the filter", finished("content_filter", map[string]any{"content": ""}), "", llm.ClassFilter},
	} {
		provider := llmtest.New(row.provider, llmtest.Says("It is fine."))
		client, err := llm.New(llm.Config{Models: []llm.Model{{ID: "m", BaseURL: "https://model.example"}}, Doer: provider, Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := client.Complete(t.Context(), llm.Request{Caller: "ann", Dialogue: []llm.Message{{Role: "user", Text: "Hello"}, {Role: "assistant", Text: "Hi"}, {Role: "user", Text: "Is it fine?"}}})
		if reply.Text != row.text || llm.ClassOf(err) != row.class {
			t.Errorf("%s: %q, %v", row.name, reply.Text, err)
		}
		requests := provider.Requests()
		last := requests[len(requests)-1]
		if last.Raw["response_format"] != nil || last.Raw["tools"] != nil || fmt.Sprint(last.Raw["messages"]) != "[map[content:Hello role:user] map[content:Hi role:assistant] map[content:Is it fine? role:user]]" {
			t.Errorf("%s: it was asked with %s", row.name, last.Raw)
		}
		if row.class != "" && len(requests) != 1 {
			t.Errorf("%s: asked %d times", row.name, len(requests))
		}
		// The form for verdicts is unchanged.
		before := len(requests)
		_, _ = client.Complete(t.Context(), llm.Request{System: "s", User: "u", Schema: json.RawMessage(`{"type":"object","additionalProperties":false}`)})
		if requests = provider.Requests(); len(requests) == before || requests[before].Rung != llm.RungJSONSchema {
			t.Errorf("%s: then verdicts are asked for in another way", row.name)
		}
	}
}

// TestDialogueCountsForCaller: a dialogue counts toward its caller's limits per minute.
func TestDialogueCountsForCaller(t *testing.T) {
	t.Parallel()
	client, err := llm.New(llm.Config{
		Models: []llm.Model{{ID: "m", BaseURL: "https://model.example"}}, Doer: llmtest.New(llmtest.OpenAI(), llmtest.Says("Yes.")), CallerTokens: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	var classes []llm.Class
	for _, caller := range []string{"ann", "ann", "ben"} { // each uses 900 tokens
		_, err := client.Complete(t.Context(), llm.Request{Caller: caller, Dialogue: []llm.Message{{Role: "user", Text: strings.Repeat("long ", 200)}}})
		if err != nil && errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		classes = append(classes, llm.ClassOf(err))
	}
	if !slices.Equal(classes, []llm.Class{"", llm.ClassShareSpent, ""}) {
		t.Errorf("%q", classes)
	}
}
