package wire_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

var ann = engine.Principal{ID: "ann", Role: engine.RoleAgent}

// otherTools are tools that change, as those of other servers do.
type otherTools struct {
	run func(context.Context, wire.Call) (*mcp.CallToolResult, error)

	mu      sync.Mutex
	names   []string
	changed chan struct{}
}

func newOtherTools(names ...string) *otherTools {
	return &otherTools{names: names, changed: make(chan struct{}), run: func(_ context.Context, c wire.Call) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(string(c.Arguments)), nil
	}}
}

func (o *otherTools) List(_ context.Context, p engine.Principal) ([]mcp.Tool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p != ann {
		return nil, nil
	}
	var tools []mcp.Tool
	for _, name := range o.names {
		tools = append(tools, mcp.NewToolWithRawSchema(name, "", []byte(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)))
	}
	return tools, nil
}

func (o *otherTools) Call(ctx context.Context, p engine.Principal, c wire.Call) (*mcp.CallToolResult, error) {
	if p != ann || c.Name != "work" {
		return nil, &wire.Error{Code: mcp.INVALID_PARAMS, Message: "There is no such tool.", Data: map[string]any{"of": "another server"}}
	}
	return o.run(ctx, c)
}

func (o *otherTools) Changed(engine.Principal) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

func (o *otherTools) add(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.names = append(o.names, name)
	close(o.changed)
	o.changed = make(chan struct{})
}

func newWire(t *testing.T, tools wire.Tools) *wire.Wire {
	t.Helper()
	w, err := wire.New(wire.Config{
		Info: mcp.Implementation{Name: "test", Version: "1"}, Tools: tools, Logger: slog.New(slog.DiscardHandler),
		Options: []server.ServerOption{server.WithToolCapabilities(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// pipes is a client of ServeStdio.
type pipes struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Reader
	done chan error
	stop context.CancelFunc
}

func serveStdio(t *testing.T, w *wire.Wire) *pipes {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	p := &pipes{t: t, in: inW, out: bufio.NewReader(outR), done: make(chan error, 1), stop: stop}
	go func() {
		p.done <- w.ServeStdio(ctx, ann, inR, outW)
		_ = outW.Close()
		_ = inR.Close()
	}()
	return p
}

func (p *pipes) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pipes) next() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *pipes) end() {
	p.t.Helper()
	_ = p.in.Close()
	if err := <-p.done; err != nil {
		p.t.Errorf("the connection ended with %v", err)
	}
}

const work = `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"work","arguments":%s}}`

// After the end of its input, a client still receives every answer, however long it takes.
func TestEndOfInputLosesNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 5
		tools, entered, release := newOtherTools("work"), make(chan struct{}), make(chan struct{})
		tools.run = func(ctx context.Context, c wire.Call) (*mcp.CallToolResult, error) {
			entered <- struct{}{}
			select {
			case <-release: // one release each
				return mcp.NewToolResultText("done"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		p := serveStdio(t, newWire(t, tools))
		for n := range calls {
			p.send(fmt.Sprintf(work, fmt.Sprint(n), "{}"))
			<-entered
		}
		answered := make(chan string, 1)
		go func() {
			all, _ := io.ReadAll(p.out)
			answered <- string(all)
		}()
		_ = p.in.Close()
		for range calls {
			<-time.After(time.Minute)
			select {
			case release <- struct{}{}:
			case <-p.done:
				t.Fatalf("the connection ended while calls were in flight: %s", <-answered)
			}
		}
		if err := <-p.done; err != nil {
			t.Errorf("the connection ended with %v", err)
		}
		if all := <-answered; strings.Count(all, `"text":"done"`) != calls {
			t.Errorf("the answers: %s", all)
		}
	})
}

// A server that must stop waits until cancelled calls have noticed it, and no longer.
func TestStopWaitsForCancelledCalls(t *testing.T) {
	const heard = 1500 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		tools, running := newOtherTools("work"), make(chan struct{})
		tools.run = func(ctx context.Context, _ wire.Call) (*mcp.CallToolResult, error) {
			close(running)
			<-ctx.Done()
			<-time.After(heard)
			return nil, ctx.Err()
		}
		p := serveStdio(t, newWire(t, tools))
		p.send(fmt.Sprintf(work, "1", "{}"))
		<-running
		began := time.Now()
		p.stop()
		go func() { _, _ = io.Copy(io.Discard, p.out) }()
		if err := <-p.done; !errors.Is(err, context.Canceled) {
			t.Errorf("the connection ended with %v", err)
		}
		if took, want := time.Since(began), 700*time.Millisecond+heard; took != want {
			t.Errorf("the end took %v, want %v", took, want)
		}
	})
}

