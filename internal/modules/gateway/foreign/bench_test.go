package foreign_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/mcp/wire"
	"github.com/gavel-mcp/gavel/internal/modules/gateway/foreign"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

// toolsVariable makes this program an MCP server with the given number of tools. If httpVariable is set, it serves
// over HTTP.
const (
	toolsVariable = "GAVEL_TEST_TOOLS"
	httpVariable  = "GAVEL_TEST_HTTP"
)

// programs maps an environment variable to the function that this program runs if the variable names a folder.
var programs = map[string]func(dir string) error{}

func TestMain(m *testing.M) {
	worker.Main(workflow.AnswerLintRequest)
	for variable, serve := range programs {
		if dir := os.Getenv(variable); dir != "" {
			if err := serve(dir); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	if n, err := strconv.Atoi(os.Getenv(toolsVariable)); err == nil {
		if os.Getenv(httpVariable) != "" {
			serveToolsOverHTTP(n)
		} else {
			serveTools(n, os.Stdin, os.Stdout)
		}
		return
	}
	storetest.UseMemory()
	os.Exit(m.Run())
}

// serveTools answers every call with its arguments.
func serveTools(n int, in io.Reader, out io.Writer) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Arguments json.RawMessage }
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		switch m.Method {
		case "initialize":
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}}}`+"\n", m.ID)
		case "tools/list":
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[`, m.ID)
			for i := range n {
				fmt.Fprintf(out, `%s{"name":"tool%d","description":"A tool that answers with what it was given, for figures.","inputSchema":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"array","items":{"type":"integer"}}},"required":["a"]}}`, []string{"", ","}[min(i, 1)], i)
			}
			fmt.Fprint(out, "]}}\n")
		case "tools/call":
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"done"}],"structuredContent":%s}}`+"\n", m.ID, m.Params.Arguments)
		default:
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"not here"}}`+"\n", m.ID)
		}
	}
}

// serveToolsOverHTTP serves on all addresses of this machine until its input ends. It prints its port.
func serveToolsOverHTTP(n int) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Mcp-Session-Id", "s")
			serveTools(n, r.Body, w)
		}))
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// openUpstreams returns servers that run this program. All items are pinned and allowed for every principal.
func openUpstreams(b *testing.B, servers, tools int) *upstream.Manager {
	b.Helper()
	declared := upstream.Config{Servers: map[string]upstream.Server{}}
	for i := range servers {
		declared.Servers[fmt.Sprintf("s%d", i)] = upstream.Server{Command: []string{os.Args[0]}, Set: map[string]string{toolsVariable: strconv.Itoa(tools)}}
	}
	return openPinned(b, declared)
}

func openPinned(b *testing.B, declared upstream.Config) *upstream.Manager {
	b.Helper()
	for name, s := range declared.Servers {
		s.Allow = []upstream.Rule{{Tools: []string{"*"}}}
		s.ConnectTimeout, s.ListTimeout, s.CallTimeout, s.IdleTimeout = time.Minute, time.Minute, time.Minute, time.Hour
		declared.Servers[name] = s
	}
	pins := pinAll(b, declared, b.TempDir()+"/pins.json")
	m, err := upstream.Open(declared, upstream.Options{Pins: pins})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Close)
	return m
}

