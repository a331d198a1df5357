package eval

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Runner puts cases to a judge. It keeps only a window of cases in memory, so a stream may have any length. It returns
// the results in the order of the cases, regardless of how many are judged concurrently. It never shows the judge the
// expected outcome.
type Runner struct {
	// Build converts a case into the question; it is required. It gets the case without its expectation and label. If
	// it fails, the results have a Failure.
	Build func(Case) (judge.Case, error)
	// Decide is the judge, such as judge.Pipeline.Decide; it is required. It also gets the case, for the evidence that
	// the question does not contain. An error means that nothing was decided; the result then has a Failure.
	Decide func(ctx context.Context, c Case, question judge.Case) (judge.Verdict, error)
	// Workers is the number of concurrent judgements; 0 is one for each processor. The repeats of one case run one
	// after the other, so that recorded answers are replayed in their order.
	Workers int
	// Repeats of every case; 0 is 1.
	Repeats int
	// Retries is how often a case is judged again after a failure that waiting can fix: a busy or unavailable model.
	// After several cases in a row without an outcome, retries stop until a case has an outcome.
	Retries int
	// Replay retries without waiting, because the answers are recorded.
	Replay bool
	// Budget limits the questions. When it is spent, the run continues without asking: the remaining results have a
	// Failure.
	Budget Budget
	// Progress is called with the number of finished cases, one call at a time; it may be nil.
	Progress func(done int)
}

// Budget limits what a run may spend; 0 is no limit. It is checked before each question, so a run can exceed it by up
// to Workers questions.
type Budget struct {
	Calls   int // calls of a model
	CostUSD float64
	Time    time.Duration
}

// The failures of a Runner. A Result.Failure begins with one of them.
const (
	FailureBuild  = "case cannot be built"
	FailureBudget = "budget spent"
	FailureDecide = "nothing decided"
	FailureModel  = "model"
)

// Run judges the cases and passes each with its results to take, in order. The error is that of the stream, of take
// or of ctx; what take received before it remains valid.
func (r Runner) Run(ctx context.Context, cases iter.Seq2[Case, error], take func(Case, []Result) error) error {
	if r.Build == nil || r.Decide == nil {
		return errors.New("eval: Runner.Build and Runner.Decide are required")
	}
	progress, done := &runState{budget: r.Budget, began: time.Now()}, 0
	judgeOne := func(ctx context.Context, c Case) []Result { return r.judgeCase(ctx, c, progress) }
	return InOrder(ctx, r.Workers, cases, judgeOne, func(c Case, results []Result) error {
		if err := take(c, results); err != nil {
			return err
		}
		if done++; r.Progress != nil {
			r.Progress(done)
		}
		return nil
	})
}

