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

// Runner puts cases to a judge. It keeps only a window of cases at a time, so that a
// stream may be as long as it wants, and gives the results in the order of the cases,
// however many are judged at once. It never shows the judge what is expected.
type Runner struct {
	// Build makes the question out of a case; what cannot be built is a Failure of its
	// results. It gets the case without its expectation and label. Required.
	Build func(Case) (judge.Case, error)
	// Decide is the judge, such as judge.Pipeline.Decide; with what the case holds
	// beside the question (the evidence to be fetched). Required. An error means that
	// nothing was decided: a Failure.
	Decide func(ctx context.Context, c Case, question judge.Case) (judge.Verdict, error)
	// Workers judge at once; 0 is one for each processor. The repeats of one case come
	// one after the other, so that recorded answers are replayed in their order.
	Workers int
	// Repeats of every case; 0 is 1.
	Repeats int
	// Budget ends the asking, not the run: what comes after it is a Failure.
	Budget Budget
	// Progress is told how many cases are done, one call at a time; nil tells nobody.
	Progress func(done int)
}

// Budget bounds what a run may spend; 0 is no bound. It is looked at before each
// question, so that up to Workers questions more can be spent.
type Budget struct {
	Calls   int // of models
	CostUSD float64
	Time    time.Duration
}

// The failures of a Runner, as Result.Failure begins.
const (
	FailureBuild  = "case cannot be built"
	FailureBudget = "budget spent"
	FailureDecide = "nothing decided"
	FailureModel  = "model"
)

// Run judges the cases and gives each with its results, in order, to take. The error is
// that of the stream, of take or of ctx; what was taken before it stands.
func (r Runner) Run(ctx context.Context, cases iter.Seq2[Case, error], take func(Case, []Result) error) error {
	if r.Build == nil || r.Decide == nil {
		return errors.New("eval: Runner.Build and Runner.Decide are required")
	}
	purse, done := &spendMeter{budget: r.Budget, began: time.Now()}, 0
	judgeOne := func(ctx context.Context, c Case) []Result { return r.judgeCase(ctx, c, purse) }
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

// InOrder has so many workers do the items of a stream, 0 is one for each processor, and
// gives each item with what came of it to take, in the order of the stream. It holds a window
// of items. The error is that of the stream, of take or of ctx.
func InOrder[In, Out any](ctx context.Context, workers int, items iter.Seq2[In, error], do func(context.Context, In) Out, take func(In, Out) error) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	type job struct {
		in   In
		done chan Out // gets what came of it, once
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
				return err // what a worker says after the end is no finding
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

func (r Runner) judgeCase(ctx context.Context, c Case, p *spendMeter) []Result {
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
		began := time.Now()
		v, err := r.Decide(ctx, blind, question)
		result := Result{Case: c.ID, Repeat: i, Failure: FailureDecide}
		if err != nil {
			result.Reasoning = err.Error()
		} else {
			result = ResultOf(c.ID, i, v)
		}
		result.Took = document.Milliseconds(time.Since(began))
		p.spend(result)
		results = append(results, result)
	}
	return results
}

type spendMeter struct {
	budget Budget
	began  time.Time

	mu    sync.Mutex
	calls int
	cost  float64
}

func (p *spendMeter) spend(r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls += r.Calls
	if r.CostUSD != nil {
		p.cost += *r.CostUSD
	}
}

func (p *spendMeter) exceeded() string {
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
