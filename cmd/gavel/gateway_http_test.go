package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// remoteTools serves MCP without sessions: the tools read, write and ask, whose descriptions end with a version, and
// a prompt. ask first requests input, and answers with the returned state.
func remoteTools(t *testing.T, version *atomic.Int64) string {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name, RequestState string }
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		result := `{}`
		switch m.Method {
		case "server/discover":
			result = `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{}}}`
		case "tools/list":
			result = fmt.Sprintf(`{"tools":[{"name":"read"},{"name":"ask"},{"name":"write","description":"version %d"}]}`, version.Load())
		case "prompts/list":
			result = fmt.Sprintf(`{"prompts":[{"name":"p","description":"version %d"}]}`, version.Load()/2)
		case "tools/call":
			result = fmt.Sprintf(`{"content":[{"type":"text","text":"%s: %s"}]}`, m.Params.Name, m.Params.RequestState)
			if m.Params.Name == "ask" && m.Params.RequestState == "" {
				result = `{"resultType":"input_required","requestState":"its own state","inputRequests":{}}`
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// listen follows the lists of a principal. The returned function returns the method of the next notification, "" at
// the end of the stream.
func (s *served) listen(token string) func() string {
	s.t.Helper()
	const body = `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},` +
		`"notifications":{"toolsListChanged":true,"promptsListChanged":true}}}`
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/mcp", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen",
	} {
		r.Header.Set(name, value)
	}
	res, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	next := func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var m struct{ Method string }
				_ = json.Unmarshal([]byte(data), &m)
				return m.Method
			}
		}
		return ""
	}
	if got := next(); !strings.HasSuffix(got, "acknowledged") {
		s.t.Fatalf("the stream begins with %s", got)
	}
	return next
}

// Each principal sees what is allowed to it, and is notified of changes to that alone. The first upstreams of a file
// are applied like later ones. The state that a server stores with a client remains valid after gavel restarts.
func TestGatewayOverHTTP(t *testing.T) {
	t.Parallel()
	var version atomic.Int64
	text := fmt.Sprintf(`logLevel: info
upstreams:
  far:
    url: %q
    privateNetwork: true
    protocol: "2026-07-28"
    allow: [{tools: [read, ask], roles: [agent]}, {prompts: ["*"], roles: [agent]}, {tools: ["*"], roles: [operator]}]
`, remoteTools(t, &version))
	path := putPinned(t, text)
	put(t, path, "logLevel: info\n")
	store := storeIn(t)
	s := serveStore(t, store, "--config", path)
	tools := func(token string) (names []string) {
		_, answer := s.modern(token, "tools/list", "", "")
		result, _ := answer["result"].(object)
		list, _ := result["tools"].([]any)
		for _, tool := range list {
			if name, _ := tool.(object)["name"].(string); strings.HasPrefix(name, "far__") {
				names = append(names, name)
			}
		}
		return names
	}
	if got := tools(s.owner); got != nil {
		t.Errorf("without upstreams there are %q", got)
	}
	put(t, path, text)
	s.hangUp()
	if got := tools(s.agent); !slices.Equal(got, []string{"far__ask", "far__read"}) {
		t.Errorf("the agent sees %q", got)
	}
	if got := tools(s.owner); !slices.Equal(got, []string{"far__ask", "far__read", "far__write"}) {
		t.Errorf("the operator sees %q", got)
	}
	if _, answer := s.modern(s.agent, "tools/call", "far__write", `,"name":"far__write"`); answer["error"] == nil {
		t.Errorf("the agent calls what it may not: %v", answer)
	}
	toAgent, toOwner := s.listen(s.agent), s.listen(s.owner)
	version.Add(1) // of write, which only the operator may use
	pinAll(t, path)
	s.hangUp()
	if got := toOwner(); got != "notifications/tools/list_changed" {
		t.Errorf("the operator is told %s", got)
	}
	version.Add(1) // also of the prompt, which the agent may use
	pinAll(t, path)
	s.hangUp()
	told := []string{toAgent()}

	ask := func(more string) string {
		_, answer := s.modern(s.agent, "tools/call", "far__ask", `,"name":"far__ask"`+more)
		result, _ := json.Marshal(answer["result"])
		return string(result)
	}
	var asked struct{ RequestState string }
	if err := json.Unmarshal([]byte(ask("")), &asked); err != nil || asked.RequestState == "" || strings.Contains(asked.RequestState, "own") {
		t.Fatalf("the state is %q, %v", asked.RequestState, err)
	}
	agent := s.agent
	s.term()
	for got := toAgent(); got != ""; got = toAgent() {
		told = append(told, got)
	}
	if !slices.Equal(told, []string{"notifications/prompts/list_changed"}) {
		t.Errorf("the agent is told %q", told)
	}
	s.stop()
	s = serveStore(t, store, "--config", path)
	s.agent = agent
	if got := ask(fmt.Sprintf(`,"requestState":%q`, asked.RequestState)); !strings.Contains(got, "ask: its own state") {
		t.Errorf("after a restart the answer is %s", got)
	}
}
