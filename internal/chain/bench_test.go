package chain

import "testing"

// BenchmarkChainStep is a step beside nothing: what recording costs, of calls that may run twice
// and of those that may not.
func BenchmarkChainStep(b *testing.B) {
	for name, repeatable := range map[string]bool{"repeatable": true, "once": false} {
		b.Run(name, func(b *testing.B) {
			r := openRuns(b, b.TempDir(), &fakeServers{})
			defer r.Close()
			r.config.Repeatable = func(string, string) bool { return repeatable }
			d := parse(b, steps(`{id: f, type: loop, max_iterations: 100, steps: [{id: a, type: tool, server: s, action: x}]}`))
			b.ResetTimer()
			for range b.N {
				waitRun(b, r, startRun(b, r, d, ""))
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/step")
		})
	}
}
