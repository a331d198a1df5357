package upstream_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/upstream"
)

// over returns the configuration of a server at a URL.
func over(url, more string) string {
	return fmt.Sprintf("{url: %q, privateNetwork: true, allow: [{tools: ['*'], resources: ['*'], prompts: ['*']}]%s}\n", url, more)
}

// goServer starts an mcp-go server that supports all protocol versions.
func goServer(t testing.TB, seen func(*http.Request)) string {
	t.Helper()
	s := server.NewMCPServer("both", "1", server.WithToolCapabilities(true), server.WithResourceCapabilities(false, true), server.WithPromptCapabilities(true))
	var tool mcp.Tool
	definition := `{"name":"where","description":"d","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`
	if err := json.Unmarshal([]byte(definition), &tool); err != nil {
		t.Fatal(err)
	}
	s.AddTool(tool, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.Meta != nil && r.Params.Meta.ProgressToken != nil {
			_ = s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{"progressToken": r.Params.Meta.ProgressToken, "progress": 1})
		}
		return mcp.NewToolResultText("in " + r.GetString("region", "")), nil
	})
	ask := mcp.NewTool("ask")
	s.AddTool(ask, func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.RequestState != "" {
			return mcp.NewToolResultText("state " + r.Params.RequestState), nil
		}
		return server.NewInputRequestBuilder("own state").Elicit("q", mcp.ElicitationParams{Message: "sure?", RequestedSchema: map[string]any{"type": "object"}}).ToolResult(), nil
	})
	s.AddResource(mcp.NewResource("demo://a", "a"), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: "demo://a", Text: "A"}}, nil
	})
	s.AddResourceTemplate(mcp.NewResourceTemplate("demo://t/{id}", "t"), func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: r.Params.URI, Text: "T"}}, nil
	})
	s.AddPrompt(mcp.NewPrompt("hello"), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return mcp.NewGetPromptResult("greets", nil), nil
	})
	handler := server.NewStreamableHTTPServer(s, server.WithStateful(true))
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen(r)
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// pinAll pins a server's current items, as an operator does.
func pinAll(t testing.TB, text string, names ...string) *upstream.Pins {
	t.Helper()
	m := open(t, text, upstream.Options{})
	p := pins(t)
	for _, name := range names {
		report, err := m.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Set(name, report.Items); err != nil {
			t.Fatal(err)
		}
	}
	m.Close()
	return p
}

// Over HTTP, tools, resources, templates and prompts work in all protocol versions. They use the headers of the
// version and pass on nothing of the caller.
func TestHTTP(t *testing.T) {
	t.Setenv("UPSTREAM_TEST_TOKEN", "hunter22")
	for _, protocol := range []string{"initialize", "2026-07-28"} {
		t.Run(protocol, func(t *testing.T) {
			var headers atomic.Pointer[http.Header]
			url := goServer(t, func(r *http.Request) { headers.Store(&r.Header) })
			text := "  web: " + over(url, fmt.Sprintf(", protocol: %q, headers: {Authorization: 'Bearer ${UPSTREAM_TEST_TOKEN}'}", protocol))
			m := open(t, text, upstream.Options{Pins: pinAll(t, text, "web")})
			reply, err := m.Call(t.Context(), agent, upstream.Request{
				Upstream: "web", Method: "tools/call", Kind: upstream.KindTool, Name: "where", Trace: "00-1-2-01",
				Params: json.RawMessage(`{"arguments":{"region":"eu"}}`),
			})
			if err != nil || !strings.Contains(string(reply.Result), "in eu") {
				t.Fatalf("%s %s, %v", reply.Result, reply.Error, err)
			}
			h := *headers.Load()
			want := map[string]string{"Authorization": "Bearer hunter22", "Traceparent": "00-1-2-01", "Mcp-Protocol-Version": "2025-11-25"}
			if protocol == upstream.ModernVersion {
				want["Mcp-Protocol-Version"], want["Mcp-Method"], want["Mcp-Name"], want["Mcp-Param-Region"] = protocol, "tools/call", "where", "eu"
			}
			for name, value := range want {
				if h.Get(name) != value {
					t.Errorf("header %s is %q, want %q", name, h.Get(name), value)
				}
			}
			for _, r := range []upstream.Request{
				{Method: "resources/read", Kind: upstream.KindResource, Name: "demo://a"},
				{Method: "resources/read", Kind: upstream.KindResource, Name: "demo://t/5"},
				{Method: "prompts/get", Kind: upstream.KindPrompt, Name: "hello"},
			} {
				r.Upstream = "web"
				if reply, err := m.Call(t.Context(), agent, r); err != nil || reply.Error != nil {
					t.Errorf("%s %s: %s, %v", r.Method, r.Name, reply.Error, err)
				}
			}
			_, err = m.Call(t.Context(), agent, upstream.Request{Upstream: "web", Method: "resources/read", Kind: upstream.KindResource, Name: "demo://t/..%2f..%2fa"})
			wantCode(t, err, upstream.CodeUnknown, false)
			_, err = m.Call(t.Context(), agent, upstream.Request{Upstream: "web", Method: "resources/read", Kind: upstream.KindResource, Name: "file:///etc/passwd"})
			wantCode(t, err, upstream.CodeUnknown, false)
		})
	}
}

