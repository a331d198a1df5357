package face_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/mcp/face"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// BenchmarkAdvanceOverHTTP measures workflow.advance over HTTP, one call at a time over one connection. Its baseline
// in the same run is an echo tool of a plain mcp-go server over HTTP. "x-echo" is the ratio of the two times.
func BenchmarkAdvanceOverHTTP(b *testing.B) {
	var echo float64 // ns per call
	run := func(name string, serve func(b *testing.B) (url, call string)) {
		b.Run(name, func(b *testing.B) {
			url, call := serve(b)
			postAll(b, url, call)
			each := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			if echo == 0 {
				echo = each
			}
			b.ReportMetric(each/echo, "x-echo")
		})
	}
	run("bare mcp-go echo", func(b *testing.B) (url, call string) {
		s := server.NewMCPServer("echo", "1")
		s.AddTool(mcp.NewTool("echo"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(string(r.Params.RawArguments)), nil
		})
		h := httptest.NewServer(server.NewStreamableHTTPServer(s, server.WithStateful(true)))
		b.Cleanup(h.Close)
		return h.URL, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"id":"wf-x","action":"again","data":{"n":1}}}}`
	})
	run("advance, engine that answers at once", func(b *testing.B) (url, call string) {
		d := decided(judge.Approve, true)
		d.Violations, d.Suggestions = []string{}, []string{}
		return faceOverHTTP(b, scripted{decision: d}), advanceCall("wf-1")
	})
	run("advance, memory", func(b *testing.B) (url, call string) { return loopOverHTTP(b, memory.New()) })
	run("advance, SQLite", func(b *testing.B) (url, call string) {
		db, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "gavel.db")})
		if err != nil {
			b.Fatal(err)
		}
		return loopOverHTTP(b, db)
	})
}

func advanceCall(id string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":"` + id + `","action":"again","data":{"n":1}}}}`
}

func loopOverHTTP(b *testing.B, db store.Store) (url, call string) {
	b.Helper()
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	compiler := validators.NewCompiler(enginetest.Pool(), validators.Options{})
	pipeline, err := judge.New(judge.Config{Compiler: compiler})
	if err != nil {
		b.Fatal(err)
	}
	e, err := engine.New(engine.Config{Store: db, Judge: pipeline, Compiler: compiler, Digester: record.NewDigester(make([]byte, 32))})
	if err != nil {
		b.Fatal(err)
	}
	p := engine.Principal{ID: "ann", Role: engine.RoleAgent}
	if _, err := e.Define(b.Context(), p, engine.DefineRequest{Source: "bench", Document: []byte(loop)}); err != nil {
		b.Fatal(err)
	}
	start, err := e.Start(b.Context(), p, engine.StartRequest{Type: "loop"})
	if err != nil {
		b.Fatal(err)
	}
	return faceOverHTTP(b, e), advanceCall(start.ID)
}

func faceOverHTTP(b *testing.B, e operation.Engine) (url string) {
	b.Helper()
	face, err := face.New(face.Config{Engine: e, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	endpoint := face.Handler()
	h := httptest.NewServer(authenticated(endpoint))
	b.Cleanup(func() {
		endpoint.EndStreams()
		h.Close()
		endpoint.Close()
	})
	return h.URL
}

// postAll begins a session and makes the same call b.N times.
func postAll(b *testing.B, url, call string) {
	b.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	session := ""
	post := func(body string) {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Who": {"ann"},
			"Mcp-Protocol-Version": {"2025-11-25"}, "Mcp-Session-Id": {session},
		}
		if session == "" {
			r.Header.Del("Mcp-Session-Id")
		}
		res, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		answer, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(answer), `"result":`) {
			b.Fatalf("%d %.300s %v", res.StatusCode, answer, err)
		}
		if id := res.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
	}
	post(helloHTTP)
	for b.Loop() {
		post(call)
	}
}
