package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Advance asks for an action. When the judge approves, the instance moves; when
// it refuses, the refusal is recorded and returned as a result. The error is an
// *Error: the request was wrong, the instance moved meanwhile (CodeConflict), or
// nothing could be decided. Without ExpectedRevision, a request that another one
// overtook is judged again on the new state, as long as the action is legal there.
func (e *Engine) Advance(ctx context.Context, p Principal, req AdvanceRequest) (AdvanceResult, error) {
	if err := Authorize(p, RightAdvance); err != nil {
		return AdvanceResult{}, err
	}
	data, err := e.checkAdvance(req)
	if err != nil {
		return AdvanceResult{}, err
	}
	r := keyedRequest{RightAdvance, req.ID, req.Key, func() []string {
		return []string{req.Action, string(data.Canonical()), revisionText(req.ExpectedRevision)}
	}}
	return runOnce(ctx, e, p, r, e.replayAdvance, func(ctx context.Context, key *record.Key) (AdvanceResult, error) {
		return retryOvertaken(ctx, e, p, newRace(req), func(try *race) (AdvanceResult, error) { return e.advance(ctx, p, req, data, key, try) })
	})
}

func (e *Engine) advance(ctx context.Context, p Principal, req AdvanceRequest, data document.JSON, key *record.Key, try *race) (AdvanceResult, error) {
	j, done, err := e.judgeAction(ctx, p, actionRequest{AdvanceRequest: req, data: data}, try)
	if err != nil {
		return AdvanceResult{}, err
	}
	defer done()
	return e.recordAnswer(ctx, p, j, key)
}

// recordAnswer records what was decided of an action, or joins the review that waits for the same.
func (e *Engine) recordAnswer(ctx context.Context, p Principal, j judgement, key *record.Key) (AdvanceResult, error) {
	if j.waits.joins(j.verdict) {
		return e.joinReview(ctx, p, j.inst, j.definition, j.waits.review, key)
	}
	if j.rejected != nil && j.verdict.DecidedBy == judge.ByReviewer {
		return e.repeatRejection(ctx, p, j, key)
	}
	if j.verdict.Outcome == judge.Escalate && !j.verdict.Applied {
		return e.parkMove(ctx, p, j, key)
	}
	return e.recordJudgement(ctx, p, j, key)
}

func (e *Engine) recordJudgement(ctx context.Context, p Principal, j judgement, key *record.Key) (AdvanceResult, error) {
	kind := record.Refused
	if j.verdict.Applied {
		kind = record.Advanced
	}
	return e.commitMove(ctx, p, j, e.decisionEvent(p, j, kind, key), nil)
}

// commitMove records what came of an action, with the review that it opens, and answers.
func (e *Engine) commitMove(ctx context.Context, p Principal, j judgement, ev record.Event, opens *store.Review) (AdvanceResult, error) {
	w, err := e.commit(ctx, j.inst, change{event: ev, lesson: newLesson(j.question, j.verdict, true), opens: opens, replaces: j.waits.id()})
	if same, ok := errors.AsType[*alreadyParkedError](err); ok {
		return e.joinNewer(ctx, p, j.inst.ID, same.review, ev.Key)
	}
	if err != nil {
		return AdvanceResult{}, err
	}
	out := AdvanceResult{
		Position: newPosition(w.next, j.definition, p), From: w.event.From, Action: w.event.Action, Decision: decisionView(w.event.Decision),
	}
	if w.opens != nil {
		out.Review = e.summarizeReview(*w.opens)
	}
	return out, nil
}

// replayAdvance rebuilds the answer that was given when ev was committed. A move that was
// parked is answered with what became of it.
func (e *Engine) replayAdvance(ctx context.Context, p Principal, ev record.Event) (AdvanceResult, error) {
	if ev.Review != nil && ev.Kind != record.Refused {
		return e.replayParked(ctx, p, ev)
	}
	pos, err := e.positionAt(ctx, p, ev)
	if err != nil {
		return AdvanceResult{}, err
	}
	out := AdvanceResult{Position: pos, From: ev.From, Action: ev.Action, Decision: decisionView(ev.Decision), Replayed: true}
	if ev.Review != nil {
		out.Review, err = e.findReviewView(ctx, p, ev.Review.ID)
	}
	return out, err
}

// Validate asks what Advance would say, without moving. The answer is recorded
// as a pre-check: seq grows; revision, state and context do not.
func (e *Engine) Validate(ctx context.Context, p Principal, req AdvanceRequest) (ValidateResult, error) {
	if err := Authorize(p, RightValidate); err != nil {
		return ValidateResult{}, err
	}
	req.Key = ""
	data, err := e.checkAdvance(req)
	if err != nil {
		return ValidateResult{}, err
	}
	return retryOvertaken(ctx, e, p, newRace(req), func(try *race) (ValidateResult, error) { return e.validate(ctx, p, req, data, try) })
}

