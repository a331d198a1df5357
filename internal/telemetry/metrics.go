// Package telemetry provides metrics, health checks, and logs without secrets, for operators.
//
// Guarantees:
//   - Every metric name is defined in this package.
//   - No label comes from a caller (a workflow's name, an id, a path), so no caller can increase the number of
//     series.
//   - Figures kept elsewhere are collected only on a scrape, so they cost decisions nothing.
//
// It must never hold or show data, contexts, reasons or credentials, and never prevent a decision.
package telemetry

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Sources supply the figures that are collected on a scrape. A nil one is omitted.
type Sources struct {
	Model   func() llm.Stats
	Sandbox func() script.Stats
	Store   func() store.Stats
	// ValuesRefused returns how many sealed values could not be opened.
	ValuesRefused func() int64
	// Streams returns the number of open event streams and protocol sessions.
	Streams func() int
	// StreamLag returns the lag of the slowest event stream: in positions, and as the age of the oldest event not yet
	// sent to it.
	StreamLag func() (events int64, age time.Duration)
	// Reviews returns the reviews that wait for a person, or false if they are unknown now.
	Reviews func() (ReviewStats, bool)
	// Modules writes the figures of modules.
	Modules func(MetricFunc)
	// Health returns the parts of the server that /readyz lists.
	Health func() []PartReport
	// Listener returns the listener's connections and waiting requests, and how many it closed or refused.
	Listener func() ListenerStats
}

// ListenerStats are the figures of a listener.
type ListenerStats struct {
	Connections, Waiting int64  // open connections, and requests that wait for a slot
	Closed, Refused      uint64 // connections closed in favour of others, and requests that got no slot
}

// ReviewStats describes the reviews that wait for a person.
type ReviewStats struct {
	Open      int
	OldestAge time.Duration // waiting time of the oldest one
}

// Metrics collects gavel's metrics. It is an engine.Observer.
type Metrics struct {
	registry *prometheus.Registry

	decisions, events, calls, requests *prometheus.CounterVec
	degraded, faults                   prometheus.Counter
	took, layers, served               *prometheus.HistogramVec
	eventSize, context                 prometheus.Histogram
	inFlight                           prometheus.Gauge
}

// Histogram buckets. Decisions take from 50 us (fields and schema) to a minute (a model), and requests from 5 ms to
// 10 s. Sizes range from 64 bytes to 1 MiB.
var (
	decisionBuckets = []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}
	requestBuckets  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	sizeBuckets     = []float64{64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
)

const namespace = "gavel_"

// NewMetrics returns the metrics. version is the program's version.
func NewMetrics(version string, from Sources) *Metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), pulled{from, version})
	with := promauto.With(registry)
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return with.NewCounterVec(prometheus.CounterOpts{Name: namespace + name, Help: help}, labels)
	}
	spread := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: namespace + name, Help: help, Buckets: buckets}
	}
	return &Metrics{
		registry: registry,
		decisions: count("decisions_total", "Decisions recorded, by question, outcome and deciding layer.",
			"asked", "decided_by", "outcome"),
		degraded:  with.NewCounter(prometheus.CounterOpts{Name: namespace + "decisions_degraded_total", Help: "Decisions made without a judge that the definition requires."}),
		faults:    with.NewCounter(prometheus.CounterOpts{Name: namespace + "decisions_faulted_total", Help: "Decisions in which an examiner failed, such as a script that threw."}),
		took:      with.NewHistogramVec(spread("decision_seconds", "Duration of all layers of a decision.", decisionBuckets), []string{"asked"}),
		layers:    with.NewHistogramVec(spread("layer_seconds", "Duration of one layer.", decisionBuckets), []string{"layer"}),
		events:    count("events_total", "Events committed.", "kind"),
		calls:     count("calls_settled_total", "Gated calls of other servers' tools, by outcome.", "outcome"),
		eventSize: with.NewHistogram(spread("event_bytes", "Size of committed events.", sizeBuckets)),
		context:   with.NewHistogram(spread("context_bytes", "Size of an instance's context after a commit.", sizeBuckets)),
		requests:  count("http_requests_total", "HTTP requests answered.", "code", "method", "route"),
		served:    with.NewHistogramVec(spread("http_request_seconds", "Duration of an HTTP request until the end of its answer, without streams.", requestBuckets), []string{"route"}),
		inFlight:  with.NewGauge(prometheus.GaugeOpts{Name: namespace + "http_requests_in_flight", Help: "HTTP requests being served, streams included."}),
	}
}

// Handler serves the metrics in Prometheus formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Committed implements engine.Observer.
func (m *Metrics) Committed(_ context.Context, events []record.Event) {
	for i := range events {
		ev := &events[i]
		m.events.WithLabelValues(string(ev.Kind)).Inc()
		m.eventSize.Observe(float64(len(ev.Body())))
		if ev.Kind == record.Settled {
			m.calls.WithLabelValues(string(ev.Call.Outcome)).Inc()
		}
		if ev.Decision != nil {
			m.countDecision(operationOf(ev), ev.Decision)
		}
	}
}

// Changed implements engine.Observer.
func (m *Metrics) Changed(_ context.Context, inst record.Instance) {
	m.context.Observe(float64(len(inst.Context)))
}

// Unrecorded implements engine.Observer.
func (*Metrics) Unrecorded(context.Context, record.Event) {}

func (m *Metrics) countDecision(asked string, d *record.Decision) {
	m.decisions.WithLabelValues(asked, string(d.DecidedBy), string(d.Outcome)).Inc()
	m.took.WithLabelValues(asked).Observe(d.Took.Duration().Seconds())
	if d.Degraded {
		m.degraded.Inc()
	}
	if d.Fault {
		m.faults.Inc()
	}
	for i := range d.Opinions {
		if o := &d.Opinions[i]; o.Outcome != "" || o.Layer == judge.LayerModel {
			m.layers.WithLabelValues(string(o.Layer)).Observe(o.Took.Duration().Seconds())
		}
	}
}

// operationOf returns the operation that a decision belongs to.
func operationOf(ev *record.Event) string {
	switch {
	case ev.Kind == record.Started:
		return "start"
	case ev.Kind == record.Prechecked:
		return "validate"
	case ev.Kind == record.Reviewed:
		return "review"
	case ev.IsStop():
		return "finish"
	default:
		return "advance"
	}
}
