package export_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/modules/webhook/export"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// BenchmarkAdvance measures a durable advance without webhooks, with a receiver that hangs, and with one that refuses
// connections, alternately. It reports the medians.
func BenchmarkAdvance(b *testing.B) {
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hangs.Close()
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	type contender struct {
		name    string
		advance func() time.Duration
		took    []time.Duration
	}
	contenders := []*contender{{name: "without"}, {name: "hangs"}, {name: "dead"}}
	for i, url := range []string{"", hangs.URL, dead.URL} {
		advance, stop := durable(b, url)
		defer stop()
		contenders[i].advance = advance
	}
	for b.Loop() {
		for _, c := range contenders {
			c.took = append(c.took, c.advance())
		}
	}
	for _, c := range contenders {
		slices.Sort(c.took)
		b.ReportMetric(float64(c.took[len(c.took)/2].Microseconds()), c.name+"-p50-us")
	}
}

// durable returns an advance of an engine over a file, with a webhook to url; "" for none.
func durable(b *testing.B, url string) (advance func() time.Duration, stop func()) {
	b.Helper()
	dir := b.TempDir()
	db, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(dir, "gavel.db")})
	if err != nil {
		b.Fatal(err)
	}
	e := enginetest.New(b, judge.Config{}, func(c *engine.Config) { c.Store = db })
	if _, err := e.Define(b.Context(), operator, engine.DefineRequest{Document: []byte(`{"name":"flow","initialState":"a","states":{"a":{"transitions":{"go":"a"}}}}`)}); err != nil {
		b.Fatal(err)
	}
	end := func() {}
	if url != "" {
		if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
			b.Fatal(err)
		}
		root, err := document.Parse(filepath.Join(dir, "gavel.json"), []byte(`{"audit":{"url":"`+url+`","privateNetwork":true,"from":"start","secretFiles":"secret"}}`), document.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		hooks, err := export.ParseConfig(root, nil)
		if err != nil {
			b.Fatal(err)
		}
		x := export.New(e, db, slog.New(slog.DiscardHandler))
		if err := x.Load(hooks); err != nil {
			b.Fatal(err)
		}
		end = x.Run(b.Context())
	}
	started, err := e.Start(b.Context(), operator, engine.StartRequest{Type: "flow"})
	if err != nil {
		b.Fatal(err)
	}
	advance = func() time.Duration {
		began := time.Now()
		if _, err := e.Advance(b.Context(), operator, engine.AdvanceRequest{ID: started.ID, Action: "go"}); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
	return advance, func() {
		end()
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	}
}
