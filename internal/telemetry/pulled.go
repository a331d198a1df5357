package telemetry

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators/script"
)

// pulled collects what others count, when somebody looks.
type pulled struct{ from Sources }

// Describe implements prometheus.Collector: what there is depends on what is configured.
func (pulled) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (p pulled) Collect(ch chan<- prometheus.Metric) {
	tell := func(name, help string, kind prometheus.ValueType, value float64, labels ...string) {
		names, values := []string{}, []string{}
		for i := 0; i+1 < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(namespace+"_"+name, help, names, nil), kind, value, values...)
	}
	if p.from.Model != nil {
		tellModel(tell, p.from.Model())
	}
	if p.from.Sandbox != nil {
		tellSandbox(tell, p.from.Sandbox())
	}
	if p.from.Store != nil {
		tellStore(tell, p.from.Store())
	}
	if p.from.Listener != nil {
		tellListener(tell, p.from.Listener())
	}
	if p.from.Reviews != nil {
		if s, ok := p.from.Reviews(); ok {
			tell("reviews_open", "Moves that wait for a person.", prometheus.GaugeValue, float64(s.Open))
			tell("reviews_oldest_seconds", "How long the oldest of them has waited; 0 when none waits.", prometheus.GaugeValue, s.OldestAge.Seconds())
		}
	}
	if p.from.Canaries != nil {
		if s, ok := p.from.Canaries(); ok {
			for result, n := range map[string]uint64{"right": s.Right, "wrong_approval": s.WrongApprovals, "wrong_refusal": s.WrongRefusals, "unanswered": s.Unanswered} {
				tell("canaries_total", "Known cases that the judge was asked in the background, by what became of them.", prometheus.CounterValue, float64(n), "result", result)
			}
			tell("judge_drift", "1 while 3 or more of the last 20 answers to known cases are wrong, until at most 1 is.", prometheus.GaugeValue, boolValue(s.Drift))
		}
	}
	if p.from.Notifications != nil {
		s := p.from.Notifications()
		const help = "Messages about reviews: that arrived, that did not after every try, and that were not tried as too many waited."
		tell("notifications_total", help, prometheus.CounterValue, float64(s.Arrived), "result", "arrived")
		tell("notifications_total", help, prometheus.CounterValue, float64(s.Failed), "result", "failed")
		tell("notifications_total", help, prometheus.CounterValue, float64(s.Dropped), "result", "dropped")
	}
	if p.from.Webhooks != nil {
		for _, s := range p.from.Webhooks() {
			tellWebhook(tell, s)
		}
	}
	if p.from.ValuesRefused != nil {
		tell("sealed_values_refused_total", "Sealed values that did not open: of another key or place, or changed.", prometheus.CounterValue, float64(p.from.ValuesRefused()))
	}
	if p.from.Streams != nil {
		tell("streams", "Event streams and protocol sessions that are held.", prometheus.GaugeValue, float64(p.from.Streams()))
	}
	if p.from.StreamLag != nil {
		events, age := p.from.StreamLag()
		tell("stream_lag_events", "Events committed that the event stream furthest behind was not sent yet, those it may not see included.", prometheus.GaugeValue, float64(events))
		tell("stream_lag_seconds", "Age of the oldest event that the event stream furthest behind was not sent yet.", prometheus.GaugeValue, age.Seconds())
	}
}

func tellWebhook(tell telling, s WebhookStats) {
	const help = "What became of messages to a webhook: accepted, tried without success, or given up as dead letters."
	for result, n := range map[string]uint64{"delivered": s.Delivered, "failed": s.Failed, "dead": s.Dead} {
		tell("webhook_messages_total", help, prometheus.CounterValue, float64(n), "webhook", s.Webhook, "result", result)
	}
	tell("webhook_sending", "1 in the process that sends to the webhook.", prometheus.GaugeValue, boolValue(s.Sending), "webhook", s.Webhook)
	if s.Known {
		tell("webhook_behind_events", "Positions of the log that the webhook has not passed, those that its filter leaves out included.", prometheus.GaugeValue, float64(s.Behind), "webhook", s.Webhook)
		tell("webhook_behind_seconds", "How long the webhook has not moved while events waited.", prometheus.GaugeValue, s.Waited.Seconds(), "webhook", s.Webhook)
	}
}

