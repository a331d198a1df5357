// Package telemetry shows operators what gavel does: metrics, health, and logs
// without secrets.
//
// It promises that every name of a metric is one of this package, that no label
// comes from a caller (a workflow's name, an id, a path), so that nobody can make
// the number of series grow, and that asking costs the gate nothing: figures that
// others keep are pulled when somebody looks.
//
// It must never hold or show data, contexts, reasons or credentials, and never
// keep a decision from being made.
package telemetry

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Sources are where figures are pulled from; a nil one is left out.
type Sources struct {
	Model   func() llm.Stats
	Sandbox func() script.Stats
	Store   func() store.Stats
	// ValuesRefused is how many sealed values did not open.
	ValuesRefused func() int64
	// Streams is how many event streams and protocol sessions are held.
	Streams func() int
	// StreamLag is how far the event stream is behind that is furthest behind: by positions,
	// and by the age of the oldest event that it was not sent.
	StreamLag func() (events int64, age time.Duration)
	// Reviews are those that wait for a person; false where that cannot be told now.
	Reviews func() (ReviewStats, bool)
	// Notifications are the messages about reviews.
	Notifications func() NotificationStats
	// Webhooks are what is sent to those who get every event.
	Webhooks func() []WebhookStats
	// Canaries are known cases that the judge was asked; false where there are none.
	Canaries func() (CanaryStats, bool)
	// Listener is what callers hold of the listener, and what they lost.
	Listener func() ListenerStats
}

// ListenerStats is what a listener tells of itself.
type ListenerStats struct {
	Connections, Waiting int64  // open ones, and requests that wait for a place
	Closed, Refused      uint64 // connections closed in favour of others, and requests without a place
}

// ReviewStats is what waits for a person.
type ReviewStats struct {
	Open      int
	OldestAge time.Duration // of the one that has waited longest
}

// CanaryStats are known cases that the judge was asked, and whether the last ones show a drift.
type CanaryStats struct {
	Right, WrongApprovals, WrongRefusals, Unanswered uint64
	Drift                                            bool
}

// NotificationStats are messages about reviews: that arrived, that did not, and that were not tried.
type NotificationStats struct{ Arrived, Failed, Dropped uint64 }

// WebhookStats is one webhook: messages that were accepted, tries that were not, dead letters; whether
// this process sends, and, where it is Known, how far behind it is and how long it has not moved.
type WebhookStats struct {
	Webhook                 string
	Delivered, Failed, Dead uint64
	Sending, Known          bool
	Behind                  int64
	Waited                  time.Duration
}

// Metrics counts. It is an engine.Observer.
type Metrics struct {
	registry  *prometheus.Registry
	decisions *prometheus.CounterVec
	degraded  prometheus.Counter
	faults    prometheus.Counter
	took      *prometheus.HistogramVec
	layers    *prometheus.HistogramVec
	events    *prometheus.CounterVec
	calls     *prometheus.CounterVec
	hooks     *prometheus.CounterVec
	eventSize prometheus.Histogram
	context   prometheus.Histogram
	requests  *prometheus.CounterVec
	served    *prometheus.HistogramVec
	inFlight  prometheus.Gauge
}

// The buckets: decisions take from 50 us (fields and schema) to a minute (a model), sizes
// go from 64 bytes to 1 MiB.
var (
	decisionBuckets = []float64{.00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}
	sizeBuckets     = prometheus.ExponentialBuckets(64, 4, 8)
)

// NewMetrics registers everything with a registry of its own. version is the
// program's.
func NewMetrics(version string, from Sources) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		decisions: newCounter("decisions_total", "Decisions recorded, by what was asked, what came of it, and which layer settled it.",
			"asked", "outcome", "decided_by"),
		degraded: newSingleCounter("decisions_degraded_total", "Decisions made without a judge that the definition asks for."),
		faults:   newSingleCounter("decisions_faulted_total", "Decisions in which an examiner failed, such as a script that threw."),
		took:     newHistogram("decision_seconds", "How long the layers of a decision took together.", decisionBuckets, "asked"),
		layers:   newHistogram("layer_seconds", "How long one layer took.", decisionBuckets, "layer"),
		events:   newCounter("events_total", "Events committed.", "kind"),
		hooks:    newCounter("hooks_answered_total", "Events of coding agents, by client and by what it was told.", "client", "verdict"),
		calls:    newCounter("calls_settled_total", "Gated calls of other servers' tools, by what became of them.", "outcome"),
		eventSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "event_bytes", Help: "Size of committed events.", Buckets: sizeBuckets,
		}),
		context: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "context_bytes", Help: "Size of an instance's context after a commit.", Buckets: sizeBuckets,
		}),
		requests: newCounter("http_requests_total", "HTTP requests answered.", "route", "method", "code"),
		served:   newHistogram("http_request_seconds", "How long an HTTP request took until its answer ended; streams are left out.", prometheus.DefBuckets, "route"),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "http_requests_in_flight", Help: "HTTP requests being served, streams included."}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "1, with the version of the program.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.registry.MustRegister(m.decisions, m.degraded, m.faults, m.took, m.layers, m.events, m.calls, m.hooks, m.eventSize, m.context,
		m.requests, m.served, m.inFlight, info, pulled{from},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

const namespace = "gavel"

func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func newSingleCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func newHistogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// Handler serves the metrics in the formats that Prometheus reads.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
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

// CountHook counts an answer to a hook. Both words are gavel's own, never a caller's.
func (m *Metrics) CountHook(client, verdict string) { m.hooks.WithLabelValues(client, verdict).Inc() }

// Changed implements engine.Observer.
func (m *Metrics) Changed(_ context.Context, inst record.Instance) {
	m.context.Observe(float64(len(inst.Context)))
}

// Unrecorded implements engine.Observer.
func (*Metrics) Unrecorded(context.Context, record.Event) {}

func (m *Metrics) countDecision(asked string, d *record.Decision) {
	m.decisions.WithLabelValues(asked, string(d.Outcome), string(d.DecidedBy)).Inc()
	m.took.WithLabelValues(asked).Observe(d.Took.Seconds())
	if d.Degraded {
		m.degraded.Inc()
	}
	if d.Fault {
		m.faults.Inc()
	}
	for i := range d.Opinions {
		if o := &d.Opinions[i]; o.Outcome != "" || o.Layer == judge.LayerModel {
			m.layers.WithLabelValues(string(o.Layer)).Observe(o.Took.Seconds())
		}
	}
}

// operationOf is what a decision was about, in the words of the operations.
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
