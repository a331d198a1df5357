package chain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/google/uuid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/values"
)

// StartRequest describes a run to start.
type StartRequest struct {
	// Run is the id of the run, or "" for a new one. The same id starts a run only once. If the chain,
	// principal or input differ, the error is engine.CodeKeyReused.
	Run        string
	Definition *Definition
	Input      json.RawMessage
	// Principal starts the run and owns it.
	Principal engine.Principal
	// ActsFor is the principal whose rights the steps use, or nil for Principal.
	ActsFor *engine.Principal
	// Entry is the entered state that starts the run, or nil.
	Entry *Entry
}

// recordedRun is the immutable input of a run.
type recordedRun struct {
	Definition json.RawMessage   `json:"definition"`
	Input      json.RawMessage   `json:"input,omitempty"`
	Saved      map[string]any    `json:"saved,omitempty"`
	Principal  engine.Principal  `json:"principal"`
	ActsFor    *engine.Principal `json:"actsFor,omitempty"`
	Entry      *Entry            `json:"entry,omitempty"`
	// Repeatable lists the ids of the repeatable steps.
	Repeatable []string `json:"repeatable"`
	// Writers are the tools that write resources, by server.
	Writers map[string]Writer `json:"writers"`
	// Started is when the run was started.
	Started time.Time `json:"started"`
}

// Start starts a run and returns its id. The run begins with the variables that the last successful run of
// the same chain and principal saved.
func (r *Runs) Start(ctx context.Context, req StartRequest) (string, error) {
	input, err := req.Definition.CheckInput(req.Input)
	if err != nil {
		return "", err
	}
	_, saved, err := r.findSaved(ctx, chainOwner(req.Definition.Name, req.Principal.ID))
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(recordedRun{
		Definition: req.Definition.Document, Input: req.Input, Saved: saved, Principal: req.Principal, ActsFor: req.ActsFor, Entry: withoutContext(req.Entry),
		Repeatable: r.listRepeatable(req.Definition), Writers: r.listWriters(req.Definition), Started: time.Now().UTC().Truncate(time.Millisecond),
	})
	if err != nil {
		return "", fmt.Errorf("start a run of %q: %w", req.Definition.Name, err)
	}
	id := cmp.Or(req.Run, newRunID())
	text, err := r.seal(ctx, id, len(req.Definition.Sensitive) > 0, false, string(raw))
	if err != nil {
		return "", err
	}
	if err := r.launch(ctx, id, text, req); err != nil {
		return "", fmt.Errorf("start a run of %q: %w", req.Definition.Name, err)
	}
	if req.Run != "" { // another process may have begun a run with this id concurrently
		if err := r.checkReuse(ctx, req); err != nil {
			return "", err
		}
	}
	return id, r.beginRecord(ctx, id, req, input)
}

// listRepeatable returns the ids of the repeatable steps, never nil. A run stores them, because they decide
// what is recorded for each step.
func (r *Runs) listRepeatable(d *Definition) []string {
	m := Machine{options: MachineOptions{Repeatable: r.config.Repeatable, Writer: r.config.Writer}}
	out := []string{}
	for _, s := range d.ListSteps() {
		if m.isRepeatable(s) {
			out = append(out, s.ID)
		}
	}
	return out
}

// listWriters returns the tools by which a chain writes resources. A run stores them, as it does the
// repeatable steps.
func (r *Runs) listWriters(d *Definition) map[string]Writer {
	out := map[string]Writer{}
	for _, s := range d.ListSteps() {
		if w, ok := (MachineOptions{Writer: r.config.Writer}).writerOf(s); ok {
			out[s.Server] = w
		}
	}
	return out
}

