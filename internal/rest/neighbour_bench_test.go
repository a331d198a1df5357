package rest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	jsondoc "github.com/gavel-mcp/gavel/validators/document"
)

// BenchmarkAdvanceBesideReaders moves an instance on SQLite over the network while 16 connections of another
// principal read continuously. "p50-ms" and "p95-ms" are the latencies of the moves; compare them with those of the
// quiet run.
func BenchmarkAdvanceBesideReaders(b *testing.B) {
	e, a := newSQLiteBench(b)
	const loop = `{"name":"loop","initialState":"a","states":{"a":{"transitions":{"again":{"target":"a","validator":"(data) => ({valid: data.n > 0})"}}}}}`
	if _, err := e.Define(b.Context(), operator, engine.DefineRequest{Source: "bench", Document: []byte(loop)}); err != nil {
		b.Fatal(err)
	}
	start := func(p engine.Principal) string {
		r, err := e.Start(b.Context(), p, engine.StartRequest{Type: "loop"})
		if err != nil {
			b.Fatal(err)
		}
		return r.ID
	}
	move := func(ctx context.Context, p engine.Principal, id string) {
		if _, err := e.Advance(ctx, p, engine.AdvanceRequest{ID: id, Action: "again", Data: jsondoc.ReadTrusted([]byte(`{"n":1}`))}); err != nil {
			b.Error(err)
		}
	}
	var filling sync.WaitGroup
	for range 16 { // data for the neighbour to read
		id := start(stranger)
		filling.Go(func() {
			for range 200 {
				move(b.Context(), stranger, id)
			}
		})
	}
	filling.Wait()
	path := "/v1/instances/" + start(agent) + "/advance"
	for _, noise := range []string{"", "/v1/events?after=0&limit=1000", "/v1/decisions?limit=1000", "/v1/decisions/statistics"} {
		name := "quiet"
		if noise != "" {
			name = "beside " + noise
		}
		b.Run(name, func(b *testing.B) {
			s := httptest.NewServer(a.http)
			defer s.Close()
			ctx, stop := context.WithCancel(b.Context())
			var readers sync.WaitGroup
			defer readers.Wait()
			defer stop()
			for range 16 {
				if noise == "" {
					break
				}
				readers.Go(func() {
					client := &http.Client{Transport: &http.Transport{}}
					defer client.CloseIdleConnections()
					for ctx.Err() == nil {
						ask(ctx, b, client, stranger, http.MethodGet, s.URL+noise, "")
					}
				})
			}
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if got := ask(ctx, b, s.Client(), agent, http.MethodPost, s.URL+path, `{"action":"again","data":{"n":1}}`); got != http.StatusOK {
					b.Fatalf("status %d", got)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			at := func(part float64) float64 {
				return float64(took[int(part*float64(len(took)-1))].Microseconds()) / 1000
			}
			b.ReportMetric(at(0.5), "p50-ms")
			b.ReportMetric(at(0.95), "p95-ms")
		})
	}
}

// ask sends a request and reads the whole answer. It returns 0 if the request was cancelled.
func ask(ctx context.Context, b *testing.B, c *http.Client, who engine.Principal, method, url, body string) int {
	b.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+who.ID)
	resp, err := c.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			b.Error(err)
		}
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
