package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/serve"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// served is a real `gavel serve` process on a free port of 127.0.0.1.
type served struct {
	t       *testing.T
	cmd     *exec.Cmd
	url     string // http://127.0.0.1:port
	store   string
	stdout  string // a file
	agent   string // the first start's tokens
	owner   string // of the operator
	client  *http.Client
	stderr  *lockedBuffer
	told    bool // to shut down; a second signal would end it immediately
	ended   chan struct{}
	problem error // after ended
}

// serveGavel starts a server with a new store. It ends with the test.
func serveGavel(t *testing.T, args ...string) *served {
	t.Helper()
	return serveStore(t, storeIn(t), args...)
}

// servingLine matches the line with the server's URL: as a note, as a log line, or as JSON.
var servingLine = regexp.MustCompile(`serving.*?(http[^ "]+)`)

func serveStore(t *testing.T, store string, args ...string) *served {
	t.Helper()
	return serveAs(t, store, func(*exec.Cmd) {}, args...)
}

// serveAs is serveStore with a function that prepares the process.
func serveAs(t *testing.T, store string, prepare func(*exec.Cmd), args ...string) *served {
	t.Helper()
	needsProgram(t)
	s := &served{t: t, store: store, stderr: &lockedBuffer{}, ended: make(chan struct{})}
	s.cmd = exec.Command("gavel", append([]string{"serve", "--listen", "127.0.0.1:0", "--store", store}, args...)...)
	s.cmd.Env = cli.WithoutSettings(os.Environ())
	prepare(s.cmd)
	printed, err := os.Create(filepath.Join(t.TempDir(), "stdout")) // a file, so that it already has everything printed before the last line of stderr
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	s.cmd.Stdout, s.stdout = printed, printed.Name()
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	at := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			_, _ = s.stderr.Write(append(lines.Bytes(), '\n'))
			if said := servingLine.FindStringSubmatch(lines.Text()); said != nil {
				at <- said[1]
			}
		}
		s.problem = s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(s.stop)
	select {
	case s.url = <-at:
	case <-s.ended:
		t.Fatalf("gavel serve ended: %v\n%s", s.problem, s.stderr)
	case <-time.After(patience):
		t.Fatalf("gavel serve does not say where it serves\n%s", s.stderr)
	}
	for file, token := range map[string]*string{serve.OperatorTokenFile: &s.owner, serve.AgentTokenFile: &s.agent} {
		if raw, err := os.ReadFile(filepath.Join(filepath.Dir(store), file)); err == nil {
			*token = strings.TrimSpace(string(raw))
		}
	}
	s.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: patience}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// term tells the server to shut down.
func (s *served) term() {
	if !s.told {
		s.told = true
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended on its own
	}
}

// stop ends the server like a service manager, and fails the test if the exit code is not 0.
func (s *served) stop() {
	select {
	case <-s.ended:
		return
	default:
	}
	s.term()
	select {
	case <-s.ended:
		if s.problem != nil {
			s.t.Errorf("gavel serve ended: %v\n%s", s.problem, s.stderr)
		}
	case <-time.After(2 * patience):
		_ = s.cmd.Process.Kill()
		<-s.ended
		s.t.Error("gavel serve did not end with SIGTERM")
	}
	if s.t.Failed() && s.stderr.String() != "" {
		s.t.Logf("server's stderr:\n%s", s.stderr)
	}
}

// token creates another token.
func (s *served) token(args ...string) string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "token")
	runGavel(s.t, append([]string{"token", "create", "--store", s.store, "--out", file}, args...)...)
	token, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}