func (e *Engine) validate(ctx context.Context, p Principal, req AdvanceRequest, data document.JSON, try *race) (ValidateResult, error) {
	j, done, err := e.judgeAction(ctx, p, actionRequest{AdvanceRequest: req, data: data, precheck: true}, try)
	if err != nil {
		return ValidateResult{}, err
	}
	defer done()
	w, err := e.commit(ctx, j.inst, change{event: e.decisionEvent(p, j, record.Prechecked, nil), lesson: newLesson(j.question, j.verdict, false)})
	if err != nil {
		return ValidateResult{}, err
	}
	return ValidateResult{
		Position: newPosition(w.next, j.definition, p), Action: req.Action,
		Approved: j.verdict.Outcome == judge.Approve, Decision: decisionView(w.event.Decision),
	}, nil
}

func (e *Engine) checkAdvance(req AdvanceRequest) (document.JSON, error) {
	if req.ID == "" {
		return document.JSON{}, MissingField("id", "The id that start returned.")
	}
	if req.Action == "" {
		return document.JSON{}, MissingField("action", "One of the instance's nextActions.")
	}
	return e.readDocument("data", req.Data, e.cfg.Limits.Data)
}

type judgement struct {
	inst record.Instance
	definition
	question judge.Case
	verdict  judge.Verdict
	// waits is set when exactly this waits for a person already; where it joins, there is no verdict.
	waits *parked
	// rejected is the review in which a person rejected what is asked, if the evidence is
	// still the same.
	rejected *store.Review
	// call is what is asked of a gate's tool, nil for an action alone; granted is the review in
	// which a person approved exactly that.
	call    *gatedCall
	granted *store.Review
}

// actionRequest is a request for an action, its data read.
type actionRequest struct {
	AdvanceRequest
	data     document.JSON
	precheck bool       // it moves nothing
	call     *gatedCall // the call that the action stands for
}

// judgeAction loads the instance, builds the case and asks the judge. It is the
// same way for Advance, Validate and BeginCall. done must be called when the decision is
// recorded, or will not be; it is nil with an error.
func (e *Engine) judgeAction(ctx context.Context, p Principal, req actionRequest, try *race) (j judgement, done func(), err error) {
	data, precheck := req.data, req.precheck
	var inst record.Instance
	var l definition
	if req.call != nil {
		inst, l = req.call.inst, req.call.definition // as it was looked at for calls
	} else if inst, l, err = e.loadInstance(ctx, p, req.ID); err == nil && !precheck {
		inst, err = e.mayMoveNow(ctx, p, inst, l, req.Action)
	}
	if err != nil {
		return judgement{}, nil, err
	}
	if err := mayMove(inst, l, p); err != nil {
		return judgement{}, nil, err
	}
	if err := checkRevision(inst, l, p, req.ExpectedRevision); err != nil {
		return judgement{}, nil, err
	}
	var waits *parked
	if !precheck {
		if inst, waits, err = e.findParked(ctx, p, inst, l, req); err != nil || waits.joins(judge.Verdict{}) {
			return judgement{inst: inst, definition: l, waits: waits}, func() {}, err
		}
	}
	if err := e.checkEventQuota(ctx, p, inst, l); err != nil {
		return judgement{}, nil, err
	}
	in := workflow.CaseInput{Action: req.Action, Read: data, Precheck: precheck, Overlays: l.overlays, JudgeConfigHash: l.overlaysHash}
	if req.call != nil {
		in.Call, in.Bound = &judge.Call{Tool: req.call.Gate, Arguments: req.call.arguments}, req.call.Bound
	}
	c, err := e.newCase(inst, l, p, in)
	if err != nil {
		return judgement{}, nil, err
	}
	if req.call != nil {
		req.call.inst = inst // a review that nobody decided in time may have ended
		c.Illegal = append(req.call.findObstacles(), c.Illegal...)
	}
	if try.lost > 0 && len(c.Illegal) > 0 && !precheck {
		try.over = true
		return judgement{}, nil, &conflict{inst.ID}
	}
	rejected, err := e.findRejected(ctx, p, inst, l, &c, req.call)
	if err != nil {
		return judgement{}, nil, err
	}
	release, err := e.takeTurn(ctx, inst, c.Guard)
	if err != nil {
		return judgement{}, nil, err
	}
	defer func() {
		if done == nil { // no decision, or a panic: nobody else will
			release()
		}
	}()
	granted, err := e.findGrant(ctx, p, inst, req)
	if err != nil {
		return judgement{}, nil, err
	}
	v, err := e.askJudge(ctx, p, c, granted)
	if err != nil {
		return judgement{}, nil, err
	}
	if slices.ContainsFunc(v.Opinions, askedModel) {
		try.asked++
	}
	return judgement{inst: inst, definition: l, waits: waits, question: c, verdict: v, rejected: rejected, call: req.call, granted: granted}, release, nil
}

