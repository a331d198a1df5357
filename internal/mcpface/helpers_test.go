package mcpface_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/memstore"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/mcpface"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	worker.Main()
	flag.Parse()
	code := m.Run()
	if err := pool().Close(); err != nil {
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

var pool = sync.OnceValue(func() *script.Pool {
	p, err := script.NewPool(script.Config{})
	if err != nil {
		panic(err)
	}
	return p
})

// newEngine is the real engine in memory, with a clock and ids that repeat.
func newEngine(t testing.TB) *engine.Engine {
	t.Helper()
	compiler := validators.NewCompiler(pool(), validators.Options{})
	pipeline, err := judge.New(judge.Config{Compiler: compiler, Clock: func() time.Time { return time.Time{} }})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ids := 0
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e, err := engine.New(engine.Config{
		Store: memstore.New(), Judge: pipeline, Compiler: compiler,
		Digester: record.NewDigester([]byte("0123456789abcdef0123456789abcdef")),
		Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(time.Second)
			return now
		},
		NewID: func() string {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return "00000000-0000-7000-8000-" + string([]byte{'0' + byte(ids/100), '0' + byte(ids/10%10), '0' + byte(ids%10)})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// wire is a server on pipes, driven by raw lines as a client writes them.
type wire struct {
	t     testing.TB
	in    *io.PipeWriter
	lines chan []byte // what the server wrote
	done  chan error  // what ServeStdio returned
	stop  context.CancelFunc
}

type option func(*mcpface.Config)

func serve(t testing.TB, e mcpface.Engine, options ...option) *wire {
	t.Helper()
	cfg := mcpface.Config{
		Engine: e, Principal: engine.Principal{ID: "local:agent", Role: engine.RoleAgent},
		Version: "test", Logger: slog.New(slog.DiscardHandler),
	}
	for _, o := range options {
		o(&cfg)
	}
	face, err := mcpface.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	w := &wire{t: t, in: inW, lines: make(chan []byte, 1<<16), done: make(chan error, 1), stop: stop}
	go func() {
		w.done <- face.ServeStdio(ctx, inR, outW)
		_ = outW.Close()
		_ = inR.Close()
	}()
	go func() {
		defer close(w.lines)
		r := bufio.NewReader(outR)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			w.lines <- line
		}
	}()
	t.Cleanup(func() { w.end() })
	return w
}

// end closes stdin and waits until the server has returned.
func (w *wire) end() {
	_ = w.in.Close()
	for range w.lines {
	}
	w.stop()
}

func (w *wire) send(line string) {
	w.t.Helper()
	if _, err := io.WriteString(w.in, line+"\n"); err != nil {
		w.t.Fatalf("send: %v", err)
	}
}

// next is the next line that the server wrote.
func (w *wire) next() map[string]any {
	w.t.Helper()
	select {
	case line, ok := <-w.lines:
		if !ok {
			w.t.Fatal("the server ended")
		}
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			w.t.Fatalf("not JSON on stdout: %q", line)
		}
		return m
	case <-time.After(20 * time.Second):
		w.t.Fatal("no answer")
		return nil
	}
}

func (w *wire) hello(client string) {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"` + client + `","version":"1"}}}`)
	if m := w.next(); m["result"] == nil {
		w.t.Fatalf("initialize: %v", m)
	}
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// result is what a tool answered.
type result struct {
	IsError           bool           `json:"isError"`
	StructuredContent map[string]any `json:"structuredContent"`
	Content           []struct {
		Text string `json:"text"`
	} `json:"content"`
}

func (r result) text() string {
	var b strings.Builder
	for _, c := range r.Content {
		b.WriteString(c.Text + "\n")
	}
	return b.String()
}

func (r result) code() any {
	e, _ := r.StructuredContent["error"].(map[string]any)
	return e["code"]
}

func (w *wire) call(tool, arguments string) result {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`)
	m := w.next()
	if m["error"] != nil {
		w.t.Fatalf("%s: protocol error %v", tool, m["error"])
	}
	raw, err := json.Marshal(m["result"])
	if err != nil {
		w.t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal(raw, &r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *wire) list() []map[string]any {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
	m := w.next()
	var out []map[string]any
	for _, v := range m["result"].(map[string]any)["tools"].([]any) {
		out = append(out, v.(map[string]any))
	}
	return out
}
