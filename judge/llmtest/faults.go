package llmtest

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/gavel-mcp/gavel/judge/llm"
)

// Always sends the same response to every request.
func Always(r Response) Personality { return func(Question, func() Thought) Response { return r } }

// Slow sends a good answer after a delay.
func Slow(d time.Duration) Personality {
	return func(q Question, think func() Thought) Response {
		r := formResponse(q, think())
		r.After = d
		return r
	}
}

// Hang never answers.
func Hang() Personality { return Always(Response{Forever: true}) }

// Stall sends headers and half of a good answer, and then nothing more.
func Stall() Personality { return cutHalf(func(r *Response) { r.Stalls = true }) }

// CutBody loses its connection in the middle of a good answer.
func CutBody() Personality { return cutHalf(func(r *Response) { r.Breaks = true }) }

func cutHalf(end func(*Response)) Personality {
	return func(q Question, think func() Thought) Response {
		r := formResponse(q, think())
		r.Body = r.Body[:len(r.Body)/2]
		end(&r)
		return r
	}
}

// RefuseConnections behaves like a port without a listener.
func RefuseConnections() Personality {
	return Always(Response{Err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}})
}

// Faults returns all known ways in which providers fail.
func Faults() []Fault {
	text := func(s string) Personality { return replyWith(func(Thought, string) string { return s }) }
	plain := func(status int, body string, header ...string) Personality {
		r := Response{Status: status, Body: body, Header: map[string]string{"Content-Type": "text/html"}}
		for i := 0; i+1 < len(header); i += 2 {
			r.Header[header[i]] = header[i+1]
		}
		return Always(r)
	}
	openAI := func(status int, message, kind, code string, header ...string) Personality {
		r := errorResponse(status, message, kind, code, "")
		for i := 0; i+1 < len(header); i += 2 {
			r.Header[header[i]] = header[i+1]
		}
		return Always(r)
	}
	return []Fault{
		{Name: "connection refused", Class: llm.ClassNetwork, Personality: RefuseConnections()},
		{Name: "connection reset", Class: llm.ClassNetwork, Personality: Always(Response{Err: &net.OpError{Op: "read", Net: "tcp", Err: errReset}})},
		{Name: "name not found", Class: llm.ClassNetwork, Personality: Always(Response{Err: &net.DNSError{Err: "no such host", Name: "judge.example", IsNotFound: true}})},
		{Name: "never answers", Class: llm.ClassTimeout, Personality: Hang()},
		{Name: "answers after a minute", Class: llm.ClassTimeout, Personality: Slow(time.Minute)},
		{Name: "408", Class: llm.ClassTimeout, Personality: openAI(408, "Request timed out", "timeout", "")},
		{Name: "524 of a proxy", Class: llm.ClassTimeout, Personality: plain(524, "error code: 524")},
		{Name: "500", Class: llm.ClassUpstream, Personality: openAI(500, "The server had an error", "server_error", "")},
		{Name: "502 page", Class: llm.ClassUpstream, Personality: plain(502, "<html>502 Bad Gateway</html>")},
		{Name: "503 overloaded", Class: llm.ClassOverloaded, Personality: openAI(503, "That model is currently overloaded", "server_error", "")},
		{Name: "503 loading, with Retry-After", Class: llm.ClassOverloaded, RetryAfter: 3 * time.Second, Personality: openAI(503, "Loading model", "unavailable_error", "", "Retry-After", "3")},
		{Name: "529", Class: llm.ClassOverloaded, Personality: openAI(529, "Overloaded", "overloaded_error", "")},
		{Name: "429", Class: llm.ClassRateLimited, Personality: openAI(429, "Rate limit reached", "requests", "rate_limit_exceeded")},
		{Name: "429, Retry-After 2 s", Class: llm.ClassRateLimited, RetryAfter: 2 * time.Second, Personality: openAI(429, "Rate limit reached", "requests", "rate_limit_exceeded", "Retry-After", "2")},
		{Name: "429, Retry-After-Ms", Class: llm.ClassRateLimited, RetryAfter: 250 * time.Millisecond, Personality: openAI(429, "Rate limit reached", "requests", "", "Retry-After-Ms", "250")},
		{Name: "429, Retry-After 5 min", Class: llm.ClassRateLimited, RetryAfter: 5 * time.Minute, Personality: openAI(429, "Rate limit reached", "requests", "", "Retry-After", "300")},
		{Name: "429 quota", Class: llm.ClassQuota, Personality: openAI(429, "You exceeded your current quota", "insufficient_quota", "insufficient_quota")},
		{Name: "402", Class: llm.ClassQuota, Personality: openAI(402, "Insufficient credits", "payment_required", "")},
		{Name: "401", Class: llm.ClassAuth, Personality: openAI(401, "Incorrect API key provided", "invalid_request_error", "invalid_api_key")},
		{Name: "403", Class: llm.ClassAuth, Personality: openAI(403, "Not allowed", "permission_error", "")},
		{Name: "404 model", Class: llm.ClassNotFound, Personality: openAI(404, "The model does not exist", "invalid_request_error", "model_not_found")},
		{Name: "404 page", Class: llm.ClassNotFound, Personality: plain(404, "<html><center><h1>404 Not Found</h1></center></html>")},
		{Name: "LM Studio, wrong path", Class: llm.ClassNotFound, Personality: Always(jsonResponse(200, map[string]any{"error": "Unexpected endpoint or method. (POST /chat/completions)"}))},
		{Name: "redirect", Class: llm.ClassConfig, Personality: plain(302, "", "Location", "https://login.example/v1/chat/completions")},
		{Name: "200 with an error", Class: llm.ClassUpstream, Personality: Always(jsonResponse(200, map[string]any{"error": map[string]any{"message": "Provider returned error", "code": 502}}))},
		{Name: "200 with a page", Class: llm.ClassUpstream, Personality: plain(200, "<!doctype html><title>Sign in</title>")},
		{Name: "200, empty", Class: llm.ClassUpstream, Personality: plain(200, "")},
		{Name: "200, cut", Class: llm.ClassUpstream, Personality: cutEnvelope()},
		{Name: "a stream", Class: llm.ClassUpstream, Personality: plain(200, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n")},
		{Name: "two documents", Class: llm.ClassUpstream, Personality: replyTwice()},
		{Name: "endless body", Class: llm.ClassUpstream, Personality: Always(Response{Status: 200, Header: jsonHeader(), Body: strings.Repeat(" ", 4096), Endless: true})},
		{Name: "no choices", Class: llm.ClassNoChoices, Personality: Always(jsonResponse(200, map[string]any{"choices": []any{}}))},
		{Name: "context too long", Class: llm.ClassTooLong, Personality: openAI(400, "This model's maximum context length is 8192 tokens", "invalid_request_error", "context_length_exceeded")},
		{Name: "unexplained 400", Class: llm.ClassRefusal, Personality: openAI(400, "Bad request", "invalid_request_error", "")},
		{Name: "refusal", Class: llm.ClassRefusal, Personality: Always(completionResponse(nil, "stop", map[string]any{"refusal": "I'm sorry, I can't help with that."}))},
		{Name: "filtered answer", Class: llm.ClassFilter, Personality: Always(completionResponse("", "content_filter", nil))},
		{Name: "filtered prompt", Class: llm.ClassFilter, Personality: openAI(400, "The response was filtered", "", "content_filter")},
		{Name: "prose", Class: llm.ClassMalformed, Personality: text("Approved. Everything is fine.")},
		{Name: "Groq, bad generation", Class: llm.ClassMalformed, Personality: openAI(400, "Failed to generate JSON", "invalid_request_error", "json_validate_failed")},
		{Name: "duplicate keys", Class: llm.ClassMalformed, Personality: text(`{"approved":false,"approved":true,"confidence":1}`)},
		{Name: "confidence out of range", Class: llm.ClassMalformed, Personality: text(`{"approved":true,"confidence":95}`)},
		{Name: "blanks", Class: llm.ClassEmpty, Personality: text(strings.Repeat(" ", 64))},
		{Name: "only thoughts", Class: llm.ClassEmpty, Personality: Always(completionResponse(nil, "stop", map[string]any{"reasoning_content": `{"approved":true,"confidence":1}`}))},
		{Name: "cut off", Class: llm.ClassTruncated, Personality: Always(completionResponse(`{"criteria": [{"id": "c1", "evi`, "length", nil))},
		{Name: "two verdicts", Class: llm.ClassAmbiguous, Personality: text(`{"approved":true,"confidence":1} {"approved":false,"confidence":1}`)},
		{Name: "approves and objects", Class: llm.ClassInconsistent, Personality: text(`{"approved":true,"confidence":1,"violations":["no"]}`)},
	}
}

func replyWith(write func(t Thought, nonce string) string) Personality {
	return func(q Question, think func() Thought) Response {
		return completionResponse(write(think(), q.Nonce), "stop", nil)
	}
}

func cutEnvelope() Personality { return cutHalf(func(*Response) {}) }

func replyTwice() Personality {
	return func(q Question, think func() Thought) Response {
		r := formResponse(q, think())
		r.Body = fmt.Sprint(r.Body, "\n", r.Body)
		return r
	}
}