// launch begins a run here, or enqueues it for another process.
func (r *Runs) launch(ctx context.Context, id, text string, req StartRequest) error {
	owner, attributes := chainOwner(req.Definition.Name, req.Principal.ID), map[string]any{attrChain: req.Definition.Name}
	if s := r.session.Load(); s.executor != "" && req.Definition.Concurrency == 0 {
		_, err := dbos.RunWorkflow(s.dbos, s.workflow, text, dbos.WithWorkflowID(id), dbos.WithAuthenticatedUser(owner), dbos.WithWorkflowAttributes(attributes), dbos.WithAssumedRole(actorID(req.ActsFor)))
		return err
	}
	p, err := r.findQueue(req.Definition)
	if err != nil {
		return err
	}
	turn, err := r.findPriority(ctx, p, owner)
	if err != nil {
		return err
	}
	return r.enqueue(ctx, p, runName, id, text, dbos.WithEnqueuePriority(turn), dbos.WithEnqueueAuthenticatedUser(owner), dbos.WithEnqueueAttributes(attributes), dbos.WithEnqueueAssumedRole(actorID(req.ActsFor)))
}

// actorID returns the id of the principal that a run acts for, or "" if p is nil.
func actorID(p *engine.Principal) string {
	if p == nil {
		return ""
	}
	return p.ID
}

func newRunID() string { return "run-" + uuid.Must(uuid.NewV7()).String() }

// chainOwner returns the key to which saved variables belong.
func chainOwner(chain, principal string) string { return chain + "\n" + principal }

// findSaved returns the last successful run of an owner (see chainOwner), and the variables that it saved.
// If there is none, run is "".
func (r *Runs) findSaved(ctx context.Context, owner string) (run string, saved map[string]any, err error) {
	page := 1 // it is usually the last run that ended
	for offset := 0; ; {
		list, err := r.listRows(ctx, dbos.WithFilterUser(owner), dbos.WithFilterName(runName), dbos.WithFilterStatus(dbos.WorkflowStatusSuccess), dbos.WithFilterSortDesc(), dbos.WithFilterLimit(page), dbos.WithFilterOffset(offset), dbos.WithFilterLoadOutput(true))
		if err != nil {
			return "", nil, fmt.Errorf("read the saved variables of %q: %w", chainOf(owner), err)
		}
		for _, w := range list {
			if result := r.readResult(w.Output); result != nil && result.Err == nil {
				return w.ID, result.Saved, nil
			}
		}
		if len(list) < page {
			return "", nil, nil
		}
		offset += page
		page = 20
	}
}

// maxFailures limits how often a process retries a run whose records could not be read or written.
const maxFailures = 5

// interpret is the DBOS workflow that executes runs. Returning an error to DBOS would end the run
// permanently. A transient error is therefore returned as a conflict of ids, and requeueStrays continues
// the run in a new execution.
func (r *Runs) interpret(ctx dbos.Context, s *session, raw string) (string, error) {
	run, err := dbos.GetWorkflowID(ctx)
	if err != nil {
		return "", err
	}
	out, err := r.interpretRun(ctx, s, run, raw)
	switch passes := isRecoverable(ctx, err); {
	case passes && r.countFailure(run) > maxFailures, !passes && isUnreadable(err) && ctx.Err() == nil:
		return out, r.recordLost(ctx, s, run, err)
	case !passes:
		return out, err
	}
	r.config.Logger.WarnContext(ctx, "a run cannot continue here for now; it is tried again", "run", run, "error", err)
	return "", dbos.ErrConflictingWorkflowID
}

// countFailure counts that a run could not continue in this process.
func (r *Runs) countFailure(run string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures[run]++
	return r.failures[run]
}

// errDamaged reports a run whose record cannot be read; retrying does not help.
var errDamaged = errors.New("the record of the run is damaged")

// errFailed ends a run whose result is a failure, so that the tables show it as failed. Its output holds
// the result.
var errFailed = errors.New("the run failed; its output has the reason")

