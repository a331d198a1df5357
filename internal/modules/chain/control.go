package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/google/uuid"

	"github.com/gavel-mcp/gavel/engine"
)

// RunStatus is the status of a run.
type RunStatus string

// The statuses of a run.
const (
	StatusQueued    RunStatus = "queued" // waits for its chain's concurrency limit, or for a process to execute it
	StatusRunning   RunStatus = "running"
	StatusPaused    RunStatus = "paused"
	StatusDone      RunStatus = "done"
	StatusFailed    RunStatus = "failed"
	StatusCancelled RunStatus = "cancelled"
)

// RunNote records what someone last did to a run.
type RunNote struct {
	Paused bool      `json:"paused,omitempty"`
	By     string    `json:"by"`
	Why    string    `json:"why,omitempty"`
	At     time.Time `json:"at"`
}

// String says who did it, and why; "" if nobody did anything.
func (n RunNote) String() string {
	switch {
	case n.By == "":
		return ""
	case n.Why == "":
		return "by " + n.By
	default:
		return fmt.Sprintf("by %s: %s", n.By, n.Why)
	}
}

// RunState is the current state of a run.
type RunState struct {
	RunView // without values that must be masked for some callers
	// Result is set once the run is done or failed.
	Result *Result
	queue  queuePlace
	swept  bool // its rows were deleted, so RunView comes from the store's record
}

// ErrUnknownRun reports that the run does not exist.
var ErrUnknownRun = errors.New("no such run; list them")

// Get returns a run.
func (r *Runs) Get(ctx context.Context, run string) (RunState, error) {
	w, err := r.findRow(ctx, run, dbos.WithFilterName(runName), dbos.WithFilterLoadOutput(true))
	if err != nil {
		return RunState{}, err
	}
	return r.describeRun(w), nil
}

func (r *Runs) describeRun(w dbos.WorkflowStatus) RunState {
	chain, principal, _ := strings.Cut(w.AuthenticatedUser, "\n")
	s := RunState{queue: queuePlace{queueName, ""}, RunView: RunView{
		Run: w.ID, Chain: chain, Principal: principal, ActsFor: w.AssumedRole, Instance: r.instance(w.ID), Started: w.CreatedAt, Ended: w.CompletedAt, Status: StatusRunning, Note: readNote(w),
	}}
	if w.QueuePartitionKey != "" {
		s.queue = queuePlace{w.QueueName, w.QueuePartitionKey}
	}
	switch w.Status {
	case dbos.WorkflowStatusSuccess:
		s.Status, s.Result = StatusDone, r.readResult(w.Output)
	case dbos.WorkflowStatusError:
		if isMarked(w, attrSuspended) {
			s.Ended = time.Time{}
			s.Status = s.Note.openStatus()
			if isMarked(w, attrCancelled) {
				s.Status, s.Ended = StatusCancelled, s.Note.At
			}
			break
		}
		s.Status, s.Result = StatusFailed, r.readResult(w.Output)
		if s.Result != nil && s.Result.Err != nil {
			break
		}
		message := "the run could not be interpreted"
		if w.Error != nil {
			message = w.Error.Error()
		}
		s.Result = &Result{Err: &StepError{Code: CodeRun, Message: message}}
	case dbos.WorkflowStatusCancelled:
		s.Status = StatusCancelled
	default:
		s.Status = s.Note.openStatus()
		if w.Status == dbos.WorkflowStatusEnqueued && s.Status == StatusRunning && !isMarked(w, attrSuspended) {
			s.Status = StatusQueued
		}
	}
	return s
}

// openStatus returns the status of a run that has begun and has not ended.
func (n RunNote) openStatus() RunStatus {
	if n.Paused {
		return StatusPaused
	}
	return StatusRunning
}

func readNote(w dbos.WorkflowStatus) (n RunNote) {
	decodeAttribute(w, attrNote, &n)
	return n
}

// findOpen returns a run that has not ended; otherwise it fails.
func (r *Runs) findOpen(ctx context.Context, run string) (RunState, error) {
	s, err := r.Get(ctx, run)
	if err == nil && s.Status.HasEnded() {
		err = fmt.Errorf("the run %s has ended: it is %s", run, s.Status)
	}
	return s, err
}

// setNote stores who did what to a run. Callers must record the action first: a note alone could lift a
// pause without a record of who lifted it.
func (r *Runs) setNote(ctx context.Context, run string, n RunNote) error {
	n.At = time.Now().UTC()
	return r.mark(ctx, run, map[string]any{attrNote: n})
}

