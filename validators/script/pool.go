package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/gavel-mcp/gavel/internal/fairshare"
)

var _ Runner = (*Pool)(nil)

// Pool evaluates scripts in worker processes. It is safe for concurrent use. Callers must close it.
type Pool struct {
	cfg        Config
	path       string
	setup      Setup
	quarantine *quarantine
	proven     *lru.Cache[uint64, struct{}] // hashes of scripts that have ended in time
	stats      counters
	eval       workerSet // for Run
	check      workerSet // for Check, Try and Read, so that registrations never delay decisions

	life     context.Context //nolint:containedctx // ends with Close, which has no other way to reach calls in flight
	end      context.CancelFunc
	mu       sync.Mutex
	closed   bool
	procs    map[*process]struct{}
	tasks    sync.WaitGroup // goroutines that start or reap workers, and calls in flight
	warnOnce sync.Once
}

// ErrNoMain reports that this program cannot be its own worker: as a worker it would run its main instead of
// scripts.
var ErrNoMain = errors.New("main does not begin with worker.Main, so this program cannot run scripts; write as the first line of func main (in tests, of func TestMain):\n\n" +
	"\tworker.Main(workflow.AnswerLintRequest)\n\n" +
	"and import github.com/gavel-mcp/gavel/validators/script/worker and github.com/gavel-mcp/gavel/engine/workflow")

var isMainMarked atomic.Bool

// MarkMain records that this program's main begins with worker.Main, which calls it.
func MarkMain() { isMainMarked.Store(true) }

