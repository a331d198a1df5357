package evidence_test

import (
	"encoding/json"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/judge"
)

// BenchmarkFetch runs a trivial command through a source, and without one for comparison.
func BenchmarkFetch(b *testing.B) {
	s := this(b, "print=fine", "{{a}}")
	b.Run("os/exec alone", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.CommandContext(b.Context(), s.Command[0], "x")
			cmd.Env = []string{helperMode + "=print=fine"}
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "fine" {
				b.Fatalf("%s: %v", out, err)
			}
		}
	})
	b.Run("source", func(b *testing.B) {
		m := manager(b, evidence.Options{}, map[string]evidence.Source{"it": s})
		for b.Loop() {
			if f := fetch(b, m, `{"a":"x"}`); f.Failure != "" {
				b.Fatal(f.Detail)
			}
		}
	})
	b.Run("everything but the command", func(b *testing.B) {
		refused := s
		refused.Arguments = map[string]evidence.Argument{"a": {Pattern: "y"}}
		m := manager(b, evidence.Options{}, map[string]evidence.Source{"it": refused})
		r := judge.EvidenceRequest{Source: "it", Arguments: json.RawMessage(`{"a":"x"}`)}
		for b.Loop() {
			if f, err := m.Fetch(b.Context(), r, false); err != nil || f.Failure != judge.FailureArgument {
				b.Fatal(f, err)
			}
		}
	})
}

// BenchmarkParallel fetches from four sources concurrently. The slowest takes 100 milliseconds, and so does the
// whole. The metric compares the total time with the slowest source.
func BenchmarkParallel(b *testing.B) {
	const slowest = 100 * time.Millisecond
	names := []string{"a", "b", "c", "d"}
	sources := map[string]evidence.Source{}
	for i, name := range names {
		sources[name] = this(b, "wait="+(slowest*time.Duration(i+1)/time.Duration(len(names))).String())
	}
	m := manager(b, evidence.Options{}, sources)
	for b.Loop() {
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() {
				if f, err := m.Fetch(b.Context(), judge.EvidenceRequest{Source: name}, false); err != nil || f.Failure != "" {
					b.Error(f, err)
				}
			})
		}
		all.Wait()
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(slowest), "x-slowest")
}
