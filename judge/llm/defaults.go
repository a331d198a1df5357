package llm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// withDefaults returns the configuration with every zero field set.
func (c Config) withDefaults() Config {
	thinks := slices.ContainsFunc(c.Models, Model.isThinking)
	setDefault(&c.Deadline, choose(thinks, time.Minute, 20*time.Second))
	setDefault(&c.Attempt, choose(thinks, 45*time.Second, 10*time.Second))
	c.Attempt = min(c.Attempt, c.Deadline/10*9) // else no request ever has its whole time
	setDefault(&c.MaxCalls, 3)
	setDefault(&c.MaxBody, int64(defaultMaxBody))
	setDefault(&c.Retries, 2)
	setDefault(&c.Backoff, 250*time.Millisecond)
	setDefault(&c.MaxBackoff, 2*time.Second)
	setDefault(&c.RetryShare, 0.2)
	setDefault(&c.Parallel, 8)
	setDefault(&c.CallerRequests, 60)
	setDefault(&c.CallerTokens, 100_000)
	setDefault(&c.BreakerFailures, 5)
	setDefault(&c.BreakerShare, 0.5)
	setDefault(&c.BreakerMin, 5)
	setDefault(&c.BreakerWindow, 2*time.Minute)
	setDefault(&c.BreakerOpen, 30*time.Second)
	setDefault(&c.QuotaLatch, 10*time.Minute)
	setDefault(&c.ConfigLatch, time.Minute)
	setDefault(&c.QualityLatch, time.Minute)
	setDefault(&c.QualityShare, 0.5)
	setDefault(&c.QualityMin, 6)
	setDefault(&c.QualityWindow, 20)
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

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func choose[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// validate reports everything that cannot work. It expects defaults to be set;
// what is wrong with a model its endpoint says.
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
	}
	for _, name := range c.Fallbacks {
		need(seen[name], "the fallback %q is none of the models", name)
	}
	for _, d := range []struct {
		name string
		is   time.Duration
	}{
		{"Deadline", c.Deadline},
		{"Attempt", c.Attempt},
		{"Backoff", c.Backoff},
		{"MaxBackoff", c.MaxBackoff},
		{"BreakerWindow", c.BreakerWindow},
		{"BreakerOpen", c.BreakerOpen},
		{"QuotaLatch", c.QuotaLatch},
		{"ConfigLatch", c.ConfigLatch},
		{"QualityLatch", c.QualityLatch},
	} {
		need(d.is > 0, "%s is %v, must be more than nothing", d.name, d.is)
	}
	for _, n := range []struct {
		name string
		is   int
	}{
		{"MaxCalls", c.MaxCalls},
		{"Parallel", c.Parallel},
		{"BreakerFailures", c.BreakerFailures},
		{"BreakerMin", c.BreakerMin},
		{"QualityMin", c.QualityMin},
		{"QualityWindow", c.QualityWindow},
		{"CacheEntries", c.CacheEntries},
	} {
		need(n.is > 0, "%s is %d, must be at least 1", n.name, n.is)
	}
	for _, s := range []struct {
		name string
		is   float64
	}{{"BreakerShare", c.BreakerShare}, {"QualityShare", c.QualityShare}, {"RetryShare", c.RetryShare}} {
		need(s.is >= 0 && s.is <= 1, "%s is %v, must be 0 to 1", s.name, s.is)
	}
	need(c.QualityMin <= c.QualityWindow, "QualityMin is %d of a QualityWindow of %d, and can never be reached", c.QualityMin, c.QualityWindow)
	need(c.MaxTokens >= 0 && c.MaxBody > 0, "MaxTokens and MaxBody must not be negative")
	return errors.Join(errs...)
}
