package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/cli"
)

// patience limits every wait of these tests. A slow machine never reaches it.
const patience = time.Minute

// server is a real `gavel mcp` process, driven with JSON-RPC lines. Any line on stdout that is not JSON-RPC fails the
// test.
type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *lockedBuffer

	mu      sync.Mutex
	next    int
	waiting map[string]chan reply
	stray   []string // unexpected answers, and notifications
	ended   chan struct{}
	exit    error // after ended
}

// reply is a JSON-RPC response.
type reply struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// toolResult is a tools/call result.
type toolResult struct {
	IsError bool `json:"isError"`
	Content []struct{ Text string }
	Body    map[string]any  `json:"structuredContent"`
	Failure *reply          `json:"-"` // a JSON-RPC error instead
	Raw     json.RawMessage `json:"-"`
}

func (r toolResult) text() string {
	if r.Failure != nil {
		return r.Failure.Error.Message
	}
	var b strings.Builder
	for _, c := range r.Content {
		b.WriteString(c.Text)
	}
	return strings.ReplaceAll(b.String(), `\"`, `"`)
}

func (r toolResult) field(name string) string {
	if v, ok := r.Body[name]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

// launch starts a server and initialises a session. It ends with the test.
func launch(t *testing.T, args ...string) *server {
	t.Helper()
	s := launchRaw(t, args...)
	hello := s.rpc("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "test", "version": "1"},
	})
	if hello.Error != nil {
		t.Fatalf("initialize: %s", hello.Error.Message)
	}
	s.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

func launchRaw(t *testing.T, args ...string) *server {
	t.Helper()
	needsProgram(t)
	s := &server{t: t, stderr: &lockedBuffer{}, waiting: map[string]chan reply{}, ended: make(chan struct{})}
	s.cmd = exec.Command("gavel", append([]string{"mcp"}, args...)...)
	s.cmd.Env = cli.WithoutSettings(os.Environ())
	s.cmd.Stderr = s.stderr
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go s.read(stdout)
	t.Cleanup(func() {
		_ = s.stdin.Close()
		select {
		case <-s.ended:
		case <-time.After(patience):
			_ = s.cmd.Process.Kill()
			<-s.ended
			t.Errorf("the server did not end with its stdin")
		}
		if t.Failed() && s.stderr.String() != "" {
			t.Logf("server's stderr:\n%s", s.stderr)
		}
	})
	return s
}

func (s *server) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var r reply
		line := lines.Bytes()
		if err := json.Unmarshal(line, &r); err != nil || r.JSONRPC != "2.0" {
			s.t.Errorf("stdout has a line that is not JSON-RPC: %.200q", line)
			continue
		}
		s.mu.Lock()
		ch := s.waiting[string(r.ID)]
		if ch == nil || r.Method != "" {
			s.stray = append(s.stray, string(bytes.Clone(line)))
		} else {
			delete(s.waiting, string(r.ID))
			ch <- r
		}
		s.mu.Unlock()
	}
	s.exit = s.cmd.Wait()
	close(s.ended)
}

// write sends one raw line.
func (s *server) write(line string) {
	if _, err := io.WriteString(s.stdin, line+"\n"); err != nil {
		select {
		case <-s.ended:
		default:
			s.t.Logf("write to the server: %v", err)
		}
	}
}

// begin sends a request and returns the channel that receives the response.
func (s *server) begin(method string, params any) chan reply {
	raw, err := json.Marshal(params)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.beginRaw(method, string(raw))
}

func (s *server) beginRaw(method, params string) chan reply {
	s.mu.Lock()
	s.next++
	id := fmt.Sprintf(`"r%d"`, s.next)
	ch := make(chan reply, 1)
	s.waiting[id] = ch
	s.mu.Unlock()
	s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return ch
}

func (s *server) rpc(method string, params any) reply {
	s.t.Helper()
	return s.await(s.begin(method, params))
}