func TestToolsOfOtherServersOverStdio(t *testing.T) {
	tools := newOtherTools("work")
	p := serveStdio(t, newWire(t, tools))
	list := `{"jsonrpc":"2.0","id":"l","method":"tools/list"}`
	p.send(list)
	if got := p.next(); !strings.Contains(got, `"name":"work"`) || strings.Contains(got, `"name":"more"`) {
		t.Errorf("list: %s", got)
	}
	tools.add("more")
	if got := p.next(); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}` {
		t.Errorf("after a change: %s", got)
	}
	p.send(list)
	if got := p.next(); !strings.Contains(got, `"name":"more"`) {
		t.Errorf("list: %s", got)
	}
	for _, c := range []struct{ id, arguments, want string }{
		{`90071992547409931234`, `{"n": 1.50,"n":2}`, `{"jsonrpc":"2.0","id":90071992547409931234,"result":{"content":[{"type":"text","text":"{\"n\": 1.50,\"n\":2}"}]}}`},
		{`"\u0041<"`, `null`, `{"jsonrpc":"2.0","id":"\u0041<","result":{"content":[{"type":"text","text":"null"}]}}`},
	} {
		p.send(fmt.Sprintf(work, c.id, c.arguments))
		if got := p.next(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	p.end()
}

func TestErrorsOfCalls(t *testing.T) {
	tools := newOtherTools("work")
	p := serveStdio(t, newWire(t, tools))
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nothing"}}`)
	if got := p.next(); got != `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"There is no such tool.","data":{"of":"another server"}}}` {
		t.Errorf("an error of its own: %s", got)
	}
	for name, run := range map[string]func(context.Context, wire.Call) (*mcp.CallToolResult, error){
		"an unknown error": func(context.Context, wire.Call) (*mcp.CallToolResult, error) { return nil, errors.New("secret") },
		"a panic":          func(context.Context, wire.Call) (*mcp.CallToolResult, error) { panic("secret") },
	} {
		tools.run = run
		p.send(fmt.Sprintf(work, "1", "{}"))
		if got := p.next(); !strings.Contains(got, `"code":"internal"`) || strings.Contains(got, "secret") {
			t.Errorf("%s: %s", name, got)
		}
	}
	p.end()
}

// overHTTP serves a wire to ann over HTTP.
func overHTTP(t *testing.T, w *wire.Wire) func(method, body string, headers ...string) *http.Response {
	t.Helper()
	endpoint := w.Handler()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint.ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), auth.Identity{Principal: ann, Kind: auth.KindToken})))
	}))
	client := &http.Client{Transport: &http.Transport{}}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // whatever has not arrived by then never does
	t.Cleanup(func() {
		stop()
		endpoint.EndStreams()
		client.CloseIdleConnections()
		s.Close()
		endpoint.Close()
	})
	return func(method, body string, headers ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, method, s.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
}

