package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Recorder records work that happens outside the engine. It records each run as an instance of a workflow that
// it defines. Only the recorder moves such an instance.
type Recorder struct {
	*Engine
	by Principal
}

// recorders maps the id of each recorder's principal to the prefix of its workflows' names.
var recorders = map[string]string{}

// AddRecorder reserves the id of a recorder's principal, and the names of workflows that begin with a prefix. Call
// it from an init function.
func AddRecorder(id, prefix string) { recorders[id] = prefix }

// Recorder returns the recorder with an id that AddRecorder reserved.
func (e *Engine) Recorder(id string) *Recorder { return &Recorder{e, newRecorder(id)} }

// newRecorder returns a recorder's principal. No credential has its role.
func newRecorder(id string) Principal { return Principal{ID: id, Role: workflow.RoleInterpreter} }

func isRecorder(id string) bool { return recorders[id] != "" }

// isRecorderMade reports whether a recorder made the definition.
func (d definition) isRecorderMade() bool { return d.stored.Operator && isRecorder(d.stored.Owner) }

// rejectRecorderMade rejects operations on a recorder's workflow that only the recorder may perform.
func rejectRecorderMade(l definition, verb string) error {
	if !l.isRecorderMade() {
		return nil
	}
	return newError(CodeForbidden, "", "The workflow %q is the record of runs: only a run of it may %s.", l.stored.Name, verb).
		withHint("Start, cancel or redrive the run itself.")
}

// RunRequest begins the record of a run.
type RunRequest struct {
	Run string // the run's id
	// Definition is the workflow that records the run, as JSON.
	Definition []byte
	Workflow   string // name of that workflow
	Context    json.RawMessage
}

// RunInstance returns the id of the instance that records a run.
func RunInstance(run string) string { return "wf-" + run }

// BeginRun starts the instance that records a run. It is idempotent. The run acts for p, which owns the
// instance.
func (r *Recorder) BeginRun(ctx context.Context, p Principal, req RunRequest) error {
	if err := Authorize(p, RightStart); err != nil {
		return err
	}
	known, err := r.findRun(ctx, p, req)
	if known || err != nil {
		return err
	}
	read, err := readDocument("input", req.Context, r.cfg.Limits.Data)
	if err != nil {
		return err
	}
	by := Principal{ID: r.by.ID, Role: RoleOperator}
	defined, err := r.define(ctx, by, DefineRequest{Source: req.Workflow, Name: req.Workflow, Document: req.Definition})
	if err != nil {
		return err
	}
	inst := instance{by: p}
	if inst.definition, err = r.loadDefinition(ctx, defined.Name, defined.Version); err != nil {
		return err
	}
	inst.Instance = newRecord(RunInstance(req.Run), p, inst.stored)
	c, err := r.startCase(inst, read)
	if err != nil {
		return err
	}
	v, err := r.decideByRules(ctx, &c, p)
	if err != nil {
		return err
	}
	_, err = r.commitStart(ctx, judgement{instance: inst, question: c, verdict: v}, "")
	if errors.Is(err, store.ErrConflict) { // another process was faster
		_, err = r.findRun(ctx, p, req)
	}
	return err
}

// findRun reports whether a run is already recorded.
func (past history) findRun(ctx context.Context, p Principal, req RunRequest) (bool, error) {
	inst, err := past.load(ctx, RunInstance(req.Run))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, StoreError("load the run", err)
	case inst.Workflow != req.Workflow || inst.Owner != p.ID:
		return false, newError(CodeKeyReused, "/run", "The id %q belongs to another run.", req.Run).withHint("Use a new id for a new run.")
	}
	return true, nil
}

// decideByRules asks only the layers that need no model, because the run's actions have already happened.
func (e *Engine) decideByRules(ctx context.Context, c *judge.Case, p Principal) (judge.Verdict, error) {
	skipModel(c, p)
	v, err := e.cfg.Judge.Decide(ctx, *c)
	switch {
	case err != nil:
		return v, judgeError(err)
	case !v.Applied:
		return v, newError(CodeConflict, "", "The run cannot be recorded: %s", v.Reasoning)
	}
	return v, nil
}

// StepRecord is the outcome of a step.
type StepRecord struct {
	Run string
	// Key identifies the step in the run, so that it is recorded once; with "" it is recorded each time.
	Key    string
	Action string
	Data   json.RawMessage
	// If the step ends the run, Why is the reason recorded when the reviews of the run's questions are closed.
	// If it is "", the reason is the run's outcome.
	Why string
}

