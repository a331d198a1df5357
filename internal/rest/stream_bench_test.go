package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/internal/rest"
	jsondoc "github.com/gavel-mcp/gavel/validators/document"
)

// BenchmarkStreams commits 100 moves while streams of one principal follow them. "p50-ms" and "p95-ms" are the times
// from a commit until a stream has its event, including half a second of polling. "s-total" is the time until all
// streams have all events.
func BenchmarkStreams(b *testing.B) {
	for _, streams := range []int{10, 100, 400} {
		b.Run(fmt.Sprintf("%d streams", streams), func(b *testing.B) { benchStreams(b, streams) })
	}
}

func benchStreams(b *testing.B, streams int) {
	b.Helper()
	const moves = 100
	store, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "gavel.db")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	e := newEngine(b, func(c *engine.Config) { c.Store = store })
	a := newAPI(b, func(c *rest.Config) { c.Engine, c.MaxStreams = e, streams })
	if _, err := e.Define(b.Context(), operator, engine.DefineRequest{Source: "bench", Document: []byte(`{"name":"loop","initialState":"a","states":{"a":{"transitions":{"again":"a"}}}}`)}); err != nil {
		b.Fatal(err)
	}
	start, err := e.Start(b.Context(), agent, engine.StartRequest{Type: "loop"})
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	var total time.Duration
	for b.Loop() {
		s := httptest.NewServer(a.http)
		ctx, cancel := context.WithCancel(b.Context())
		var mu sync.Mutex
		var open, done sync.WaitGroup
		for range streams {
			open.Add(1)
			done.Go(func() {
				client := &http.Client{Transport: &http.Transport{}}
				defer client.CloseIdleConnections()
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/v1/events", nil)
				r.Header.Set("Accept", "text/event-stream")
				r.Header.Set("Authorization", "Bearer "+agent.ID)
				resp, err := client.Do(r)
				open.Done()
				if err != nil {
					b.Error(err)
					return
				}
				defer func() { _ = resp.Body.Close() }()
				var own []time.Duration
				for lines := bufio.NewScanner(resp.Body); len(own) < moves && lines.Scan(); {
					data, ok := strings.CutPrefix(lines.Text(), "data: ")
					if !ok {
						continue
					}
					now := time.Now()
					var ev struct{ Time time.Time }
					_ = json.Unmarshal([]byte(data), &ev)
					own = append(own, now.Sub(ev.Time))
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, own...)
			})
		}
		open.Wait()
		began := time.Now()
		for range moves {
			if _, err := e.Advance(b.Context(), agent, engine.AdvanceRequest{ID: start.ID, Action: "again", Data: jsondoc.ReadTrusted([]byte(`{"n":1}`))}); err != nil {
				b.Fatal(err)
			}
		}
		done.Wait()
		total += time.Since(began)
		cancel()
		s.Close()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Milliseconds()), "p95-ms")
	b.ReportMetric(total.Seconds()/float64(b.N), "s-total")
}
