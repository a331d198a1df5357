package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/auth"
)

// hostile is one request that a server must survive. These placeholders occur in request:
//   - {HOST} is the server's address.
//   - {AGENT}, {OTHER}, {OPERATOR}, {REVOKED}, {EXPIRED}, {WRONG} and {SCOPED} are tokens.
//   - {MINE} is an instance of AGENT; {SESSION} and {OTHERS} are the MCP sessions of AGENT and OTHER.
//   - {LONG} is 40 KB, {HUGE} is 1 MB, and {FLOOD} is a body just above the limit.
type hostile struct {
	name    string
	request string
	// want lists the statuses that reject it; 0 is a closed connection without an answer.
	want []int
	// code is the stable code of the rejection; "" if it is not a problem document of gavel.
	code string
	// answers is the maximum number of answers on the connection; 0 is one.
	answers int
}

// hostileBody is the body limit of the server under attack.
const hostileBody = 64 << 10

// leaks matches what no rejection may contain: source and stack locations, secrets, and other principals' data.
var leaks = regexp.MustCompile(`goroutine |\.go:\d|panic|gavel\.db|gavel\.tokens|gavel\.key|/tmp/|gvl_|sha256|topsecret|SQLITE|sqlite`)

func post(path, token, body string, more ...string) string {
	head := []string{"POST " + path + " HTTP/1.1", "Host: {HOST}", "Content-Type: application/json", "Accept: application/json, text/event-stream", fmt.Sprintf("Content-Length: %d", len(body))}
	if token != "" {
		head = append(head, "Authorization: Bearer "+token)
	}
	return strings.Join(append(head, more...), "\r\n") + "\r\n\r\n" + body
}

func read(path, token string, more ...string) string {
	head := []string{"GET " + path + " HTTP/1.1", "Host: {HOST}"}
	if token != "" {
		head = append(head, "Authorization: Bearer "+token)
	}
	return strings.Join(append(head, more...), "\r\n") + "\r\n\r\n"
}

// calling returns an MCP call of a tool.
func calling(token, tool, arguments string, more ...string) string {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments)
	return strings.Replace(post("/mcp", token, body, more...), fmt.Sprintf("Content-Length: %d", len(body)), "Content-Length: {LENGTH}", 1)
}

// attack is a server with another principal's data in it.
type attack struct {
	*served
	fill  *strings.Replacer
	words map[string]string
}

func newAttack(t *testing.T, args ...string) *attack {
	t.Helper()
	a := &attack{served: serveGavel(t, append([]string{"--max-body", fmt.Sprint(hostileBody)}, args...)...)}
	a.must(a.owner, http.MethodPost, "/v1/definitions", spinning)
	a.must(a.owner, http.MethodPost, "/v1/definitions", pingPong)
	revoked := a.token("gone")
	runGavel(t, "token", "revoke", "--store", a.store, strings.Split(revoked, "_")[1])
	expired := a.token("late", "--expires", "1h")
	a.expire(expired)
	scoped := a.token("narrow", "--principal", "local-agents-friend", "--workflows", "ping-*")
	other := a.token("other")
	mine := a.must(a.agent, http.MethodPost, "/v1/instances", `{"type":"gate","context":{"word":"topsecret"}}`)["id"].(string)
	parts := strings.Split(a.agent, "_")
	a.words = map[string]string{
		"{HOST}": strings.TrimPrefix(a.url, "http://"), "{AGENT}": a.agent, "{OPERATOR}": a.owner, "{OTHER}": other,
		"{REVOKED}": revoked, "{EXPIRED}": expired, "{SCOPED}": scoped, "{MINE}": mine, "{SESSION}": a.session(a.agent), "{OTHERS}": a.session(other),
		"{WRONG}": "gvl_" + parts[1] + "_" + strings.SplitN(a.owner, "_", 3)[2],
		"{LONG}":  strings.Repeat("x", 40<<10), "{HUGE}": strings.Repeat("x", 1<<20), "{FLOOD}": strings.Repeat("x", hostileBody+1),
	}
	var pairs []string
	for k, v := range a.words {
		pairs = append(pairs, k, v)
	}
	a.fill = strings.NewReplacer(pairs...)
	return a
}