// RecordStep records the outcome of a step. The error has CodeInstanceEnded if the record has ended; then
// the run has to end as well.
func (r *Recorder) RecordStep(ctx context.Context, req StepRecord) error {
	var data document.JSON
	m := mutation{
		id: RunInstance(req.Run), scope: RightAdvance, key: req.Key, verb: "moved", requiresRunning: true,
		content: func() []string { return []string{req.Action} },
		check:   func() (err error) { data, err = readDocument("data", req.Data, r.cfg.Limits.Data); return err },
		load:    func(ctx context.Context, inst *instance) error { return r.loadRun(ctx, inst, req.Run) },
	}
	replay := func(context.Context, instance, record.Event) (struct{}, error) { return struct{}{}, nil }
	for {
		_, err := mutate(ctx, r.Engine, r.by, m, func(ctx context.Context, inst *instance) (struct{}, error) {
			return struct{}{}, r.recordStep(ctx, inst, req, data)
		}, replay)
		if !errors.Is(err, store.ErrConflict) || ctx.Err() != nil {
			return err
		}
	}
}

func (r *Recorder) recordStep(ctx context.Context, inst *instance, req StepRecord, data document.JSON) error {
	if err := r.settleOverdueOf(ctx, inst); err != nil { // the review of an open question must be opened first
		return err
	}
	ev, err := r.judgeStep(ctx, *inst, req.Action, data)
	if err != nil {
		return err
	}
	do := change{event: ev, exempt: true}
	if ev.Status != record.Running {
		why := cmp.Or(req.Why, fmt.Sprintf("The run ended: %s.", inst.def.States[ev.To].Outcome))
		if err := r.closeQuestions(ctx, *inst, &do, inst.maskWords(data.Raw()).scrubText(why)); err != nil {
			return err
		}
	}
	_, err = r.commit(ctx, *inst, do)
	return err
}

// closeQuestions closes the reviews that a run waited for when the run ends: their answers are no longer
// needed.
func (r *Recorder) closeQuestions(ctx context.Context, inst instance, do *change, why string) error {
	for _, asked := range inst.Facts.Calls {
		row, err := r.findReview(ctx, asked.Review)
		switch {
		case errors.Is(err, store.ErrNotFound): // a repair may have lost it
			row = store.Review{ID: asked.Review, Instance: inst.ID, Workflow: inst.Workflow}
		case err != nil:
			return StoreError("read the review", err)
		}
		end := record.Review{ID: asked.Review, Status: record.ReviewStale, Reason: why}
		ev := r.newEvent(r.by, record.Settled)
		ev.Action, ev.Review, ev.Call = row.Action, &end, &record.Call{ID: asked.ID, Gate: asked.Gate, Outcome: CallError}
		do.followUps, do.otherReviews = append(do.followUps, ev), append(do.otherReviews, closeRow(row, end, ev))
	}
	return nil
}

// ListOpenRuns returns the ids of the runs whose records have not ended, newest first.
func (r *Recorder) ListOpenRuns(ctx context.Context) ([]string, error) {
	var runs []string
	for inst, err := range r.cfg.Store.Instances(ctx, store.InstanceQuery{Status: record.Running}) {
		if err != nil {
			return nil, StoreError("list the runs", err)
		}
		if !strings.HasPrefix(inst.Workflow, recorders[r.by.ID]) {
			continue
		}
		switch l, err := r.loadPinned(ctx, inst); {
		case err != nil:
			return nil, err
		case l.isRecorderMade():
			runs = append(runs, strings.TrimPrefix(inst.ID, RunInstance("")))
		}
	}
	return runs, nil
}

func (r *Recorder) loadRun(ctx context.Context, inst *instance, run string) (err error) {
	if inst.Instance, err = r.load(ctx, RunInstance(run)); errors.Is(err, store.ErrNotFound) {
		return UnknownInstance(RunInstance(run))
	} else if err != nil {
		return StoreError("load the run", err)
	}
	inst.definition, err = r.loadPinned(ctx, inst.Instance)
	switch {
	case err != nil:
		return err
	case !inst.isRecorderMade(): // the caller chooses the id of a run, so it may name another instance
		return newError(CodeKeyReused, "/run", "The instance %q is not the record of a run.", inst.ID).withHint("Use a new id for a new run.")
	case inst.IsDestroyed():
		return valuesDestroyed()
	}
	return nil
}