// ask sends a request with a JSON body ("" for none) and decodes a JSON response.
func (s *served) ask(token, method, path, body string) (int, object) {
	s.t.Helper()
	status, answer, err := s.try(token, method, path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return status, answer
}

func (s *served) try(token, method, path, body string) (int, object, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if !strings.HasPrefix(path, "/mcp") {
		r.Header.Set("Accept", "application/json")
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	var answer object
	if err := json.Unmarshal(raw, &answer); err != nil && len(bytes.TrimSpace(raw)) > 0 {
		return resp.StatusCode, nil, fmt.Errorf("%s %s: %s is no JSON: %.200q", method, path, resp.Status, raw)
	}
	return resp.StatusCode, answer, nil
}

// must is ask for a request that must succeed.
func (s *served) must(token, method, path, body string) object {
	s.t.Helper()
	status, answer := s.ask(token, method, path, body)
	if status/100 != 2 {
		s.t.Fatalf("%s %s: %d %v", method, path, status, answer)
	}
	return answer
}

// begin starts an instance.
func (s *served) begin(token, workflow string) string {
	s.t.Helper()
	id, _ := s.must(token, http.MethodPost, "/v1/instances", fmt.Sprintf(`{"type":%q}`, workflow))["id"].(string)
	if id == "" {
		s.t.Fatal("an instance without an id")
	}
	return id
}

// TestFirstStart: the first start writes an operator's and an agent's token, once.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	for _, file := range []string{serve.OperatorTokenFile, serve.AgentTokenFile} {
		if info, err := os.Stat(filepath.Join(filepath.Dir(s.store), file)); err != nil || info.Mode().Perm() != 0o600 || !strings.Contains(s.stderr.String(), file) {
			t.Fatalf("%v %v", info, err)
		}
	}
	printed, err := os.ReadFile(s.stdout)
	if err != nil || len(printed) > 0 || strings.Contains(s.stderr.String(), "gvl_") {
		t.Errorf("stdout %q, stderr %q, %v", printed, s.stderr, err)
	}
	for token, want := range map[string][2]string{s.agent: {"local:agent", "agent"}, s.owner: {"local:operator", "operator"}} {
		who := s.must(token, http.MethodGet, "/v1/whoami", "")
		if who["id"] != want[0] && who["principal"] != want[0] || who["role"] != want[1] {
			t.Errorf("%v, want %v", who, want)
		}
	}
	s.untilReady()
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/openapi.json": 200, "/nothing": 404, "/v1": 404, "/v1/whoami": 401, "/mcp": 401} {
		if status, _ := s.ask("", http.MethodGet, path, ""); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	s.stop()
	again := serveStore(t, s.store)
	if again.agent != s.agent || strings.Contains(again.stderr.String(), "token") {
		t.Errorf("the second start makes tokens again: %s", again.stderr)
	}
	again.must(s.agent, http.MethodGet, "/v1/whoami", "")
}

// TestTokensCount: changes by gavel token apply from the next request on.
func TestTokensCount(t *testing.T) {
	t.Parallel()
	s := serveGavel(t)
	token := s.token("ci", "--role", "auditor")
	s.must(token, http.MethodGet, "/v1/whoami", "")
	var list struct {
		Tokens []struct{ ID, Name, Status string }
	}
	raw := runGavel(t, "token", "list", "--json", "--store", s.store)
	if err := json.Unmarshal(raw, &list); err != nil || len(list.Tokens) != 3 || bytes.Contains(raw, []byte(strings.SplitN(token, "_", 3)[2])) {
		t.Fatalf("%s %v", raw, err)
	}
	runGavel(t, "token", "revoke", "--store", s.store, strings.Split(token, "_")[1])
	if status, answer := s.ask(token, http.MethodGet, "/v1/whoami", ""); status != http.StatusUnauthorized {
		t.Errorf("revoked: %d %v", status, answer)
	}
	s.must(s.agent, http.MethodGet, "/v1/whoami", "")
}

// TestAuthNone: every caller is the local agent, whatever it claims.
func TestAuthNone(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--auth", "none")
	for _, token := range []string{"", "gvl_whatever"} {
		who := s.must(token, http.MethodGet, "/v1/whoami", "")
		if who["role"] != "agent" {
			t.Errorf("%v", who)
		}
	}
	if s.agent != "" || s.owner != "" {
		t.Error("tokens were made that nobody needs")
	}
}

// TestServeRefusesOpenDoors: settings that would admit everyone, or expose tokens, are rejected.
func TestServeRefusesOpenDoors(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no auth on all addresses":     {[]string{"--auth", "none", "--listen", "0.0.0.0:0", "--insecure-plain-http"}, "--auth none"},
		"no auth on no address":        {[]string{"--auth", "none", "--listen", ":0", "--insecure-plain-http"}, "--auth none"},
		"no auth on all of IPv6":       {[]string{"--auth", "none", "--listen", "[::]:0", "--insecure-plain-http"}, "--auth none"},
		"no auth on an unknown one":    {[]string{"--auth", "none", "--listen", "nowhere.invalid:0"}, "--auth none"},
		"plain on all addresses":       {[]string{"--listen", "0.0.0.0:0"}, "unencrypted"},
		"no client could authenticate": {[]string{"--listen", "0.0.0.0:0", "--insecure-plain-http"}, "gavel token create"},
		"half a certificate":           {[]string{"--tls-cert", "x"}, "needs its key"},
		"no port":                      {[]string{"--listen", "127.0.0.1"}, "HOST:PORT"},
		"elicit without reviews":       {[]string{"--no-reviews", "--elicit"}, "--elicit"},
		"origin":                       {[]string{"--allow-origin", "*"}, "not an origin"},
		"port in use":                  {[]string{"--listen", taken.Addr().String()}, "another program listens there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := run(t.Context(), append([]string{"serve", "--store", storeIn(t)}, tt.args...), strings.NewReader(""), &out, &errs)
			if code != term.ExitUsage || !strings.Contains(errs.String(), tt.want) || out.Len() > 0 {
				t.Errorf("ends with %d: %s%s", code, &out, &errs)
			}
		})
	}
}