// The state of an upstream that asks for input is accepted only for the same caller, tool and arguments. It is not
// readable on the way.
func TestRequestStateIsSealed(t *testing.T) {
	url := goServer(t, func(*http.Request) {})
	text := "  web: " + over(url, ", protocol: '2026-07-28'")
	m := open(t, text, upstream.Options{Pins: pinAll(t, text, "web")})
	ask := func(p engine.Principal, tool, params string) (upstream.Reply, error) {
		return m.Call(t.Context(), p, upstream.Request{
			Upstream: "web", Method: "tools/call", Kind: upstream.KindTool, Name: tool, Params: json.RawMessage(params),
			Capabilities: json.RawMessage(`{"elicitation":{"form":{}}}`),
		})
	}
	reply, err := ask(agent, "ask", `{"arguments":{"a":1}}`)
	var result struct{ ResultType, RequestState string }
	if err != nil || json.Unmarshal(reply.Result, &result) != nil || result.ResultType != "input_required" || result.RequestState == "" || strings.Contains(result.RequestState, "own state") {
		t.Fatalf("%s %s, %v", reply.Result, reply.Error, err)
	}
	_, err = m.Call(t.Context(), agent, upstream.Request{Upstream: "web", Method: "tools/call", Kind: upstream.KindTool, Name: "ask", Params: json.RawMessage(`{"arguments":{"a":1}}`)})
	wantCode(t, err, upstream.CodeProtocol, true) // the client cannot be asked
	again := fmt.Sprintf(`{"arguments":{"a":1},"inputResponses":{"q":{"action":"accept","content":{}}},"requestState":%q}`, result.RequestState)
	for _, c := range []struct {
		p            engine.Principal
		tool, params string
	}{{operator, "ask", again}, {agent, "where", again}, {agent, "ask", strings.Replace(again, `"a":1`, `"a":2`, 1)}, {agent, "ask", `{"arguments":{"a":1},"requestState":"own state"}`}} {
		_, err := ask(c.p, c.tool, c.params)
		wantCode(t, err, upstream.CodeInvalid, false)
	}
	if reply, err := ask(agent, "ask", again); err != nil || !strings.Contains(string(reply.Result), "state own state") {
		t.Errorf("%s %s, %v", reply.Result, reply.Error, err)
	}
}

