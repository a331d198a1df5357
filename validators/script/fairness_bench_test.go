package script_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// BenchmarkFairness measures a caller that makes sequential calls: alone, and in competition with a caller
// whose data keeps the same script busy until it is interrupted.
func BenchmarkFairness(b *testing.B) {
	for name, cfg := range map[string]script.Config{
		"default": {}, "workers=2,percaller=2": {Workers: 2, PerCaller: 2}, "workers=2,percaller=1": {Workers: 2, PerCaller: 1},
	} {
		b.Run(name, func(b *testing.B) {
			cfg.OwnerStrikes, cfg.ScriptStrikes = 1<<20, 1<<20
			p := newPool(b, cfg)
			ask := func() time.Duration {
				began := time.Now()
				if _, err := p.Run(b.Context(), asked("agent:honest", byData, `{}`)); err != nil {
					b.Fatal(err)
				}
				return time.Since(began)
			}
			var quiet, noisy []time.Duration
			ask()
			for range 300 {
				quiet = append(quiet, ask())
			}
			ctx, cancel := context.WithCancel(b.Context())
			var noise sync.WaitGroup
			for range 16 {
				noise.Go(func() {
					for ctx.Err() == nil {
						_, _ = p.Run(ctx, asked("agent:noisy", byData, `{"heavy":true}`))
					}
				})
			}
			for p.Stats().Waiting < 12 {
				time.Sleep(time.Millisecond) //nolint:forbidigo // until the noise is there
			}
			for b.Loop() {
				noisy = append(noisy, ask())
			}
			cancel()
			noise.Wait()
			b.ReportMetric(p95(quiet).Seconds()*1e3, "quiet-p95-ms")
			b.ReportMetric(p95(noisy).Seconds()*1e3, "beside-p95-ms")
		})
	}
}

func p95(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)*95/100]
}
