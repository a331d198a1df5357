package engine_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/validators/document"
)

// BenchmarkAdvanceSealed measures the cost of sealing: moves with five sensitive fields with and without a
// key, alternately. The ratio is that of the medians.
func BenchmarkAdvanceSealed(b *testing.B) {
	const flow = `{"name":"five","initialState":"a","sensitive":["/a","/b","/c","/d","/e"],"states":{"a":{"transitions":{"go":"a"}}}}`
	const data = `{"a":"078-05-1120","b":"4111 1111 1111 1111","c":{"street":"Elm Street 5","city":"Springfield"},"d":12345.50,"e":"ada@example.org","open":"yes"}`
	open := map[string]func() store.Store{
		"memory": func() store.Store { return memory.New() },
		"sqlite": func() store.Store {
			db, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "gavel.db")})
			if err != nil {
				b.Fatal(err)
			}
			return db
		},
	}
	for _, name := range []string{"memory", "sqlite"} {
		b.Run(name, func(b *testing.B) {
			type side struct {
				*bench
				id   string
				took []time.Duration
			}
			sides := [2]*side{}
			for i := range sides {
				one := &side{bench: newBenchWith(b, open[name](), nil, func(c *engine.Config) {
					c.Now = nil
					if i == 0 {
						c.ValueKey = nil
					}
				})}
				one.define(operator, flow)
				one.id = one.start(agent, "five", data).ID
				sides[i] = one
			}
			b.ResetTimer()
			for n := range b.N {
				for i := range sides {
					s := sides[(i+n)%2]
					began := time.Now()
					if _, err := s.Advance(b.Context(), agent, engine.AdvanceRequest{ID: s.id, Action: "go", Data: document.ReadTrusted([]byte(data))}); err != nil {
						b.Fatal(err)
					}
					s.took = append(s.took, time.Since(began))
				}
			}
			median := func(s *side) float64 { slices.Sort(s.took); return float64(s.took[len(s.took)/2]) }
			b.ReportMetric(median(sides[0])/1e3, "plain-µs")
			b.ReportMetric(median(sides[1])/1e3, "sealed-µs")
			b.ReportMetric(median(sides[1])/median(sides[0]), "ratio")
		})
	}
}
