package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// Advance asks for an action. When the judge approves, the instance moves; when
// it refuses, the refusal is recorded and returned as a result. The error is an
// *Error: the request was wrong, the instance moved meanwhile (CodeConflict), or
// nothing could be decided.
func (e *Engine) Advance(ctx context.Context, p Principal, req AdvanceRequest) (AdvanceResult, error) {
	if err := authorize(p, opAdvance); err != nil {
		return AdvanceResult{}, err
	}
	if err := e.checkAdvance(&req); err != nil {
		return AdvanceResult{}, err
	}
	scope, err := e.newKey(p, opAdvance, req.ID, req.Key, req.Action, canonical(req.Data), revisionText(req.ExpectedRevision))
	if err != nil {
		return AdvanceResult{}, err
	}
	return once(ctx, e, scope,
		func(ctx context.Context, ev record.Event) (AdvanceResult, error) { return e.replayAdvance(ctx, p, ev) },
		func(ctx context.Context) (AdvanceResult, error) { return e.advance(ctx, p, req, scope) })
}

func (e *Engine) advance(ctx context.Context, p Principal, req AdvanceRequest, key *record.Key) (AdvanceResult, error) {
	j, done, err := e.judgeAction(ctx, p, req, false)
	if err != nil {
		return AdvanceResult{}, err
	}
	defer done()
	kind := record.Refused
	if j.verdict.Applied {
		kind = record.Advanced
	}
	ev, next, err := e.commit(ctx, j.inst, e.decisionEvent(p, j, req.Action, kind, key), extras{lesson: lesson(j.question, j.verdict, true)})
	if err != nil {
		return AdvanceResult{}, e.conflictFor(ctx, p, err)
	}
	return AdvanceResult{
		Position: position(next, j.loaded.def, p.Role), From: ev.From, Action: ev.Action,
		Decision: decisionView(*ev.Decision),
	}, nil
}

// replayAdvance rebuilds the answer that was given when ev was committed.
func (e *Engine) replayAdvance(ctx context.Context, p Principal, ev record.Event) (AdvanceResult, error) {
	pos, err := e.positionAt(ctx, p, ev)
	if err != nil {
		return AdvanceResult{}, err
	}
	return AdvanceResult{Position: pos, From: ev.From, Action: ev.Action, Decision: decisionView(*ev.Decision), Replayed: true}, nil
}

// Validate asks what Advance would say, without moving. The answer is recorded
// as a pre-check: seq grows; revision, state and context do not.
func (e *Engine) Validate(ctx context.Context, p Principal, req AdvanceRequest) (ValidateResult, error) {
	if err := authorize(p, opValidate); err != nil {
		return ValidateResult{}, err
	}
	req.Key = ""
	if err := e.checkAdvance(&req); err != nil {
		return ValidateResult{}, err
	}
	j, done, err := e.judgeAction(ctx, p, req, true)
	if err != nil {
		return ValidateResult{}, err
	}
	defer done()
	ev, next, err := e.commit(ctx, j.inst, e.decisionEvent(p, j, req.Action, record.Prechecked, nil), extras{lesson: lesson(j.question, j.verdict, false)})
	if err != nil {
		return ValidateResult{}, e.conflictFor(ctx, p, err)
	}
	return ValidateResult{
		Position: position(next, j.loaded.def, p.Role), Action: req.Action,
		Approved: j.verdict.Outcome == judge.Approve, Decision: decisionView(*ev.Decision),
	}, nil
}

// checkAdvance looks at the request alone.
func (e *Engine) checkAdvance(req *AdvanceRequest) error {
	if req.ID == "" {
		return missing("id", "The id that start returned.")
	}
	if req.Action == "" {
		return missing("action", "One of the instance's nextActions.")
	}
	var err error
	req.Data, err = e.document("data", req.Data, e.cfg.Limits.Data)
	return err
}

// judgement is what came of asking the judge.
type judgement struct {
	inst     record.Instance
	loaded   loaded
	data     json.RawMessage
	question judge.Case
	verdict  judge.Verdict
}

// judgeAction loads the instance, builds the case and asks the judge. It is the
// same way for Advance and Validate. done must be called when the decision is
// recorded, or will not be; it is nil with an error.
func (e *Engine) judgeAction(ctx context.Context, p Principal, req AdvanceRequest, precheck bool) (j judgement, done func(), err error) {
	inst, l, err := e.instance(ctx, p, req.ID)
	if err != nil {
		return judgement{}, nil, err
	}
	if err := expect(inst, l, p, req.ExpectedRevision); err != nil {
		return judgement{}, nil, err
	}
	overlays, hash, err := e.overlays(ctx, l.stored, inst.Owner)
	if err != nil {
		return judgement{}, nil, err
	}
	at := e.now()
	c, err := l.def.Case(workflow.CaseInput{
		Operation: judge.Advance, Precheck: precheck, Version: inst.Version, Owner: l.owner(),
		Instance: inst.ID, State: inst.State, Ended: ended(inst), Action: req.Action,
		Data: req.Data, Context: inst.Context, Principal: p.ID, Role: string(p.Role),
		Facts: inst.Facts, Overlays: overlays, JudgeConfigHash: hash, ReviewPath: e.cfg.ReviewPath,
		Now: at, Seed: seed(inst.ID, inst.Revision, req.Action),
	})
	if err != nil {
		return judgement{}, nil, internal("build the case", err)
	}
	if n := len(c.Merged); n > e.cfg.Limits.Context {
		return judgement{}, nil, tooLarge("data", fmt.Sprintf("The context would grow to %d bytes; the limit is %d.", n, e.cfg.Limits.Context))
	}
	e.identify(&c)
	release, err := e.takeTurn(ctx, inst, c.Guard)
	if err != nil {
		return judgement{}, nil, e.conflictFor(ctx, p, err)
	}
	defer func() {
		if done == nil { // no decision, or a panic: nobody else will
			release()
		}
	}()
	v, err := e.cfg.Judge.Decide(ctx, c)
	if err != nil {
		return judgement{}, nil, judgeError(err)
	}
	return judgement{inst: inst, loaded: l, data: req.Data, question: c, verdict: v}, release, nil
}