// isRecoverable reports whether another execution may succeed after an error that ended this one.
func isRecoverable(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	for _, final := range []error{context.Canceled, errFailed, errSuspended, errDamaged, values.ErrDestroyed, values.ErrUnreadable} {
		if errors.Is(err, final) {
			return false
		}
	}
	for _, code := range []dbos.ErrorCode{dbos.ErrorCodeConflictingID, dbos.ErrorCodeWorkflowCancelled, dbos.ErrorCodeUnexpectedStep, dbos.ErrorCodeUnexpectedWorkflow} {
		if errors.Is(err, &dbos.Error{Code: code}) {
			return false
		}
	}
	_, refused := errors.AsType[*engine.Error](err)
	return !refused
}

// interpretRun executes a machine, with DBOS recording its outcomes.
func (r *Runs) interpretRun(ctx dbos.Context, s *session, run, raw string) (string, error) {
	raw, err := r.open(ctx, raw)
	if err != nil {
		return "", err
	}
	var begun recordedRun
	if err := decodeExact(raw, &begun); err != nil {
		return "", fmt.Errorf("%w: %w", errDamaged, err)
	}
	d, err := Parse("chain.json", begun.Definition)
	if err != nil {
		return "", fmt.Errorf("%w, or was written by another version of gavel: %w", errDamaged, err)
	}
	input, err := d.CheckInput(begun.Input)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errDamaged, err)
	}
	options := MachineOptions{Run: run, Started: begun.Started, Input: input, Saved: begun.Saved, RepeatableSteps: begun.Repeatable, Writer: func(server string) (Writer, bool) {
		w, ok := begun.Writers[server]
		return w, ok
	}}
	x := &execution{Runs: r, session: s, sensitive: len(d.Sensitive) > 0, commands: map[int]*inProgress{}, ctx: ctx, run: run, chain: d.Name, principal: begun.Principal, actsFor: begun.ActsFor, nonce: uuid.NewString(), arrivals: make(chan arrival), waits: map[string]int{}}
	end, err := r.begin(x)
	if err != nil {
		return "", err
	}
	defer end()
	if x.record, err = r.openRecord(x, d, input); err != nil {
		return "", x.cancelRejected(err)
	}
	x.record.learnSaved(d, begun.Saved)
	x.replay = r.newReplay(x.stopped, run)
	options.Progress = func(p Progress) {
		if r.config.Progress != nil {
			p.Err = x.record.maskError(p.Err)
			r.config.Progress(run, p)
		}
	}
	m := NewMachine(d, options)
	defer m.Close()
	for m.Result() == nil {
		for _, c := range m.Commands() {
			if err := x.start(c); err != nil {
				return "", err
			}
		}
		id, err := x.choose()
		if err != nil {
			return "", err
		}
		c := x.commands[id]
		delete(x.commands, id)
		if !c.known && c.Op != OpSleep { // the passing of time is not progress
			x.noteProgress()
		}
		if err := x.record.end(x.stopped, c.Command, *c.outcome, c.known); err != nil {
			return "", x.cancelRejected(err)
		}
		m.Resolve(id, *c.outcome)
	}
	return x.finish(begun, m.Result())
}

// finish records how the run ended, and returns the result of its workflow.
func (x *execution) finish(begun recordedRun, ended *Result) (string, error) {
	if err := x.record.finish(x.stopped, ended); err != nil {
		return "", x.cancelRejected(err)
	}
	if err := x.endEntry(begun, ended); err != nil {
		return "", err
	}
	result := *ended
	if x.config.Ledger == nil { // with a ledger, it is sealed instead
		result.Err = x.record.maskError(result.Err)
	}
	out, err := json.Marshal(result)
	if err != nil {
		return "", err
	}
	if err := x.confirm(x.stopped); err != nil {
		return "", err
	}
	text, err := x.seal(x.stopped, x.run, x.sensitive, ended.Err != nil, string(out))
	if err == nil && ended.Err != nil {
		err = errFailed
	}
	return text, err
}

