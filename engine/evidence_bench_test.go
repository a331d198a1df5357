package engine_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/validators/document"
)

// BenchmarkAdvanceWithEvidence measures an advance that runs commands of 10 to 40 ms, and compares it with
// the slowest command alone and with the same advance without evidence. Target: the slowest source plus
// the time of the gate itself.
func BenchmarkAdvanceWithEvidence(b *testing.B) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		b.Skip("there is no command sleep")
	}
	b.Run("the slowest command alone", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command(sleep, "0.04").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	sources := map[string]evidence.Source{}
	var wanted []string
	for i := 1; i <= 4; i++ {
		name := fmt.Sprintf("s%d", i)
		sources[name] = evidence.Source{Command: []string{sleep, fmt.Sprintf("0.0%d", i)}}
		wanted = append(wanted, fmt.Sprintf(`{"name":%q,"source":%q}`, name, name))
	}
	manager, err := evidence.New(evidence.Config{Sources: sources, Dir: b.TempDir()}, evidence.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer manager.Close()
	for _, c := range []struct{ name, goes string }{
		{"without evidence", ""},
		{"with four sources", `,"evidence":[` + strings.Join(wanted, ",") + `]`},
	} {
		b.Run(c.name, func(b *testing.B) {
			bench := newBenchWith(b, memory.New(), manager, func(*engine.Config) {})
			bench.define(operator, `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":{"target":"a"`+c.goes+`}}}}}`)
			id := bench.start(agent, "w", `{}`).ID
			for b.Loop() {
				r, err := bench.Advance(b.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`{}`))})
				if err != nil || !r.Decision.Applied {
					b.Fatalf("%+v, %v", r.Decision, err)
				}
			}
		})
	}
}
