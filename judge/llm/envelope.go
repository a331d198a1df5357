package llm

import (
	"bytes"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

type envelope struct {
	choices            []choice
	model, fingerprint string
	usage              *Usage
}

// maxChoices limits how many answers are read; the request asks for one.
const maxChoices = 8

// openEnvelope reads the body of a successful answer. Members that do not affect the decision may have any
// format, because servers disagree about all of them.
func openEnvelope(status int, header http.Header, body []byte, now time.Time) (envelope, *Error) {
	body = bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(body), []byte("\ufeff")))
	v, err := parseJSON(body)
	if err != nil {
		fail := &Error{Class: ClassUpstream, Status: status}
		fail.Message, fail.Advice = notJSON(header, body)
		return envelope{}, fail
	}
	o := v
	if v.Kind() == document.Array && v.Len() > 0 {
		o = v.At("0") // some servers send errors as a list
	}
	if o.Kind() != document.Object {
		return envelope{}, &Error{Class: ClassUpstream, Status: status, Message: "the endpoint answered with JSON that is not a completion"}
	}
	failure, err := getMember(o, "error")
	switch {
	case err != nil:
		return envelope{}, malformedError("the endpoint's answer contradicts itself: " + err.Error())
	case isSet(failure):
		return envelope{}, classifyResponse(status, header, body, now)
	}
	env := envelope{model: cleanText(o.Get("model").Text(), 120), fingerprint: cleanText(o.Get("system_fingerprint").Text(), 120), usage: usageOf(o.Get("usage"))}
	choices, err := getMember(o, "choices")
	if err != nil {
		return envelope{}, malformedError("the endpoint's answer contradicts itself: " + err.Error())
	}
	many := 0
	if choices.Kind() == document.Array {
		many = choices.Len()
	}
	switch there := choices.Kind() != 0; {
	case !there && o.Get("object").Is("error"), !there && hasMember(o, "message"), !there && hasMember(o, "detail"):
		return envelope{}, classifyResponse(status, header, body, now)
	case many == 0:
		return envelope{}, &Error{Class: ClassNoChoices, Status: status, Message: "the endpoint answered without a choice", Usage: env.usage}
	case many > maxChoices:
		return envelope{}, &Error{Class: ClassAmbiguous, Status: status, Message: "the endpoint gave many answers to one question", Usage: env.usage}
	}
	for _, item := range choices.Elements() {
		env.choices = append(env.choices, readChoice(item, status, header, now))
	}
	return env, nil
}

func readChoice(o document.JSON, status int, header http.Header, now time.Time) choice {
	if failure, _ := getMember(o, "error"); isSet(failure) {
		return choice{fail: classifyObject(status, header, o, now)}
	}
	finish, err := getMember(o, "finish_reason")
	if err != nil {
		return choice{fail: malformedError("the endpoint's answer contradicts itself: " + err.Error())}
	}
	c := choice{finish: finish.Text()}
	m, err := getMember(o, "message")
	if err != nil {
		return choice{fail: malformedError("the endpoint's answer contradicts itself: " + err.Error())}
	}
	if m.Kind() != document.Object {
		if c.finish == "content_filter" {
			return c
		}
		return choice{fail: &Error{Class: ClassNoChoices, Status: status, Message: "the endpoint answered with a choice without a message"}}
	}
	c.thought = m.Get("reasoning_content").Text() != "" || m.Get("reasoning").Text() != ""
	for _, key := range []string{"content", "tool_calls", "function_call", "refusal"} {
		v, err := getMember(m, key)
		if err != nil {
			return choice{fail: malformedError("the endpoint's answer contradicts itself: " + err.Error())}
		}
		switch key {
		case "content":
			c.content = contentText(v, &c.refusal)
		case "refusal":
			c.refusal += v.Text()
		case "tool_calls":
			for _, call := range v.Elements() {
				c.readToolCall(call)
			}
		case "function_call":
			if isSet(v) && len(c.calls) == 0 {
				c.readFunction(v)
			}
		}
	}
	return c
}

// contentText joins the text parts of a message, without thinking.
func contentText(v document.JSON, refusal *string) string {
	var b strings.Builder
	b.WriteString(v.Text())
	for _, part := range v.Elements() {
		switch part.Get("type").Text() {
		case "text", "output_text":
			b.WriteString(part.Get("text").Text())
		case "refusal":
			*refusal += part.Get("refusal").Text()
		}
	}
	return b.String()
}

func (c *choice) readToolCall(v document.JSON) {
	if in, err := getMember(v, "function"); in.Kind() != 0 && err == nil {
		v = in
	}
	c.readFunction(v)
}

func (c *choice) readFunction(v document.JSON) {
	arguments, err := getMember(v, "arguments")
	switch {
	case !v.Get("name").Is(ToolName) || arguments.Kind() == 0 || err != nil:
		c.other++
	case arguments.Kind() == document.String:
		c.calls = append(c.calls, arguments.Text())
	default:
		c.calls = append(c.calls, string(arguments.Raw()))
	}
}

// usageOf reads token counts, including floats. It returns nil if the endpoint sent none.
func usageOf(o document.JSON) *Usage {
	prompt, ok1 := readCount(o, "prompt_tokens")
	completion, ok2 := readCount(o, "completion_tokens")
	if !ok1 && !ok2 {
		return nil
	}
	u := &Usage{Prompt: prompt, Completion: completion}
	u.Cached, _ = readCount(o.Get("prompt_tokens_details"), "cached_tokens")
	u.Reasoning, _ = readCount(o.Get("completion_tokens_details"), "reasoning_tokens")
	return u
}

func readCount(o document.JSON, key string) (int, bool) {
	v, err := getMember(o, key)
	if err != nil || v.Kind() != document.Number {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v.Raw()), 64)
	if err != nil || !(f >= 0 && f < 1e9) {
		return 0, false
	}
	return int(math.Round(f)), true
}

func notJSON(header http.Header, body []byte) (message, advice string) {
	head, wrongAPI := strings.ToLower(string(body[:min(len(body), 200)])), "check that LLM_BASE_URL leads to an OpenAI-compatible API"
	switch coding := header.Get("Content-Encoding"); {
	case coding != "":
		return "the endpoint compresses its answer in a way that was not asked for: " + quoteForeign(coding), adviseCompression
	case strings.HasPrefix(head, "\x1f\x8b"):
		return "the endpoint answers with gzip without declaring it", adviseCompression
	case len(body) == 0:
		return "the endpoint answered with an empty body", wrongAPI
	case strings.HasPrefix(head, "<"):
		return "the endpoint answered with a web page", wrongAPI
	case strings.HasPrefix(head, "data:"), strings.HasPrefix(head, "event:"), strings.HasPrefix(head, ":"):
		return "the endpoint answered with a stream of events, which was not asked for", wrongAPI
	}
	return "the endpoint answered with something that is not one JSON document", wrongAPI
}
