package judge_test

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// demand is a number of moves that one principal requests at the same time.
type demand struct {
	at    time.Duration
	who   string
	moves int
	same  bool // same instance and data
}

// tally is the result of a principal's moves: the number that the model approved, the number that
// ended in a BusyError, and the time of the last one.
type tally struct {
	approved, busy int
	last           time.Duration
}

// TestLoad puts a working endpoint, however slow, under load. In every case a move is judged or the
// error is busy: a slow endpoint never counts as one with unreadable answers or as one that is down.
func TestLoad(t *testing.T) {
	t.Parallel()
	const s, ms = time.Second, time.Millisecond
	failing := llmtest.Always(llmtest.Response{Status: 500, Body: `{"error":{"message":"try again"}}`})
	limited := llmtest.Always(llmtest.Response{After: 100 * ms, Status: 429, Header: map[string]string{"Retry-After": "4"}, Body: `{"error":{"message":"slow down"}}`})
	everyOther := func(q llmtest.Question, think func() llmtest.Thought) llmtest.Response {
		if q.N%2 == 0 {
			return failing(q, think)
		}
		return llmtest.Slow(s)(q, think)
	}
	for name, tc := range map[string]struct {
		endpoint llmtest.Personality
		cfg      llm.Config
		timeout  time.Duration
		asks     []demand
		want     map[string]tally
		requests int // 0: not checked
	}{
		// Four at a time, as long as time remains.
		"more moves than places": {endpoint: llmtest.Slow(5 * s), asks: []demand{{who: "a", moves: 40}}, want: map[string]tally{"a": {12, 28, 19800 * ms}}, requests: 16},
		"places for all":         {endpoint: llmtest.Slow(5 * s), cfg: llm.Config{Parallel: 80}, asks: []demand{{who: "a", moves: 40}}, want: map[string]tally{"a": {40, 0, 5 * s}}},
		"more time":              {endpoint: llmtest.Slow(5 * s), cfg: llm.Config{Deadline: 52 * s}, asks: []demand{{who: "a", moves: 40}}, want: map[string]tally{"a": {40, 0, 50 * s}}},
		"a flood beside a few":   {endpoint: llmtest.Slow(5 * s), asks: []demand{{who: "flood", moves: 200}, {at: s, who: "few", moves: 4}}, want: map[string]tally{"flood": {12, 188, 19800 * ms}, "few": {4, 0, 6 * s}}},
		"two floods":             {endpoint: llmtest.Slow(5 * s), asks: []demand{{who: "a", moves: 20}, {who: "b", moves: 20}}, want: map[string]tally{"a": {12, 8, 19800 * ms}, "b": {12, 8, 19800 * ms}}},
		"a share of 20 a minute": {endpoint: llmtest.Slow(s), cfg: llm.Config{CallerRequests: 20}, asks: []demand{{who: "a", moves: 20}}, want: map[string]tally{"a": {13, 7, 19 * s}}},

		"a model that thinks 15 s":              {endpoint: llmtest.Slow(15 * s), asks: []demand{{who: "a", moves: 1}}, want: map[string]tally{"a": {1, 0, 15 * s}}, requests: 1},
		"one that thinks 50 s, with the time":   {endpoint: llmtest.Slow(50 * s), cfg: llm.Config{Deadline: 60 * s}, asks: []demand{{who: "a", moves: 1}}, want: map[string]tally{"a": {1, 0, 50 * s}}, requests: 1},
		"one that thinks 15 s, with 12 s":       {endpoint: llmtest.Slow(15 * s), timeout: 12 * s, asks: []demand{{who: "a", moves: 1}}, want: map[string]tally{"a": {0, 1, 19800 * ms}}, requests: 2},
		"a lost request, with a timeout of 5 s": {endpoint: llmtest.Then(1, llmtest.Hang(), llmtest.Slow(s)), timeout: 5 * s, asks: []demand{{who: "a", moves: 1}}, want: map[string]tally{"a": {1, 0, 6250 * ms}}, requests: 2},

		"a short Retry-After":               {endpoint: llmtest.Then(1, limited, llmtest.Slow(s)), asks: []demand{{who: "a", moves: 1}}, want: map[string]tally{"a": {1, 0, 5100 * ms}}, requests: 2},
		"a short Retry-After, for others":   {endpoint: llmtest.Then(1, limited, llmtest.Slow(s)), asks: []demand{{who: "a", moves: 1}, {at: s, who: "b", moves: 8}}, want: map[string]tally{"a": {1, 0, 5100 * ms}, "b": {8, 0, 6100 * ms}}, requests: 10},
		"a limit that eight meet at once":   {endpoint: llmtest.Then(8, limited, llmtest.Slow(s)), asks: []demand{{who: "a", moves: 4}, {who: "b", moves: 4}}, want: map[string]tally{"a": {4, 0, 5100 * ms}, "b": {4, 0, 5100 * ms}}, requests: 16},
		"retries that succeed trip nothing": {endpoint: everyOther, asks: []demand{{who: "a", moves: 1}, {at: 3 * s, who: "a", moves: 1}, {at: 6 * s, who: "a", moves: 1}, {at: 66 * s, who: "a", moves: 1}, {at: 70 * s, who: "a", moves: 1}}, want: map[string]tally{"a": {5, 0, 71250 * ms}}, requests: 10},

		// The first call ends with the time of the caller that began it; later callers have their own time.
		"identical moves":        {endpoint: llmtest.Slow(15 * s), asks: []demand{{who: "a", moves: 3, same: true}, {at: 12 * s, who: "a", moves: 3, same: true}}, want: map[string]tally{"a": {6, 0, 15 * s}}, requests: 1},
		"identical moves, later": {endpoint: llmtest.Then(1, llmtest.Hang(), llmtest.Slow(5*s)), asks: []demand{{who: "a", moves: 2, same: true}, {at: 12 * s, who: "a", moves: 3, same: true}}, want: map[string]tally{"a": {3, 2, 24800 * ms}}, requests: 2},

		"thinking before the JSON": {endpoint: llmtest.VLLM(), asks: []demand{{who: "a", moves: 1}}, want: map[string]tally{"a": {1, 0, 0}}, requests: 3},
		"prose before the JSON":    {endpoint: llmtest.PromptOnly(), asks: []demand{{who: "a", moves: 1}}, want: map[string]tally{"a": {1, 0, 0}}, requests: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				endpoint := llmtest.New(tc.endpoint, llmtest.Approver)
				cfg := tc.cfg
				cfg.Doer, cfg.Jitter, cfg.CallerTokens = endpoint, func() float64 { return 1 }, -1
				cfg.CallerRequests = cmp.Or(cfg.CallerRequests, -1)
				cfg.Models = []llm.Model{{ID: "m", BaseURL: "https://endpoint.example/v1", APIKey: "k", Timeout: tc.timeout}}
				got := load(t, cfg, tc.asks)
				for who, want := range tc.want {
					if *got[who] != want {
						t.Errorf("%s: %+v, want %+v", who, *got[who], want)
					}
				}
				if n := endpoint.Count(); tc.requests != 0 && n != tc.requests {
					t.Errorf("%d requests, want %d", n, tc.requests)
				}
			})
		})
	}
}