func tellListener(tell telling, s ListenerStats) {
	const counts, now = prometheus.CounterValue, prometheus.GaugeValue
	tell("http_connections", "Connections that are open.", now, float64(s.Connections))
	tell("http_connections_evicted_total", "Connections without a request that were closed in favour of others.", counts, float64(s.Closed))
	tell("http_requests_waiting", "Requests that have no place among those in flight yet.", now, float64(s.Waiting))
	tell("http_requests_refused_total", "Requests that found no place among those in flight, or lost it before they began.", counts, float64(s.Refused))
}

type telling func(name, help string, kind prometheus.ValueType, value float64, labels ...string)

// The states of a breaker; exactly one of them is 1.
var breakerStates = []string{"closed", "half-open", "open"}

func tellModel(tell telling, s llm.Stats) {
	const counts, now = prometheus.CounterValue, prometheus.GaugeValue
	tell("model_questions_total", "Questions put to the model client.", counts, float64(s.Questions))
	tell("model_calls_total", "HTTP requests to model endpoints.", counts, float64(s.Calls))
	tell("model_retries_total", "HTTP requests made again after a failure.", counts, float64(s.Retries))
	tell("model_reasks_total", "Questions put again because the answer could not be read.", counts, float64(s.Reasked))
	tell("model_cache_hits_total", "Questions answered without asking.", counts, float64(s.CacheHits))
	tell("model_tokens_total", "Tokens that endpoints counted.", counts, float64(s.PromptTokens), "direction", "prompt")
	tell("model_tokens_total", "Tokens that endpoints counted.", counts, float64(s.CompletionTokens), "direction", "completion")
	tell("model_cost_usd_total", "What the tokens cost by the configured prices.", counts, s.CostUSD)
	for _, class := range slices.Sorted(maps.Keys(s.Errors)) {
		tell("model_errors_total", "Questions that came to no usable answer, by class.", counts, float64(s.Errors[class]), "class", string(class))
	}
	for _, m := range s.Models {
		for _, state := range breakerStates {
			tell("model_breaker", "1 for the state that the model's breaker is in.", now, boolValue(m.Breaker == state), "model", m.Name, "state", state)
		}
		tell("model_latched", "1 while the model is not asked because of its configuration or quota.", now, boolValue(m.Latched != ""), "model", m.Name)
		tell("model_seconds", "Quantiles of the last 128 requests to the model.", now, m.P50.Seconds(), "model", m.Name, "quantile", "0.5")
		tell("model_seconds", "Quantiles of the last 128 requests to the model.", now, m.P95.Seconds(), "model", m.Name, "quantile", "0.95")
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func tellSandbox(tell telling, s script.Stats) {
	const counts, now = prometheus.CounterValue, prometheus.GaugeValue
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
		tell("sandbox_"+c.name+"_total", c.help, counts, float64(c.n))
	}
	tell("sandbox_queue_seconds_total", "Time spent waiting for a worker, all calls together.", counts, s.QueueTime.Seconds())
	tell("sandbox_waiting", "Calls that wait for a worker now.", now, float64(s.Waiting))
	tell("sandbox_workers", "Worker processes now.", now, float64(s.Workers))
	tell("sandbox_peak_bytes", "Greatest resident size of a worker that was seen; 0 where the platform does not tell.", now, float64(s.PeakMemory))
}

func tellStore(tell telling, s store.Stats) {
	const counts, now = prometheus.CounterValue, prometheus.GaugeValue
	tell("store_batches_total", "Transactions committed by the writer.", counts, float64(s.Batches))
	tell("store_writes_total", "Writes in them.", counts, float64(s.Writes))
	tell("store_queued", "Writes that wait for the writer now.", now, float64(s.Queued))
	tell("store_bytes", "Size of the store.", now, float64(s.Bytes), "part", "file")
	tell("store_bytes", "Size of the store.", now, float64(s.LogBytes), "part", "log")
	tell("store_log_blocked_total", "Times the log could not begin anew because of readers.", counts, float64(s.LogBlocked))
	tell("store_unindexed_events", "Events that searches and statistics still read one by one.", now, float64(s.Unindexed))
	for _, class := range slices.Sorted(maps.Keys(s.Failures)) {
		tell("store_failures_total", "Reads and writes of the store that failed, by class.", counts, float64(s.Failures[class]), "class", class)
	}
}