// NewPool returns a pool. It starts no process unless cfg.Warm is set. The error lists all invalid settings.
func NewPool(cfg Config) (*Pool, error) {
	if IsWorker(os.Args) || cfg.WorkerPath == "" && !isMainMarked.Load() {
		return nil, ErrNoMain
	}
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	path, err := workerPath(cfg.WorkerPath)
	if err != nil {
		return nil, err
	}
	proven, _ := lru.New[uint64, struct{}](maxRecords) // fails only for sizes below 1
	p := &Pool{
		cfg: cfg, path: path, quarantine: newQuarantine(cfg), procs: map[*process]struct{}{}, proven: proven,
		setup: Setup{
			Version: Version, Soft: cfg.Soft, Hard: cfg.Hard, Read: cfg.Read,
			ScriptMemory: cfg.ScriptMemory, WorkerMemory: cfg.WorkerMemory,
			MaxRequest: 5*cfg.MaxInput + maxCallHead + (cfg.MaxScripts+1)*(6*max(cfg.MaxSource, cfg.MaxSchema)+64) + 512, // JSON may need six bytes to encode one
		},
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.eval.queue = fairshare.New(fairshare.Config{Permits: cfg.Workers, PerCaller: cfg.PerCaller, Waiting: cfg.Queue, Wait: cfg.Wait})
	p.check.queue = fairshare.New(fairshare.Config{Permits: 1, Waiting: cfg.Queue, Wait: cfg.Wait})
	p.eval.name, p.eval.size, p.eval.idleTime, p.eval.last = WorkerName, cfg.Workers, cfg.IdleTime, cfg.LastIdleTime
	p.check.name, p.check.size, p.check.idleTime, p.check.last = CheckerName, 1, checkerIdleTime, checkerIdleTime
	if cfg.Warm {
		p.warmUp(&p.eval)
	}
	return p, nil
}

// checkerIdleTime is how long an idle worker for checks is kept. Checks come in bursts, when a server starts or a
// user writes a definition, and are rare otherwise.
const checkerIdleTime = time.Second

// maxCallHead is how much longer than MaxInput a Call may be, because it contains the tool's name in addition
// to the arguments.
const maxCallHead = 1 << 10

// Run evaluates a batch: the schema, then the routes in order until one is true, then all validators. The
// error wraps ErrUnavailable (retry later) or ErrInput (the batch itself is wrong), or is ctx.Err().
func (p *Pool) Run(ctx context.Context, b Batch) (Reply, error) {
	err := errors.Join(
		checkInput("data", b.Data, p.cfg.MaxInput),
		checkInput("context", b.Context, p.cfg.MaxInput),
		checkInput("evidence", b.Evidence, p.cfg.MaxInput),
		checkInput("the call", b.Call, p.cfg.MaxInput+maxCallHead),
		checkInput("the document", b.Document, p.cfg.MaxInput))
	if err != nil {
		return Reply{}, err
	}
	if b.Schema != nil && b.Schema.Kind != Schema {
		return Reply{}, fmt.Errorf("%w: %s is not a schema", ErrInput, Clean(b.Schema.Name, MaxNote))
	}
	if n := len(b.Routes) + len(b.Validators); n > p.cfg.MaxScripts {
		return Reply{}, fmt.Errorf("%w: %d scripts in one batch, more than the %d allowed", ErrInput, n, p.cfg.MaxScripts)
	}
	j, err := p.newJob(OpRun, b)
	if err != nil {
		return Reply{}, err
	}
	if b.Now.IsZero() {
		b.Now = p.cfg.Now()
	}
	j.request.Now, j.request.Seed, j.request.Console = b.Now.UnixNano(), b.Seed, b.Console
	j.request.Data, j.request.Context, j.request.Evidence, j.request.Call, j.request.Document = b.Data, b.Context, b.Evidence, b.Call, b.Document
	unhardened, err := p.runJob(ctx, &p.eval, j)
	if err != nil {
		return Reply{}, err
	}
	reply := j.buildReply()
	reply.Unhardened = unhardened
	reply.Took = time.Since(j.began)
	return reply, nil
}

// Check compiles scripts and calls each once with empty objects, in workers that are reserved for checks.
// Schemas are only compiled. A script's result for empty input does not matter, but it must end within its
// limits. The error wraps ErrUnavailable or ErrInput, or is ctx.Err().
func (p *Pool) Check(ctx context.Context, caller string, owner Owner, scripts []Script) ([]Problem, error) {
	return p.examine(ctx, Batch{Caller: caller, Owner: owner, Validators: scripts}, Threw, BadResult)
}

// Try is like Check, but runs the scripts in b.Validators with the data, context and evidence of the batch, and
// each must return a valid result.
func (p *Pool) Try(ctx context.Context, b Batch) ([]Problem, error) { return p.examine(ctx, b) }

// examine runs each validator alone, in the workers for checks. It returns a Problem for each script whose
// code is neither OK nor accepted.
func (p *Pool) examine(ctx context.Context, b Batch, accepted ...Code) ([]Problem, error) {
	var problems []Problem
	for part := range slices.Chunk(b.Validators, p.cfg.MaxScripts) {
		b.Validators = part
		j, err := p.newJob(OpCheck, b)
		if err != nil {
			return nil, err
		}
		j.request.Data, j.request.Context, j.request.Evidence = b.Data, b.Context, b.Evidence
		if _, err := p.runJob(ctx, &p.check, j); err != nil {
			return nil, err
		}
		for _, r := range j.states {
			if r.Code != OK && !slices.Contains(accepted, r.Code) {
				problems = append(problems, Problem{Name: r.Name, Ran: r.Code != BadSource, Line: r.line, Column: r.column, Message: r.Detail})
			}
		}
	}
	return problems, nil
}

// runJob sends requests to workers until no script of the job needs an outcome.
func (p *Pool) runJob(ctx context.Context, l *workerSet, j *job) (unhardened []string, err error) {
	if err := p.beginCall(); err != nil {
		return nil, err
	}
	defer p.tasks.Done()
	p.stats.add(&p.stats.Calls, 1)
	for j.prepareRequest() {
		if j.expireOverdue() {
			continue
		}
		if unhardened, err = p.exchangeOnce(ctx, l, j); err != nil {
			return nil, err
		}
	}
	if j.badInput != "" {
		return nil, fmt.Errorf("%w: %s", ErrInput, j.badInput)
	}
	return unhardened, nil
}

// exchangeOnce sends the prepared request of a job to one worker.
func (p *Pool) exchangeOnce(ctx context.Context, l *workerSet, j *job) ([]string, error) {
	w, release, err := p.leaseWorker(ctx, l, j.caller)
	if err != nil {
		return nil, err
	}
	defer release()
	p.stats.add(&p.stats.Trips, 1)
	began := time.Now()
	j.since = began
	why, cause := w.requestOutcomes(ctx, &j.request, p.cfg.Hard, j.acceptOutcome)
	j.spent += time.Since(j.since)
	MeterOf(ctx).AddWorked(time.Since(began))
	p.stats.add(&p.stats.Scripts, j.reached)
	if why == alive {
		p.returnWorker(l, w)
		if j.badInput != "" {
			return nil, fmt.Errorf("%w: %s", ErrInput, j.badInput)
		}
		return w.unhardened, nil
	}
	p.recordDeath(l, w, why, cause, j.offender)
	switch why {
	case cancelled:
		return nil, ctx.Err()
	case discarded:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, errClosed)
	}
	p.warmUp(l) // so that a replacement is ready
	return w.unhardened, j.recordWorkerDeath(why, cause)
}