// load requests the moves and returns the results by principal. It fails the test if a move was neither
// approved by the model nor busy, or took longer than the deadline.
func load(t *testing.T, cfg llm.Config, asks []demand) map[string]*tally {
	t.Helper()
	client, err := llm.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	model, err := judge.NewModel(judge.ModelConfig{Completer: client})
	if err != nil {
		t.Fatal(err)
	}
	gate, began := pipeline(t, &runner{}, model), time.Now()
	got := map[string]*tally{}
	for _, a := range asks { // before any goroutine reads it
		got[a.who] = &tally{}
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, a := range asks {
		for n := range a.moves {
			move := goodReview(setting{strict: true})
			move.Principal = a.who
			if a.same {
				move.Instance, move.Identity = "wf-1", "the same"
			} else {
				move.Instance, move.Identity = fmt.Sprint("wf-", i, "-", n), "its own"
			}
			all.Go(func() {
				<-time.After(a.at) // the test clock advances only while all goroutines wait
				v, err := gate.Decide(t.Context(), move)
				mu.Lock()
				defer mu.Unlock()
				took := time.Since(began) - a.at
				var busy *judge.BusyError
				switch {
				case took > cmp.Or(cfg.Deadline, faultDeadline):
					t.Errorf("%s: %v: more than the deadline", a.who, took)
				case err == nil && v.Outcome == judge.Approve && !v.Degraded:
					got[a.who].approved++
				case errors.As(err, &busy) && busy.RetryAfter > 0:
					got[a.who].busy++
				default:
					t.Errorf("%s: %v, %s %s: %s", a.who, err, v.Outcome, v.Code, v.Reasoning)
				}
				got[a.who].last = max(got[a.who].last, time.Since(began))
			})
		}
	}
	all.Wait()
	return got
}
