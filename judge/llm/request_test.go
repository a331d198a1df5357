package llm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testSchema has keys in an order that sorting would change.
const testSchema = `{"type":"object","properties":{"reasoning":{"type":"string"},"approved":{"type":"boolean"},"confidence":{"type":"number"}},"required":["reasoning","approved","confidence"],"additionalProperties":false}`

func testRequest() Request {
	return Request{
		System: "You judge <moves>.", User: "Is it so?", Shape: "Answer as JSON: {\"approved\": …}",
		Schema: json.RawMessage(testSchema), Nonce: "n0nce",
	}
}

func mustEndpoint(t testing.TB, m Model, cfg Config) *endpoint {
	t.Helper()
	if m.BaseURL == "" {
		m.BaseURL = "https://llm.example"
	}
	cfg.Models = []Model{m}
	cfg = cfg.withDefaults()
	e, err := newEndpoint(cfg.Models[0], cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// sentBy returns the top-level members of the body that an endpoint would send now.
func sentBy(t *testing.T, e *endpoint, req Request) map[string]json.RawMessage {
	t.Helper()
	at, _ := e.ladder.current()
	body, err := e.encodeRequest(req, at)
	if err != nil {
		t.Fatal(err)
	}
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatalf("the body is no JSON: %v\n%s", err, body)
	}
	return sent
}

func TestBodyPerRung(t *testing.T) {
	t.Parallel()
	const (
		system   = `{"role":"system","content":"You judge \u003cmoves\u003e."}`
		shaped   = `{"role":"system","content":"You judge \u003cmoves\u003e.\n\nAnswer as JSON: {\"approved\": …}"}`
		user     = `{"role":"user","content":"Is it so?"}`
		ordinary = `"stream":false,"seed":0,`
	)
	cases := map[Rung]string{
		RungJSONSchema: `{"model":"m","messages":[` + system + `,` + user + `],"stream":false,` +
			`"response_format":{"type":"json_schema","json_schema":{"name":"verdict","schema":` + testSchema + `,"strict":true}},"seed":0,"temperature":0,"max_tokens":1024}`,
		RungTool: `{"model":"m","messages":[` + system + `,` + user + `],` + ordinary +
			`"tools":[{"function":{"name":"submit_verdict","description":"Submit the verdict.","parameters":` + testSchema + `},"type":"function"}],` +
			`"tool_choice":"required","parallel_tool_calls":false,"temperature":0,"max_tokens":1024}`,
		RungJSONObject: `{"model":"m","messages":[` + shaped + `,` + user + `],"stream":false,` +
			`"response_format":{"type":"json_object"},"seed":0,"temperature":0,"max_tokens":1024}`,
		RungPrompt: `{"model":"m","messages":[` + shaped + `,` + user + `],` + ordinary + `"temperature":0,"max_tokens":1024}`,
	}
	for rung, want := range cases {
		t.Run(string(rung), func(t *testing.T) {
			t.Parallel()
			e := mustEndpoint(t, Model{ID: "m", Rung: rung}, Config{})
			at, _ := e.ladder.current()
			got, err := e.encodeRequest(testRequest(), at)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStrictToolsWhereDocumented(t *testing.T) {
	t.Parallel()
	sent := sentBy(t, mustEndpoint(t, Model{ID: "m", Rung: RungTool, BaseURL: "https://api.openai.com"}, Config{}), testRequest())
	if !strings.Contains(string(sent["tools"]), `"strict":true`) {
		t.Errorf("tools = %s, want strict", sent["tools"])
	}
}

func TestBoundsOfTheAnswer(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, base string
		config     int
		request    int
		want       map[string]string
	}{
		{"default", "https://x.example", 0, 0, map[string]string{"max_tokens": "1024"}},
		{"configured", "https://x.example", 500, 0, map[string]string{"max_tokens": "500"}},
		{"asked", "https://x.example", 500, 2048, map[string]string{"max_tokens": "2048"}},
		{"OpenAI", "https://api.openai.com", 0, 0, map[string]string{"max_completion_tokens": "1024"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			req := testRequest()
			req.MaxTokens = c.request
			sent := sentBy(t, mustEndpoint(t, Model{ID: "m", BaseURL: c.base}, Config{MaxTokens: c.config}), req)
			got := map[string]string{}
			for _, p := range []string{"max_tokens", "max_completion_tokens"} {
				if v, ok := sent[p]; ok {
					got[p] = string(v)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	type message struct{ Role, Content string }
	req := Request{System: "sys", User: "user", Shape: "shape", Complaint: "not so", Schema: json.RawMessage(testSchema)}
	cases := []struct {
		name string
		rung Rung
		req  Request
		want []message
	}{
		{"a complaint stands behind the data", RungTool, req, []message{{"system", "sys"}, {"user", "user\n\nnot so"}}},
		{"the shape where nothing enforces it", RungPrompt, req, []message{{"system", "sys\n\nshape"}, {"user", "user\n\nnot so"}}},
		{"json_object needs the word", RungJSONObject, req, []message{{"system", "sys\n\nshape\n\nAnswer with one JSON object."}, {"user", "user\n\nnot so"}}},
		{"no system", RungPrompt, Request{User: "user"}, []message{{"user", "user"}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sent := sentBy(t, mustEndpoint(t, Model{ID: "m", Rung: c.rung}, Config{}), c.req)
			var got []message
			if err := json.Unmarshal(sent["messages"], &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSchemaIsNeeded(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "null", "true", "{", `{"a":1}}`} {
		e := mustEndpoint(t, Model{ID: "m"}, Config{})
		at, _ := e.ladder.current()
		if body, err := e.encodeRequest(Request{User: "u", Schema: json.RawMessage(schema)}, at); err == nil {
			t.Errorf("schema %q: sent %s", schema, body)
		}
	}
}

func TestNewEndpointRefuses(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		model Model
		want  string
	}{
		{"no ID", Model{Name: "judge", BaseURL: "https://x.example"}, `"judge"`},
		{"no base URL", Model{ID: "m"}, "base URL"},
		{"http to the world", Model{ID: "m", BaseURL: "http://x.example"}, "https"},
		{"thinking", Model{ID: "m", BaseURL: "https://x.example", Thinking: "hard"}, `"hard"`},
		{"rung", Model{ID: "m", BaseURL: "https://x.example", Rung: "xml"}, `"xml"`},
		{"a key of two lines", Model{ID: "m", BaseURL: "https://x.example", APIKey: "sk-secret\nX-Evil: 1"}, "API key"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := newEndpoint(c.model, Config{}.withDefaults())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("newEndpoint = %v, want an error with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "sk-secret") {
				t.Errorf("the error shows the key: %v", err)
			}
		})
	}
	if _, err := newEndpoint(Model{ID: "m", BaseURL: "http://x.example"}, Config{Private: true}.withDefaults()); err != nil {
		t.Errorf("http where it is allowed: %v", err)
	}
}