// judgeStep judges an action of a recorder by the deterministic layers, and returns its event.
func (e *Engine) judgeStep(ctx context.Context, inst instance, action string, data document.JSON) (record.Event, error) {
	inst.by, inst.overlays, inst.overlaysHash = newRecorder(inst.stored.Owner), nil, ""
	c, err := e.newCase(inst, workflow.CaseInput{Action: action, Read: data})
	if err != nil {
		return record.Event{}, err
	}
	v, err := e.decideByRules(ctx, &c, inst.by)
	if err != nil {
		return record.Event{}, err
	}
	return e.decisionEvent(judgement{instance: inst, question: c, verdict: v}, record.Advanced), nil
}

// DigestStep returns the keyed digest of an output that is too long to be recorded.
func (r *Recorder) DigestStep(owner, workflow string, output []byte) string {
	return r.cfg.Digester.DigestIn(scopeOf(purposeCall, owner, workflow), output)
}

// StepQuestion asks a person for the outcome of a step's call, or for the input that its server requires.
type StepQuestion struct {
	Run, Key, Step string
	// Principal is the one that the run acts for; it may not answer.
	Principal Principal
	// Server and Tool were called with Arguments, of which only a keyed digest is recorded.
	Server, Tool string
	Arguments    []byte
	Input        bool
}

// StepAnswer is a person's answer to a StepQuestion.
type StepAnswer struct {
	// Decision is judge.Approve if the call happened or the input was given, judge.Reject if the call did
	// not happen or the input was declined, or GiveUp.
	Decision judge.Outcome
	Output   json.RawMessage // output of the call, or the input; nil for none
}

// GiveUp resolves the review of a step whose call may have happened: the step fails.
const GiveUp = record.GiveUp

// AskStep opens a review of the outcome of a step's call and returns its id. It is idempotent. Once a
// person has answered, it returns the answer instead.
func (r *Recorder) AskStep(ctx context.Context, q StepQuestion) (review string, a *StepAnswer, err error) {
	prefix := store.StepCall
	if q.Input {
		prefix = store.InputCall
	}
	id := prefix + digestParts(q.Run, q.Key)[:32]
	if a, err := r.findStepAnswer(ctx, q.Run, id); a != nil || err != nil {
		return "", a, err
	}
	for ctx.Err() == nil {
		inst := instance{by: r.by}
		if err := r.loadRun(ctx, &inst, q.Run); err != nil {
			return "", nil, err
		}
		if inst.Status != record.Running {
			return "", nil, inst.hasEnded("moved")
		}
		if err := r.settleOverdueOf(ctx, &inst); err != nil { // this opens the review
			return "", nil, err
		}
		for _, c := range inst.Facts.Calls {
			if c.ID == id {
				return c.Review, nil, nil
			}
		}
		ev := r.newEvent(q.Principal, record.Called)
		ev.Action = q.Step
		ev.Call = &record.Call{
			ID: id, Gate: fmt.Sprintf("%s/%s (%s)", q.Server, q.Tool, q.Key), Upstream: q.Server, Tool: q.Tool,
			Arguments: r.DigestStep(inst.Owner, inst.Workflow, q.Arguments), Deadline: ev.Time,
		}
		if _, err := r.commit(ctx, inst, change{event: ev, exempt: true}); err != nil && !errors.Is(err, store.ErrConflict) {
			return "", nil, err
		}
	}
	return "", nil, StoreError("open the review of a step", ctx.Err())
}

// findStepAnswer returns a person's answer about a call, nil if there is none.
func (r *Recorder) findStepAnswer(ctx context.Context, run, call string) (*StepAnswer, error) {
	ev, err := r.cfg.Store.ByKey(ctx, scopeKey(r.by, RightResolve, RunInstance(run), call))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil //nolint:nilnil // there is no answer yet
	}
	if err == nil {
		ev, _, err = r.values.OpenEvent(ctx, ev)
	}
	if err != nil {
		return nil, StoreError("read the answer", err)
	}
	var said struct {
		Steps map[string]struct {
			Answer judge.Outcome   `json:"answer"`
			Output json.RawMessage `json:"output"`
		} `json:"steps"`
	}
	if err := json.Unmarshal(ev.Patch, &said); err != nil {
		return nil, InternalError("read the answer", err)
	}
	for _, step := range said.Steps {
		return &StepAnswer{Decision: step.Answer, Output: step.Output}, nil
	}
	return nil, InternalError("read the answer", errors.New("it names no step"))
}

