package eval

import (
	"slices"
	"time"
)

// sumCosts sums up all results that did not fail, repeats included.
func (s *scored) sumCosts() Cost {
	var c Cost
	var asked, deterministic []time.Duration
	rungs, models, deciders, assurances, codes := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	for _, of := range s.cases {
		for _, r := range s.by[of.ID] {
			if isFailed(r) {
				continue
			}
			c.Results++
			c.add(r)
			switch {
			case r.Took <= 0: // not recorded
			case r.Calls > 0 && !r.CacheHit:
				asked = append(asked, r.Took)
			case r.Calls == 0 && !r.CacheHit && r.Approval == nil:
				deterministic = append(deterministic, r.Took)
			}
			increment(rungs, r.Rung)
			increment(models, r.Model)
			increment(deciders, string(r.DecidedBy))
			increment(assurances, string(r.Assurance))
			increment(codes, r.Code)
		}
	}
	c.Latency, c.Deterministic = measureLatency(asked), measureLatency(deterministic)
	c.Rungs, c.Models, c.DecidedBy, c.Assurance, c.Codes = sortTallies(rungs), sortTallies(models), sortTallies(deciders), sortTallies(assurances), sortTallies(codes)
	return c
}

func increment(counts map[string]int, name string) {
	if name != "" {
		counts[name]++
	}
}

func (c *Cost) add(r *Result) {
	c.Calls += r.Calls
	for _, flag := range []struct {
		set bool
		n   *int
	}{{r.CacheHit, &c.CacheHits}, {r.Degraded, &c.Degraded}, {r.Lenient, &c.Lenient}} {
		if flag.set {
			*flag.n++
		}
	}
	if r.Calls == 0 {
		return // nothing was asked, nothing was spent
	}
	c.Asked++
	c.PromptTokens.add(asFloat(r.PromptTokens))
	c.CompletionTokens.add(asFloat(r.CompletionTokens))
	c.CostUSD.add(r.CostUSD)
}

func asFloat(n *int) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}

func (s *Sum) add(v *float64) {
	if v == nil {
		s.Unknown++
		return
	}
	s.Known++
	s.Total += *v
}

// measureLatency of durations, which it sorts.
func measureLatency(all []time.Duration) Latency {
	if len(all) == 0 {
		return Latency{}
	}
	slices.Sort(all)
	// The smallest value that at least p percent do not exceed.
	at := func(p int) time.Duration { return all[max((len(all)*p+99)/100, 1)-1] }
	return Latency{N: len(all), P50: at(50), P95: at(95), Max: all[len(all)-1]}
}
