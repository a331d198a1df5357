package eval

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// stream counts how many cases were taken from it.
func stream(n int, taken *atomic.Int64) func(yield func(Case, error) bool) {
	return func(yield func(Case, error) bool) {
		for i := range n {
			taken.Add(1)
			if !yield(golden(fmt.Sprint("case-", i), judge.Reject), nil) {
				return
			}
		}
	}
}

func build(Case) (judge.Case, error) { return judge.Case{}, nil }

func approves(context.Context, Case, judge.Case) (judge.Verdict, error) {
	return judge.Verdict{Outcome: judge.Approve, Confidence: 1}, nil
}

func TestRunnerKeepsTheOrderAndAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, n = 4, 500
		var taken atomic.Int64
		done, told := 0, 0
		r := Runner{Build: build, Workers: workers, Repeats: 2, Progress: func(d int) { told = d }}
		r.Decide = func(_ context.Context, c Case, _ judge.Case) (judge.Verdict, error) {
			if c.Expect.Outcome != "" || c.Label.Source != "" || c.Notes != "" {
				t.Errorf("the judge sees the label of %s: %+v", c.ID, c)
			}
			if c.ID == "case-7" {
				<-time.After(time.Hour) // all other cases overtake it
			}
			return judge.Verdict{Outcome: judge.Reject}, nil
		}
		err := r.Run(t.Context(), stream(n, &taken), func(c Case, results []Result) error {
			if want := fmt.Sprint("case-", done); c.ID != want || c.Expect.Outcome != judge.Reject {
				t.Fatalf("%s came where %s should", c.ID, want)
			}
			if len(results) != 2 || results[0].Case != c.ID || results[1].Repeat != 1 || results[1].Outcome != judge.Reject {
				t.Fatalf("results of %s: %+v", c.ID, results)
			}
			done++
			if ahead := int(taken.Load()) - done; ahead > 6*workers {
				t.Fatalf("%d cases are held", ahead)
			}
			return nil
		})
		if err != nil || done != n || told != n {
			t.Errorf("%d done, %d told: %v", done, told, err)
		}
	})
}

func TestRunnerFailures(t *testing.T) {
	r := Runner{Decide: approves, Workers: 1}
	r.Build = func(c Case) (judge.Case, error) {
		if c.ID == "bad" {
			return judge.Case{}, errors.New("no such state")
		}
		return judge.Case{}, nil
	}
	r.Decide = func(_ context.Context, c Case, _ judge.Case) (judge.Verdict, error) {
		if c.ID == "down" {
			return judge.Verdict{}, errors.New("the sandbox is down")
		}
		return judge.Verdict{Outcome: judge.Approve, Opinions: []judge.Opinion{{Layer: judge.LayerModel, Outcome: judge.Approve, Model: &judge.ModelRecord{Calls: 2, Stated: 0.9}}}, Confidence: 0.8}, nil
	}
	r.Budget = Budget{Calls: 3}
	results, err := r.RunAll(t.Context(), []Case{golden("bad", judge.Approve), golden("down", judge.Approve), golden("a", judge.Approve), golden("b", judge.Approve), golden("c", judge.Approve)})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{FailureBuild, FailureDecide, "", "", FailureBudget + ": 3 calls"} {
		if results[i].Failure != want || (results[i].Outcome == judge.Approve) != (want == "") {
			t.Errorf("%d: %+v, want the failure %q", i, results[i], want)
		}
	}
	if results[0].Reasoning != "no such state" || *results[2].Approval != 0.8 || *results[2].Stated != 0.9 {
		t.Errorf("%+v", results)
	}
}

// A failure that waiting can fix is retried, up to the limit, until several cases in a row have failed.
func TestRunnerRetries(t *testing.T) {
	busy := func(after time.Duration) error { return &judge.BusyError{RetryAfter: after} }
	down := func(after time.Duration) judge.Verdict {
		return judge.Verdict{Outcome: judge.Reject, Opinions: []judge.Opinion{{
			Layer: judge.LayerModel, Outcome: judge.Escalate, Trouble: judge.TroubleUnavailable, RetryAfter: document.Milliseconds(after), Model: &judge.ModelRecord{Failure: "network"},
		}}}
	}
	good := judge.Verdict{Outcome: judge.Approve}
	for name, tc := range map[string]struct {
		says  func(try int) (judge.Verdict, error)
		tries []int // for each of six cases
		took  time.Duration
		left  int // number without an outcome
	}{
		"busy at first": {func(n int) (judge.Verdict, error) {
			if n < 3 {
				return judge.Verdict{}, busy(5 * time.Second)
			}
			return good, nil
		}, []int{4, 4, 4, 4, 4, 4}, 6 * 15 * time.Second, 0},
		"down at first": {func(n int) (judge.Verdict, error) {
			if n < 1 {
				return down(30 * time.Second), nil
			}
			return good, nil
		}, []int{2, 2, 2, 2, 2, 2}, 6 * 30 * time.Second, 0},
		"down":        {func(int) (judge.Verdict, error) { return down(10 * time.Second), nil }, []int{4, 4, 4, 1, 1, 1}, 90 * time.Second, 6},
		"a wrong key": {func(int) (judge.Verdict, error) { return down(time.Minute), nil }, []int{1, 1, 1, 1, 1, 1}, 0, 6},
		"an error":    {func(int) (judge.Verdict, error) { return judge.Verdict{}, errors.New("the sandbox is down") }, []int{1, 1, 1, 1, 1, 1}, 0, 6},
	} {
		for _, replay := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tries, ids := map[string]int{}, []string{"a", "b", "c", "d", "e", "f"}
					r := Runner{Build: build, Workers: 1, Retries: 3, Replay: replay, Decide: func(_ context.Context, c Case, _ judge.Case) (judge.Verdict, error) {
						tries[c.ID]++
						return tc.says(tries[c.ID] - 1)
					}}
					var cases []Case
					for _, id := range ids {
						cases = append(cases, golden(id, judge.Approve))
					}
					began := time.Now()
					results, err := r.RunAll(t.Context(), cases)
					if err != nil {
						t.Fatal(err)
					}
					want := tc.took
					if replay {
						want = 0
					}
					if took := time.Since(began); took != want {
						t.Errorf("took %v, want %v", took, want)
					}
					report := Evaluate(cases, results, Options{})
					if report.Incomplete != (tc.left > 0) || report.Counts.FailedResults != tc.left || report.Unreadable.K != 0 {
						t.Errorf("incomplete %t, %d without an outcome, want %d", report.Incomplete, report.Counts.FailedResults, tc.left)
					}
					for i, id := range ids {
						if tries[id] != tc.tries[i] {
							t.Errorf("%s: %d tries, want %d", id, tries[id], tc.tries[i])
						}
					}
				})
			})
		}
	}
}