// newCase is the case of an action that p asks for; in holds the action, its data, and what
// the instance does not say.
func (e *Engine) newCase(inst record.Instance, l definition, p Principal, in workflow.CaseInput) (judge.Case, error) {
	in.Operation, in.Version, in.Owner = judge.Advance, inst.Version, l.owner()
	in.Instance, in.State, in.Ended, in.Facts = inst.ID, inst.State, howEnded(inst), inst.Facts
	in.Context, in.Principal, in.Role = inst.Context, p.ID, string(p.Role)
	in.ReviewPath, in.Now, in.Seed = e.cfg.ReviewPath, e.Now(), Seed(inst.ID, inst.Revision, in.Action)
	c, err := l.def.Case(in)
	if err != nil {
		return judge.Case{}, InternalError("build the case", err)
	}
	if n := len(c.Merged.Raw()); n > e.cfg.Limits.Context {
		return judge.Case{}, tooLarge("/data", "The context would grow to %d bytes; the limit is %d.", n, e.cfg.Limits.Context)
	}
	c.Digest = e.digestEvidence(inst, nil)
	e.setMemoryKeys(&c)
	return c, nil
}

// decisionEvent is pure but for ids and the clock: the event that records a
// judgement. Only an applied move carries a patch.
func (e *Engine) decisionEvent(p Principal, j judgement, kind record.Kind, key *record.Key) record.Event {
	ev := e.newEvent(p, kind)
	ev.Time, ev.JudgeConfigHash, ev.Key = j.question.Now, j.question.JudgeConfigHash, key
	ev.Action = maskWords(j.inst, j.definition, j.question.Data.Raw()).scrubAction(j.question.Action)
	d := record.Decision{
		ID: "dec-" + e.cfg.NewID(), Verdict: j.verdict, Rubric: j.question.Rubric,
		ContextDigest: e.digestContext(j.inst, j.question.Context.Raw()),
	}
	d.Took = sumTimes(j.verdict.Opinions)
	d.Data = e.maskForRecord(j.inst.Owner, j.definition.def, j.question.Data)
	d.Evidence = forEvent(d.Evidence)
	if j.call != nil {
		ev.Call = j.call.reference()
	}
	switch kind {
	case record.Advanced:
		applyMove(&ev, &d, j)
	case record.Prechecked:
		d.Applied = false // whatever the verdict allows: nothing was asked to move
	default:
	}
	ev.Decision = &d
	return ev
}

// sumTimes is how long the layers took together.
func sumTimes(opinions []judge.Opinion) (sum time.Duration) {
	for _, o := range opinions {
		sum += o.Took
	}
	return sum
}

func applyMove(ev *record.Event, d *record.Decision, j judgement) {
	ev.To = j.verdict.Target
	ev.Status = statusIn(j.definition.def, ev.To)
	ev.Patch = j.question.Data.Raw()
	ev.SetMerged(j.inst.Context, j.question.Merged.Raw())
	if s, ok := j.definition.def.States[j.inst.State]; ok {
		if t, ok := s.Transitions[ev.Action]; ok {
			ev.Freezes = t.Freezes
		}
	}
	// The patch says the same when nothing in it is sensitive: keep it once.
	if string(d.Data) == string(ev.Patch) {
		d.Data = nil
	}
}

// newEvent is an event of an instance. What it does not say of the instance, Seal fills in.
func (e *Engine) newEvent(p Principal, kind record.Kind) record.Event {
	return record.Event{Kind: kind, Time: e.Now(), Principal: p.ID, Role: string(p.Role)}
}

func statusIn(d *workflow.Definition, state string) record.Status {
	if s, ok := d.States[state]; ok && s.Final {
		return record.Complete
	}
	return record.Running
}

// howEnded is how an instance ended, in the words of workflow.CaseInput.
func howEnded(inst record.Instance) string {
	switch inst.Status {
	case record.Complete:
		return "final"
	case record.Cancelled:
		return "cancelled"
	default:
		return ""
	}
}

// Seed fixes what scripts see as random: the same question gets the same answer.
func Seed(id string, revision int64, action string) int64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s|%d|%s", id, revision, action) // a hash takes everything
	return int64(h.Sum64() >> 1)
}