// actionAnswer is the action that records a person's answer about a step.
const actionAnswer = "answer"

// resolveStep records a person's finding about a step's call; the run continues with it.
func (e *Engine) resolveStep(ctx context.Context, r reviewCase, open workflow.OpenCall, called record.Event) (ResolveResult, error) {
	said, message := map[string]any{"answer": r.req.Decision}, fmt.Sprintf("Recorded that the call of %s happened; the run goes on with its output.", open.Gate)
	outcome := CallOK
	if r.row.IsInput() {
		message = fmt.Sprintf("Recorded the input for %s; the run goes on with it.", open.Gate)
	}
	switch r.req.Decision {
	case judge.Reject:
		outcome, message = CallNotSent, fmt.Sprintf("Recorded that the call of %s did not happen; the run makes it again.", open.Gate)
		if r.row.IsInput() {
			message = fmt.Sprintf("Recorded that the input for %s is declined; its server gets that answer.", open.Gate)
		}
	case GiveUp:
		outcome, message = CallError, fmt.Sprintf("Given up: the step that called %s fails.", open.Gate)
	default:
		if len(r.req.Output) > 0 {
			said["output"] = r.req.Output
		}
	}
	raw, err := document.Marshal(map[string]any{"steps": map[string]any{called.Action: said}})
	if err != nil {
		return ResolveResult{}, &Error{Code: CodeInvalidData, Path: "/output", Message: "The output is not JSON.", Hint: "Send JSON; quote text.", Err: err}
	}
	data, err := readDocument("output", raw, e.cfg.Limits.Data)
	if err != nil {
		return ResolveResult{}, err
	}
	end := newReviewEnd(r)
	end.Reason = r.maskWords(data.Raw()).scrubText(r.req.Reason)
	if r.Status != record.Running {
		message = fmt.Sprintf("Recorded for %s; the run is %s and does not go on.", open.Gate, r.State)
	}
	ev := e.newEvent(r.by, record.Settled)
	ev.Action, ev.Review = called.Action, &end
	ev.Call = &record.Call{ID: open.ID, Gate: open.Gate, Outcome: outcome}
	do := change{event: ev, exempt: true, end: end, otherReviews: []store.Review{closeRow(r.row, end, ev)}}
	if r.Status == record.Running {
		move, err := e.judgeStep(ctx, r.instance, actionAnswer, data)
		if err != nil {
			return ResolveResult{}, err
		}
		move.Key = &record.Key{Scope: scopeKey(newRecorder(r.stored.Owner), RightResolve, r.ID, open.ID), Request: e.cfg.Digester.Digest([]byte(open.ID))}
		do.followUps = []record.Event{move}
	}
	out, err := e.commitReview(ctx, r, do, message)
	out.Applied = err == nil && len(do.followUps) > 0
	return out, err
}

// nextStepOfRun returns the Next text of the review of a step.
func nextStepOfRun(s ReviewSummary) string {
	switch isInput := s.Kind == reviewOfInput; {
	case s.Status == record.ReviewStale && isInput:
		return "The run has ended, so the input is no longer needed."
	case s.Status == record.ReviewStale:
		return "The run has ended, so no answer is needed. Whether the step happened is not known."
	case s.Status == record.ReviewOpen && isInput:
		return "The server that a step calls asks for input, and the run waits: approve with it as the output, reject to decline, or give up. The request is in the context, under waiting."
	case isInput && s.Decision == judge.Approve:
		return "A person gave the input."
	case isInput && s.Decision == judge.Reject:
		return "A person declined to give the input."
	case s.Status == record.ReviewOpen:
		return "It is not known whether this step of the run happened, and the run waits for your answer: approve if it did, with its output; reject if it did not; or give up."
	case s.Decision == judge.Approve:
		return "A person found that the step happened."
	case s.Decision == GiveUp:
		return "A person gave up the step, so it failed."
	default:
		return "A person found that the step did not happen, and the run made it again."
	}
}
