package script

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file contains the workers' second task: reading an untrusted document with a function that the
// worker's program provides. Neither this package nor package worker knows the format.

var (
	// ErrTooCostly reports that a document took more time or memory than Config.Read and Config.WorkerMemory
	// allow, or that it ended its worker.
	ErrTooCostly = errors.New("reading the document takes too much time or memory")
	// ErrNoReader reports that the worker's program does not read documents.
	ErrNoReader = errors.New("the worker does not read documents")
)

// OpRead calls the worker's reader with a request's Data.
const OpRead Op = 3

// MaxReport limits the reader's answer, in bytes.
const MaxReport = 4 << 20

// Report is the answer of a worker's reader. It is sent as one frame.
type Report struct {
	ID      uint32
	Leaving bool   // the worker exits after this message
	Failed  bool   // the reader panicked; there is no answer
	Answer  []byte `json:"-"`
	Size    int    // of the answer, in bytes
}

// AppendTo appends the report to a frame.
func (r *Report) AppendTo(b []byte) []byte {
	r.Size = len(r.Answer)
	return append(appendHead(b, r), r.Answer...)
}

// Decode fills the report from a frame's content. Answer aliases it.
func (r *Report) Decode(content []byte) (err error) {
	*r = Report{}
	if r.Answer, err = decodeHead(content, r); err == nil && len(r.Answer) != r.Size {
		err = fmt.Errorf("%w: not a report", errFrame)
	}
	return err
}

// Read sends a request to a worker's reader and returns its answer. It uses the workers that are reserved
// for checks. Callers must not trust the answer: it comes from untrusted input, through a process that the
// input may have taken over. The error wraps ErrUnavailable, ErrInput, ErrTooCostly or ErrNoReader, or is
// ctx's.
func (p *Pool) Read(ctx context.Context, caller string, request []byte) ([]byte, error) {
	if len(request) > p.cfg.MaxInput {
		return nil, fmt.Errorf("%w: the request has %d bytes, more than the %d allowed", ErrInput, len(request), p.cfg.MaxInput)
	}
	if err := p.beginCall(); err != nil {
		return nil, err
	}
	defer p.tasks.Done()
	p.stats.add(&p.stats.Calls, 1)
	w, release, err := p.leaseWorker(ctx, &p.check, caller)
	if err != nil {
		return nil, err
	}
	defer release()
	if !w.reads {
		p.returnWorker(&p.check, w)
		return nil, ErrNoReader
	}
	p.stats.add(&p.stats.Trips, 1)
	began := time.Now()
	answer, why, cause := w.requestReport(ctx, request, p.cfg.Read)
	MeterOf(ctx).AddWorked(time.Since(began))
	if why == alive {
		p.returnWorker(&p.check, w)
		return answer, cause
	}
	p.recordDeath(&p.check, w, why, cause, offender{caller: caller})
	p.warmUp(&p.check)
	switch why {
	case cancelled:
		return nil, context.Cause(ctx)
	case outOfTime, outOfMemory, crashed:
		return nil, fmt.Errorf("%w: more than %v or %d MiB", ErrTooCostly, p.cfg.Read, p.cfg.WorkerMemory>>20)
	}
	return nil, fmt.Errorf("%w: %s: %w", ErrUnavailable, why, cause)
}

// requestReport sends one document. A reason other than alive means that the process has exited.
func (p *process) requestReport(ctx context.Context, document []byte, limit time.Duration) ([]byte, exitReason, error) {
	q := Request{Op: OpRead, Data: document}
	stop, err := p.send(ctx, &q, limit)
	defer stop()
	if err != nil {
		return nil, p.awaitExit(vanished), err
	}
	var r Report
	_, why, err := p.receive(nil, MaxReport, func(content []byte) error {
		if err := r.Decode(content); err != nil {
			return err
		}
		if r.ID != q.ID {
			return fmt.Errorf("%w: a report that was not asked for", errFrame)
		}
		return nil
	})
	if err != nil {
		return nil, why, err
	}
	p.leaving = p.leaving || r.Leaving
	if r.Failed {
		return nil, alive, fmt.Errorf("%w: the reader failed", ErrTooCostly)
	}
	return r.Answer, alive, nil
}
