package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/telemetry"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

var _ engine.Observer = (*telemetry.Metrics)(nil)

// scrape returns the page that Prometheus would read.
func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("no line %q; of that name there are:\n%s", line, of(text, name))
		}
	}
}

func of(text, name string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func TestMetricsOfDecisions(t *testing.T) {
	m := telemetry.NewMetrics("v1.2.3", telemetry.Sources{})
	decision := func(outcome judge.Outcome, by judge.LayerName) *record.Decision {
		d := &record.Decision{Verdict: judge.Verdict{
			Outcome: outcome, DecidedBy: by, Degraded: by == judge.ByFallback,
			Opinions: []judge.Opinion{{Layer: judge.LayerScript, Outcome: outcome, Took: document.Milliseconds(3 * time.Millisecond)}, {Layer: judge.LayerState}},
		}}
		d.Took = document.Milliseconds(3 * time.Millisecond)
		return d
	}
	m.Committed(context.Background(), []record.Event{
		{Kind: record.Started, Decision: decision(judge.Approve, judge.LayerScript)},
		{Kind: record.Refused, Action: "go", Decision: decision(judge.Reject, judge.LayerScript)},
		{Kind: record.Refused, Action: "go", Decision: decision(judge.Reject, judge.LayerScript)},
		{Kind: record.Prechecked, Decision: decision(judge.Approve, judge.ByFallback)},
		{Kind: record.Refused, Decision: decision(judge.Reject, judge.LayerTransition)}, // refuses an attempt to stop
		{Kind: record.Checkpointed},
		{Kind: record.Settled, Call: &record.Call{Outcome: record.CallUnknown}},
	})
	m.Changed(context.Background(), record.Instance{Context: make([]byte, 1000)})
	wantLines(t, scrape(t, m),
		`gavel_decisions_total{asked="start",decided_by="script",outcome="approve"} 1`,
		`gavel_decisions_total{asked="advance",decided_by="script",outcome="reject"} 2`,
		`gavel_decisions_total{asked="finish",decided_by="transition",outcome="reject"} 1`,
		`gavel_decisions_total{asked="validate",decided_by="fallback",outcome="approve"} 1`,
		`gavel_decisions_degraded_total 1`,
		`gavel_events_total{kind="checkpointed"} 1`,
		`gavel_calls_settled_total{outcome="unknown"} 1`,
		`gavel_decision_seconds_bucket{asked="advance",le="0.002"} 0`,
		`gavel_decision_seconds_bucket{asked="advance",le="0.005"} 2`,
		`gavel_layer_seconds_count{layer="script"} 5`,
		`gavel_context_bytes_sum 1000`,
		`gavel_build_info{version="v1.2.3"} 1`,
	)
}

func TestMetricsThatArePulled(t *testing.T) {
	calls := 0
	m := telemetry.NewMetrics("", telemetry.Sources{
		Model: func() llm.Stats {
			calls++
			return llm.Stats{Calls: 7, PromptTokens: 11, Errors: map[llm.Class]int{"timeout": 2}, Models: []llm.ModelStats{{Name: "m", Breaker: "open", P95: time.Second}}}
		},
		Sandbox: func() script.Stats { return script.Stats{Kills: 3, Waiting: 2} },
		Store: func() store.Stats {
			return store.Stats{Batches: 5, Writes: 50, Queued: 1, LogBytes: 4096}
		},
		Reviews: func() (telemetry.ReviewStats, bool) {
			return telemetry.ReviewStats{Open: 4, OldestAge: time.Minute}, true
		},
		Modules: func(tell telemetry.MetricFunc) {
			tell("audit_total", "What a module counts.", telemetry.Counter, 6, "result", "sent")
			tell("audit_total", "What a module counts.", telemetry.Counter, 1, "result", "failed")
		},
		ValuesRefused: func() int64 { return 8 },
		Streams:       func() int { return 9 },
		StreamLag:     func() (int64, time.Duration) { return 12, 1500 * time.Millisecond },
	})
	if calls != 0 {
		t.Error("figures were pulled before anybody asked")
	}
	wantLines(t, scrape(t, m),
		`gavel_model_calls_total 7`, `gavel_model_tokens_total{direction="prompt"} 11`, `gavel_model_errors_total{class="timeout"} 2`,
		`gavel_model_breaker{model="m",state="open"} 1`, `gavel_model_breaker{model="m",state="closed"} 0`, `gavel_model_seconds{model="m",quantile="0.95"} 1`,
		`gavel_sandbox_kills_total 3`, `gavel_sandbox_waiting 2`,
		`gavel_store_batches_total 5`, `gavel_store_writes_total 50`, `gavel_store_queued 1`, `gavel_store_bytes{part="log"} 4096`,
		`gavel_reviews_open 4`, `gavel_reviews_oldest_seconds 60`,
		`gavel_audit_total{result="sent"} 6`, `gavel_audit_total{result="failed"} 1`,
		`gavel_sealed_values_refused_total 8`, `gavel_streams 9`, `gavel_stream_lag_events 12`, `gavel_stream_lag_seconds 1.5`,
	)
}

// The number of series does not depend on callers' input.
func TestMetricsOfRequests(t *testing.T) {
	m := telemetry.NewMetrics("", telemetry.Sources{})
	h := m.Instrument(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/events":
			w.Header().Set("Content-Type", "text/event-stream")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("a stream cannot be sent: %v", err)
			}
		case "/v1/instances/x":
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = io.WriteString(w, "x")
		}
	}))
	for i := range 50 {
		for _, path := range []string{fmt.Sprintf("/%d", i), "/v1/instances/x", "/v1/instancesx", "/v1/events"} {
			method := http.MethodGet
			if i == 0 && path == "/0" {
				method = "BREW"
			}
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
		}
	}
	text := scrape(t, m)
	wantLines(t, text,
		`gavel_http_requests_total{code="200",method="GET",route="other"} 99`, `gavel_http_requests_total{code="200",method="other",route="other"} 1`,
		`gavel_http_requests_total{code="404",method="GET",route="/v1/instances"} 50`,
		`gavel_http_requests_total{code="200",method="GET",route="/v1/events"} 50`,
		`gavel_http_request_seconds_count{route="/v1/instances"} 50`, `gavel_http_requests_in_flight 0`,
	)
	if n := strings.Count(text, "\ngavel_http_requests_total{"); n != 4 {
		t.Errorf("%d series of requests, want 4", n)
	}
	if strings.Contains(text, `gavel_http_request_seconds_count{route="/v1/events"}`) {
		t.Error("how long a stream was held counts as the time of a request")
	}
}

func TestMetricsOfPanics(t *testing.T) {
	m := telemetry.NewMetrics("", telemetry.Sources{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		m.Instrument(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(errors.New("x")) })).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/mcp", nil))
	}()
	wantLines(t, scrape(t, m), `gavel_http_requests_in_flight 0`)
}
