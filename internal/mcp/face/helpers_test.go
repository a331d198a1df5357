package face_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

// newEngine returns the real engine in memory, with a deterministic clock and ids.
func newEngine(t testing.TB, options ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	options = append([]func(*engine.Config){enginetest.Deterministic(time.Second), func(cfg *engine.Config) { cfg.FeedPoll = time.Millisecond }}, options...)
	return enginetest.New(t, judge.Config{Clock: enginetest.FixedTime}, options...)
}

// session is a server on pipes that the test drives with raw lines, like a client.
type session struct {
	t     testing.TB
	in    *io.PipeWriter
	lines chan []byte // what the server wrote
	done  chan error  // what ServeStdio returned
	stop  context.CancelFunc
}

type option func(*face.Config)

func serve(t testing.TB, e operation.Engine, options ...option) *session {
	t.Helper()
	cfg := face.Config{
		Engine: e, Principal: engine.Principal{ID: "local:agent", Role: engine.RoleAgent},
		Version: "test", Logger: slog.New(slog.DiscardHandler),
	}
	for _, o := range options {
		o(&cfg)
	}
	face, err := face.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return serveFace(t, face)
}

func serveFace(t testing.TB, face *face.Face) *session {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	w := &session{t: t, in: inW, lines: make(chan []byte, 1<<16), done: make(chan error, 1), stop: stop}
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

// end closes stdin and waits until the server returns.
func (w *session) end() {
	_ = w.in.Close()
	late := time.After(patience)
	for {
		select {
		case _, ok := <-w.lines:
			if !ok {
				w.stop()
				return
			}
		case <-late:
			w.t.Error("the server does not end")
			return
		}
	}
}

// patience limits every wait. A slow machine must not reach it.
const patience = 20 * time.Second

func (w *session) send(line string) {
	w.t.Helper()
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(w.in, line+"\n")
		sent <- err
	}()
	select {
	case err := <-sent:
		if err != nil {
			w.t.Fatalf("send: %v", err)
		}
	case <-time.After(patience):
		w.t.Fatal("the server reads no more")
	}
}

// next returns the next message from the server.
func (w *session) next() map[string]any {
	w.t.Helper()
	line := w.nextLine()
	var m map[string]any
	if err := json.Unmarshal(line, &m); err != nil {
		w.t.Fatalf("not JSON on stdout: %q", line)
	}
	return m
}

func (w *session) nextLine() []byte {
	w.t.Helper()
	select {
	case line, ok := <-w.lines:
		if !ok {
			w.t.Fatal("the server ended")
		}
		return bytes.TrimSuffix(line, []byte("\n"))
	case <-time.After(patience):
		w.t.Fatal("no answer")
		return nil
	}
}

func (w *session) hello(client string) {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"` + client + `","version":"1"}}}`)
	if m := w.next(); m["result"] == nil {
		w.t.Fatalf("initialize: %v", m)
	}
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// result is the answer of a tool.
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

// outcome returns the outcome of the decision in the answer.
func (r result) outcome() any {
	decision, _ := r.StructuredContent["decision"].(map[string]any)
	return decision["outcome"]
}

func (r result) code() any {
	e, _ := r.StructuredContent["error"].(map[string]any)
	return e["code"]
}

// call calls a tool. It checks that the answer has text and conforms to the output schema, if that is declared,
// because clients reject other answers. It also puts the content of the text into the result's structured content.
func (w *session) call(tool, arguments string) result {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"call","method":"tools/call","params":{"name":"` + tool + `","arguments":` + strings.ReplaceAll(arguments, "\n", " ") + `}}`)
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
	conforms(w.t, tool, &r)
	return r
}

var outputSchemas = sync.OnceValue(func() map[string]*schema.Schema {
	out := map[string]*schema.Schema{}
	for name, raw := range face.OutputSchemas() {
		s, err := schema.Compile(raw)
		if err != nil {
			panic(err)
		}
		out[name] = s
		out[strings.ReplaceAll(name, ".", "_")] = s
	}
	return out
})

func conforms(t testing.TB, tool string, r *result) {
	t.Helper()
	if len(r.Content) != 1 {
		t.Fatalf("%s: an answer has one text, got %d blocks", tool, len(r.Content))
	}
	text := r.Content[0].Text
	var fromText map[string]any
	if json.Unmarshal([]byte(text), &fromText) == nil {
		if r.StructuredContent != nil && !reflect.DeepEqual(fromText, r.StructuredContent) {
			t.Errorf("%s: the text is other than the structured content: %s", tool, text)
		}
		r.StructuredContent = fromText
	} else {
		t.Errorf("%s: the text is not JSON: %q", tool, text)
	}
	doc, err := json.Marshal(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	if violations, err := outputSchemas()[tool].Validate(document.ReadTrusted(doc)); err != nil || len(violations) > 0 {
		t.Errorf("%s: the answer does not conform to the output schema: %v %v", tool, violations, err)
	}
	decision, _ := r.StructuredContent["decision"].(map[string]any)
	failed := r.StructuredContent["error"] != nil || decision != nil && decision["applied"] != true
	if failed != r.IsError && tool != "workflow.review.resolve" && !strings.Contains(tool, "validate") && tool != "workflow.review.list" && tool != "chain.result" {
		t.Errorf("%s: isError is %v: %s", tool, r.IsError, text)
	}
}

func (w *session) listRaw() []json.RawMessage {
	w.t.Helper()
	w.send(`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
	var m struct {
		Result struct{ Tools []json.RawMessage }
	}
	if err := json.Unmarshal(w.nextLine(), &m); err != nil {
		w.t.Fatal(err)
	}
	return m.Result.Tools
}

func (w *session) list() []map[string]any {
	w.t.Helper()
	var out []map[string]any
	for _, raw := range w.listRaw() {
		var tool map[string]any
		if err := json.Unmarshal(raw, &tool); err != nil {
			w.t.Fatal(err)
		}
		out = append(out, tool)
	}
	return out
}
