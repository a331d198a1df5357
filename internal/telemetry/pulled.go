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
	tell("build_info", "1, with the version of the program.", Gauge, 1, "version", p.version)
	if from.Model != nil {
		tellModel(tell, from.Model())
	}
	if from.Sandbox != nil {
		tellSandbox(tell, from.Sandbox())
	}
	if from.Store != nil {
		tellStore(tell, from.Store())
	}
	if from.Listener != nil {
		tellListener(tell, from.Listener())
	}
	if from.Reviews != nil {
		if s, ok := from.Reviews(); ok {
			tell("reviews_open", "Moves that wait for a person.", Gauge, float64(s.Open))
			tell("reviews_oldest_seconds", "How long the oldest of them has waited; 0 when none waits.", Gauge, s.OldestAge.Seconds())
		}
	}
	if from.Canaries != nil {
		if s, ok := from.Canaries(); ok {
			for result, n := range map[string]uint64{"right": s.Right, "wrong_approval": s.WrongApprovals, "wrong_refusal": s.WrongRefusals, "unanswered": s.Unanswered} {
				tell("canaries_total", "Known cases that the judge was asked in the background, by what became of them.", Counter, float64(n), "result", result)
			}
			tell("judge_drift", "1 while 3 or more of the last 20 answers to known cases are wrong, until at most 1 is.", Gauge, boolValue(s.Drift))
		}
	}
	if from.Modules != nil {
		from.Modules(tell)
	}
	if from.ValuesRefused != nil {
		tell("sealed_values_refused_total", "Sealed values that did not open: of another key or place, or changed.", Counter, float64(from.ValuesRefused()))
	}
	if from.Streams != nil {
		tell("streams", "Event streams and protocol sessions that are held.", Gauge, float64(from.Streams()))
	}
	if from.StreamLag != nil {
		events, age := from.StreamLag()
		tell("stream_lag_events", "Events committed that the event stream furthest behind was not sent yet, those it may not see included.", Gauge, float64(events))
		tell("stream_lag_seconds", "Age of the oldest event that the event stream furthest behind was not sent yet.", Gauge, age.Seconds())
	}
}

func tellListener(tell Tell, s ListenerStats) {
	tell("http_connections", "Connections that are open.", Gauge, float64(s.Connections))
	tell("http_connections_evicted_total", "Connections without a request that were closed in favour of others.", Counter, float64(s.Closed))
	tell("http_requests_waiting", "Requests that have no place among those in flight yet.", Gauge, float64(s.Waiting))
	tell("http_requests_refused_total", "Requests that found no place among those in flight, or lost it before they began.", Counter, float64(s.Refused))
}

// Tell writes one counter or gauge. labels alternates between names and values.
type Tell func(name, help string, kind prometheus.ValueType, value float64, labels ...string)

// breakerStates are the states of a breaker. Exactly one of them has the value 1.
var breakerStates = []string{"closed", "half-open", "open"}

func tellModel(tell Tell, s llm.Stats) {
	tell("model_questions_total", "Questions put to the model client.", Counter, float64(s.Questions))
	tell("model_calls_total", "HTTP requests to model endpoints.", Counter, float64(s.Calls))
	tell("model_retries_total", "HTTP requests made again after a failure.", Counter, float64(s.Retries))
	tell("model_reasks_total", "Questions put again because the answer could not be read.", Counter, float64(s.Reasked))
	tell("model_cache_hits_total", "Questions answered without asking.", Counter, float64(s.CacheHits))
	tell("model_tokens_total", "Tokens that endpoints counted.", Counter, float64(s.PromptTokens), "direction", "prompt")
	tell("model_tokens_total", "Tokens that endpoints counted.", Counter, float64(s.CompletionTokens), "direction", "completion")
	tell("model_cost_usd_total", "What the tokens cost by the configured prices.", Counter, s.CostUSD)
	for _, class := range slices.Sorted(maps.Keys(s.Errors)) {
		tell("model_errors_total", "Questions that came to no usable answer, by class.", Counter, float64(s.Errors[class]), "class", string(class))
	}
	for _, m := range s.Models {
		for _, state := range breakerStates {
			tell("model_breaker", "1 for the state that the model's breaker is in.", Gauge, boolValue(m.Breaker == state), "model", m.Name, "state", state)
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

func tellSandbox(tell Tell, s script.Stats) {
	for _, c := range []struct {
		name, help string
		n          uint64
	}{
		{"calls", "Batches of scripts, checks and validations asked for.", s.Calls},
		{"scripts", "Scripts that ended, however.", s.Scripts},
		{"timeouts", "Scripts interrupted at the soft time limit.", s.Timeouts},
		{"memory_stops", "Scripts interrupted at the memory limit.", s.Memory},
		{"kills", "Workers killed at the hard time limit.", s.Kills},
		{"deaths", "Workers that ended unasked.", s.Deaths},
		{"starts", "Workers started.", s.Starts},
		{"refusals", "Calls that got no worker in time, or for which too many waited.", s.Refused},
		{"quarantined", "Scripts not run because of a quarantine.", s.Quarantined},
	} {
		tell("sandbox_"+c.name+"_total", c.help, Counter, float64(c.n))
	}
	tell("sandbox_queue_seconds_total", "Time spent waiting for a worker, all calls together.", Counter, s.QueueTime.Seconds())
	tell("sandbox_waiting", "Calls that wait for a worker now.", Gauge, float64(s.Waiting))
	tell("sandbox_workers", "Worker processes now.", Gauge, float64(s.Workers))
	tell("sandbox_peak_bytes", "Greatest resident size of a worker that was seen; 0 where the platform does not tell.", Gauge, float64(s.PeakMemory))
}

func tellStore(tell Tell, s store.Stats) {
	tell("store_batches_total", "Transactions committed by the writer.", Counter, float64(s.Batches))
	tell("store_writes_total", "Writes in them.", Counter, float64(s.Writes))
	tell("store_queued", "Writes that wait for the writer now.", Gauge, float64(s.Queued))
	tell("store_bytes", "Size of the store.", Gauge, float64(s.Bytes), "part", "file")
	tell("store_bytes", "Size of the store.", Gauge, float64(s.LogBytes), "part", "log")
	tell("store_log_blocked_total", "Times the log could not begin anew because of readers.", Counter, float64(s.LogBlocked))
	tell("store_unindexed_events", "Events that searches and statistics still read one by one.", Gauge, float64(s.Unindexed))
	for _, class := range slices.Sorted(maps.Keys(s.Failures)) {
		tell("store_failures_total", "Reads and writes of the store that failed, by class.", Counter, float64(s.Failures[class]), "class", class)
	}
}
