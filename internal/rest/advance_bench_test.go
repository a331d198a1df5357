package rest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// BenchmarkAdvanceOverHTTP moves one instance on SQLite, one request at a time. It compares this with a baseline in
// the same run: a handler that makes 600 bytes durable, about an event, and sends a response of the same size.
// "x-bare" is the ratio.
func BenchmarkAdvanceOverHTTP(b *testing.B) {
	e, a := newSQLiteBench(b)
	if _, err := e.Define(b.Context(), operator, engine.DefineRequest{Source: "bench", Document: []byte(`{"name":"loop","initialState":"a","states":{"a":{"transitions":{"again":"a"}}}}`)}); err != nil {
		b.Fatal(err)
	}
	start, err := e.Start(b.Context(), agent, engine.StartRequest{Type: "loop"})
	if err != nil {
		b.Fatal(err)
	}
	path, body := "/v1/instances/"+start.ID+"/advance", `{"action":"again","data":{"n":1}}`
	reply := a.ask(agent, "POST "+path, body).is(http.StatusOK).body
	var bare float64 // ns per request
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{{"bare handler, one durable write", durable(b, reply)}, {"advance, SQLite", a.http}} {
		b.Run(c.name, func(b *testing.B) {
			moves(b, c.handler, path, body)
			each := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			if bare == 0 {
				bare = each
			}
			b.ReportMetric(each/bare, "x-bare")
		})
	}
}

// durable appends to a file, and responds once the data is on disk.
func durable(b *testing.B, reply []byte) http.Handler {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	event := make([]byte, 600)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = f.Write(event)
		}
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(reply)
	})
}

func moves(b *testing.B, h http.Handler, path, body string) {
	b.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+agent.ID)
		resp, err := s.Client().Do(r)
		if err != nil {
			b.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatalf("%v %s", err, resp.Status)
		}
	}
}
