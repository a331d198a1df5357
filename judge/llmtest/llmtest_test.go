package llmtest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// body is a request in the form that the prompts package and the endpoint produce.
const body = `{"model":"m","messages":[{"role":"system","content":"Audit. {\"nonce\": \"N0nce\"}"},
	{"role":"user","content":"Criteria\n- c1: names what was read\n- c2: says what was checked\n\n<<Mark:context>>\n{\"documentId\":\"DOC-7\"}\n<<Mark:end>>\n<<Mark:data>>\n{\"comments\":\"Read sections 1 to 4\",\"n\":3}\n<<Mark:end>>\n"}]}`

func ask(t testing.TB, ctx context.Context, p *llmtest.Provider, body string) (llm.Exchange, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://judge.example/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Do(req)
	if err != nil {
		return llm.Exchange{}, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return llm.Exchange{}, err
	}
	x := llm.Exchange{Status: res.StatusCode, Body: string(raw), Headers: map[string]string{}}
	for name := range res.Header {
		x.Headers[strings.ToLower(name)] = res.Header.Get(name)
	}
	return x, nil
}

func TestQuestion(t *testing.T) {
	t.Parallel()
	p := llmtest.New(llmtest.OpenAI(), llmtest.Approver)
	if _, err := ask(t, t.Context(), p, body); err != nil {
		t.Fatal(err)
	}
	got := p.Requests()
	if p.Count() != 1 || len(got) != 1 {
		t.Fatalf("%d requests", p.Count())
	}
	q := got[0]
	if q.Model != "m" || q.Nonce != "N0nce" || strings.Join(q.Criteria, " ") != "c1 c2" || q.Rung != llm.RungPrompt ||
		q.Documents["data"] != `{"comments":"Read sections 1 to 4","n":3}` || q.Documents["context"] == "" || q.Path != "/v1/chat/completions" {
		t.Errorf("%+v", q)
	}
}

func TestBrains(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		brain    llmtest.Brain
		approved bool
		status   string
		quote    string
	}{
		"approver": {llmtest.Approver, true, llm.StatusMet, "Read sections 1 to 4"},
		"fooled":   {llmtest.Gullible, true, llm.StatusMet, "Read sections 1 to 4"},
		"rejecter": {llmtest.Rejecter, false, llm.StatusNotMet, ""},
		"unsure":   {llmtest.Unsure, false, llm.StatusCannotAssess, ""},
		"contra":   {llmtest.Contradicting, true, llm.StatusNotMet, ""},
		"liar":     {llmtest.Liar, true, llm.StatusMet, "a quote that nobody wrote, 4711"},
	} {
		x, err := ask(t, t.Context(), llmtest.New(llmtest.OpenAI(), c.brain), body)
		if err != nil {
			t.Fatal(err)
		}
		x.Nonce = "N0nce"
		answer, _, err := llm.Decode(x)
		if err != nil || answer.Approved != c.approved || len(answer.Criteria) != 2 || answer.Criteria[0].Status != c.status || answer.Criteria[0].Evidence != c.quote {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
	}
}

// Every fault gives the class that it declares.
func TestFaultsMatchTheirClass(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range llmtest.Faults() {
		if seen[f.Name] {
			t.Errorf("two faults are called %s", f.Name)
		}
		seen[f.Name] = true
		switch f.Class {
		case llm.ClassNetwork, llm.ClassTimeout, llm.ClassConfig:
			continue // see TestTransportFaults
		}
		if f.Name == "endless body" {
			continue
		}
		x, err := ask(t, t.Context(), llmtest.New(f.Personality, llmtest.Approver), body)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		_, _, err = llm.Decode(x)
		var fail *llm.Error
		if !errors.As(err, &fail) || fail.Class != f.Class || fail.RetryAfter != f.RetryAfter {
			t.Errorf("%s: %v, retry after %v; want %s, %v", f.Name, err, fail.RetryAfter, f.Class, f.RetryAfter)
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d faults", len(seen))
	}
}

func TestTimeIsVirtual(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if _, err := ask(t, t.Context(), llmtest.New(llmtest.Slow(time.Minute), llmtest.Approver), body); err != nil || time.Since(began) != time.Minute {
			t.Errorf("slow: %v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began = time.Now()
		if _, err := ask(t, ctx, llmtest.New(llmtest.Hang(), llmtest.Approver), body); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("hang: %v after %v", err, time.Since(began))
		}
	})
}

func TestTurns(t *testing.T) {
	t.Parallel()
	bad := llmtest.Always(llmtest.Response{Status: 500})
	statuses := func(p llmtest.Personality) (out []int) {
		provider := llmtest.New(p, llmtest.Approver)
		for range 4 {
			x, err := ask(t, t.Context(), provider, body)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, x.Status)
		}
		return out
	}
	if got := statuses(llmtest.Then(2, bad, llmtest.OpenAI())); got[0] != 500 || got[1] != 500 || got[2] != 200 || got[3] != 200 {
		t.Errorf("then: %v", got)
	}
}