// begin registers an execution as active; end unregisters it.
func (r *Runs) begin(x *execution) (end func(), err error) {
	x.stopped, x.stop = context.WithCancel(x.ctx)
	x.cancelled = make(chan struct{})
	under := &control{cancelled: sync.OnceFunc(func() { close(x.cancelled); x.stop() })}
	if err := r.readRow(x, under); err != nil {
		x.stop()
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.control[x.run] = under
	return func() {
		x.stop()
		r.mu.Lock()
		if r.control[x.run] == under {
			delete(r.control, x.run)
		}
		r.mu.Unlock()
		r.notify(x.run)
	}, nil
}

// readRow loads the state of a run from the tables when an execution begins.
func (r *Runs) readRow(x *execution, under *control) error {
	w, err := r.findRow(x.ctx, x.run)
	if err != nil {
		return err
	}
	if isMarked(w, attrCancelled) {
		c, done := r.within(x.ctx)
		defer done()
		return cmp.Or(dbos.CancelWorkflow(c, x.run), error(dbos.ErrWorkflowCancelled))
	}
	x.redrives, x.fromQueue, x.isBounded, under.paused = w.ForkedFrom, w.QueueName != "", w.QueuePartitionKey != "", readNote(w).Paused
	under.state = readLiveState(w)
	changed := len(under.state.Waiting) > 0 || under.state.Tried
	under.before = under.state.Waiting
	under.state.Waiting, under.state.Signals, under.state.Tried = nil, nil, false
	if isMarked(w, attrSuspended) {
		return r.mark(x.ctx, x.run, map[string]any{attrSuspended: false, attrState: under.state})
	}
	under.changed = changed
	return nil
}

// execution is one execution of a run in this process. It begins when the run is started or taken up here.
type execution struct {
	*Runs
	session   *session
	ctx       dbos.Context
	run       string
	chain     string
	principal engine.Principal
	actsFor   *engine.Principal // nil if it is the principal
	redrives  string            // the run that this one runs again
	fromQueue bool              // it may have been taken up after a crash
	isBounded bool              // it is in its chain's bounded queue
	tried     bool              // it has begun a call
	// nonce distinguishes this execution from earlier ones.
	nonce    string
	commands map[int]*inProgress
	arrivals chan arrival
	waits    map[string]int // number of waits for each signal, by name
	record   *runRecord
	replay   *replay
	// sensitive reports that the chain declares sensitive values.
	sensitive bool
	stopped   context.Context //nolint:containedctx // an execution is one call, and ends with it
	stop      context.CancelFunc
	// cancelled is closed when the run is cancelled.
	cancelled chan struct{}
}

// inProgress is a command in progress.
type inProgress struct {
	Command
	known   bool     // its outcome was already recorded when the run was taken up
	outcome *Outcome // nil until it arrives
}

// arrival is the outcome of a command, or the error that ends the execution.
type arrival struct {
	id      int
	outcome Outcome
	err     error
}

// start begins a command. It creates the DBOS steps in the order of the commands, so that they get the same
// numbers when the run is taken up.
func (x *execution) start(c Command) error {
	if err := x.waitWhilePaused(c); err != nil {
		return err
	}
	leave := func() {}
	if !c.Repeatable {
		leave = x.session.calls.Done
	}
	under := false
	defer func() {
		if !under {
			leave()
		}
	}()
	c.Run, c.Principal = x.run, x.principal
	if x.actsFor != nil {
		c.Principal, c.Chain = *x.actsFor, x.chain
	}
	if c.Op == OpComplete { // models must not see sensitive values
		c.Arguments = x.record.maskAll(c.Arguments)
	}
	doing := &inProgress{Command: c}
	x.commands[c.ID] = doing
	if err := x.record.begin(x.stopped, c); err != nil {
		return x.cancelRejected(err)
	}
	deadline, err := x.noteDeadline(c)
	if err != nil {
		return err
	}
	if c.Op == OpSleep {
		go x.sleep(c, deadline)
		return nil
	}
	begun := x.nonce
	if !c.Repeatable {
		if begun, err = noteStep(x, "begin "+c.Key, func(ctx context.Context) (string, error) { return x.nonce, x.confirm(ctx) }); err != nil {
			return err
		}
	}
	if c.Op == OpWait {
		x.waits[c.Name]++
		c.Key = fmt.Sprintf("signal/%s/%d", c.Name, x.waits[c.Name])
	}
	name, recorded := string(c.Op)+" "+c.Key, ""
	switch known, err := x.replayStep(name, &recorded); {
	case err != nil:
		return err
	case known:
		o := x.decodeOutcome(recorded)
		doing.known, doing.outcome = true, &o
		return nil
	}
	x.noteCall(c)
	outcome, err := x.goStep(name, c, func(ctx context.Context, stop <-chan struct{}) (Outcome, error) {
		if begun != x.nonce {
			return Outcome{Err: &StepError{Code: CodeUnknown, Message: x.explainDoubt(), MayHaveRun: true}}, nil
		}
		if !deadline.IsZero() {
			c.Rest = max(time.Until(deadline), time.Millisecond)
		}
		return x.performCommand(ctx, stop, c)
	})
	if err != nil {
		return err
	}
	under = true
	go func() {
		o := <-outcome
		leave()
		a := arrival{id: c.ID, err: o.Err}
		if o.Err == nil {
			a.outcome = x.decodeOutcome(o.Result)
		}
		x.arrive(a)
	}()
	return nil
}

// performCommand performs a command, if this process still owns the run.
func (x *execution) performCommand(ctx context.Context, stop <-chan struct{}, c Command) (Outcome, error) {
	if err := x.confirm(ctx); err != nil {
		return Outcome{}, err
	}
	q, ended := x.showQuestion(&c)
	defer ended()
	do := x.config.Effects.Do
	if c.Op == OpWait || c.Op == OpAsk {
		do = x.awaitAnswer
	}
	return perform(withAttempt(ctx, attempt{stop: stop, runs: x.Runs, question: q}), c, do), nil
}

// goStep runs a command in its own step, and records the outcome.
func (x *execution) goStep(name string, c Command, do func(ctx context.Context, stop <-chan struct{}) (Outcome, error)) (<-chan dbos.StepOutcome[string], error) {
	if c.Op != OpWait && c.Op != OpAsk && c.Op != OpMove {
		return dbos.Go(x.ctx, func(ctx context.Context) (string, error) {
			o, err := do(ctx, x.cancelled)
			if err != nil {
				return "", err
			}
			return x.encodeOutcome(ctx, o)
		}, dbos.WithStepName(name))
	}
	var o Outcome
	x.mu.Lock()
	began := x.control[x.run].sinceOf(newQuestion(&c))
	x.mu.Unlock()
	wait := func() (err error) {
		o, err = do(x.ctx, x.stopped.Done())
		o.Began = began.Truncate(time.Millisecond)
		return cmp.Or(err, x.stopped.Err())
	}
	return dbos.Go(waiting{x.ctx, wait}, func(ctx context.Context) (string, error) { return x.encodeOutcome(ctx, o) }, dbos.WithStepName(name))
}

// noteDeadline returns the deadline of a command, or zero. It is recorded, so it stays the same when the
// run is taken up.
func (x *execution) noteDeadline(c Command) (time.Time, error) {
	if c.Op != OpSleep && (c.Timeout == 0 || c.Op != OpWait && c.Op != OpMove) {
		return time.Time{}, nil
	}
	at, err := noteStep(x, "until "+c.Key, func(ctx context.Context) (int64, error) {
		return time.Now().Add(c.Timeout).UnixMilli(), x.confirm(ctx)
	})
	return time.UnixMilli(at), err
}

// explainDoubt explains why the outcome of a call that another execution began is unknown.
func (x *execution) explainDoubt() string {
	if x.redrives != "" {
		return "the run " + x.redrives + " got no answer to the call, or gavel was stopped during it, so it is unknown whether the call was done"
	}
	return "gavel was stopped during the call, so it is unknown whether the call was done"
}

func (x *execution) sleep(c Command, until time.Time) {
	c.Timeout = max(time.Until(until), 0)
	_, woken := x.showQuestion(&c)
	defer woken()
	timer := time.NewTimer(c.Timeout)
	defer timer.Stop()
	select {
	case <-timer.C:
		x.arrive(arrival{id: c.ID})
	case <-x.stopped.Done():
	}
}

func (x *execution) arrive(a arrival) {
	select {
	case x.arrivals <- a:
	case <-x.stopped.Done():
	}
}

// decodeOutcome decodes the recorded outcome of a command.
func (x *execution) decodeOutcome(recorded string) (o Outcome) {
	plain, err := x.open(x.ctx, recorded)
	if err == nil {
		err = decodeExact(plain, &o)
	}
	if err != nil {
		return Outcome{Err: &StepError{Code: CodeOutput, Message: "the record of the step is damaged", Final: true}}
	}
	return o
}

// encodeOutcome encodes an outcome for the record, after confirming that this execution may write it.
func (x *execution) encodeOutcome(ctx context.Context, o Outcome) (string, error) {
	raw, err := json.Marshal(o)
	if err == nil {
		err = x.confirm(ctx)
	}
	if err != nil {
		return "", err
	}
	for {
		text, err := x.seal(ctx, x.run, x.sensitive, false, string(raw))
		if !isRecoverable(ctx, err) {
			return text, err
		}
		// Returning an error would record it instead of the outcome.
		x.config.Logger.WarnContext(ctx, "cannot seal an outcome; trying again", "run", x.run, "error", err)
		if _, err := pause(ctx, nil, maxPoll); err != nil {
			return "", err
		}
	}
}

// choose waits for the outcome of the command that is resolved next, and returns its id. It records the
// choice if several are in progress.
func (x *execution) choose() (int, error) {
	if len(x.commands) == 1 {
		return x.await(0)
	}
	const name = "choose"
	var id int
	switch known, err := x.replayStep(name, &id); {
	case err != nil:
		return 0, err
	case known:
		return x.await(id)
	}
	id, err := x.await(0) // outside the step, which would record an error instead of the choice
	if err != nil {
		return 0, err
	}
	return dbos.RunAsStep(x.ctx, func(step context.Context) (int, error) { return id, x.confirm(step) }, dbos.WithStepName(name))
}

// await waits until the command id has an outcome, and returns its id. If id is 0, it waits for any
// command.
func (x *execution) await(id int) (int, error) {
	for {
		for other, c := range x.commands {
			if c.outcome != nil && (id == 0 || id == other) {
				return other, nil
			}
		}
		if err := x.writeKnown(); err != nil { // the outcome may take days
			return 0, err
		}
		select {
		case a := <-x.arrivals:
			if a.err != nil {
				return 0, a.err
			}
			x.commands[a.id].outcome = &a.outcome
		case <-x.stopped.Done():
			return 0, x.stopped.Err()
		case <-time.After(x.suspendAfter()):
			if err := x.suspend(); err != nil {
				return 0, err
			}
		}
	}
}

// waitWhilePaused blocks before a step while the run is paused or the process is shutting down.
func (x *execution) waitWhilePaused(c Command) error {
	notified, forget := x.subscribe(x.run)
	defer forget()
	for {
		if err := x.confirm(x.stopped); err != nil {
			return err
		}
		x.mu.Lock()
		under := x.control[x.run]
		paused := under != nil && under.paused
		x.mu.Unlock()
		if !paused && !x.session.isDraining() && (c.Repeatable || x.session.enter()) {
			return nil
		}
		if err := x.writeKnown(); err != nil {
			return err
		}
		if _, err := pause(x.stopped, notified, maxPoll); err != nil {
			return err
		}
	}
}
