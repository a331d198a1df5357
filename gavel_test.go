package gavel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

// forgetful is set for a process that acts as a program without worker.Main.
const forgetful = "EMBED_TEST_FORGETFUL"

func TestMain(m *testing.M) {
	if os.Getenv(forgetful) != "" {
		_, err := gavel.Open(context.Background(), gavel.Config{Store: "gavel.db"})
		fmt.Fprint(os.Stdout, err) //nolint:forbidigo // a program of its own
		return
	}
	worker.Main(workflow.AnswerLintRequest)
	m.Run()
}

const release = "testdata/gate/release.yaml"

func Example() {
	// func main begins with worker.Main(workflow.AnswerLintRequest).
	ctx := context.Background()
	gate, err := gavel.Open(ctx, gavel.Config{Definitions: []string{release}})
	if err != nil {
		panic(err)
	}
	defer gate.Close()
	ada := gate.As(engine.Principal{ID: "ada", Role: engine.RoleAgent})
	s, err := gavel.Start.Do(ctx, ada, engine.StartRequest{Type: "release"})
	if err != nil {
		panic(err)
	}
	for _, data := range []string{`{"version":"next"}`, `{"version":"1.4"}`} {
		r, err := gavel.Advance.Do(ctx, ada, engine.AdvanceRequest{ID: s.ID, Action: "check", Data: document.ReadTrusted([]byte(data))})
		if err != nil {
			panic(err) // nothing was decided
		}
		fmt.Println(r.State, r.Decision.Outcome, r.Decision.Violations)
	}
	// Output:
	// prepared reject [Give the version as two numbers.]
	// checked approve []
}

func open(t *testing.T, cfg gavel.Config) *gavel.System {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	gate, err := gavel.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gate.Close(); err != nil {
			t.Error(err)
		}
	})
	return gate
}

// walk advances a release to the step that a person decides, and returns that decision.
func walk(t *testing.T, c *gavel.Client) engine.AdvanceResult {
	t.Helper()
	s, err := gavel.Start.Do(t.Context(), c, engine.StartRequest{Type: "release"})
	if err != nil {
		t.Fatal(err)
	}
	var last engine.AdvanceResult
	for _, move := range []struct {
		action, data string
		want         judge.Outcome
	}{{"check", `{"version":"next"}`, judge.Reject}, {"check", `{"version":"1.4"}`, judge.Approve}, {"release", `{}`, ""}} {
		if last, err = gavel.Advance.Do(t.Context(), c, engine.AdvanceRequest{ID: s.ID, Action: move.action, Data: document.ReadTrusted([]byte(move.data))}); err != nil {
			t.Fatal(err)
		}
		if move.want != "" && last.Decision.Outcome != move.want {
			t.Errorf("%s %s: %s", move.action, move.data, last.Decision.Outcome)
		}
	}
	return last
}

// callerHeader identifies callers in the tests.
func callerHeader(r *http.Request) (engine.Principal, error) {
	id, role, ok := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "/")
	if !ok {
		return engine.Principal{}, errors.New("who?")
	}
	return engine.Principal{ID: id, Role: engine.Role(role)}, nil
}

