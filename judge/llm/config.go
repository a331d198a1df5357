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
	// Timeout limits one HTTP request; 0: it may take all the time that its question has.
	// With less, a request that hangs leaves time for another one.
	Timeout time.Duration
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
	MaxCalls  int           // HTTP requests of one Complete that ask for a judgement: 3; at most 4 more per model negotiate
	MaxTokens int           // of one answer: 1024, thinking 8192
	MaxBody   int64         // of one HTTP answer: 1 MiB

	Retries int           // of one model: 2; negative is none
	Backoff time.Duration // first wait: 250 ms, doubling up to 2 s, with full jitter

	Parallel       int // HTTP requests under way per endpoint: 8; at most half of them for one Request.Caller
	CallerRequests int // HTTP requests a minute per endpoint for one Request.Caller: 60; negative is no limit
	CallerTokens   int // tokens a minute per endpoint for one Request.Caller, read and written: 100,000; negative is no limit

	BreakerFailures int // consecutive failures that open it for 30 s: 5 …
	BreakerMin      int // … or half of at least so many calls in 120 s: 5

	CacheTTL     time.Duration // 15 min; negative is no cache
	CacheEntries int           // 1024

	// Jitter gives the share, 0..1, of the wait before a retry that is waited; nil is
	// random ("full jitter"). Tests that want the same times every run set it.
	Jitter func() float64

	// Doer sends the requests; nil is an HTTP client that follows no redirect. The
	// cassette is a Doer.
	Doer Doer
	// Watch is told when an outage of a model begins and when it is over; nil tells nobody. It
	// must return soon.
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

// wholeTime is how long a request must have waited in vain to be called late: half of the
// time that a question leaves its model, where the model has no timeout that is shorter.
func (c Config) wholeTime(m Model) time.Duration {
	whole := c.Deadline / time.Duration(2*(1+len(c.Fallbacks)))
	if m.Timeout > 0 {
		whole = min(whole, m.Timeout)
	}
	return whole
}

// tokensFor is how long an answer of a model may be.
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

// validate expects defaults to be set; endpoints validate their models.
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
