package face_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"path/filepath"
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

const loop = `{"name":"loop","initialState":"a","states":{"a":{"transitions":{"again":"a"}}}}`

// BenchmarkAdvanceOverStdio measures workflow.advance over stdio pipes, one call at a time. Its baseline is an echo
// tool of a plain mcp-go server over the same pipes. The durable variant also waits for the disk; engine/store/sqlite
// measures that part alone.
func BenchmarkAdvanceOverStdio(b *testing.B) {
	b.Run("bare mcp-go echo", func(b *testing.B) {
		s := server.NewMCPServer("echo", "1")
		s.AddTool(mcp.NewTool("echo"), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(string(r.Params.RawArguments)), nil
		})
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- server.NewStdioServer(s).Listen(context.Background(), inR, outW) }()
		roundTrips(b, inW, outR, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"id":"wf-x","action":"again","data":{"n":1}}}}`)
		_ = inW.Close()
		<-done
	})
	b.Run("advance, engine that answers at once", func(b *testing.B) {
		d := decided(judge.Approve, true)
		d.Violations, d.Suggestions = []string{}, []string{}
		advancesOver(b, scripted{decision: d}, "wf-1")
	})
	b.Run("advance, memory", func(b *testing.B) { advances(b, memory.New()) })
	b.Run("advance, SQLite", func(b *testing.B) {
		db, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "gavel.db")})
		if err != nil {
			b.Fatal(err)
		}
		advances(b, db)
	})
}

func advances(b *testing.B, db store.Store) {
	b.Helper()
	compiler := validators.NewCompiler(enginetest.Pool(), validators.Options{})
	pipeline, err := judge.New(judge.Config{Compiler: compiler})
	if err != nil {
		b.Fatal(err)
	}
	e, err := engine.New(engine.Config{Store: db, Judge: pipeline, Compiler: compiler, Digester: record.NewDigester(make([]byte, 32))})
	if err != nil {
		b.Fatal(err)
	}
	p := engine.Principal{ID: "local:agent", Role: engine.RoleAgent}
	if _, err := e.Define(b.Context(), p, engine.DefineRequest{Source: "bench", Document: []byte(loop)}); err != nil {
		b.Fatal(err)
	}
	start, err := e.Start(b.Context(), p, engine.StartRequest{Type: "loop"})
	if err != nil {
		b.Fatal(err)
	}
	advancesOver(b, e, start.ID)
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

func advancesOver(b *testing.B, e operation.Engine, id string) {
	b.Helper()
	p := engine.Principal{ID: "local:agent", Role: engine.RoleAgent}
	face, err := face.New(face.Config{Engine: e, Principal: p, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- face.ServeStdio(context.Background(), inR, outW) }()
	roundTrips(b, inW, outR, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":"`+id+`","action":"again","data":{"n":1}}}}`)
	_ = inW.Close()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func roundTrips(b *testing.B, in io.Writer, out io.Reader, line string) {
	b.Helper()
	r := bufio.NewReaderSize(out, 1<<20)
	for b.Loop() {
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			b.Fatal(err)
		}
		if _, err := r.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
}