func (s *server) await(ch chan reply) reply {
	s.t.Helper()
	select {
	case r := <-ch:
		return r
	case <-s.ended:
		select {
		case r := <-ch:
			return r
		default:
		}
		s.t.Fatalf("the server ended without an answer: %v\n%s", s.exit, s.stderr)
	case <-time.After(patience):
		s.t.Fatal("no answer")
	}
	return reply{}
}

// call calls a tool by its dotted name.
func (s *server) call(tool string, arguments any) toolResult {
	s.t.Helper()
	raw, err := json.Marshal(arguments)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.callRaw(tool, string(raw))
}

func (s *server) callRaw(tool, arguments string) toolResult {
	s.t.Helper()
	return decodeTool(s.t, s.await(s.beginCall(tool, arguments)))
}

func (s *server) beginCall(tool, arguments string) chan reply {
	oneLine := strings.ReplaceAll(arguments, "\n", " ")
	return s.beginRaw("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, oneLine))
}

func decodeTool(t *testing.T, r reply) toolResult {
	t.Helper()
	if r.Error != nil {
		return toolResult{IsError: true, Failure: &r}
	}
	var out toolResult
	if err := json.Unmarshal(r.Result, &out); err != nil {
		t.Fatalf("the tool's result does not decode: %v\n%s", err, r.Result)
	}
	out.Raw = r.Result
	if out.Body == nil && len(out.Content) == 1 { // the text is the answer
		if err := json.Unmarshal([]byte(out.Content[0].Text), &out.Body); err != nil {
			t.Fatalf("the tool's answer does not decode: %v\n%s", err, r.Result)
		}
	}
	return out
}

// must is a call that must succeed.
func (s *server) must(tool string, arguments any) toolResult {
	s.t.Helper()
	r := s.call(tool, arguments)
	if r.IsError {
		s.t.Fatalf("%s: %s", tool, r.text())
	}
	return r
}

// define registers a workflow; it must succeed.
func (s *server) define(document string) {
	s.t.Helper()
	if r := s.callRaw("workflow.define", document); r.IsError {
		s.t.Fatalf("workflow.define: %s", r.text())
	}
}

// kill ends the server like a power failure.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// finish closes stdin and returns how long the server took to exit, and its error.
func (s *server) finish() (time.Duration, error) {
	s.t.Helper()
	began := time.Now()
	_ = s.stdin.Close()
	return s.awaitExit(began)
}

func (s *server) signal(sig syscall.Signal) (time.Duration, error) {
	s.t.Helper()
	began := time.Now()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
	return s.awaitExit(began)
}

func (s *server) awaitExit(began time.Time) (time.Duration, error) {
	s.t.Helper()
	select {
	case <-s.ended:
		return time.Since(began), s.exit
	case <-time.After(patience):
		s.t.Fatal("the server does not end")
		return 0, nil
	}
}

// object is short for a JSON object.
type object = map[string]any

// code returns the stable code of a refusal or an error.
func (r toolResult) code() string {
	for _, part := range []string{"decision", "error"} {
		if inner, ok := r.Body[part].(object); ok {
			code, _ := inner["code"].(string)
			return code
		}
	}
	return ""
}

// outcome returns the outcome of the decision in the answer.
func (r toolResult) outcome() any {
	decision, _ := r.Body["decision"].(object)
	return decision["outcome"]
}

// runGavel runs a command that must succeed and returns its stdout. Starting the program costs more than most
// commands, so the command has its own process only with GAVEL_LONG=1.
func runGavel(t *testing.T, args ...string) []byte {
	t.Helper()
	needsProgram(t)
	var out, stderr bytes.Buffer
	var err error
	if storetest.Long() || args[0] == "demo" { // it starts itself again
		cmd := exec.CommandContext(t.Context(), "gavel", args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = cli.WithoutSettings(os.Environ()), &out, &stderr
		err = cmd.Run()
	} else if code := run(t.Context(), args, strings.NewReader(""), &out, &stderr); code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		t.Fatalf("gavel %s: %v\n%s%s", strings.Join(args, " "), err, &out, &stderr)
	}
	return out.Bytes()
}

// lockedBuffer is a buffer that a process writes to while the test reads it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