// InOrder processes the items of a stream with the given number of workers (0 is one for each processor). It passes
// each item with its result to take, in the order of the stream. It keeps only a window of items in memory. The error
// is that of the stream, of take or of ctx.
func InOrder[In, Out any](ctx context.Context, workers int, items iter.Seq2[In, error], do func(context.Context, In) Out, take func(In, Out) error) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	type job struct {
		in   In
		done chan Out // receives the result once
	}
	ctx, cancel := context.WithCancel(ctx)
	todo, order := make(chan job), make(chan job, 4*workers)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range workers {
		wg.Go(func() {
			for j := range todo {
				j.done <- do(ctx, j.in)
			}
		})
	}
	var streamErr error // set before order is closed
	wg.Go(func() {
		defer close(order)
		defer close(todo)
		for in, err := range items {
			if err != nil {
				streamErr = err
				return
			}
			j := job{in, make(chan Out, 1)}
			for _, to := range []chan<- job{order, todo} {
				select {
				case to <- j:
				case <-ctx.Done():
					return
				}
			}
		}
	})
	for j := range order {
		select {
		case out := <-j.done:
			if err := ctx.Err(); err != nil {
				return err // results after cancellation are meaningless
			}
			if err := take(j.in, out); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errors.Join(streamErr, ctx.Err())
}

func (r Runner) judgeCase(ctx context.Context, c Case, p *runState) []Result {
	blind := c
	blind.Expect, blind.Label, blind.Notes = Expect{}, Label{}, ""
	results := make([]Result, 0, max(r.Repeats, 1))
	question, err := r.Build(blind)
	for i := range max(r.Repeats, 1) {
		if err != nil {
			results = append(results, Result{Case: c.ID, Repeat: i, Failure: FailureBuild, Reasoning: err.Error()})
			continue
		}
		if over := p.exceeded(); over != "" {
			results = append(results, Result{Case: c.ID, Repeat: i, Failure: FailureBudget + ": " + over})
			continue
		}
		results = append(results, r.judgeOnce(ctx, blind, i, question, p))
	}
	return results
}

// judgeOnce judges one repeat of a case, and retries if that can help.
func (r Runner) judgeOnce(ctx context.Context, blind Case, repeat int, question judge.Case, p *runState) Result {
	var kept Result
	for try := 0; ; try++ {
		began := time.Now()
		var asked exchanges
		v, err := r.Decide(context.WithValue(context.WithValue(ctx, tryKey{}, try), exchangesKey{}, &asked), blind, question)
		result := Result{Case: blind.ID, Repeat: repeat, Failure: FailureDecide}
		if err != nil {
			result.Reasoning = err.Error()
		} else {
			result = ResultOf(blind.ID, repeat, v)
		}
		// Took is rounded as in files, so that a report rendered from a file is the same.
		result.Took, result.Asked = document.Milliseconds(time.Since(began).Round(time.Microsecond)), asked.all
		p.spend(result)
		wait := retryAfter(v, err)
		if try == 0 || result.Failure == "" || wait > 0 {
			kept = result
		}
		if result.Failure == "" || wait <= 0 || try >= r.Retries || p.hasLost() || p.exceeded() != "" || !r.pause(ctx, wait) {
			p.countLost(kept.Failure != "")
			return kept
		}
	}
}

type tryKey struct{}

// TryOf returns how often the case was already put to the judge, for use in Decide.
func TryOf(ctx context.Context) int {
	n, _ := ctx.Value(tryKey{}).(int)
	return n
}

// retryAfter returns how long to wait before a busy or unavailable model is asked again; 0 if waiting does not help.
func retryAfter(v judge.Verdict, err error) time.Duration {
	if busy, ok := errors.AsType[*judge.BusyError](err); ok {
		return busy.RetryAfter
	}
	for _, o := range v.Opinions {
		if o.Trouble == judge.TroubleUnavailable && o.RetryAfter.Duration() < longestPause {
			return o.RetryAfter.Duration()
		}
	}
	return 0
}

// longestPause limits a pause. It is shorter than the minute for which a rejected key or an unknown model is
// remembered.
const longestPause = 45 * time.Second

// pause waits, unless answers are replayed. It returns false if it was interrupted.
func (r Runner) pause(ctx context.Context, wait time.Duration) bool {
	if r.Replay {
		return true
	}
	timer := time.NewTimer(min(wait, longestPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// mostLost is the number of cases in a row without an outcome after which retries stop.
const mostLost = 3

func (p *runState) hasLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost >= mostLost
}

func (p *runState) countLost(lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost++; !lost {
		p.lost = 0
	}
}

// runState is shared by the workers of a run.
type runState struct {
	budget Budget
	began  time.Time

	mu    sync.Mutex
	calls int
	cost  float64
	lost  int // cases in a row without an outcome
}

func (p *runState) spend(r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls += r.Calls
	if r.CostUSD != nil {
		p.cost += *r.CostUSD
	}
}

func (p *runState) exceeded() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch b := p.budget; {
	case b.Calls > 0 && p.calls >= b.Calls:
		return fmt.Sprintf("%d calls", b.Calls)
	case b.CostUSD > 0 && p.cost >= b.CostUSD:
		return fmt.Sprintf("%g USD", b.CostUSD)
	case b.Time > 0 && time.Since(p.began) >= b.Time:
		return b.Time.String()
	}
	return ""
}
