package llm

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Doer sends HTTP requests. It must honour the request's context.
type Doer interface {
	Do(req *http.Request) (*http.Response, error)
}

// Model is one model at one endpoint.
type Model struct {
	// Name is the model's name for definitions and operators; ID is its name at the endpoint. An empty Name
	// means ID.
	Name, ID string
	// BaseURL is the base URL as users write it; see NormalizeBaseURL.
	BaseURL string
	// APIKey is sent as a bearer token, unless it is "" (local servers).
	APIKey string
	// Rung fixes how the form of answers is enforced; "" means that the client negotiates it. If the
	// endpoint does not support a fixed rung, the error is ClassConfig; the client never silently steps
	// down.
	Rung Rung
	// Thinking is off, none, minimal, low, medium, high, xhigh, max, or auto. With auto or "", no thinking
	// parameter is sent.
	Thinking string
	// Timeout limits one HTTP request; 0 means all the remaining time of its question. A shorter timeout
	// leaves time for another request if one hangs.
	Timeout time.Duration
	// PromptUSD and CompletionUSD are prices for a million tokens; nil means unknown.
	PromptUSD, CompletionUSD *float64
}

// Config configures a Client. Zero fields have the defaults in their comments; a default marked "thinking" is
// for models whose thinking mode is on.
type Config struct {
	// Models are the available models; there must be at least one. The first is the default.
	Models []Model
	// Fallbacks are names of Models. They are asked in order if the requested model is unavailable.
	Fallbacks []string

	Deadline  time.Duration // hard limit for one Complete: 20 s, thinking 60 s
	MaxCalls  int           // HTTP requests for a judgement to one model in one Complete: 3; negotiation may add at most 4 for each model
	MaxTokens int           // limit for one answer: 1024, thinking 8192
	MaxBody   int64         // limit for one HTTP answer, in bytes: 1 MiB

	Retries int           // retries of one model: 2; negative means none
	Backoff time.Duration // first delay: 250 ms, doubling up to 2 s, with full jitter

	Parallel       int // concurrent HTTP requests for each endpoint: 8; at most half of them for one Request.Caller
	CallerRequests int // HTTP requests a minute for each endpoint and Request.Caller: 60; negative means no limit
	CallerTokens   int // tokens a minute, read and written, for each endpoint and Request.Caller: 100,000; negative means no limit

	BreakerFailures int // consecutive failures that open the breaker for 30 s: 5 …
	BreakerMin      int // … or minimum number of calls in 120 s of which half failed: 5

	CacheTTL     time.Duration // 15 min; negative disables the cache
	CacheEntries int           // 1024

	// Jitter returns the factor, 0..1, by which the delay before a retry is multiplied; nil means random
	// ("full jitter"). Tests set it to get the same delays in every run.
	Jitter func() float64

	// Doer sends the requests; nil means an HTTP client that follows no redirects. A Cassette is a Doer.
	Doer Doer
	// Watch, if not nil, is called when an outage of a model begins and when it ends. It must return quickly.
	Watch func(Outage)
	// Private allows http:// to hosts that are neither loopback nor private.
	Private bool
}

func (c Config) withDefaults() Config {
	thinks := slices.ContainsFunc(c.Models, Model.isThinking)
	setDefault(&c.Deadline, chooseDefault(thinks, time.Minute, 20*time.Second))
	setDefault(&c.MaxCalls, 3)
	setDefault(&c.MaxBody, 1<<20)
	setDefault(&c.Retries, 2)
	setDefault(&c.Backoff, 250*time.Millisecond)
	setDefault(&c.Parallel, 8)
	setDefault(&c.CallerRequests, 60)
	setDefault(&c.CallerTokens, 100_000)
	setDefault(&c.BreakerFailures, 5)
	setDefault(&c.BreakerMin, 5)
	setDefault(&c.CacheTTL, 15*time.Minute)
	setDefault(&c.CacheEntries, 1024)
	if c.Doer == nil {
		c.Doer = NewHTTPDoer()
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	models := slices.Clone(c.Models)
	for i := range models {
		setDefault(&models[i].Name, models[i].ID)
	}
	c.Models = models
	return c
}

// wholeTime returns how long a request must go without an answer to count as late. It is half of the
// model's share of the deadline, or the model's timeout if that is shorter.
func (c Config) wholeTime(m Model) time.Duration {
	whole := c.Deadline / time.Duration(2*(1+len(c.Fallbacks)))
	if m.Timeout > 0 {
		whole = min(whole, m.Timeout)
	}
	return whole
}

// tokensFor returns the token limit for an answer of a model.
func (c Config) tokensFor(m Model) int {
	return cmp.Or(c.MaxTokens, chooseDefault(m.isThinking(), 8192, 1024))
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func chooseDefault[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// validate expects defaults to be set. Endpoints validate their models.
func (c Config) validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(len(c.Models) > 0, "no model is configured")
	seen := map[string]bool{}
	for _, m := range c.Models {
		need(!seen[m.Name], "two models are named %q", m.Name)
		seen[m.Name] = true
		need(m.Timeout >= 0, "model %q: Timeout is %v, must not be negative", m.Name, m.Timeout)
	}
	for _, name := range c.Fallbacks {
		need(seen[name], "the fallback %q is not one of the models", name)
	}
	for name, is := range map[string]time.Duration{"Deadline": c.Deadline, "Backoff": c.Backoff} {
		need(is > 0, "%s is %v, must be greater than 0", name, is)
	}
	for name, is := range map[string]int{
		"MaxCalls": c.MaxCalls, "Parallel": c.Parallel, "BreakerFailures": c.BreakerFailures, "BreakerMin": c.BreakerMin,
		"CacheEntries": c.CacheEntries,
	} {
		need(is > 0, "%s is %d, must be at least 1", name, is)
	}
	need(c.MaxTokens >= 0 && c.MaxBody > 0, "MaxTokens and MaxBody must not be negative")
	slices.SortStableFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