// events returns a function that returns the data of a stream's next event.
func events(t *testing.T, res *http.Response) func() string {
	t.Helper()
	lines := bufio.NewScanner(res.Body)
	return func() string {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		t.Fatalf("the stream ended: %d %v", res.StatusCode, lines.Err())
		return ""
	}
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func TestToolsChangeOverHTTP(t *testing.T) {
	tools := newOtherTools("work")
	ask := overHTTP(t, newWire(t, tools))
	hello := ask(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	session := events(t, ask(http.MethodGet, "", "Mcp-Session-Id", hello.Header.Get("Mcp-Session-Id")))
	listen := func(id, filter string) func() string {
		return events(t, ask(http.MethodPost, `{"jsonrpc":"2.0","id":`+id+`,"method":"subscriptions/listen","params":{`+meta+`,"notifications":`+filter+`}}`,
			"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen"))
	}
	wanted := listen("7", `{"toolsListChanged":true}`)
	if got := wanted(); !strings.Contains(got, "subscriptions/acknowledged") || !strings.Contains(got, `"toolsListChanged":true`) {
		t.Fatalf("listen: %s", got)
	}
	tools.add("more")
	if got := session(); !strings.Contains(got, `"method":"notifications/tools/list_changed"`) {
		t.Errorf("the session: %s", got)
	}
	if got := wanted(); !strings.Contains(got, `"method":"notifications/tools/list_changed"`) || !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":7`) {
		t.Errorf("who listens: %s", got)
	}
	if got := listen("8", `{}`)(); !strings.Contains(got, "subscriptions/acknowledged") || strings.Contains(got, "toolsListChanged") {
		t.Errorf("who asked for nothing: %s", got)
	}
}

// Headers repeat what a proxy may act on, so they must agree with the message.
func TestHeadersOfTheModernEra(t *testing.T) {
	ask := overHTTP(t, newWire(t, newOtherTools("work")))
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `,"name":"work","arguments":{"region":"eu"}}}`
	right := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "work", "Mcp-Param-Region": "eu"}
	for _, c := range []struct {
		header, value string
		status, code  int
	}{
		{"", "", 200, 0},
		{"Mcp-Protocol-Version", "", 400, mcp.HEADER_MISMATCH},
		{"Mcp-Protocol-Version", "2025-11-25", 400, mcp.HEADER_MISMATCH},
		{"Mcp-Method", "", 400, mcp.HEADER_MISMATCH},
		{"Mcp-Method", "tools/list", 400, mcp.HEADER_MISMATCH},
		{"Mcp-Name", "", 400, mcp.HEADER_MISMATCH},
		{"Mcp-Name", "rest", 400, mcp.HEADER_MISMATCH},
		{"Mcp-Param-Region", "", 400, mcp.HEADER_MISMATCH},
		{"Mcp-Param-Region", "us", 400, mcp.HEADER_MISMATCH},
		{"Last-Event-ID", "1", 400, mcp.HEADER_MISMATCH},
	} {
		var headers []string
		for name, value := range right {
			if name != c.header {
				headers = append(headers, name, value)
			}
		}
		if c.value != "" {
			headers = append(headers, c.header, c.value)
		}
		res := ask(http.MethodPost, body, headers...)
		var m struct{ Error struct{ Code int } }
		if err := json.NewDecoder(res.Body).Decode(&m); err != nil || res.StatusCode != c.status || m.Error.Code != c.code {
			t.Errorf("%s: %q: %d %d %v, want %d %d", c.header, c.value, res.StatusCode, m.Error.Code, err, c.status, c.code)
		}
	}
	for version, code := range map[string]int{"2027-01-01": mcp.UNSUPPORTED_PROTOCOL_VERSION, "": mcp.INVALID_PARAMS} {
		res := ask(http.MethodPost, strings.Replace(body, "2026-07-28", version, 1), "Mcp-Protocol-Version", max(version, "2026-07-28"), "Mcp-Method", "tools/call", "Mcp-Name", "work", "Mcp-Param-Region", "eu")
		var m struct{ Error struct{ Code int } }
		if err := json.NewDecoder(res.Body).Decode(&m); err != nil || res.StatusCode != http.StatusBadRequest || m.Error.Code != code {
			t.Errorf("version %q: %d %d %v", version, res.StatusCode, m.Error.Code, err)
		}
	}
}