// decisionEvent is pure but for ids and the clock: the event that records a
// judgement. Only an applied move carries a patch.
func (e *Engine) decisionEvent(p Principal, j judgement, action string, kind record.Kind, key *record.Key) record.Event {
	ev := e.event(p, j.inst, kind)
	ev.Time = j.question.Now
	ev.JudgeConfigHash = j.question.JudgeConfigHash
	ev.Action, ev.From, ev.To, ev.Status, ev.Key = action, j.inst.State, j.inst.State, j.inst.Status, key
	d := record.Decision{
		ID: "dec-" + e.cfg.NewID(), Verdict: j.verdict, Rubric: j.question.Rubric,
		ContextDigest: e.cfg.Digester.Digest(j.question.Context),
	}
	for _, o := range j.verdict.Opinions {
		d.Took += o.Took
	}
	d.Data = e.maskForRecord(j.loaded.def, j.data)
	switch kind {
	case record.Advanced:
		move(&ev, &d, j)
	case record.Prechecked:
		d.Applied = false // whatever the verdict allows: nothing was asked to move
	default:
	}
	ev.Decision = &d
	return ev
}

// move fills in what an applied transition changes.
func move(ev *record.Event, d *record.Decision, j judgement) {
	ev.To = j.verdict.Target
	ev.Status = statusIn(j.loaded.def, ev.To)
	ev.Patch = j.data
	if s, ok := j.loaded.def.States[ev.From]; ok {
		if t, ok := s.Transitions[ev.Action]; ok {
			ev.Freezes = t.Freezes
		}
	}
	// The patch says the same when nothing in it is sensitive: keep it once.
	if string(d.Data) == string(j.data) {
		d.Data = nil
	}
}

// extras are what some events have beside them.
type extras struct {
	restored *record.Instance // what a rollback restores
	lesson   *Lesson          // what a judgement taught
}

// commit seals ev onto inst and writes it. When only refusals, pre-checks or
// checkpoints came between, the judgement still holds: it is sealed anew onto
// the present head, without judging again.
func (e *Engine) commit(ctx context.Context, inst record.Instance, ev record.Event, with extras) (record.Event, record.Instance, error) {
	for {
		sealed, next, err := record.Seal(inst, ev, with.restored)
		if err != nil {
			return record.Event{}, record.Instance{}, sealError(err)
		}
		err = e.cfg.Store.Commit(ctx, Commit{
			Expect: inst.Seq, Events: []record.Event{sealed}, Next: next,
			Snapshot: ev.Kind == record.Checkpointed || ev.Kind == record.RolledBack,
			Lesson:   with.lesson,
		})
		if err == nil {
			e.observe(ctx, sealed)
			return sealed, next, nil
		}
		if !errors.Is(err, ErrConflict) || inst.Seq == 0 {
			return record.Event{}, record.Instance{}, storeError("record the decision", err)
		}
		current, lerr := e.cfg.Store.Load(ctx, inst.ID)
		if lerr != nil {
			return record.Event{}, record.Instance{}, storeError("load the instance", lerr)
		}
		if current.Revision != inst.Revision || current.Seq <= inst.Seq {
			return record.Event{}, record.Instance{}, &conflict{inst.ID}
		}
		inst = current
	}
}

// event is the frame that every event of an instance shares.
func (e *Engine) event(p Principal, inst record.Instance, kind record.Kind) record.Event {
	return record.Event{
		Instance: inst.ID, Kind: kind, Time: e.now(), Principal: p.ID, Role: string(p.Role),
		Workflow: inst.Workflow, Version: inst.Version, DefinitionHash: inst.DefinitionHash,
		From: inst.State, To: inst.State, Status: inst.Status,
	}
}

// maskForRecord replaces sensitive values by keyed digests: what a record keeps
// of data that may never be part of the context. A document that cannot be
// masked is not kept.
func (e *Engine) maskForRecord(d *workflow.Definition, doc json.RawMessage) json.RawMessage {
	masked, err := d.Mask(doc, func(_ string, value json.RawMessage) string { return e.cfg.Digester.Digest(value) })
	if err != nil {
		return nil
	}
	return masked
}

// statusIn is the status of an instance that is in a state.
func statusIn(d *workflow.Definition, state string) record.Status {
	if s, ok := d.States[state]; ok && s.Final {
		return record.Complete
	}
	return record.Running
}

// ended is how an instance ended, in the words of workflow.CaseInput.
func ended(inst record.Instance) string {
	switch inst.Status {
	case record.Complete:
		return "final"
	case record.Cancelled:
		return "cancelled"
	default:
		return ""
	}
}

// seed fixes what scripts see as random: the same question gets the same answer.
func seed(id string, revision int64, action string) int64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s|%d|%s", id, revision, action) // a hash takes everything
	return int64(h.Sum64() >> 1)
}
