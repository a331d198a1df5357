package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/term"
)

// call calls a tool over MCP without a session (2026-07-28), and returns the tool's answer.
func (s *served) call(token, tool, arguments string) (isError bool, text string) {
	s.t.Helper()
	status, answer := s.stateless(token, tool, arguments)
	result, _ := answer["result"].(object)
	if status != http.StatusOK || result == nil {
		s.t.Fatalf("%s: %d %v", tool, status, answer)
	}
	isError, _ = result["isError"].(bool)
	return isError, fmt.Sprint(answerOf(result))
}

func (s *served) stateless(token, tool, arguments string) (int, object) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+gavel.MCPPath, strings.NewReader(fmt.Sprintf(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
			`"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, arguments)))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		r.Header.Set(name, value)
	}
	return s.answerTo(r)
}

// answerTo returns the JSON of an answer, or of the last event of a stream.
func (s *served) answerTo(r *http.Request) (int, object) {
	s.t.Helper()
	resp, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		raw = raw[bytes.LastIndex(raw, []byte("data:"))+len("data:"):]
	}
	var answer object
	if err := json.Unmarshal(raw, &answer); err != nil {
		s.t.Fatalf("%s: %v: %.300q", resp.Status, err, raw)
	}
	return resp.StatusCode, answer
}

// TestQuotasOfAServer: each quota is rejected with its own code, over REST and MCP alike. It limits one principal,
// and no operator.
func TestQuotasOfAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "guarded.json"), strict)
	const scripted = `{"name":"scripted","initialState":"a","states":{"a":{"transitions":{"go":{"target":"a","validator":"() => ({valid: true, confidence: 1})"}}}}}`
	put(t, filepath.Join(dir, "scripted.json"), scripted)
	mine := func(name string) string { return strings.Replace(loose, "guarded", name, 1) }
	begin := func(s *served, token, workflow string) (int, object) {
		return s.ask(token, http.MethodPost, "/v1/instances", fmt.Sprintf(`{"type":%q}`, workflow))
	}
	for _, c := range []struct {
		code   string
		status int
		flags  []string
		use    func(s *served) // until the quota is used up
		rest   func(s *served, token string) (int, object)
		tool   string
		args   string
	}{
		{
			code: "too_many_definitions", status: http.StatusConflict, flags: []string{"--quota-definitions", "1"},
			use: func(s *served) { s.must(s.agent, http.MethodPut, "/v1/definitions/one", mine("one")) },
			rest: func(s *served, token string) (int, object) {
				return s.ask(token, http.MethodPut, "/v1/definitions/two", mine("two"))
			},
			tool: "workflow.define", args: mine("three"),
		},
		{
			code: "too_many_instances", status: http.StatusConflict, flags: []string{"--quota-instances", "1"},
			use:  func(s *served) { s.begin(s.agent, "guarded") },
			rest: func(s *served, token string) (int, object) { return begin(s, token, "guarded") },
			tool: "workflow.start", args: `{"type":"guarded"}`,
		},
		{
			code: "bytes_spent", status: http.StatusTooManyRequests, flags: []string{"--quota-bytes", "1"},
			use:  func(s *served) { s.begin(s.agent, "guarded") },
			rest: func(s *served, token string) (int, object) { return begin(s, token, "guarded") },
			tool: "workflow.start", args: `{"type":"guarded"}`,
		},
		{
			code: "worker_time_spent", status: http.StatusTooManyRequests, flags: []string{"--quota-worker-time", "1ns"},
			use: func(s *served) {
				s.must(s.agent, http.MethodPost, "/v1/instances/"+s.begin(s.agent, "scripted")+"/advance", `{"action":"go"}`)
			},
			rest: func(s *served, token string) (int, object) {
				return s.ask(token, http.MethodPost, "/v1/decide", `{"workflow":"scripted","state":"a","action":"go"}`)
			},
		},
	} {
		t.Run(c.code, func(t *testing.T) {
			t.Parallel()
			s := serveGavel(t, append([]string{"--definitions", dir}, c.flags...)...)
			c.use(s)
			if status, problem := c.rest(s, s.agent); status != c.status || problem["code"] != c.code {
				t.Errorf("REST: %d %v", status, problem)
			}
			if c.tool != "" {
				if isError, text := s.call(s.agent, c.tool, c.args); !isError || !strings.Contains(text, c.code) {
					t.Errorf("MCP: %v %s", isError, text)
				}
			}
			if status, answer := c.rest(s, s.owner); status/100 != 2 {
				t.Errorf("an operator is bound: %d %v", status, answer)
			}
		})
	}
}

// TestRateOfAServer: the rate counts both faces together, separately for each principal.
func TestRateOfAServer(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--rate", "0.001", "--rate-burst", "2")
	other := s.token("other")
	s.must(s.agent, http.MethodGet, "/v1/whoami", "")
	s.call(s.agent, "workflow.list", `{}`)
	if status, problem := s.ask(s.agent, http.MethodGet, "/v1/whoami", ""); status != http.StatusTooManyRequests || problem["code"] != "rate_limited" {
		t.Errorf("REST: %d %v", status, problem)
	}
	if status, problem := s.stateless(s.agent, "workflow.list", `{}`); status != http.StatusTooManyRequests || problem["code"] != "rate_limited" {
		t.Errorf("MCP: %d %v", status, problem)
	}
	s.must(other, http.MethodGet, "/v1/whoami", "")
	for range 5 {
		s.must(s.owner, http.MethodGet, "/v1/whoami", "")
	}
}

// TestRateOfASidecar: with --auth none there is a limit only if one was set, and then the answer names the flag.
func TestRateOfASidecar(t *testing.T) {
	t.Parallel()
	free := serveGavel(t, "--auth", "none", "--rate-burst", "1")
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() {
			for range 40 { // more than 1,000 a second
				if status, answer := free.ask("", http.MethodGet, "/v1/whoami", ""); status != http.StatusOK {
					t.Errorf("%d %v", status, answer)
					return
				}
			}
		})
	}
	together.Wait()

	limited := serveGavel(t, "--auth", "none", "--rate", "0.001", "--rate-burst", "1")
	limited.must("", http.MethodGet, "/v1/whoami", "")
	status, problem := limited.ask("", http.MethodGet, "/v1/whoami", "")
	if detail := fmt.Sprint(problem["detail"]); status != http.StatusTooManyRequests || !strings.Contains(detail, "--rate") || !strings.Contains(detail, "serve.rate") {
		t.Errorf("%d %v", status, problem)
	}
}

// TestWrongLimits: invalid limits are rejected before anything is opened.
func TestWrongLimits(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--quota-bytes=-1", "--quota-worker-time=-1s", "--rate=-1", "--rate=NaN", "--rate-burst=0", "--public-url=gavel.example.org", "--public-url=https://a:b@c"} {
		name, _, _ := strings.Cut(flag, "=")
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"serve", "--store", storeIn(t), "--listen", "127.0.0.1:0", flag}, strings.NewReader(""), &out, &errs)
		if code != term.ExitUsage || !strings.Contains(errs.String(), name) {
			t.Errorf("%s: %d %s", flag, code, &errs)
		}
	}
}
