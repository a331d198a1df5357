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

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// pulled collects what others count, when somebody looks.
type pulled struct {
	from    Sources
	version string
}

// Describe implements prometheus.Collector. It names nothing: what there is depends on the sources.
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
	tell("build_info", "1, with the version of the program.", gauge, 1, "version", p.version)
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
			tell("reviews_open", "Moves that wait for a person.", gauge, float64(s.Open))
			tell("reviews_oldest_seconds", "How long the oldest of them has waited; 0 when none waits.", gauge, s.OldestAge.Seconds())
		}
	}
	if from.Canaries != nil {
		if s, ok := from.Canaries(); ok {
			for result, n := range map[string]uint64{"right": s.Right, "wrong_approval": s.WrongApprovals, "wrong_refusal": s.WrongRefusals, "unanswered": s.Unanswered} {
				tell("canaries_total", "Known cases that the judge was asked in the background, by what became of them.", counter, float64(n), "result", result)
			}
			tell("judge_drift", "1 while 3 or more of the last 20 answers to known cases are wrong, until at most 1 is.", gauge, boolValue(s.Drift))
		}
	}
	if from.Notifications != nil {
		s := from.Notifications()
		const help = "Messages about reviews: that arrived, that did not after every try, and that were not tried as too many waited."
		tell("notifications_total", help, counter, float64(s.Arrived), "result", "arrived")
		tell("notifications_total", help, counter, float64(s.Failed), "result", "failed")
		tell("notifications_total", help, counter, float64(s.Dropped), "result", "dropped")
	}
	if from.Webhooks != nil {
		for _, s := range from.Webhooks() {
			tellWebhook(tell, s)
		}
	}
	if from.ValuesRefused != nil {
		tell("sealed_values_refused_total", "Sealed values that did not open: of another key or place, or changed.", counter, float64(from.ValuesRefused()))
	}
	if from.Streams != nil {
		tell("streams", "Event streams and protocol sessions that are held.", gauge, float64(from.Streams()))
	}
	if from.StreamLag != nil {
		events, age := from.StreamLag()
		tell("stream_lag_events", "Events committed that the event stream furthest behind was not sent yet, those it may not see included.", gauge, float64(events))
		tell("stream_lag_seconds", "Age of the oldest event that the event stream furthest behind was not sent yet.", gauge, age.Seconds())
	}
}

func tellWebhook(tell telling, s WebhookStats) {
	const help = "What became of messages to a webhook: accepted, tried without success, or given up as dead letters."
	for result, n := range map[string]uint64{"delivered": s.Delivered, "failed": s.Failed, "dead": s.Dead} {
		tell("webhook_messages_total", help, counter, float64(n), "result", result, "webhook", s.Webhook)
	}
	tell("webhook_sending", "1 in the process that sends to the webhook.", gauge, boolValue(s.Sending), "webhook", s.Webhook)
	if s.Known {
		tell("webhook_behind_events", "Positions of the log that the webhook has not passed, those that its filter leaves out included.", gauge, float64(s.Behind), "webhook", s.Webhook)
		tell("webhook_behind_seconds", "How long the webhook has not moved while events waited.", gauge, s.Waited.Seconds(), "webhook", s.Webhook)
	}
}

func tellListener(tell telling, s ListenerStats) {
	tell("http_connections", "Connections that are open.", gauge, float64(s.Connections))
	tell("http_connections_evicted_total", "Connections without a request that were closed in favour of others.", counter, float64(s.Closed))
	tell("http_requests_waiting", "Requests that have no place among those in flight yet.", gauge, float64(s.Waiting))
	tell("http_requests_refused_total", "Requests that found no place among those in flight, or lost it before they began.", counter, float64(s.Refused))
}

type telling func(name, help string, kind prometheus.ValueType, value float64, labels ...string)

// The states of a breaker; exactly one of them is 1.
var breakerStates = []string{"closed", "half-open", "open"}

func tellModel(tell telling, s llm.Stats) {
	tell("model_questions_total", "Questions put to the model client.", counter, float64(s.Questions))
	tell("model_calls_total", "HTTP requests to model endpoints.", counter, float64(s.Calls))
	tell("model_retries_total", "HTTP requests made again after a failure.", counter, float64(s.Retries))
	tell("model_reasks_total", "Questions put again because the answer could not be read.", counter, float64(s.Reasked))
	tell("model_cache_hits_total", "Questions answered without asking.", counter, float64(s.CacheHits))
	tell("model_tokens_total", "Tokens that endpoints counted.", counter, float64(s.PromptTokens), "direction", "prompt")
	tell("model_tokens_total", "Tokens that endpoints counted.", counter, float64(s.CompletionTokens), "direction", "completion")
	tell("model_cost_usd_total", "What the tokens cost by the configured prices.", counter, s.CostUSD)
	for _, class := range slices.Sorted(maps.Keys(s.Errors)) {
		tell("model_errors_total", "Questions that came to no usable answer, by class.", counter, float64(s.Errors[class]), "class", string(class))
	}
	for _, m := range s.Models {
		for _, state := range breakerStates {
			tell("model_breaker", "1 for the state that the model's breaker is in.", gauge, boolValue(m.Breaker == state), "model", m.Name, "state", state)
		}
		tell("model_latched", "1 while the model is not asked because of its configuration or quota.", gauge, boolValue(m.Latched != ""), "model", m.Name)
		tell("model_seconds", "Quantiles of the last 128 requests to the model.", gauge, m.P50.Seconds(), "model", m.Name, "quantile", "0.5")
		tell("model_seconds", "Quantiles of the last 128 requests to the model.", gauge, m.P95.Seconds(), "model", m.Name, "quantile", "0.95")
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func tellSandbox(tell telling, s script.Stats) {
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
		tell("sandbox_"+c.name+"_total", c.help, counter, float64(c.n))
	}
	tell("sandbox_queue_seconds_total", "Time spent waiting for a worker, all calls together.", counter, s.QueueTime.Seconds())
	tell("sandbox_waiting", "Calls that wait for a worker now.", gauge, float64(s.Waiting))
	tell("sandbox_workers", "Worker processes now.", gauge, float64(s.Workers))
	tell("sandbox_peak_bytes", "Greatest resident size of a worker that was seen; 0 where the platform does not tell.", gauge, float64(s.PeakMemory))
}

func tellStore(tell telling, s store.Stats) {
	tell("store_batches_total", "Transactions committed by the writer.", counter, float64(s.Batches))
	tell("store_writes_total", "Writes in them.", counter, float64(s.Writes))
	tell("store_queued", "Writes that wait for the writer now.", gauge, float64(s.Queued))
	tell("store_bytes", "Size of the store.", gauge, float64(s.Bytes), "part", "file")
	tell("store_bytes", "Size of the store.", gauge, float64(s.LogBytes), "part", "log")
	tell("store_log_blocked_total", "Times the log could not begin anew because of readers.", counter, float64(s.LogBlocked))
	tell("store_unindexed_events", "Events that searches and statistics still read one by one.", gauge, float64(s.Unindexed))
	for _, class := range slices.Sorted(maps.Keys(s.Failures)) {
		tell("store_failures_total", "Reads and writes of the store that failed, by class.", counter, float64(s.Failures[class]), "class", class)
	}
}