// cancelRow ends a run in the tables. A suspended run looks ended to DBOS, so it is woken first. The
// attribute, which is set before that, keeps an execution from starting.
func (r *Runs) cancelRow(ctx context.Context, run string, n RunNote) error {
	n.At = time.Now().UTC()
	if err := r.mark(ctx, run, map[string]any{attrNote: n, attrCancelled: true}); err != nil {
		return err
	}
	c, done := r.within(ctx)
	defer done()
	rows, err := listRows(c, dbos.WithFilterWorkflowIDs(run))
	if err == nil && len(rows) == 1 && isSuspended(rows[0]) {
		err = r.wake(ctx, run)
	}
	if err == nil {
		err = dbos.CancelWorkflow(c, run)
	}
	if err != nil {
		return fmt.Errorf("cancel the run %s: %w", run, err)
	}
	return nil
}

// Pause stops a run before its next step; commands in progress end first.
func (r *Runs) Pause(ctx context.Context, run, by, why string) error {
	return r.setPaused(ctx, run, RunNote{Paused: true, By: by, Why: why})
}

// Resume continues a paused run.
func (r *Runs) Resume(ctx context.Context, run, by, why string) error {
	return r.setPaused(ctx, run, RunNote{By: by, Why: why})
}

func (r *Runs) setPaused(ctx context.Context, run string, n RunNote) error {
	if _, err := r.findOpen(ctx, run); err != nil {
		return err
	}
	did := map[string]any{"did": "resume"}
	if n.Paused {
		did["did"] = "pause"
	}
	if err := r.recordNote(ctx, run, "", actionNote, n, did); err != nil {
		return err
	}
	if err := r.setNote(ctx, run, n); err != nil {
		return err
	}
	return r.refresh(ctx, run)
}

// Cancel ends a run. A call in progress may still complete.
func (r *Runs) Cancel(ctx context.Context, run, by, why string) error {
	s, err := r.findOpen(ctx, run)
	if err != nil {
		return err
	}
	n := RunNote{Paused: s.Note.Paused, By: by, Why: why}
	if err := r.recordNote(ctx, run, "end", actionCancel, n, map[string]any{"did": "cancel"}); err != nil {
		return err
	}
	if err := r.cancelEntry(ctx, run); err != nil {
		return err
	}
	if err := r.cancelRow(ctx, run, n); err != nil {
		return err
	}
	return r.refresh(ctx, run)
}

// Signal sends a value to a run. It is kept until a step waits for a signal of that name.
func (r *Runs) Signal(ctx context.Context, run, name, by string, value any) error {
	if err := r.checkSignal(ctx, run, name); err != nil {
		return err
	}
	if err := r.recordNote(ctx, run, "", actionNote, RunNote{By: by}, map[string]any{"did": "signal", "name": name}); err != nil {
		return err
	}
	c, done := r.within(ctx)
	defer done()
	prefix := fmt.Sprintf("%s/signal/%s/", run, name)
	sent, err := listRows(c, dbos.WithFilterWorkflowIDPrefix(prefix), dbos.WithFilterName(signalName))
	if err != nil {
		return fmt.Errorf("signal the run %s: %w", run, err)
	}
	ended, err := dbos.GetWorkflowSteps(c, run, dbos.WithStepsLoadOutput(false))
	if err != nil {
		return fmt.Errorf("signal the run %s: %w", run, err)
	}
	taken := map[string]bool{}
	for _, w := range sent { // may include signals of other runs: in the prefix, _ and % are wildcards
		taken[w.ID] = true
	}
	for _, step := range ended { // in a redriven run, signals of the earlier run may have ended waits
		if key, ok := strings.CutPrefix(step.StepName, string(OpWait)+" "); ok {
			taken[run+"/"+key] = true
		}
	}
	for n := 1; ; n++ {
		id := fmt.Sprintf("%s%d", prefix, n)
		if taken[id] {
			continue
		}
		if ours, err := r.record(ctx, run, id, value); err != nil || ours {
			return err
		}
	}
}