// A Provider also works over a socket.
func TestServeHTTP(t *testing.T) {
	server := httptest.NewServer(llmtest.New(llmtest.OpenAI(), llmtest.Rejecter))
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	res, err := client.Post(server.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || !strings.Contains(string(raw), "chat.completion") {
		t.Errorf("%d %s %v", res.StatusCode, raw, err)
	}
}

// Personalities reject requests with their providers' messages.
func TestRefusals(t *testing.T) {
	t.Parallel()
	with := func(member string) string { return strings.Replace(body, "{", "{"+member+",", 1) }
	loaded := func(p llmtest.Personality) llmtest.Personality {
		return func(q llmtest.Question, think func() llmtest.Thought) llmtest.Response {
			q.N++ // skip the first request
			return p(q, think)
		}
	}
	for name, c := range map[string]struct {
		personality llmtest.Personality
		body        string
		status      int
		text        string
	}{
		"OpenAI, unknown parameter":    {llmtest.OpenAI(), with(`"thinking":{}`), 400, "Unrecognized request argument supplied: thinking"},
		"OpenAI, schema not strict":    {llmtest.OpenAI(), with(`"response_format":{"type":"json_schema","json_schema":{"schema":{}}}`), 400, "additionalProperties"},
		"OpenAI, JSON without JSON":    {llmtest.OpenAI(), `{"model":"m","messages":[{"role":"user","content":"hello"}],"response_format":{"type":"json_object"}}`, 400, "the word 'json'"},
		"OpenAI, parallel, no tools":   {llmtest.OpenAI(), with(`"parallel_tool_calls":false`), 400, "only allowed when 'tools'"},
		"reasoning, temperature":       {llmtest.Reasoning(), with(`"temperature":0`), 400, "'temperature' does not support 0"},
		"reasoning, max_tokens":        {llmtest.Reasoning(), with(`"max_tokens":9`), 400, "max_completion_tokens"},
		"Azure, jailbreak":             {llmtest.Azure(), strings.Replace(body, "sections", "jailbreak", 1), 400, "ResponsibleAIPolicyViolation"},
		"Azure, annotated":             {llmtest.Azure(), body, 200, "content_filter_results"},
		"Anthropic, schema ignored":    {llmtest.AnthropicCompat(), with(`"response_format":{"type":"json_schema"}`), 200, "Here is my assessment"},
		"Gemini, list of errors":       {llmtest.Gemini(), with(`"seed":7`), 400, `[{"error"`},
		"Ollama, thoughts beside":      {llmtest.Ollama(), body, 200, `"reasoning":`},
		"vLLM, thoughts in front":      {llmtest.VLLM(), body, 200, `\u003cthink\u003e`},
		"LM Studio, json_object":       {llmtest.LMStudio(), with(`"response_format":{"type":"json_object"}`), 400, "must be 'json_schema' or 'text'"},
		"llama.cpp, loading":           {llmtest.LlamaCpp(), body, 503, "Loading model"},
		"llama.cpp, object as choice":  {loaded(llmtest.LlamaCpp()), with(`"tools":[{}],"tool_choice":{"type":"function"}`), 200, `"I approve."`},
		"DeepSeek, json_schema":        {llmtest.DeepSeek(), with(`"response_format":{"type":"json_schema"}`), 400, "unavailable now"},
		"OpenRouter, 200 with error":   {llmtest.OpenRouter(), body, 200, "Provider returned error"},
		"OpenRouter, afterwards":       {loaded(llmtest.OpenRouter()), body, 200, "chat.completion"},
		"LiteLLM, no choices":          {llmtest.LiteLLM(), body, 200, `"choices":[]`},
		"Groq, json_schema":            {llmtest.Groq(), with(`"response_format":{"type":"json_schema"}`), 400, "does not support response format"},
		"Mistral, seed":                {llmtest.Mistral(), with(`"seed":0`), 422, "extra_forbidden"},
		"prompt only, response_format": {llmtest.PromptOnly(), with(`"response_format":{}`), 400, "response_format"},
		"prompt only, tools":           {llmtest.PromptOnly(), with(`"tools":[]`), 400, "tools"},
	} {
		x, err := ask(t, t.Context(), llmtest.New(c.personality, llmtest.Approver), c.body)
		if err != nil || x.Status != c.status || !strings.Contains(x.Body, c.text) {
			t.Errorf("%s: %d %s, %v; want %d with %s", name, x.Status, x.Body, err, c.status, c.text)
		}
	}
}
