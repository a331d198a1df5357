package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkDecideOverHTTP is /v1/decide over the network, one request at a time, beside its
// baseline: a handler that reads the same JSON and answers as many bytes.
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
