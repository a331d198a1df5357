// Package llmtest simulates providers of language models, for tests. A Brain is the model; a Personality is
// the way in which a provider wraps its answers. It works without sockets and, in a testing/synctest bubble,
// without real waiting.
//
// It promises:
//
//   - Bodies, statuses and headers are like those of the named providers.
//   - A Provider honours the context of each request.
//
// Only tests may import it.
package llmtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// Response is a provider's response.
type Response struct {
	Status int
	Header map[string]string
	Body   string
	// Err is a transport failure instead of an HTTP response.
	Err error
	// After delays the response; Forever means that there is none.
	After   time.Duration
	Forever bool
	// Endless repeats Body without end.
	Endless bool
	// Stalls sends nothing after Body but keeps the connection open. Breaks closes the connection after Body.
	Stalls, Breaks bool
}

// Personality determines how a provider wraps its model's answers.
type Personality func(q Question, think func() Thought) Response

// Fault is a way in which a provider fails.
type Fault struct {
	Name        string
	Personality Personality
	// Class is the class of the error after one request.
	Class llm.Class
	// RetryAfter is the delay that the provider asks for, or 0.
	RetryAfter time.Duration
}

// RecordedRequest is a request that a provider received.
type RecordedRequest struct {
	Question
	Authorization string
	Host          string
}

// Provider is an llm.Doer without sockets, and an http.Handler for tests with sockets.
type Provider struct {
	personality Personality
	brain       Brain

	mu       sync.Mutex
	requests []RecordedRequest
}

// New returns a provider with the given personality and model.
func New(p Personality, b Brain) *Provider { return &Provider{personality: p, brain: b} }

// Count returns the number of requests so far.
func (p *Provider) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests)
}

// Requests returns all requests so far, oldest first.
func (p *Provider) Requests() []RecordedRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]RecordedRequest(nil), p.requests...)
}

func (p *Provider) answer(req *http.Request) (Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return Response{}, err
		}
	}
	p.mu.Lock()
	q := parseQuestion(len(p.requests), req.URL.Path, body)
	p.requests = append(p.requests, RecordedRequest{Question: q, Authorization: req.Header.Get("Authorization"), Host: req.URL.Host})
	p.mu.Unlock()
	return p.personality(q, func() Thought { return p.brain(q) }), nil
}

// Do implements llm.Doer. It waits as long as the personality does, or until the request's context ends.
func (p *Provider) Do(req *http.Request) (*http.Response, error) {
	r, err := p.answer(req)
	if err != nil {
		return nil, err
	}
	if err := r.wait(req); err != nil {
		return nil, err
	}
	if r.Err != nil {
		return nil, r.Err
	}
	res := &http.Response{
		StatusCode: r.Status, Status: http.StatusText(r.Status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Request: req, Body: io.NopCloser(bytes.NewReader([]byte(r.Body))), ContentLength: -1,
	}
	switch {
	case r.Endless:
		res.Body = io.NopCloser(&endless{text: r.Body, ended: req.Context().Err})
	case r.Stalls, r.Breaks:
		res.Body = io.NopCloser(io.MultiReader(res.Body, readTail(req.Context(), r.Breaks)))
	}
	for name, value := range r.Header {
		res.Header.Set(name, value)
	}
	return res, nil
}

func (r Response) wait(req *http.Request) error {
	ctx := req.Context()
	if r.Forever {
		<-ctx.Done()
		return ctx.Err()
	}
	if r.After > 0 {
		timer := time.NewTimer(r.After)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// ServeHTTP implements http.Handler, for httptest.NewServer.
func (p *Provider) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r, err := p.answer(req)
	if err != nil {
		return
	}
	if r.wait(req) != nil || r.Err != nil {
		panic(http.ErrAbortHandler) // close the connection without an answer
	}
	for name, value := range r.Header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(r.Status)
	for {
		if _, err := io.WriteString(w, r.Body); err != nil {
			return
		}
		if !r.Endless {
			break
		}
	}
	if !r.Stalls && !r.Breaks {
		return
	}
	if err := http.NewResponseController(w).Flush(); err == nil && r.Stalls {
		<-req.Context().Done()
	}
	panic(http.ErrAbortHandler) // end the body prematurely
}

func readTail(ctx context.Context, breaks bool) io.Reader {
	return reader(func([]byte) (int, error) {
		if breaks {
			return 0, io.ErrUnexpectedEOF
		}
		<-ctx.Done()
		return 0, ctx.Err()
	})
}

type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

type endless struct {
	text  string
	at    int
	ended func() error
}

func (e *endless) Read(b []byte) (int, error) {
	if err := e.ended(); err != nil {
		return 0, err
	}
	n := 0
	for n < len(b) {
		c := copy(b[n:], e.text[e.at:])
		n, e.at = n+c, (e.at+c)%len(e.text)
	}
	return n, nil
}

var errReset = errors.New("read tcp: connection reset by peer")

func jsonHeader() map[string]string { return map[string]string{"Content-Type": "application/json"} }

func completionResponse(content any, finish string, message map[string]any) Response {
	m := map[string]any{"role": "assistant", "content": content}
	maps.Copy(m, message)
	return jsonResponse(200, map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion", "created": 1790000000, "model": "reported-model", "system_fingerprint": "fp_1",
		"choices": []any{map[string]any{"index": 0, "message": m, "finish_reason": finish}},
		"usage":   map[string]any{"prompt_tokens": 800, "completion_tokens": 100, "total_tokens": 900},
	})
}

func toolCallResponse(arguments string) Response {
	return completionResponse(nil, "tool_calls", map[string]any{"tool_calls": []any{map[string]any{
		"id": "call_1", "type": "function", "function": map[string]any{"name": llm.ToolName, "arguments": arguments},
	}}})
}

func jsonResponse(status int, v any) Response {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("llmtest: " + err.Error()) // maps of strings and numbers can be marshalled
	}
	return Response{Status: status, Header: jsonHeader(), Body: string(raw)}
}