// beginCall registers a call, so that Close waits for it.
func (p *Pool) beginCall() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("%w: %w", ErrUnavailable, errClosed)
	}
	p.tasks.Add(1)
	return nil
}

// recordStrike records that a script of the offender cost a worker, and logs if that quarantines the script.
func (p *Pool) recordStrike(who offender, s Script, why string) {
	if p.quarantine.recordStrike(who, s) {
		p.cfg.Logger.Warn("script quarantined", who.logAttr(), slog.String("script", s.Name), slog.String("cause", why))
	}
}

// ResetQuarantine lifts the quarantine of a principal, both as owner and as caller. An empty id lifts all.
func (p *Pool) ResetQuarantine(id string) { p.quarantine.reset(id) }

// Close kills all workers, and waits until they are reaped and calls in flight have returned ErrUnavailable.
// It may be called more than once.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	procs := make([]*process, 0, len(p.procs))
	for w := range p.procs {
		procs = append(procs, w)
	}
	p.mu.Unlock()
	p.end()
	p.eval.queue.Close()
	p.check.queue.Close()
	for _, w := range procs {
		w.kill(discarded)
	}
	p.tasks.Wait()
	for _, l := range []*workerSet{&p.eval, &p.check} {
		for w := l.popIdle(); w != nil; w = l.popIdle() {
			w.kill(discarded)
			p.discardWorker(l, w)
		}
	}
	return nil
}

// Probe checks that a worker starts and answers. It starts its own worker and skips the queue, so that callers
// cannot make it fail. The error wraps ErrUnavailable or is ctx.Err().
func (p *Pool) Probe(ctx context.Context) error {
	if err := p.beginCall(); err != nil {
		return err
	}
	defer p.tasks.Done()
	err := p.probeOnce(ctx)
	if errors.Is(err, errProbeEnded) && ctx.Err() == nil {
		err = p.probeOnce(ctx) // the first failure may be a brief lack of memory
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// errProbeEnded reports that a probe's worker ended without an answer.
var errProbeEnded = errors.New("the worker ended without an answer")

func (p *Pool) probeOnce(ctx context.Context) error {
	own := workerSet{name: WorkerName}
	w, err := p.startWorker(ctx, &own)
	if err != nil {
		return err
	}
	defer p.discardWorker(&own, w)
	defer w.kill(discarded)
	var got Outcome
	request := Request{Op: OpRun, Sources: []Source{{Kind: Validator, Text: "() => true"}}}
	if why, err := w.requestOutcomes(ctx, &request, p.cfg.Start, func(o *Outcome) { got = *o }); why != alive {
		return fmt.Errorf("%w (%v): %w", errProbeEnded, why, err)
	}
	// A timeout for which the machine is to blame (Late) still shows that the worker answers.
	if got.Code != OK && !(got.Code == Timeout && got.Late) {
		return fmt.Errorf("a trivial script ended with %s", got.Code)
	}
	return nil
}
