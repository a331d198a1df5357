package llm

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"time"
)

// envelope is a chat completion, as far as it matters.
type envelope struct {
	choices            []choice
	model, fingerprint string
	usage              *Usage
}

// maxChoices is how many answers are looked at; one is asked for.
const maxChoices = 8

// openEnvelope reads the body of a successful answer. A member that decides
// nothing may be of any shape: servers disagree about all of them.
func openEnvelope(status int, header http.Header, body []byte, now time.Time) (envelope, *Error) {
	body = bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(body), []byte("\ufeff")))
	v, err := parseJSON(body)
	if err != nil {
		return envelope{}, &Error{Class: ClassUpstream, Status: status, Message: notJSON(body), Advice: "check that LLM_BASE_URL leads to an OpenAI-compatible API"}
	}
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0] // some put their errors into a list
	}
	o, ok := v.(object)
	if !ok {
		return envelope{}, &Error{Class: ClassUpstream, Status: status, Message: "the endpoint answered with JSON that is no completion"}
	}
	failure, there, err := o.get("error")
	switch {
	case err != nil:
		return envelope{}, malformedError("the endpoint's answer contradicts itself: " + err.Error())
	case there && failure != nil:
		return envelope{}, classifyResponse(status, header, body, now)
	}
	env := envelope{model: cleanText(o.text("model"), 120), fingerprint: cleanText(o.text("system_fingerprint"), 120), usage: usageOf(o.inner("usage"))}
	choices, there, err := o.get("choices")
	if err != nil {
		return envelope{}, malformedError("the endpoint's answer contradicts itself: " + err.Error())
	}
	list, _ := choices.([]any)
	switch {
	case !there && o.text("object") == "error", !there && o.has("message"), !there && o.has("detail"):
		return envelope{}, classifyResponse(status, header, body, now)
	case len(list) == 0:
		return envelope{}, &Error{Class: ClassNoChoices, Status: status, Message: "the endpoint answered without a choice", Usage: env.usage}
	case len(list) > maxChoices:
		return envelope{}, &Error{Class: ClassAmbiguous, Status: status, Message: "the endpoint gave many answers to one question", Usage: env.usage}
	}
	for _, item := range list {
		env.choices = append(env.choices, readChoice(item, status, header, now))
	}
	return env, nil
}

// readChoice takes one choice apart.
func readChoice(item any, status int, header http.Header, now time.Time) choice {
	o, _ := item.(object)
	if failure, there, _ := o.get("error"); there && failure != nil {
		return choice{fail: classifyObject(status, header, o, now)}
	}
	finish, _, err := o.get("finish_reason")
	if err != nil {
		return choice{fail: malformedError("the endpoint's answer contradicts itself: " + err.Error())}
	}
	var c choice
	c.finish, _ = finish.(string)
	message, there, err := o.get("message")
	if err != nil {
		return choice{fail: malformedError("the endpoint's answer contradicts itself: " + err.Error())}
	}
	m, ok := message.(object)
	if !there || !ok {
		if c.finish == "content_filter" {
			return c
		}
		return choice{fail: &Error{Class: ClassNoChoices, Status: status, Message: "the endpoint answered with a choice without a message"}}
	}
	for _, key := range []string{"content", "tool_calls", "function_call", "refusal"} {
		v, _, err := m.get(key)
		if err != nil {
			return choice{fail: malformedError("the endpoint's answer contradicts itself: " + err.Error())}
		}
		switch key {
		case "content":
			c.content = contentText(v, &c.refusal)
		case "refusal":
			if s, ok := v.(string); ok {
				c.refusal += s
			}
		case "tool_calls":
			list, _ := v.([]any)
			for _, call := range list {
				c.readToolCall(call)
			}
		case "function_call":
			if v != nil && len(c.calls) == 0 {
				c.readFunction(v)
			}
		}
	}
	return c
}

// contentText is the text of a message: a string, or the text parts of a list.
// Parts in which a model thinks are none.
func contentText(v any, refusal *string) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		var b strings.Builder
		for _, part := range v {
			o, _ := part.(object)
			switch o.text("type") {
			case "text", "output_text":
				b.WriteString(o.text("text"))
			case "refusal":
				*refusal += o.text("refusal")
			}
		}
		return b.String()
	}
	return ""
}

// readToolCall reads one tool call; function reads the part that names the function.
func (c *choice) readToolCall(v any) {
	o, _ := v.(object)
	if in, there, err := o.get("function"); there && err == nil {
		c.readFunction(in)
		return
	}
	c.readFunction(v)
}

func (c *choice) readFunction(v any) {
	o, _ := v.(object)
	arguments, there, err := o.get("arguments")
	if o.text("name") != ToolName || !there || err != nil {
		c.other++
		return
	}
	switch arguments := arguments.(type) {
	case string:
		c.calls = append(c.calls, arguments)
	default:
		c.calls = append(c.calls, encodeValue(arguments))
	}
}

// encodeValue writes a parsed value back, duplicate keys and all.
func encodeValue(v any) string {
	var b strings.Builder
	writeValue(&b, v)
	return b.String()
}

func writeValue(b *strings.Builder, v any) {
	switch v := v.(type) {
	case object:
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeValue(b, m.key)
			b.WriteByte(':')
			writeValue(b, m.value)
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeValue(b, item)
		}
		b.WriteByte(']')
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			raw = []byte("null") // strings, numbers and booleans always can be written
		}
		b.Write(raw)
	}
}

// usageOf reads token counts, also from servers that write them as floats. nil
// when the endpoint did not say.
func usageOf(o object) *Usage {
	prompt, ok1 := readCount(o, "prompt_tokens")
	completion, ok2 := readCount(o, "completion_tokens")
	if !ok1 && !ok2 {
		return nil
	}
	u := &Usage{Prompt: prompt, Completion: completion}
	u.Cached, _ = readCount(o.inner("prompt_tokens_details"), "cached_tokens")
	u.Reasoning, _ = readCount(o.inner("completion_tokens_details"), "reasoning_tokens")
	return u
}

func readCount(o object, key string) (int, bool) {
	v, _, err := o.get(key)
	n, ok := v.(json.Number)
	if err != nil || !ok {
		return 0, false
	}
	f, err := n.Float64()
	if err != nil || !(f >= 0 && f < 1e9) {
		return 0, false
	}
	return int(math.Round(f)), true
}

// notJSON says what a body is that is no JSON document.
func notJSON(body []byte) string {
	head := strings.ToLower(string(body[:min(len(body), 200)]))
	switch {
	case len(body) == 0:
		return "the endpoint answered with an empty body"
	case strings.HasPrefix(head, "<"):
		return "the endpoint answered with a web page"
	case strings.HasPrefix(head, "data:"), strings.HasPrefix(head, "event:"), strings.HasPrefix(head, ":"):
		return "the endpoint answered with a stream of events, which was not asked for"
	}
	return "the endpoint answered with something that is not one JSON document"
}
