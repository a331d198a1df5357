package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/cli"
)

func median[T time.Duration | int64](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

// buildEcho builds a bare mcp-go server, to measure the protocol without gavel.
func buildEcho(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "echo")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", path, "./testdata/echo").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return path
}

// pipe is a minimal client: it writes one line and reads one line.
type pipe struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func dial(b *testing.B, program string, args ...string) *pipe {
	b.Helper()
	p := &pipe{cmd: exec.Command(program, args...)}
	p.cmd.Env = cli.WithoutSettings(os.Environ())
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	p.out = bufio.NewReaderSize(stdout, 1<<20)
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	p.ask(b, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`)
	return p
}

func (p *pipe) ask(b *testing.B, line string) string {
	b.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		b.Fatal(err)
	}
	answer, err := p.out.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return answer
}

func (p *pipe) hangUp(b *testing.B) {
	b.Helper()
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		b.Error(err)
	}
}

// timed measures sequential requests and reports the median.
func timed(b *testing.B, ask func(i int)) {
	b.Helper()
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for i := range b.N {
		began := time.Now()
		ask(i)
		took = append(took, time.Since(began))
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
}

// BenchmarkAdvanceOverStdio measures workflow.advance on a SQLite store, and its two parts: a bare mcp-go echo
// over stdio, and one durable write.
func BenchmarkAdvanceOverStdio(b *testing.B) {
	b.Run("echo", func(b *testing.B) {
		p := dial(b, buildEcho(b))
		timed(b, func(i int) {
			p.ask(b, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"data":{"n":%d}}}}`, i+1, i))
		})
		p.hangUp(b)
	})
	b.Run("fdatasync", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "log"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		block := []byte(strings.Repeat("x", 1024))
		timed(b, func(int) {
			if _, err := f.Write(block); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		})
	})
	for _, store := range []string{"sqlite", "memory"} {
		b.Run("advance/"+store, func(b *testing.B) {
			path := gavel.Memory
			if store == "sqlite" {
				path = filepath.Join(b.TempDir(), gavel.StoreFile)
			}
			p := dial(b, "gavel", "mcp", "--store", path, "--tool-names", "dotted")
			p.ask(b, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"workflow.define","arguments":%s}}`, strings.ReplaceAll(pingPong, "\n", "")))
			started := p.ask(b, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"workflow.start","arguments":{"type":"ping-pong"}}}`)
			at := strings.Index(started, "wf-")
			if at < 0 {
				b.Fatal(started)
			}
			id := started[at : at+39]
			timed(b, func(i int) {
				action := []string{"go", "back"}[i%2]
				answer := p.ask(b, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"workflow.advance","arguments":{"id":%q,"action":%q,"data":{"n":%d}}}}`, i+3, id, action, i))
				if strings.Contains(answer, `"isError":true`) {
					b.Fatal(answer)
				}
			})
			p.hangUp(b)
		})
	}
}

// BenchmarkStart measures the time from exec to the first response, compared with a bare mcp-go server.
func BenchmarkStart(b *testing.B) {
	b.Run("echo", func(b *testing.B) {
		echo := buildEcho(b)
		timed(b, func(int) { dial(b, echo).hangUp(b) })
	})
	b.Run("gavel/memory", func(b *testing.B) {
		timed(b, func(int) { dial(b, "gavel", "mcp", "--store", gavel.Memory).hangUp(b) })
	})
	path := filepath.Join(b.TempDir(), gavel.StoreFile)
	dial(b, "gavel", "mcp", "--store", path).hangUp(b)
	b.Run("gavel/sqlite", func(b *testing.B) {
		timed(b, func(int) { dial(b, "gavel", "mcp", "--store", path).hangUp(b) })
	})
}