// pinAll pins all items of the declared servers.
func pinAll(t testing.TB, declared upstream.Config, path string) *upstream.Pins {
	t.Helper()
	seen, err := upstream.Open(declared, upstream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	pins, err := upstream.LoadPins(path)
	if err != nil {
		t.Fatal(err)
	}
	for name := range declared.Servers {
		report, err := seen.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := pins.Set(name, report.Items); err != nil {
			t.Fatal(err)
		}
	}
	return pins
}

const benchCall = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":{"a":"x","b":[1,2,3]}}}`

// measure reports the median of a call in microseconds.
func measure(b *testing.B, call func(int)) float64 {
	b.Helper()
	call(0) // starts what is lazy
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for n := range b.N {
		began := time.Now()
		call(n + 1)
		took = append(took, time.Since(began))
	}
	b.StopTimer()
	slices.Sort(took)
	p50 := float64(took[len(took)/2].Nanoseconds()) / 1e3
	b.ReportMetric(p50, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
	return p50
}

// measureDirect measures a call of a server over stdio.
func measureDirect(b *testing.B) float64 {
	b.Helper()
	server := exec.CommandContext(b.Context(), os.Args[0])
	server.Env = append(os.Environ(), toolsVariable+"=10")
	in, err := server.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewReader(out)
	p50 := measure(b, func(n int) {
		_, _ = fmt.Fprintf(in, benchCall+"\n", n, "tool1")
		_, _ = lines.ReadSlice('\n')
	})
	_ = in.Close()
	_ = server.Wait()
	return p50
}

// BenchmarkGateway calls one tool of a server over stdio, directly and through the gateway. The difference of the
// medians is the gateway's overhead.
func BenchmarkGateway(b *testing.B) {
	var direct float64
	b.Run("direct", func(b *testing.B) { direct = measureDirect(b) })
	b.Run("proxied", func(b *testing.B) {
		send, next := serve(b, newGateway(openUpstreams(b, 1, 10)))
		p50 := measure(b, func(n int) {
			send(fmt.Sprintf(benchCall, n, "s0__tool1"))
			if line := next(); !strings.Contains(line, `"text":"done"`) {
				b.Fatal(line)
			}
		})
		b.ReportMetric(p50-direct, "added-p50-us")
	})
}

// BenchmarkGatewayList lists 500 tools of 20 servers, as they are written to a client.
func BenchmarkGatewayList(b *testing.B) {
	send, next := serve(b, newGateway(openUpstreams(b, 20, 25)))
	var size int
	measure(b, func(n int) {
		send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, n))
		if size = len(next()); size < 500*200 {
			b.Fatalf("a list of %d bytes", size)
		}
	})
	b.ReportMetric(float64(size), "bytes")
}

// BenchmarkGatewayIdle reports the memory that gavel uses for each of 50 HTTP servers with 10 tools on different hosts:
// once declared and pinned, and once with an idle session and connection.
func BenchmarkGatewayIdle(b *testing.B) {
	const servers = 50
	server := exec.CommandContext(b.Context(), os.Args[0])
	server.Env = append(os.Environ(), toolsVariable+"=10", httpVariable+"=1")
	in, err := server.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = server.Wait() }()
	var port int
	if _, err := fmt.Fscan(out, &port); err != nil {
		b.Fatal(err)
	}
	taken := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	before := taken()
	declared := upstream.Config{Servers: map[string]upstream.Server{}}
	for i := range servers {
		declared.Servers[fmt.Sprintf("s%d", i)] = upstream.Server{URL: fmt.Sprintf("http://127.0.0.%d:%d/", i+1, port), PrivateNetwork: true}
	}
	m := openPinned(b, declared)
	pinned := taken() - before
	call := func(i int) {
		if _, err := m.Call(b.Context(), ann, upstream.Request{
			Upstream: fmt.Sprintf("s%d", i%servers), Method: "tools/call", Kind: upstream.KindTool, Name: "tool1", Params: json.RawMessage(`{"arguments":{"a":"x"}}`),
		}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range servers {
		call(i)
	}
	idle := taken() - before
	for i := 0; b.Loop(); i++ { // what else would be timed
		call(i)
	}
	b.ReportMetric(pinned/servers, "bytes/pinned-upstream")
	b.ReportMetric(idle/servers, "bytes/idle-upstream")
}

// BenchmarkOwnCalls asks the gateway for gavel's own names. Each call of gavel's own tools has this cost.
func BenchmarkOwnCalls(b *testing.B) {
	g := newGateway(newFakeUpstreams())
	for b.Loop() {
		if _, err := g.Ask(b.Context(), ann, wire.Request{Method: "tools/call", Kind: wire.Tool, Name: "workflow.advance"}); err == nil {
			b.Fatal("it is not gavel's own")
		}
	}
}

var _ foreign.Upstreams = (*upstream.Manager)(nil)
