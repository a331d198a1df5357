package llm

import (
	"net/http"
	"time"
)

// Doer sends HTTP requests. It must honour the request's context.
type Doer interface {
	Do(req *http.Request) (*http.Response, error)
}

// Model is one model at one endpoint.
type Model struct {
	// Name is what definitions and operators call it; ID is what the endpoint calls
	// it. Name "" is ID.
	Name, ID string
	// BaseURL as users write it; see NormalizeBaseURL.
	BaseURL string
	// APIKey is sent as a bearer token; "" sends none (local servers).
	APIKey string
	// Rung fixes how the model is made to answer in form; "" finds out. A fixed rung
	// that the endpoint does not take is ClassConfig, never a silent step down.
	Rung Rung
	// Thinking is off, none, minimal, low, medium, high, xhigh, max, or auto ("" is
	// auto: nothing is sent).
	Thinking string
	// PromptUSD and CompletionUSD are the prices of a million tokens; nil: unknown.
	PromptUSD, CompletionUSD *float64
}

// Config sets up a Client. Zero fields have the defaults that their comments name;
// "thinking" in a default is for a model with a thinking mode that is on.
type Config struct {
	// Models that can be asked; at least one, the first is the default.
	Models []Model
	// Fallbacks are names of Models, asked in order when the one asked for cannot be had.
	Fallbacks []string

	Deadline  time.Duration // of one Complete, whatever happens: 20 s, thinking 60 s
	Attempt   time.Duration // of one HTTP request: 10 s, thinking 45 s; at most nine tenths of Deadline
	MaxCalls  int           // HTTP requests of one Complete that ask for a judgement: 3; at most 4 more per model negotiate
	MaxTokens int           // of one answer: 1024, thinking 8192
	MaxBody   int64         // of one HTTP answer: 1 MiB

	Retries    int           // of one model: 2; negative is none
	Backoff    time.Duration // first wait: 250 ms, doubling with full jitter
	MaxBackoff time.Duration // 2 s
	RetryShare float64       // retries per call over all callers: 0.2, and never fewer than 3 a minute

	Parallel       int // HTTP requests under way per endpoint: 8; at most half of them for one Request.Caller
	CallerRequests int // HTTP requests a minute per endpoint for one Request.Caller: 60; negative is no limit
	CallerTokens   int // tokens a minute per endpoint for one Request.Caller, read and written: 100,000; negative is no limit

	BreakerFailures int           // consecutive failures that open it: 5
	BreakerShare    float64       // or this share of failures: 0.5 …
	BreakerMin      int           // … of at least so many: 5
	BreakerWindow   time.Duration // 120 s, in buckets of a twelfth
	BreakerOpen     time.Duration // 30 s until one call probes

	QuotaLatch    time.Duration // 10 min without calls after ClassQuota
	ConfigLatch   time.Duration // 60 s without calls after ClassAuth, ClassNotFound, ClassConfig
	QualityLatch  time.Duration // 60 s without calls for a caller whose answers are unusable
	QualityShare  float64       // 0.5 of the last QualityWindow …
	QualityMin    int           // … of at least 6
	QualityWindow int           // 20

	CacheTTL     time.Duration // 15 min; negative is no cache
	CacheEntries int           // 1024

	// Jitter gives the share, 0..1, of the wait before a retry that is waited; nil is
	// random ("full jitter"). Tests that want the same times every run set it.
	Jitter func() float64

	// Doer sends the requests; nil is an HTTP client that follows no redirect. The
	// cassette is a Doer.
	Doer Doer
	// Private allows http:// to hosts that are neither loopback nor private.
	Private bool
}
