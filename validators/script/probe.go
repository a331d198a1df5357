package script

import (
	"context"
	"errors"
	"fmt"
)

// Probe checks that a worker starts and answers. It starts its own and skips the queue,
// so that callers cannot make it fail. The error wraps
// ErrUnavailable or is ctx's.
func (p *Pool) Probe(ctx context.Context) error {
	if err := p.beginCall(); err != nil {
		return err
	}
	defer p.tasks.Done()
	err := p.probeOnce(ctx)
	if errors.Is(err, errProbeEnded) && ctx.Err() == nil {
		err = p.probeOnce(ctx) // once may be a machine that is out of memory for a moment
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// errProbeEnded says that a probe's worker ended without an answer.
var errProbeEnded = errors.New("the worker ended without an answer")

func (p *Pool) probeOnce(ctx context.Context) error {
	var own lane
	w, err := p.startWorker(ctx, &own)
	if err != nil {
		return err
	}
	defer p.discardWorker(&own, w)
	defer w.kill(discarded)
	var got Outcome
	request := Request{Op: OpRun, Sources: []Source{{Kind: Validator, Text: "() => true"}}}
	if why, err := w.ask(ctx, &request, p.cfg.Start, func(o *Outcome) { got = *o }); why != alive {
		return fmt.Errorf("%w (%v): %w", errProbeEnded, why, err)
	}
	// A worker that says that the machine is late has answered.
	if got.Code != OK && !(got.Code == Timeout && got.Late) {
		return fmt.Errorf("a plain script ended %s", got.Code)
	}
	return nil
}