// forgetful is a server that forgets its session before each call, in a way that mode selects. It counts the writes
// that it performed.
func forgetful(t testing.TB, mode string, writes *atomic.Int64) string {
	t.Helper()
	var sessions, calls atomic.Int64
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(body, &m)
		answer := func(member, value string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%q:%s}`, m.ID, member, value)
		}
		switch m.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", fmt.Sprintf("s%d", sessions.Add(1)))
			answer("result", `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"f","version":"1"}}`)
		case "tools/list":
			answer("result", `{"tools":[{"name":"write"}]}`)
		case "tools/call":
			n := calls.Add(1)
			first := n == 1
			switch {
			case mode == "often" && n%2 == 1:
				w.WriteHeader(http.StatusNotFound)
			case first && mode == "404":
				w.WriteHeader(http.StatusNotFound)
			case first && mode == "400":
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
			case first && strings.HasPrefix(mode, "restart "):
				status, text, _ := strings.Cut(strings.TrimPrefix(mode, "restart "), " ")
				n, _ := strconv.Atoi(status)
				w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "text/plain"}[strings.HasPrefix(text, "{")])
				w.WriteHeader(n)
				fmt.Fprint(w, strings.ReplaceAll(text, "ID", string(m.ID)))
			case mode == "always":
				w.WriteHeader(http.StatusUnprocessableEntity)
				fmt.Fprint(w, "no such\n  sessio\x07n")
			case mode == "invalid":
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				answer("error", `{"code":-32602,"message":"region is missing"}`)
			case first && mode == "200":
				writes.Add(1) // it performs the request and only then reports the error
				answer("error", `{"code":-32001,"message":"session expired"}`)
			case first && mode == "cut":
				writes.Add(1)
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					conn.Close()
				}
			case first && mode == "503":
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusServiceUnavailable)
			case first && mode == "sse":
				writes.Add(1)
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n") // the stream then ends
			default:
				writes.Add(1)
				answer("result", `{"content":[],"done":true}`)
			}
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// A write to a server that has forgotten its session is repeated only if it was refused. It is never performed twice,
// and never reported as done if it was not.
func TestForgottenSession(t *testing.T) {
	for mode, c := range map[string]struct {
		code       upstream.Code // "" if done
		mayHaveRun bool
		writes     int64
	}{
		"404": {"", false, 1}, "400": {"", false, 1},
		`restart 400 {"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`: {"", false, 1},
		`restart 400 {"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`:         {"", false, 1},
		`restart 200 {"jsonrpc":"2.0","id":ID,"error":{"code":-32002,"message":"Received request before initialization"}}`:      {"", false, 1},
		"restart 400 Bad Request": {"", false, 1}, "restart 410 gone": {"", false, 1}, "restart 422 unknown session": {"", false, 1}, "restart 404 Not Found": {"", false, 1},
		"restart 500 oops": {upstream.CodeUnavailable, true, 0}, "restart 403 no": {upstream.CodeUnavailable, false, 0},
		"200": {"error", false, 1},
		"cut": {upstream.CodeLost, true, 1}, "sse": {upstream.CodeLost, true, 1}, "503": {upstream.CodeUnavailable, true, 0},
	} {
		t.Run(mode, func(t *testing.T) {
			var writes atomic.Int64
			text := "  web: " + over(forgetful(t, mode, &writes), "")
			m := open(t, text, upstream.Options{Pins: pins(t, [3]string{"web", "tool", `{"name":"write"}`})})
			reply, err := call(t.Context(), m, "web", "write", "")
			switch {
			case c.code == "":
				if err != nil || !strings.Contains(string(reply.Result), "done") {
					t.Errorf("%s, %v", reply.Error, err)
				}
			case c.code == "error":
				if err != nil || !strings.Contains(string(reply.Error), "session expired") {
					t.Errorf("%s, %v", reply.Error, err)
				}
			default:
				wantCode(t, err, c.code, c.mayHaveRun)
			}
			if writes.Load() != c.writes {
				t.Errorf("%d writes were done", writes.Load())
			}
			if _, err := call(t.Context(), m, "web", "write", ""); err != nil {
				t.Errorf("the next one: %v", err)
			}
		})
	}
}

// A call is repeated in a new session only once. If it fails again, the server's own message is returned. An error
// response to the call is its answer, whatever the HTTP status.
func TestRefusedInANewSession(t *testing.T) {
	var writes atomic.Int64
	p := pins(t, [3]string{"web", "tool", `{"name":"write"}`})
	m := open(t, "  web: "+over(forgetful(t, "always", &writes), ""), upstream.Options{Pins: p})
	_, err := call(t.Context(), m, "web", "write", "")
	wantCode(t, err, upstream.CodeUnavailable, false)
	if want := `The server "web" gave no answer: the server answered with status 422: no such session.`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	m = open(t, "  web: "+over(forgetful(t, "invalid", &writes), ""), upstream.Options{Pins: p})
	if reply, err := call(t.Context(), m, "web", "write", ""); err != nil || !strings.Contains(string(reply.Error), "region is missing") {
		t.Errorf("%s, %v", reply.Error, err)
	}
}

