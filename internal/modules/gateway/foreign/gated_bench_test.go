package foreign_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/config"
	_ "github.com/gavel-mcp/gavel/internal/modules/gateway" // served by the system
	"github.com/gavel-mcp/gavel/internal/upstream"
)

const benchGates = `upstreams:
  s0: {command: [%q], set: {%s: "10"}, allow: [{tools: ["*"]}]}
gates:
  - {tool: s0__tool1, workflow: gated, states: [ready], action: deploy, success: finish}
`

// BenchmarkGatewayGated calls a tool through a gate with an action before and one after the call, over
// stdio and with a store in a file. The ratio compares it with a direct call plus the two moves without a
// gate, measured in the same run. GAVEL_LONG=1 puts the store on the disk.
func BenchmarkGatewayGated(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "gavel.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, benchGates, os.Args[0], toolsVariable), 0o600); err != nil {
		b.Fatal(err)
	}
	file, err := config.Load(path)
	if err != nil {
		b.Fatal(err)
	}
	declared, err := upstream.ParseConfig(file.Section(upstream.Section))
	if err != nil {
		b.Fatal(err)
	}
	if err := pinAll(b, declared, upstream.PinsPath(path)).Save(); err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	sys, err := gavel.Open(b.Context(), gavel.Config{Store: filepath.Join(dir, "gavel.db"), File: path, Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	defer sys.Close()
	// start starts instances of a workflow, so that none has a long history.
	start := func(b *testing.B, name string) (ids []string) {
		b.Helper()
		doc := fmt.Sprintf(`{"name":%q,"initialState":"ready","states":{"ready":{"transitions":{"deploy":"deploying"}},"deploying":{"transitions":{"finish":"ready"}}}}`, name)
		if _, err := sys.Engine.Define(b.Context(), gavel.Operator, engine.DefineRequest{Document: []byte(doc)}); err != nil {
			b.Fatal(err)
		}
		for range b.N + 1 {
			s, err := sys.Engine.Start(b.Context(), ann, engine.StartRequest{Type: name})
			if err != nil {
				b.Fatal(err)
			}
			ids = append(ids, s.ID)
		}
		return ids
	}

	var direct, moves float64
	b.Run("direct", func(b *testing.B) { direct = measureDirect(b) })
	b.Run("moves", func(b *testing.B) {
		ids := start(b, "moves")
		moves = measure(b, func(n int) {
			for _, action := range []string{"deploy", "finish"} {
				if r, err := sys.Engine.Advance(b.Context(), ann, engine.AdvanceRequest{ID: ids[n], Action: action}); err != nil || !r.Decision.Applied {
					b.Fatal(r.Decision, err)
				}
			}
		})
	})
	b.Run("gated", func(b *testing.B) {
		ids := start(b, "gated")
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- sys.ServeStdio(b.Context(), gavel.Tools{}, ann, inR, outW) }()
		lines := bufio.NewReader(outR)
		p50 := measure(b, func(n int) {
			fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"s0__tool1","arguments":{"workflowId":%q,"a":"x","b":[1,2,3]}}}`+"\n", n, ids[n])
			for line := ""; !strings.Contains(line, `"id":`); {
				if line, err = lines.ReadString('\n'); err != nil || strings.Contains(line, "isError") {
					b.Fatal(line, err)
				}
			}
		})
		_ = inW.Close()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		if s, err := sys.Engine.Status(b.Context(), ann, ids[b.N]); err != nil || s.Revision != 3 {
			b.Fatalf("the last call made no two moves: %+v, %v", s, err)
		}
		b.ReportMetric(p50/(direct+moves), "ratio")
	})
}