func serve(t *testing.T, gate *gavel.System, caller func(*http.Request) (engine.Principal, error)) *httptest.Server {
	t.Helper()
	h, err := gate.Handler(gavel.HandlerConfig{Caller: caller, Tools: gavel.Tools{Set: "core"}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	t.Cleanup(func() { h.Close(); server.Close() })
	return server
}

func dial(t *testing.T, server, token string) *gavel.Client {
	t.Helper()
	c, err := gavel.Dial(gavel.ClientConfig{Server: server, Token: token, Tries: 60})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A Client gives the same answers locally and over the network, and its caller is identified.
func TestClientHereAndThere(t *testing.T) {
	t.Parallel()
	gate := open(t, gavel.Config{Definitions: []string{release}})
	server := serve(t, gate, callerHeader)
	for name, as := range map[string]func(id string, role engine.Role) *gavel.Client{
		"here":  func(id string, role engine.Role) *gavel.Client { return gate.As(engine.Principal{ID: id, Role: role}) },
		"there": func(id string, role engine.Role) *gavel.Client { return dial(t, server.URL, id+"/"+string(role)) },
	} {
		ada, bob := as("ada-"+name, engine.RoleAgent), as("bob-"+name, engine.RoleReviewer)
		parked := walk(t, ada)
		if parked.Decision.Outcome != judge.Escalate || parked.Review == nil {
			t.Fatalf("%s: %+v", name, parked.Decision)
		}
		if _, err := gavel.Status.Do(t.Context(), as("eve-"+name, engine.RoleAgent), gavel.StatusRequest{ID: parked.ID}); engine.CodeOf(err) != engine.CodeUnknownInstance {
			t.Errorf("%s: another agent: %v", name, err)
		}
		r, err := gavel.Resolve.Do(t.Context(), bob, engine.ResolveRequest{ID: parked.Review.ID, Decision: judge.Approve, Reason: "Looked at it."})
		if err != nil || !r.Applied {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		at, err := gavel.Status.Do(t.Context(), ada, gavel.StatusRequest{ID: parked.ID})
		if err != nil || at.State != "released" {
			t.Errorf("%s: %q, %v", name, at.State, err)
		}
	}
}

// If reviews are off, a move that would wait for a person is refused, with a message that explains it. A decision
// without an instance could not wait, so it has no such message.
func TestNoReviews(t *testing.T) {
	t.Parallel()
	ada := open(t, gavel.Config{Definitions: []string{release}, NoReviews: true}).As(gavel.LocalAgent)
	if d := walk(t, ada).Decision; d.Outcome != judge.Reject || !strings.Contains(strings.Join(d.Suggestions, " "), judge.ReviewsAreOff) {
		t.Errorf("%+v", d)
	}
	d, err := gavel.Decide.Do(t.Context(), ada, engine.DecideRequest{Workflow: "release", State: "checked", Action: "release"})
	if err != nil || d.Approved || strings.Contains(strings.Join(d.Decision.Suggestions, " "), judge.ReviewsAreOff) {
		t.Errorf("%+v, %v", d, err)
	}
}

// If callers cannot be distinguished, only this machine may call, and no web page of another site can.
func TestHandlerKeepsOthersOut(t *testing.T) {
	t.Parallel()
	gate := open(t, gavel.Config{})
	everybody, known := serve(t, gate, nil).Config.Handler, serve(t, gate, callerHeader).Config.Handler
	for name, tt := range map[string]struct {
		handler                   http.Handler
		from, host, origin, token string
		want                      int
	}{
		"this machine":    {everybody, "127.0.0.1:7", "localhost:4285", "", "", http.StatusOK},
		"its own page":    {everybody, "[::1]:7", "127.0.0.1:4285", "http://localhost:3000", "", http.StatusOK},
		"another machine": {everybody, "192.0.2.1:7", "localhost:4285", "", "", http.StatusForbidden},
		"a rebound name":  {everybody, "127.0.0.1:7", "evil.example", "", "", http.StatusForbidden},
		"a foreign page":  {everybody, "127.0.0.1:7", "localhost:4285", "http://evil.example", "", http.StatusForbidden},
		"a known caller":  {known, "192.0.2.1:7", "gate.example", "", "ada/agent", http.StatusOK},
		"nobody":          {known, "127.0.0.1:7", "localhost:4285", "", "", http.StatusUnauthorized},
		"without a name":  {known, "127.0.0.1:7", "localhost:4285", "", "/agent", http.StatusUnauthorized},
		"a role of none":  {known, "127.0.0.1:7", "localhost:4285", "", "ada/king", http.StatusForbidden},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/definitions", http.NoBody)
		r.RemoteAddr, r.Host = tt.from, tt.host
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		r.Header.Set("Authorization", "Bearer "+tt.token)
		w := httptest.NewRecorder()
		tt.handler.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// An error of Open names the part that could not be opened, and its location.
func TestOpenErrorNamesThePart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("name: bad\ninitialState: gone\nstates: {a: {final: true}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	worn := errors.New("worn out")
	for name, tt := range map[string]struct {
		cfg  gavel.Config
		part gavel.Part
		want string
	}{
		"a definition":         {gavel.Config{Definitions: []string{bad}}, "", "bad.yaml"},
		"a missing definition": {gavel.Config{Definitions: []string{"nowhere.yaml"}}, "", "nowhere.yaml"},
		"a folder as store":    {gavel.Config{Store: dir}, gavel.PartStore, filepath.Base(dir)},
		"no driver":            {gavel.Config{Store: "postgres://db/gavel"}, gavel.PartStore, "no driver for this kind of database"},
		"a key that is none":   {gavel.Config{Store: filepath.Join(bad, "gavel.db")}, gavel.PartKey, "bad.yaml"},
		"a model":              {gavel.Config{Model: func(judge.Memory) (judge.Layer, error) { return nil, worn }}, gavel.PartModel, "worn out"},
		"the engine":           {gavel.Config{Configure: func(c *engine.Config) { c.Digester = nil }}, "", "Digester"},
	} {
		tt.cfg.Logger = slog.New(slog.DiscardHandler)
		_, err := gavel.Open(t.Context(), tt.cfg)
		part, _ := errors.AsType[*gavel.OpenError](err)
		if err == nil || !strings.Contains(err.Error(), tt.want) || (part != nil) != (tt.part != "") || part != nil && part.Part != tt.part {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Without the module, sources of evidence cannot be opened.
func TestOpenFetcherNeedsModule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gavel.yaml")
	if err := os.WriteFile(file, []byte("evidence: {sources: {ci: {command: [ci]}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := gavel.OpenFetcher(file, gavel.FetcherConfig{}); f != nil || !errors.Is(err, gavel.ErrNoSources) {
		t.Errorf("%v, %v", f, err)
	}
}

// A program without worker.Main gets the missing line when it calls Open, and nothing is left behind.
func TestForgottenMain(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, argv := range []string{program, script.WorkerName} { // also if it runs as its own worker
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Args[0], cmd.Dir, cmd.Env = argv, t.TempDir(), append(os.Environ(), forgetful+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "first line of func main") || !strings.Contains(string(out), "\n\tworker.Main(workflow.AnswerLintRequest)\n") {
			t.Errorf("%v: %s", err, out)
		}
		if left, _ := os.ReadDir(cmd.Dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// The program in docs/embedding.md is the one in testdata. It imports nothing internal, and answers over MCP and to
// the Go client.
func TestProgramOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"testdata/gate/main.go", release} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "\n"+string(text)+"```\n") {
			t.Errorf("docs/embedding.md does not show %s", file)
		}
		if strings.Contains(string(text), "/internal/") {
			t.Errorf("%s imports what no other module can", file)
		}
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "gate")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./testdata/gate").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.CopyFS(dir, os.DirFS("testdata/gate")); err != nil {
		t.Fatal(err)
	}
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, address) // killed when the test ends
	cmd.Dir, cmd.Stderr = dir, t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // it was killed

	c := dial(t, "http://"+address, "") // it retries until the program listens
	if all, err := gavel.List.Do(t.Context(), c, struct{}{}); err != nil || all.Count != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	parked := walk(t, c)
	for _, path := range []string{gavel.MCPPath, gavel.MCPPath + "/"} { // clients append a slash
		answer := post(t, "http://"+address+path, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.status","arguments":{"id":"`+parked.ID+`"}}}`)
		if !regexp.MustCompile(`\\"state\\":\\"checked\\".*` + parked.Review.ID).MatchString(answer) {
			t.Errorf("over MCP at %s: %s", path, answer)
		}
	}
}

// post sends one message in a new MCP session, and returns the answer.
func post(t *testing.T, url, message string) string {
	t.Helper()
	session := ""
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, message,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if session = answer.Header.Get("Mcp-Session-Id") + session; body == message {
			return string(text)
		}
	}
	return ""
}

// If only the log of a store is left, Open fails, logs nothing else, and creates no new store.
func TestALogAloneIsOnlyRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		log  string // next to the key
		warn bool
	}{"the log is there": {"gavel.db-wal", false}, "nothing is left": {"other", true}} {
		dir := t.TempDir()
		for file, size := range map[string]int{"gavel.key": 64, tt.log: 100} {
			if err := os.WriteFile(filepath.Join(dir, file), bytes.Repeat([]byte("7"), size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		gate, err := gavel.Open(t.Context(), gavel.Config{Store: filepath.Join(dir, "gavel.db"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if refused := err != nil; refused == tt.warn {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			defer gate.Close()
		}
		if warned := strings.Contains(log.String(), "gavel creates a new store"); warned != tt.warn {
			t.Errorf("%s: the log says %q", name, log.String())
		}
	}
}
