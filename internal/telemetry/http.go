package telemetry

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Instrument counts the requests that next serves.
func (m *Metrics) Instrument(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, route := time.Now(), routeOf(r.URL.Path)
		m.inFlight.Inc()
		seen := &statusWriter{ResponseWriter: w}
		defer func() {
			m.inFlight.Dec()
			m.requests.WithLabelValues(strconv.Itoa(seen.status()), methodOf(r.Method), route).Inc()
			if !seen.stream {
				m.served.WithLabelValues(route).Observe(time.Since(began).Seconds())
			}
		}()
		next.ServeHTTP(seen, r)
	})
}

// routes are the paths with a metric of their own. Any other path counts as "other".
var routes = []string{
	"/mcp", "/healthz", "/readyz", "/metrics", "/openapi.json", "/console",
	"/v1/definitions", "/v1/instances", "/v1/decisions", "/v1/events", "/v1/reviews", "/v1/decide", "/v1/evidence", "/v1/refusals", "/v1/whoami",
}

func routeOf(path string) string {
	for _, route := range routes {
		if rest, ok := strings.CutPrefix(path, route); ok && (rest == "" || rest[0] == '/') {
			return route
		}
	}
	return "other"
}

func methodOf(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// statusWriter records the response status.
type statusWriter struct {
	http.ResponseWriter
	code   int
	stream bool
}

func (w *statusWriter) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK {
		w.code = code
		w.stream = strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, which stream handlers require.
func (w *statusWriter) Flush() {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a writer that cannot flush does not buffer
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) status() int {
	if w.code == 0 {
		return http.StatusOK // the status that net/http sends if nothing was written
	}
	return w.code
}