func TestRunnerStops(t *testing.T) {
	broken := errors.New("the file is torn")
	cases := func(yield func(Case, error) bool) {
		if yield(golden("a", judge.Approve), nil) {
			yield(Case{}, broken)
		}
	}
	took := 0
	r := Runner{Build: build, Decide: approves}
	err := r.Run(t.Context(), cases, func(Case, []Result) error { took++; return nil })
	if !errors.Is(err, broken) || took != 1 {
		t.Errorf("%d taken: %v", took, err)
	}
	full := errors.New("full")
	var taken atomic.Int64
	if err := r.Run(t.Context(), stream(1_000_000, &taken), func(Case, []Result) error { return full }); !errors.Is(err, full) || taken.Load() > 1000 {
		t.Errorf("%d taken: %v", taken.Load(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.Decide = func(ctx context.Context, _ Case, _ judge.Case) (judge.Verdict, error) {
		cancel()
		<-ctx.Done()
		return judge.Verdict{}, ctx.Err()
	}
	if results, err := r.RunAll(ctx, []Case{golden("a", judge.Approve)}); !errors.Is(err, context.Canceled) || len(results) != 0 {
		t.Errorf("%+v: %v", results, err)
	}
}

func TestResultOf(t *testing.T) {
	with := func(outcome judge.Outcome, trouble judge.Trouble, asked judge.ModelRecord) judge.Verdict {
		return judge.Verdict{Outcome: judge.Escalate, Confidence: 0.7, Opinions: []judge.Opinion{{Layer: judge.LayerModel, Outcome: outcome, Trouble: trouble, Model: &asked}}}
	}
	missed := ResultOf("a", 0, with(judge.Escalate, judge.TroubleUnavailable, judge.ModelRecord{Failure: "config", Detail: "not recorded"}))
	if missed.Failure != "model: config" || missed.Outcome != "" || missed.Reasoning != "not recorded" {
		t.Errorf("unavailable: %+v", missed)
	}
	if r := ResultOf("a", 0, with(judge.Escalate, judge.TroubleUnreadable, judge.ModelRecord{})); !r.Unreadable || r.Failure != "" || r.Approval != nil {
		t.Errorf("unreadable: %+v", r)
	}
	if r := ResultOf("a", 0, with(judge.Escalate, judge.TroubleCannotAssess, judge.ModelRecord{})); r.Failure != "" || r.Unreadable || r.Approval != nil {
		t.Errorf("cannot assess: %+v", r)
	}
	if r := ResultOf("a", 0, with(judge.Reject, judge.TroubleNone, judge.ModelRecord{Stated: 0.9})); r.Approval == nil || *r.Approval > 0.31 || *r.Stated != 0.9 {
		t.Errorf("rejected: %+v", r)
	}
}

// A hundred thousand cases take seconds, and the memory in use does not grow.
func TestRunnerStreamsAHundredThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const n = 100_000
	var taken atomic.Int64
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began, done := time.Now(), 0
	err := Runner{Build: build, Decide: approves}.Run(t.Context(), stream(n, &taken), func(Case, []Result) error {
		if done++; done%20_000 == 0 {
			runtime.GC()
			if runtime.ReadMemStats(&now); int64(now.HeapAlloc)-int64(before.HeapAlloc) > 16<<20 { //nolint:gosec // far below 2^63
				t.Errorf("%d MiB are held after %d cases", (now.HeapAlloc-before.HeapAlloc)>>20, done)
			}
		}
		return nil
	})
	if took := time.Since(began); err != nil || done != n || took > time.Minute {
		t.Errorf("%d cases in %v: %v", done, took, err)
	}
}

// RunAll runs a list of cases and returns all results.
func (r Runner) RunAll(ctx context.Context, cases []Case) ([]Result, error) {
	results := make([]Result, 0, len(cases)*max(r.Repeats, 1))
	err := r.Run(ctx, func(yield func(Case, error) bool) {
		for _, c := range cases {
			if !yield(c, nil) {
				return
			}
		}
	}, func(_ Case, of []Result) error {
		results = append(results, of...)
		return nil
	})
	return results, err
}