// checkSignal rejects a signal for which no step of the run's definition waits. If this process cannot read
// the definition, any signal is accepted.
func (r *Runs) checkSignal(ctx context.Context, run, name string) error {
	d, err := r.ReadDefinition(ctx, run)
	switch {
	case lacksDefinition(err):
		return nil
	case err != nil:
		return err
	}
	signals := map[string]bool{}
	d.visitSteps(func(s *Step) {
		if s.Signal != "" {
			signals[s.Signal] = true
		}
	})
	if signals[name] {
		return nil
	}
	hint := "The chain waits for no signal."
	if len(signals) > 0 {
		hint = "The chain waits for " + listKeys(signals) + "."
	}
	return &engine.Error{Code: engine.CodeInvalidArgument, Path: "/name", Message: fmt.Sprintf("No step of the run %s waits for the signal %s.", run, quoteName(name)), Hint: hint}
}

// The possible answers when a call may or may not have run.
const (
	AnswerHappened = "happened" // it was done, and returned the given output
	AnswerAgain    = "again"    // it was not done, and may be repeated
	AnswerGiveUp   = "give-up"
)

// Answer states what happened to a call that may have run. key is the key of the question.
func (r *Runs) Answer(ctx context.Context, run, key, answer string, output any) error {
	_, err := r.record(ctx, run, run+"/"+key, map[string]any{"answer": answer, "output": output})
	return err
}

// keepSignal is a workflow that ends immediately: its record holds the value until a step reads it.
func keepSignal(_ dbos.Context, value string) (string, error) { return value, nil }

// record stores a value for a run. The first value with an id is kept; ours reports whether it is this one.
func (r *Runs) record(ctx context.Context, run, id string, value any) (ours bool, err error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return false, fmt.Errorf("signal: %w", err)
	}
	sensitive, err := r.isSealed(ctx, run)
	if err != nil {
		return false, err
	}
	text, err := r.seal(ctx, run, sensitive, false, string(raw))
	if err != nil {
		return false, err
	}
	nonce := uuid.NewString()
	if err := r.enqueue(ctx, queuePlace{queue: queueName}, signalName, id, text, dbos.WithEnqueueAttributes(map[string]any{"nonce": nonce})); err != nil {
		return false, fmt.Errorf("signal: %w", err)
	}
	r.notify(run)
	rows, err := r.listRows(ctx, dbos.WithFilterWorkflowIDs(id, run))
	if err != nil {
		return false, fmt.Errorf("signal: %w", err)
	}
	for _, w := range rows {
		switch {
		case w.ID == id:
			ours = w.Attributes["nonce"] == nonce
		case isSuspended(w):
			if err := r.wake(ctx, run); err != nil { // an executor polls for it later
				r.config.Logger.WarnContext(ctx, "cannot wake a run for a signal yet", "run", run, "error", err)
			}
		}
	}
	return ours, nil
}

// answerPoll is how often the answer to a question about a call is polled.
const answerPoll = 500 * time.Millisecond

// awaitAnswer blocks until the signal or answer arrives that a command waits for.
func (r *Runs) awaitAnswer(ctx context.Context, c Command) (o Outcome) {
	defer func() { o.Key = c.Execution }()
	notified, forget := r.subscribe(c.Run)
	defer forget()
	for {
		if o, known := r.readSignal(ctx, c.Run+"/"+c.Key); known {
			return o
		}
		every := 10 * maxPoll // it is notified when the value arrives, so this is only a fallback
		if c.Op == OpAsk {
			every = answerPoll
			if o, known := r.findAnswer(ctx, c); known {
				return o
			}
		}
		attemptOf(ctx).noteCheck()
		if _, err := pause(ctx, notified, every); err != nil || attemptOf(ctx).isStopped() {
			return Outcome{Err: &StepError{Code: CodeTimeout, Message: "no answer was given"}}
		}
	}
}

// readSignal returns a signal or an answer, if there is one.
func (r *Runs) readSignal(ctx context.Context, id string) (Outcome, bool) {
	w, err := r.findRow(ctx, id, dbos.WithFilterLoadInput(true))
	if err != nil {
		return Outcome{}, false
	}
	text, err := r.open(ctx, unquote(w.Input))
	if err != nil {
		return Outcome{Err: &StepError{Code: CodeSealed, Message: err.Error(), Final: true}}, true
	}
	return Outcome{Value: decodeJSON(json.RawMessage(text))}, true
}

// findAnswer asks Config.Asked and the store what happened to a call.
func (r *Runs) findAnswer(ctx context.Context, c Command) (Outcome, bool) {
	if r.config.Asked != nil {
		if answer, known := r.config.Asked(c); known {
			return Outcome{Value: map[string]any{"answer": answer}}, true
		}
	}
	if r.config.Ledger == nil {
		return Outcome{}, false
	}
	return r.findReviewAnswer(ctx, c)
}