// expire makes a token expire.
func (s *served) expire(token string) {
	s.t.Helper()
	path := filepath.Join(filepath.Dir(s.store), auth.TokensFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	var file struct {
		Version int              `json:"version"`
		Tokens  []map[string]any `json:"tokens"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		s.t.Fatal(err)
	}
	for _, t := range file.Tokens {
		if t["id"] == strings.Split(token, "_")[1] {
			t["expiresAt"] = "2020-01-01T00:00:00Z"
		}
	}
	if raw, err = json.Marshal(file); err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path+".new", raw, 0o600), os.Rename(path+".new", path)); err != nil {
		s.t.Fatal(err)
	}
}

// session begins an MCP session.
func (a *attack) session(token string) string {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+"/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`))
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	resp, err := a.client.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Header.Get("Mcp-Session-Id")
}

// throw sends raw bytes. It reads answers until the connection ends or the given number of answers has arrived.
func (a *attack) throw(request string, answers int) (statuses []int, bodies []string) {
	a.t.Helper()
	conn, err := new(net.Dialer).DialContext(a.t.Context(), "tcp", a.words["{HOST}"])
	if err != nil {
		a.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		a.t.Fatal(err)
	}
	filled := a.fill.Replace(request)
	if head, body, ok := strings.Cut(filled, "\r\n\r\n"); ok {
		filled = strings.Replace(head, "{LENGTH}", fmt.Sprint(len(body)), 1) + "\r\n\r\n" + body
	}
	go func() { _, _ = io.WriteString(conn, filled) }() // a server that rejects the request need not read all of it
	reader := bufio.NewReader(conn)
	for range answers {
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			if reader.Buffered() == 0 && len(statuses) == 0 {
				statuses = append(statuses, 0)
			}
			break
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		statuses, bodies = append(statuses, resp.StatusCode), append(bodies, string(body))
	}
	return statuses, bodies
}

// alive checks that the server still serves well-behaved callers.
func (a *attack) alive() {
	a.t.Helper()
	if status, _ := a.ask("", http.MethodGet, "/healthz", ""); status != http.StatusOK {
		a.t.Errorf("/healthz: %d", status)
	}
	a.must(a.agent, http.MethodGet, "/v1/instances/"+a.words["{MINE}"], "")
}

// TestHostileHTTP sends hostile requests to a real server.
func TestHostileHTTP(t *testing.T) {
	t.Parallel()
	a := newAttack(t)
	cases := hostiles()
	if len(cases) < 40 {
		t.Errorf("only %d cases", len(cases))
	}
	names := map[string]bool{}
	for _, h := range cases {
		if names[h.name] {
			t.Errorf("%s is listed twice", h.name)
		}
		names[h.name] = true
		statuses, bodies := a.throw(h.request, max(h.answers, 1)+1)
		check(t, h, statuses, bodies)
		a.alive()
	}
	status := a.must(a.agent, http.MethodGet, "/v1/instances/"+a.words["{MINE}"], "")
	if status["state"] != "open" || fmt.Sprint(status["revision"]) != "1" {
		t.Errorf("somebody moved what is not theirs: %v", status)
	}
	if text := a.stderr.String(); strings.Contains(text, "gvl_") || strings.Contains(text, "panic") {
		t.Errorf("the log:\n%s", text)
	}
}

func check(t *testing.T, h hostile, statuses []int, bodies []string) {
	t.Helper()
	if len(statuses) == 0 || len(statuses) > max(h.answers, 1) {
		t.Errorf("%s: %d answers %v", h.name, len(statuses), statuses)
		return
	}
	matches := false
	for _, want := range h.want {
		matches = matches || statuses[0] == want
	}
	if !matches {
		t.Errorf("%s: %v, want %v: %.300q", h.name, statuses, h.want, bodies)
	}
	for _, body := range bodies {
		if found := leaks.FindString(body); found != "" {
			t.Errorf("%s: tells %q: %.500s", h.name, found, body)
		}
	}
	if h.code != "" && !strings.Contains(strings.ReplaceAll(strings.Join(bodies, ""), `\"`, `"`), fmt.Sprintf("%q", h.code)) {
		t.Errorf("%s: not the code %s: %.300q", h.name, h.code, bodies)
	}
}
