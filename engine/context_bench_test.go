package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/validators/document"
)

// BenchmarkContext measures an advance and refusals, with a small context and with a large one that they
// change little or not at all.
func BenchmarkContext(b *testing.B) {
	s, err := sqlite.Open(b.Context(), sqlite.Config{Path: b.TempDir() + "/gavel.db"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	bench := newBenchOn(b, s)
	bench.define(operator, `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":"a","ask":{"target":"a","requiredFields":["name"]}}}}}`)
	for _, action := range []string{"go", "nope", "ask"} {
		for _, kb := range []int{1, 200} {
			b.Run(fmt.Sprintf("%s, %d KB", action, kb), func(b *testing.B) {
				id := bench.start(operator, "w", `{}`).ID
				for i := range max(kb/40, 1) {
					text := strings.Repeat("x", kb<<10/max(kb/40, 1))
					bench.moved(operator, id, "go", fmt.Sprintf(`{"text%d":%q}`, i, text), "a")
				}
				b.ReportAllocs()
				for b.Loop() {
					_, err := bench.Advance(b.Context(), operator, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(`{"n":1}`))})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
