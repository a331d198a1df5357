package face_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/mcp/face"
)

const simple = `{"name":"simple","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`

func TestHTTPWalk(t *testing.T) {
	s := serveHTTP(t, newEngine(t))
	ann := s.hello()
	ann.call("workflow.define", simple)
	id := ann.call("workflow_start", `{"type":"simple","context":{"n":12345678901234567000}}`).StructuredContent["id"].(string)
	raw := ann.ask(`{"jsonrpc":"2.0","id":90071992547409931234,"method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":"` + id + `","action":"go","data":{"price":1.50}}}}`)
	if !strings.HasPrefix(string(raw.body), `{"jsonrpc":"2.0","id":90071992547409931234,"result":`) || raw.status != http.StatusOK {
		t.Errorf("%d %.200s", raw.status, raw.body)
	}
	if got := ann.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.status","arguments":{"id":"` + id + `"}}}`); !strings.Contains(string(got.body), `\"price\":1.50`) || !strings.Contains(string(got.body), `12345678901234567000`) {
		t.Errorf("literals changed: %s", got.body)
	}
	if r := s.hello("Who", "bob").call("workflow.status", `{"id":"`+id+`"}`); r.code() != "unknown_instance" {
		t.Errorf("bob sees ann's instance: %v", r.StructuredContent)
	}
	a := s.do(s.modernRequest("7", "tools/call", "workflow.status", `,"name":"workflow.status","arguments":{"id":"`+id+`"}`))
	if a.status != http.StatusOK || !strings.Contains(string(a.body), `\"complete\":true`) || a.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("%d %.300s", a.status, a.body)
	}
	if got := ann.do(ann.request(http.MethodDelete, "", ann.headers...)); got.status != http.StatusOK {
		t.Errorf("delete: %d %s", got.status, got.body)
	}
	if got := ann.ask(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); got.status != http.StatusNotFound || got.code() != "unknown_session" {
		t.Errorf("an ended session answers: %d %s", got.status, got.body)
	}
}

