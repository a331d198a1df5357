package llm

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// formless accepts one form of the question and answers all others with status and body.
type formless struct {
	takes  Rung
	status int
	body   string
	asked  []Rung
}

func (f *formless) Do(req *http.Request) (*http.Response, error) {
	var sent map[string]json.RawMessage
	if err := json.NewDecoder(req.Body).Decode(&sent); err != nil {
		return nil, err
	}
	rung := rungOf(sent)
	f.asked = append(f.asked, rung)
	status, body := f.status, f.body
	if rung == f.takes {
		status, body = 200, `{"choices":[{"finish_reason":"stop","message":{"content":"{\"approved\":true,\"confidence\":0.9,\"nonce\":\"N\"}"}}]}`
		if rung == RungTool {
			body = `{"choices":[{"finish_reason":"tool_calls","message":{"tool_calls":[{"id":"1","type":"function","function":{"name":"submit_verdict","arguments":"{\"approved\":true,\"confidence\":0.9}"}}]}}]}`
		}
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewBufferString(body)), Request: req}, nil
}

// However an endpoint words its rejection of a form, the next form is tried.
func TestRefusedFormsAreWordedInManyWays(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]struct {
		status int
		body   string
	}{
		"llama-cpp-python": {500, `{"error":{"message":"[{'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg': \"Input should be 'text' or 'json_object'\"}]","type":"internal_server_error"}}`},
		"llama.cpp":        {500, `{"error":{"code":500,"message":"Failed to parse grammar","type":"server_error"}}`},
		"llama.cpp, 400":   {400, `{"error":{"code":400,"message":"Failed to initialize samplers: failed to parse grammar","type":"invalid_request_error"}}`},
		"Gemini":           {400, `[{"error":{"code":400,"message":"Invalid JSON payload received. Unknown name \"additionalProperties\" at 'generation_config.response_schema': Cannot find field.","status":"INVALID_ARGUMENT"}}]`},
		"Gemini, a schema": {400, `{"error":{"code":400,"message":"The specified schema produces a constraint that has too many states for serving.","status":"INVALID_ARGUMENT"}}`},
		"OpenRouter":       {404, `{"error":{"message":"No endpoints found that can handle the requested parameters.","code":404}}`},
		"Mistral":          {422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","response_format","json_schema"],"msg":"Extra inputs are not permitted"}]},"type":"invalid_request_error"}`},
		"DeepSeek":         {400, `{"error":{"message":"This response_format type is unavailable now","type":"invalid_request_error"}}`},
		"Cohere":           {422, `{"message":"response_format is of type string and has to be an Object"}`},
		"TGI":              {422, `{"error":"Input validation error: grammar","error_type":"validation"}`},
		"no reason":        {500, `Internal Server Error`},
		"an HTML page":     {500, `<html>Internal Server Error</html>`},
	} {
		p := &formless{takes: RungTool, status: refusal.status, body: refusal.body}
		e := mustEndpoint(t, Model{ID: "m"}, Config{Doer: p})
		reply, err := e.wrapNegotiate(e).Complete(t.Context(), testRequest())
		if err != nil || !reply.Answer.Approved || reply.Rung != RungTool || len(p.asked) != 2 {
			t.Errorf("%s: %+v after %v, %v", name, reply.Answer, p.asked, err)
		}
	}
}

// If no form helps, the class follows from the status, the next question is asked in the best form again, and
// the advice explains how to configure a form.
func TestUselessAnswerFormsAreNotKept(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status   int
		body     string
		class    Class
		requests int
		advice   string
	}{
		"a case that names a parameter": {400, `{"error":{"message":"Could not process: the temperature of the schema"}}`, ClassRefusal, 5, "--llm-structured"},
		"a model that is not there":     {404, `{"error":{"message":"model 'nope' not found, see the parameters"}}`, ClassNotFound, 1, "LLM_JUDGE_MODEL"},
		"a wall":                        {403, `the schema is blocked`, ClassRefusal, 1, ""},
		"no reason":                     {500, `Internal Server Error`, ClassUpstream, 2, "--llm-structured"},
		"an overloaded one":             {503, `the schema is being loaded`, ClassOverloaded, 1, ""},
	} {
		p := &formless{status: tt.status, body: tt.body}
		e := mustEndpoint(t, Model{ID: "m"}, Config{Doer: p})
		_, err := e.wrapNegotiate(e).Complete(t.Context(), testRequest())
		fail := asError(err)
		if fail == nil || fail.Class != tt.class || fail.Calls != tt.requests || len(p.asked) != tt.requests || !strings.Contains(fail.advice(), tt.advice) {
			t.Errorf("%s: %v after %v: %+v", name, err, p.asked, fail)
		}
		if at := e.Capabilities(); at.Rung != RungJSONSchema || len(at.Dropped) > 0 {
			t.Errorf("%s: asked with %+v from then on", name, at)
		}
	}
}

// An endpoint that is down is asked in another form only once a minute, and one that has answered never.
func TestGuessesAreRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &formless{status: 500}
		e := mustEndpoint(t, Model{ID: "m"}, Config{Doer: p})
		client := e.wrapNegotiate(e)
		ask := func(want int) {
			t.Helper()
			before := len(p.asked)
			_, err := client.Complete(t.Context(), testRequest())
			if got := len(p.asked) - before; got != want {
				t.Errorf("%d requests, want %d: %v", got, want, err)
			}
		}
		ask(2)
		ask(1)
		<-time.After(guessInterval)
		ask(2)
		p.takes = RungJSONSchema
		ask(1)
		p.takes = ""
		<-time.After(guessInterval)
		ask(1)
	})
}
