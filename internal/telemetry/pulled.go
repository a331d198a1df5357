package telemetry

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/script"
)

// The kinds of figures.
const (
	Counter = prometheus.CounterValue
	Gauge   = prometheus.GaugeValue
)

// pulled collects, on a scrape, the figures that Sources keep.
type pulled struct {
	from    Sources
	version string
}

// Describe implements prometheus.Collector. It describes nothing, because the metrics depend on the sources.
func (pulled) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (p pulled) Collect(to chan<- prometheus.Metric) {
	from := p.from
	tell := func(name, help string, kind prometheus.ValueType, value float64, labels ...string) {
		var names, values []string
		for i := 0; i+1 < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, strings.ToValidUTF8(labels[i+1], "\uFFFD"))
		}
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(namespace+name, help, names, nil), kind, value, values...)
	}
	tell("build_info", "Always 1, with the version of the program.", Gauge, 1, "version", p.version)
	if from.Health != nil {
		for _, part := range from.Health() {
			tell("health", "1 while the part works, as /readyz reports.", Gauge, boolValue(part.OK), "part", part.Name)
		}
	}
	if from.Model != nil {
		writeModel(tell, from.Model())
	}
	if from.Sandbox != nil {
		writeSandbox(tell, from.Sandbox())
	}
	if from.Store != nil {
		writeStore(tell, from.Store())
	}
	if from.Listener != nil {
		writeListener(tell, from.Listener())
	}
	if from.Reviews != nil {
		if s, ok := from.Reviews(); ok {
			tell("reviews_open", "Moves that wait for a person.", Gauge, float64(s.Open))
			tell("reviews_oldest_seconds", "How long the oldest open review has waited; 0 if there is none.", Gauge, s.OldestAge.Seconds())
		}
	}
	if from.Modules != nil {
		from.Modules(tell)
	}
	if from.ValuesRefused != nil {
		tell("sealed_values_refused_total", "Sealed values that could not be opened: sealed with another key or elsewhere, or changed.", Counter, float64(from.ValuesRefused()))
	}
	if from.Streams != nil {
		tell("streams", "Open event streams and protocol sessions.", Gauge, float64(from.Streams()))
	}
	if from.StreamLag != nil {
		events, age := from.StreamLag()
		tell("stream_lag_events", "Committed events not yet sent to the slowest event stream, including events that it may not see.", Gauge, float64(events))
		tell("stream_lag_seconds", "Age of the oldest event not yet sent to the slowest event stream.", Gauge, age.Seconds())
	}
}

func writeListener(tell MetricFunc, s ListenerStats) {
	tell("http_connections", "Open connections.", Gauge, float64(s.Connections))
	tell("http_connections_evicted_total", "Idle connections closed in favour of others.", Counter, float64(s.Closed))
	tell("http_requests_waiting", "Requests that wait because too many are in flight.", Gauge, float64(s.Waiting))
	tell("http_requests_refused_total", "Requests refused because too many were in flight, at their arrival or before they began.", Counter, float64(s.Refused))
}

// MetricFunc writes one counter or gauge. labels alternates between names and values.
type MetricFunc func(name, help string, kind prometheus.ValueType, value float64, labels ...string)

// breakerStates are the states of a breaker. Exactly one of them has the value 1.
var breakerStates = []string{"closed", "half-open", "open"}

func writeModel(tell MetricFunc, s llm.Stats) {
	tell("model_questions_total", "Questions put to the model client.", Counter, float64(s.Questions))
	tell("model_calls_total", "HTTP requests to model endpoints.", Counter, float64(s.Calls))
	tell("model_retries_total", "HTTP requests repeated after a failure.", Counter, float64(s.Retries))
	tell("model_reasks_total", "Questions repeated because the answer could not be read.", Counter, float64(s.Reasked))
	tell("model_cache_hits_total", "Questions answered from the cache.", Counter, float64(s.CacheHits))
	tell("model_tokens_total", "Tokens that endpoints counted.", Counter, float64(s.PromptTokens), "direction", "prompt")
	tell("model_tokens_total", "Tokens that endpoints counted.", Counter, float64(s.CompletionTokens), "direction", "completion")
	tell("model_cost_usd_total", "Cost of the tokens at the configured prices.", Counter, s.CostUSD)
	for _, class := range slices.Sorted(maps.Keys(s.Errors)) {
		tell("model_errors_total", "Questions without a usable answer, by class.", Counter, float64(s.Errors[class]), "class", string(class))
	}
	for _, m := range s.Models {
		for _, state := range breakerStates {
			tell("model_breaker", "1 for the current state of the model's breaker.", Gauge, boolValue(m.Breaker == state), "model", m.Name, "state", state)
		}
		tell("model_latched", "1 while the model is not asked because of its configuration or quota.", Gauge, boolValue(m.Latched != ""), "model", m.Name)
		tell("model_seconds", "Quantiles of the last 128 requests to the model.", Gauge, m.P50.Seconds(), "model", m.Name, "quantile", "0.5")
		tell("model_seconds", "Quantiles of the last 128 requests to the model.", Gauge, m.P95.Seconds(), "model", m.Name, "quantile", "0.95")
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func writeSandbox(tell MetricFunc, s script.Stats) {
	for _, c := range []struct {
		name, help string
		n          uint64
	}{
		{"calls", "Requested batches of scripts, checks and validations.", s.Calls},
		{"scripts", "Scripts that ended, with any result.", s.Scripts},
		{"timeouts", "Scripts interrupted at the soft time limit.", s.Timeouts},
		{"memory_stops", "Scripts interrupted at the memory limit.", s.Memory},
		{"kills", "Workers killed at the hard time limit.", s.Kills},
		{"deaths", "Workers that ended unexpectedly.", s.Deaths},
		{"starts", "Workers started.", s.Starts},
		{"refusals", "Calls refused because too many waited, or because no worker was free in time.", s.Refused},
		{"quarantined", "Scripts not run because they are quarantined.", s.Quarantined},
	} {
		tell("sandbox_"+c.name+"_total", c.help, Counter, float64(c.n))
	}
	tell("sandbox_queue_seconds_total", "Total time that calls waited for a worker.", Counter, s.QueueTime.Seconds())
	tell("sandbox_waiting", "Calls waiting for a worker.", Gauge, float64(s.Waiting))
	tell("sandbox_workers", "Worker processes.", Gauge, float64(s.Workers))
	tell("sandbox_peak_bytes", "Largest observed resident size of a worker; 0 if the platform does not report it.", Gauge, float64(s.PeakMemory))
}

func writeStore(tell MetricFunc, s store.Stats) {
	tell("store_batches_total", "Transactions committed by the writer.", Counter, float64(s.Batches))
	tell("store_writes_total", "Writes in these transactions.", Counter, float64(s.Writes))
	tell("store_queued", "Writes waiting for the writer.", Gauge, float64(s.Queued))
	tell("store_bytes", "Size of the store.", Gauge, float64(s.Bytes), "part", "file")
	tell("store_bytes", "Size of the store.", Gauge, float64(s.LogBytes), "part", "log")
	tell("store_log_blocked_total", "How often readers prevented a restart of the log.", Counter, float64(s.LogBlocked))
	tell("store_unindexed_events", "Events that are not indexed yet, so searches and statistics read them one by one.", Gauge, float64(s.Unindexed))
	for _, class := range slices.Sorted(maps.Keys(s.Failures)) {
		tell("store_failures_total", "Failed reads and writes of the store, by class.", Counter, float64(s.Failures[class]), "class", class)
	}
}