// Invalid requests are rejected before the library sees them, with a status and a stable code.
func TestHTTPRefusals(t *testing.T) {
	s := serveHTTP(t, newEngine(t), func(c *face.Config) { c.Limits.MaxLine = 2000 })
	ann := s.hello()
	id := ann.headers[1]
	legacy := []string{"Mcp-Session-Id", id}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, c := range map[string]struct {
		method, body string
		headers      []string
		status       int
		code         string
	}{
		"nobody":                    {"POST", ping, []string{"Who", ""}, 401, "unauthenticated"},
		"nobody, GET":               {"GET", "", []string{"Who", "", "Mcp-Session-Id", id}, 401, "unauthenticated"},
		"no session":                {"POST", ping, nil, 400, "session_required"},
		"forged session":            {"POST", ping, []string{"Mcp-Session-Id", "mcp-session-01234567-89ab-cdef-0123-456789abcdef"}, 404, "unknown_session"},
		"another's session":         {"POST", ping, []string{"Mcp-Session-Id", id, "Who", "bob"}, 404, "unknown_session"},
		"another's stream":          {"GET", "", []string{"Mcp-Session-Id", id, "Who", "bob"}, 404, "unknown_session"},
		"another's session, DELETE": {"DELETE", "", []string{"Mcp-Session-Id", id, "Who", "bob"}, 404, "unknown_session"},
		"GET without session":       {"GET", "", nil, 400, "session_required"},
		"GET without Accept":        {"GET", "", append(legacy, "Accept", "application/json"), 406, "not_acceptable"},
		"GET, modern":               {"GET", "", []string{"Mcp-Protocol-Version", "2026-07-28"}, 405, "method_not_allowed"},
		"DELETE, modern":            {"DELETE", "", []string{"Mcp-Protocol-Version", "2026-07-28"}, 405, "method_not_allowed"},
		"PUT":                       {"PUT", ping, legacy, 405, "method_not_allowed"},
		"OPTIONS":                   {"OPTIONS", "", legacy, 405, "method_not_allowed"},
		"text":                      {"POST", ping, append(legacy, "Content-Type", "text/plain"), 415, "unsupported_media_type"},
		"no type":                   {"POST", ping, append(legacy, "Content-Type", ""), 415, "unsupported_media_type"},
		"charset":                   {"POST", ping, append(legacy, "Content-Type", "application/json; charset=utf-16"), 415, "unsupported_media_type"},
		"gzip":                      {"POST", ping, append(legacy, "Content-Encoding", "gzip"), 415, "unsupported_media_type"},
		"Accept":                    {"POST", ping, append(legacy, "Accept", "text/html"), 406, "not_acceptable"},
		"unknown version":           {"POST", ping, append(legacy, "Mcp-Protocol-Version", "1999-01-01"), 400, "invalid_request"},
		"empty":                     {"POST", " ", legacy, 400, "parse_error"},
		"not JSON":                  {"POST", `{"jsonrpc":`, legacy, 400, "parse_error"},
		"batch":                     {"POST", `[` + ping + `]`, legacy, 400, "invalid_request"},
		"not UTF-8":                 {"POST", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\xff\"}", legacy, 400, "invalid_data"},
		"key twice":                 {"POST", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, legacy, 400, "invalid_request"},
		"key in capitals":           {"POST", `{"jsonrpc":"2.0","id":1,"METHOD":"ping"}`, legacy, 400, "invalid_request"},
		"id null":                   {"POST", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, legacy, 400, "invalid_request"},
		"id of a fraction":          {"POST", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, legacy, 400, "invalid_request"},
		"too large":                 {"POST", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("a", 2000) + `"}}`, legacy, 413, "too_large"},
		"initialize without id":     {"POST", `{"jsonrpc":"2.0","method":"initialize","params":{}}`, nil, 400, "invalid_request"},
		"unknown tool":              {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.start!","arguments":{}}}`, legacy, 200, "unknown_tool"},
		"unknown tool, modern":      {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + modernMeta + `},"name":"nothing"}}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "nothing"}, 400, "unknown_tool"},
		"resume what is not there":  {"GET", "", append(legacy, "Last-Event-ID", "17"), 400, "invalid_request"},
		"an answer to no question":  {"POST", `{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{}}}`, legacy, 400, "invalid_request"},
		"an error for no question":  {"POST", `{"jsonrpc":"2.0","id":"x","error":{"code":-1,"message":"x"}}`, legacy, 400, "invalid_request"},
		"an answer, modern":         {"POST", `{"jsonrpc":"2.0","id":1,"result":{"x":1}}`, []string{"Mcp-Protocol-Version", "2026-07-28"}, 400, "invalid_request"},
		"params as a list":          {"POST", `{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, legacy, 400, "invalid_request"},
		"params as a list, modern":  {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":["x"]}`, []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 400, "invalid_request"},
		"params as a number":        {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":7}`, legacy, 400, "invalid_request"},
		"name as a number":          {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`, legacy, 200, "invalid_request"},
		"cursor as a number":        {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":7}}`, legacy, 200, "invalid_request"},
		"complete without params":   {"POST", `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{}}`, legacy, 200, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.do(s.request(c.method, c.body, c.headers...))
			if a.status != c.status || a.code() != c.code {
				t.Errorf("got %d %q, want %d %q: %s", a.status, a.code(), c.status, c.code, a.body)
			}
			if goWords.Match(a.body) {
				t.Errorf("words of the program: %s", a.body)
			}
			if kind := a.header.Get("Content-Type"); kind != "application/json" || !json.Valid(a.body) {
				t.Errorf("%s: %s", kind, a.body)
			}
		})
	}
	if a := ann.ask(ping); a.status != http.StatusOK || string(a.body) != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("afterwards: %d %s", a.status, a.body)
	}
}

// goWords match words of Go's decoder, which mean nothing to callers.
var goWords = regexp.MustCompile(`unmarshal|struct|mcp\.|map\[|interface|json:|sampling`)

// Methods of one protocol era do not exist in the other.
func TestHTTPErasAreApart(t *testing.T) {
	s := serveHTTP(t, newEngine(t))
	ann := s.hello()
	if a := ann.ask(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["workflow://instances/x"]}}}`); a.status != http.StatusOK || !strings.Contains(string(a.body), `"code":-32601`) {
		t.Errorf("listen: %d %s", a.status, a.body)
	}
	for _, method := range []string{"ping", "initialize", "resources/subscribe"} {
		if a := s.do(s.modernRequest("1", method, "", "")); a.status != http.StatusNotFound || !strings.Contains(string(a.body), `"code":-32601`) {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
	}
	if a := s.do(s.modernRequest("1", "tools/list", "", "", "Mcp-Session-Id", ann.headers[1])); a.status != http.StatusOK || a.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("a session where there is none: %d %s", a.status, a.body)
	}
	mixed := s.modernRequest("1", "tools/list", "", "")
	mixed.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	mixed.Header.Set("Mcp-Session-Id", ann.headers[1])
	if a := s.do(mixed); a.status != http.StatusBadRequest {
		t.Errorf("header and message of two eras: %d %s", a.status, a.body)
	}
}

func TestHTTPNotificationsAreAccepted(t *testing.T) {
	s := serveHTTP(t, newEngine(t))
	ann := s.hello()
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":90071992547409931234}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
	} {
		if a := ann.ask(body); a.status != http.StatusAccepted || len(a.body) != 0 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}
