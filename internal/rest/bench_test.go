package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/rest"
)

// BenchmarkDecideOverHTTP measures /v1/decide over the network, one request at a time. The baseline is a handler that
// reads the same JSON and sends a response of the same size.
func BenchmarkDecideOverHTTP(b *testing.B) {
	a := newAPI(b)
	a.define(operator, paper)
	body := []byte(`{"workflow":"paper","state":"draft","action":"submit","data":{"title":"T"},"context":{"who":"ann"}}`)
	reply := a.ask(agent, "POST /v1/decide", string(body)).is(http.StatusOK).body
	bare := signedIn(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		var v map[string]any
		if err != nil || json.Unmarshal(raw, &v) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(reply)
	}))
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{{"bare handler", bare}, {"decide", a.http}} {
		b.Run(c.name, func(b *testing.B) { posts(b, c.handler, body) })
	}
}

func posts(b *testing.B, h http.Handler, body []byte) {
	b.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	for b.Loop() {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL+"/v1/decide", bytes.NewReader(body))
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

// BenchmarkDecideFace measures the face's share of /v1/decide: reading the request and writing the response, with an
// engine that responds immediately.
func BenchmarkDecideFace(b *testing.B) {
	e := newEngine(b)
	if _, err := e.Define(b.Context(), operator, engine.DefineRequest{Source: "paper", Document: []byte(paper)}); err != nil {
		b.Fatal(err)
	}
	decided, err := e.Decide(b.Context(), agent, engine.DecideRequest{Workflow: "paper", State: "draft", Action: "submit", Data: []byte(`{"title":"T"}`)})
	if err != nil {
		b.Fatal(err)
	}
	a := newAPI(b, func(c *rest.Config) { c.Engine = instantEngine{e, decided} })
	body := []byte(`{"workflow":"paper","state":"draft","action":"submit","data":{"title":"T"},"context":{"who":"ann"}}`)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/decide", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+agent.ID)
		w := httptest.NewRecorder()
		if a.http.ServeHTTP(w, r); w.Code != http.StatusOK {
			b.Fatal(w.Code, w.Body)
		}
	}
}

type instantEngine struct {
	operation.Engine
	decided engine.DecideResult
}

func (e instantEngine) Decide(context.Context, engine.Principal, engine.DecideRequest) (engine.DecideResult, error) {
	return e.decided, nil
}
