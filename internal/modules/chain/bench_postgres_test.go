package chain_test

import (
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// BenchmarkChainStepPostgres measures a step of a chain over a database on this machine, without a record
// in a store. Compare it with BenchmarkChainStep, whose calls pass through the door.
func BenchmarkChainStepPostgres(b *testing.B) {
	const loops = 100
	d, err := chain.Parse("chain.yaml", []byte("name: c\nsteps:\n- {id: f, type: loop, max_iterations: 100, steps: [{id: a, type: tool, server: s, action: x}]}\n"))
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range []struct {
		name       string
		repeatable bool
	}{{"repeatable", true}, {"once", false}} {
		b.Run(kind.name, func(b *testing.B) {
			url := pgtest.Shared(b).NewDatabase(b)
			s, err := openReplicaStore(url)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.db.Close() }()
			c := s.config(url)
			c.Ledger, c.Lease = nil, time.Minute
			c.Effects = effects(func(chain.Command) chain.Outcome { return chain.Outcome{Value: "ok"} })
			c.Repeatable = func(string, string) bool { return kind.repeatable }
			r, err := chain.Open(b.Context(), c)
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			for b.Loop() {
				run, err := r.Start(b.Context(), chain.StartRequest{Definition: d, Principal: olga})
				if err == nil {
					_, err = r.Wait(b.Context(), run)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*loops), "µs/step")
		})
	}
}