// A misbehaving HTTP server fails only its own call, with a code and in time.
func TestHTTPNastyServer(t *testing.T) {
	t.Parallel()
	for mode, code := range map[string]upstream.Code{
		"long": upstream.CodeProtocol, "long event": upstream.CodeProtocol, "other id": upstream.CodeProtocol, "no JSON": upstream.CodeProtocol,
		"deep": upstream.CodeProtocol, "deep event": upstream.CodeProtocol,
		"events without end": upstream.CodeTimeout, "hang": upstream.CodeTimeout, "twice": "",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var m struct {
					ID     json.RawMessage
					Method string
				}
				_ = json.NewDecoder(r.Body).Decode(&m)
				answer := func(id, result string) { fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result) }
				media := "application/json"
				if strings.Contains(mode, "event") || mode == "twice" {
					media = "text/event-stream"
				}
				if m.Method != "tools/call" {
					media = "application/json"
				}
				w.Header().Set("Content-Type", media)
				long := func() {
					for range 200 {
						if _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); err != nil {
							return // gavel has disconnected
						}
					}
				}
				switch {
				case m.Method == "initialize":
					answer(string(m.ID), `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"n","version":"1"}}`)
				case m.Method == "tools/list":
					answer(string(m.ID), `{"tools":[{"name":"do"}]}`)
				case m.Method != "tools/call":
					w.WriteHeader(http.StatusAccepted)
				case mode == "long":
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[],"x":"`, m.ID)
					long()
				case mode == "long event":
					fmt.Fprint(w, "data: ")
					long()
					fmt.Fprint(w, "\n\n")
				case mode == "other id":
					answer("99", `{"content":[]}`)
				case mode == "no JSON":
					fmt.Fprint(w, "<html>")
				case mode == "events without end":
					for r.Context().Err() == nil {
						fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n")
						_ = http.NewResponseController(w).Flush()
					}
				case mode == "deep":
					answer(string(m.ID), deepResult)
				case mode == "deep event":
					fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", m.ID, deepResult)
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				case mode == "hang":
					<-r.Context().Done()
				case mode == "twice":
					for i := range 2 {
						fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"n\":%d}}\n\n", m.ID, i)
					}
				}
			}))
			t.Cleanup(h.Close)
			more := ""
			if code == upstream.CodeTimeout {
				more = ", callTimeout: 300ms"
			}
			m := open(t, "  web: "+over(h.URL, more), upstream.Options{Pins: pins(t, [3]string{"web", "tool", `{"name":"do"}`})})
			reply, err := call(t.Context(), m, "web", "do", "")
			if code != "" {
				wantCode(t, err, code, true)
				if text := "nested more than 500 deep"; strings.HasPrefix(mode, "deep") && !strings.Contains(err.Error(), text) {
					t.Errorf("%v does not say %q", err, text)
				}
			} else if err != nil || string(reply.Result) != `{"n":0}` {
				t.Errorf("%s, %v", reply.Result, err)
			}
		})
	}
}

func countLeftOut(notes []upstream.Note) (n int) {
	for _, note := range notes {
		if note.LeftOut {
			n++
		}
	}
	return n
}