func errorResponse(status int, message, kind, code, param string) Response {
	e := map[string]any{"message": message, "type": kind, "param": nil, "code": nil}
	if code != "" {
		e["code"] = code
	}
	if param != "" {
		e["param"] = param
	}
	return jsonResponse(status, map[string]any{"error": e})
}

func formResponse(q Question, t Thought) Response {
	if q.Rung == llm.RungTool {
		return toolCallResponse(t.text(q, ""))
	}
	return completionResponse(t.text(q, q.Nonce), "stop", nil)
}

// documented lists the parameters that OpenAI accepts.
var documented = []string{
	"frequency_penalty", "logprobs", "max_completion_tokens", "max_tokens", "messages", "metadata", "model", "n",
	"parallel_tool_calls", "presence_penalty", "reasoning_effort", "response_format", "seed", "service_tier", "stop",
	"store", "stream", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user",
}

// OpenAI accepts only documented parameters. It answers 400 to an unknown parameter, to a schema that is not
// strict, and to JSON mode without the word JSON.
func OpenAI() Personality {
	return func(q Question, think func() Thought) Response {
		for _, name := range slices.Sorted(maps.Keys(q.Raw)) {
			if !slices.Contains(documented, name) {
				return errorResponse(400, "Unrecognized request argument supplied: "+name, "invalid_request_error", "", "")
			}
		}
		switch {
		case q.has("parallel_tool_calls") && !q.has("tools"):
			return errorResponse(400, "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.", "invalid_request_error", "", "parallel_tool_calls")
		case q.Rung == llm.RungJSONSchema && !q.isStrict():
			return errorResponse(400, "Invalid schema for response_format 'verdict': In context=(), 'additionalProperties' is required to be supplied and to be false.", "invalid_request_error", "", "response_format")
		case q.Rung == llm.RungJSONObject && !strings.Contains(strings.ToLower(q.System+q.User), "json"):
			return errorResponse(400, "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.", "invalid_request_error", "", "messages")
		}
		return formResponse(q, think())
	}
}

// VLLM has no reasoning parser, so it leaves the thinking in the content.
func VLLM() Personality {
	return func(q Question, think func() Thought) Response {
		return completionResponse("<think>\nMaybe {\"approved\": false, \"confidence\": 0.3}?\n</think>\n\n"+think().text(q, q.Nonce), "stop", nil)
	}
}

// PromptOnly supports neither response formats nor tools.
func PromptOnly() Personality {
	return func(q Question, think func() Thought) Response {
		switch {
		case q.has("response_format"):
			return errorResponse(400, "Unrecognized request argument supplied: response_format", "invalid_request_error", "", "")
		case q.has("tools"):
			return errorResponse(400, "Unrecognized request argument supplied: tools", "invalid_request_error", "", "")
		}
		return completionResponse("Sure! "+think().text(q, q.Nonce), "stop", nil)
	}
}

// Then behaves like a for the first n requests, and like b afterwards.
func Then(n int, a, b Personality) Personality {
	return func(q Question, think func() Thought) Response {
		if q.N < n {
			return a(q, think)
		}
		return b(q, think)
	}
}