// A tool whose schema names an invalid header is hidden and cannot be called on a server that reads such headers.
// Other tools are not affected.
func TestInvalidParamHeader(t *testing.T) {
	t.Parallel()
	for name, schema := range map[string]string{
		"two of a name": `{"properties":{"a":{"type":"string","x-mcp-header":"Same"},"b":{"type":"string","x-mcp-header":"same"}}}`,
		"no token":      `{"properties":{"a":{"type":"string","x-mcp-header":"A: b"}}}`,
		"no primitive":  `{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}`,
		"no text":       `{"properties":{"a":{"type":"string","x-mcp-header":1}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var called atomic.Int64
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var m struct {
					ID     json.RawMessage
					Method string
				}
				_ = json.NewDecoder(r.Body).Decode(&m)
				result := map[string]string{
					"server/discover": `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`,
					"initialize":      `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"h","version":"1"}}`,
					"tools/list":      `{"tools":[{"name":"bad","inputSchema":` + schema + `},{"name":"good"}]}`,
					"tools/call":      `{"content":[]}`,
				}[m.Method]
				if m.Method == "tools/call" {
					called.Add(1)
				}
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, cmp.Or(result, "{}"))
			}))
			t.Cleanup(h.Close)
			for protocol, want := range map[string]int{"initialize": 2, "2026-07-28": 1} { // an older server does not read such headers
				m := open(t, "  web: "+over(h.URL, fmt.Sprintf(", protocol: %q", protocol)), upstream.Options{Pins: pins(t,
					[3]string{"web", "tool", `{"name":"bad","inputSchema":` + schema + `}`}, [3]string{"web", "tool", `{"name":"good"}`})})
				if r, err := m.Inspect(t.Context(), "web"); err != nil || len(r.Items) != want || countLeftOut(r.Notes) != 2-want {
					t.Errorf("%s: %d items, %v, %v", protocol, len(r.Items), r.Notes, err)
				}
				_, err := call(t.Context(), m, "web", "bad", `{"arguments":{"a":"x","b":"y"}}`)
				if (err == nil) != (want == 2) || want == 1 && called.Load() != 0 {
					t.Errorf("%s: %v, %d calls", protocol, err, called.Load())
				}
				called.Store(0)
				if _, err := call(t.Context(), m, "web", "good", ""); err != nil {
					t.Errorf("%s: %v", protocol, err)
				}
				called.Store(0)
			}
		})
	}
}

// A redirect may lead only to named hosts, and the credentials are not sent there.
func TestRedirects(t *testing.T) {
	t.Setenv("UPSTREAM_TEST_TOKEN", "hunter22")
	var got atomic.Value
	target := goServer(t, func(r *http.Request) { got.Store(r.Header.Get("Authorization")) })
	for name, c := range map[string]struct {
		status int
		hosts  string
		want   string
	}{
		"named":     {307, strings.TrimPrefix(target, "http://"), ""},
		"not named": {307, "other.example", `a host that is not in its "hosts"`},
		"see other": {303, strings.TrimPrefix(target, "http://"), "status 303"},
	} {
		t.Run(name, func(t *testing.T) {
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, c.status) }))
			defer h.Close()
			m := open(t, "  web: "+over(h.URL, fmt.Sprintf(", hosts: [%q], headers: {Authorization: '${UPSTREAM_TEST_TOKEN}'}", c.hosts)), upstream.Options{})
			_, err := m.Inspect(t.Context(), "web")
			if c.want == "" {
				if err != nil || got.Load() != "" {
					t.Errorf("%v, credentials %q", err, got.Load())
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	m := open(t, "  web: {url: 'https://127.0.0.1:1/mcp'}\n", upstream.Options{})
	if _, err := m.Inspect(t.Context(), "web"); err == nil || !strings.Contains(err.Error(), "privateNetwork") {
		t.Errorf("a private address: %v", err)
	}
}

// With first-use pinning, the items that a process's first session saw are pinned.
func TestFirstUse(t *testing.T) {
	changes := make(chan upstream.Change, 10)
	m := open(t, "  web: "+over(goServer(t, func(*http.Request) {}), ", pinning: first-use"), upstream.Options{Changed: func(c upstream.Change) { changes <- c }})
	m.PinOnFirstUse()
	for range upstream.Kinds {
		select {
		case <-changes:
		case <-time.After(10 * time.Second):
			t.Fatal("nothing was learned")
		}
	}
	if got := publicNames(m.List(agent, upstream.KindTool)); got != "web__ask web__where" {
		t.Errorf("listed are %s", got)
	}
	if reply, err := call(t.Context(), m, "web", "where", `{"arguments":{}}`); err != nil || reply.Result == nil {
		t.Errorf("%s, %v", reply.Error, err)
	}
}
