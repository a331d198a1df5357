package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Advance requests an action. If the judge approves, the instance moves; if it refuses, the refusal is
// recorded and returned as a result. The error is an *Error: the request was invalid, the instance moved
// in the meantime (CodeConflict), or no decision was possible. Without ExpectedRevision, a request that
// was overtaken is judged again on the new state, as long as the action is legal there.
func (e *Engine) Advance(ctx context.Context, p Principal, req AdvanceRequest) (AdvanceResult, error) {
	ask := workflow.CaseInput{Action: req.Action}
	m := e.newActionMutation(RightAdvance, req, &ask)
	m.key, m.requiresSettled, m.action = req.Key, true, req.Action
	return mutate(ctx, e, p, m, func(ctx context.Context, inst *instance) (AdvanceResult, error) {
		j, done, err := e.judgeAction(ctx, inst, ask, nil)
		if err != nil {
			return AdvanceResult{}, err
		}
		defer done()
		return e.recordOrJoin(ctx, j)
	}, e.replayAdvance)
}

// newActionMutation returns the mutation for a request for an action; its check reads the data into ask.
func (e *Engine) newActionMutation(right Right, req AdvanceRequest, ask *workflow.CaseInput) mutation {
	return mutation{
		right: right, id: req.ID, revision: req.ExpectedRevision, isMove: true, isJudged: true,
		content: func() []string {
			return []string{req.Action, string(ask.Read.Canonical()), revisionText(req.ExpectedRevision)}
		},
		check: func() (err error) {
			switch {
			case req.ID == "":
				return MissingField("id", "The id that start returned.")
			case req.Action == "":
				return MissingField("action", "One of the instance's nextActions.")
			}
			ask.Read, err = readWith(workflow.TakeDocument, "data", req.Data, len(req.Data.Raw()), e.cfg.Limits.Data)
			return err
		},
	}
}

// recordOrJoin records the decision on an action, or joins the review that is open for the same request.
func (e *Engine) recordOrJoin(ctx context.Context, j judgement) (AdvanceResult, error) {
	if j.openReview.canJoin(j.verdict) {
		return e.joinReview(ctx, j.instance, j.openReview.review)
	}
	if j.rejection != nil && j.verdict.DecidedBy == judge.ByReviewer {
		return e.repeatRejection(ctx, j)
	}
	if j.verdict.Outcome == judge.Escalate && !j.verdict.Applied {
		return e.parkMove(ctx, j)
	}
	return e.recordJudgement(ctx, j)
}

func (e *Engine) recordJudgement(ctx context.Context, j judgement) (AdvanceResult, error) {
	return e.commitMove(ctx, j, e.decisionEvent(j, kindOf(j.verdict)), nil)
}

// kindOf returns the event kind for an applied or a refused move.
func kindOf(v judge.Verdict) record.Kind {
	if v.Applied {
		return record.Advanced
	}
	return record.Refused
}

// commitMove records the decision on an action, with the review that it opens, and returns the result.
func (e *Engine) commitMove(ctx context.Context, j judgement, ev record.Event, opens *store.Review) (AdvanceResult, error) {
	w, err := e.commit(ctx, j.instance, change{event: ev, lesson: newLesson(j.question, j.verdict, true), opens: opens, replaces: j.openReview.id()})
	if same, ok := errors.AsType[*alreadyParkedError](err); ok {
		return e.joinExistingReview(ctx, j.instance, same.review)
	}
	if err != nil {
		return AdvanceResult{}, err
	}
	out := AdvanceResult{Position: w.next.position(), From: w.event.From, Action: w.event.Action, Decision: decisionView(w.event.Decision)}
	if w.opens != nil {
		out.Review = e.summarizeReview(*w.opens)
	}
	return out, nil
}

// replayAdvance rebuilds the result that was returned when ev was committed. For a parked move it returns
// the present state of its review.
func (e *Engine) replayAdvance(ctx context.Context, now instance, ev record.Event) (AdvanceResult, error) {
	if ev.Review != nil && ev.Kind != record.Refused {
		return e.replayParked(ctx, now, ev)
	}
	then, err := e.instanceAfter(ctx, now, ev)
	if err != nil {
		return AdvanceResult{}, err
	}
	out := AdvanceResult{Position: then.position(), From: ev.From, Action: ev.Action, Decision: decisionView(ev.Decision), Replayed: true}
	if ev.Review != nil {
		out.Review, err = e.findReviewView(ctx, now.by, ev.Review.ID)
	}
	return out, err
}

// Validate returns what Advance would decide, without moving the instance. The result is recorded as a
// pre-check: seq grows; revision, state and context do not change.
func (e *Engine) Validate(ctx context.Context, p Principal, req AdvanceRequest) (ValidateResult, error) {
	ask := workflow.CaseInput{Action: req.Action, Precheck: true}
	return mutate(ctx, e, p, e.newActionMutation(RightValidate, req, &ask), func(ctx context.Context, inst *instance) (ValidateResult, error) {
		j, done, err := e.judgeAction(ctx, inst, ask, nil)
		if err != nil {
			return ValidateResult{}, err
		}
		defer done()
		w, err := e.commit(ctx, j.instance, change{event: e.decisionEvent(j, record.Prechecked), lesson: newLesson(j.question, j.verdict, false)})
		if err != nil {
			return ValidateResult{}, err
		}
		return ValidateResult{
			Position: w.next.position(), Action: req.Action,
			Approved: j.verdict.Outcome == judge.Approve, Decision: decisionView(w.event.Decision),
		}, nil
	}, nil)
}

// judgement is the outcome of a request for an action.
type judgement struct {
	instance
	question judge.Case
	verdict  judge.Verdict
	// openReview is set if a review is already open for exactly this request; if the request joins that review,
	// there is no verdict.
	openReview *parkedMove
	// rejection is the review in which a person rejected this request, if the evidence is still the same.
	rejection *store.Review
	// call is the requested call of a gate's tool, nil for an action alone; grant is the review in which a
	// person approved exactly that call.
	call  *gatedCall
	grant *store.Review
}

// judgeAction builds the case and asks the judge, for Advance, Validate and BeginCall alike. Unless there is an
// error, the caller must call done once the decision is recorded or abandoned.
func (e *Engine) judgeAction(ctx context.Context, inst *instance, ask workflow.CaseInput, call *gatedCall) (j judgement, done func(), err error) {
	j.call = call
	if !ask.Precheck {
		if j.openReview, err = e.findParked(ctx, inst, ask, call); err != nil || j.openReview.canJoin(judge.Verdict{}) {
			j.instance = *inst
			return j, func() {}, err
		}
	}
	if err := e.checkEventQuota(ctx, *inst); err != nil {
		return j, nil, err
	}
	j.instance = *inst // findParked may have ended an overdue review
	if call != nil {
		ask.Call, ask.Bound = &judge.Call{Tool: call.Gate, Arguments: call.arguments}, call.Bound
	}
	if j.question, err = e.newCase(*inst, ask); err != nil {
		return j, nil, err
	}
	c := &j.question
	if call != nil {
		c.Illegal = append(call.findObstacles(*inst), c.Illegal...)
	}
	if inst.request.conflicts > 0 && len(c.Illegal) > 0 && !ask.Precheck {
		inst.request.isFinal = true
		return j, nil, &conflict{inst.ID}
	}
	if j.rejection, err = e.findRejected(ctx, *inst, c, call); err != nil {
		return j, nil, err
	}
	release, err := e.lockGuard(ctx, inst.Instance, c.Guard)
	if err != nil {
		return j, nil, err
	}
	defer func() {
		if done == nil { // no decision, or a panic: the caller gets no done to call
			release()
		}
	}()
	if j.grant, err = e.findGrant(ctx, *inst, ask.Action, call); err != nil {
		return j, nil, err
	}
	if j.verdict, err = e.askJudge(ctx, inst.by, *c, j.grant); err != nil {
		return j, nil, err
	}
	if slices.ContainsFunc(j.verdict.Opinions, isModelAnswer) {
		inst.request.modelTries++
	}
	return j, release, nil
}

// newCase builds the case of an action that the caller requests. in holds the action, its data, and
// everything that the instance does not provide.
func (e *Engine) newCase(inst instance, in workflow.CaseInput) (judge.Case, error) {
	in.Operation, in.Version, in.Owner = judge.Advance, inst.Version, inst.owner()
	in.Instance, in.State, in.Ended, in.Facts = inst.ID, inst.State, describeEnd(inst.Instance), inst.Facts
	in.Overlays, in.JudgeConfigHash = inst.overlays, inst.overlaysHash
	in.Context, in.Principal, in.Role = inst.Context, inst.by.ID, string(inst.by.Role)
	in.ReviewPath, in.Now, in.Seed = e.cfg.ReviewPath, e.Now(), Seed(inst.ID, inst.Revision, in.Action)
	c, err := inst.def.Case(in)
	if err != nil {
		return judge.Case{}, InternalError("build the case", err)
	}
	if n := len(c.Merged.Raw()); n > e.cfg.Limits.Context {
		return judge.Case{}, tooLarge("/data", "The context would grow to %d bytes; the limit is %d.", n, e.cfg.Limits.Context)
	}
	c.Digest = digestEvidence(e.cfg.Digester, inst.Instance)
	setMemoryKeys(e.cfg.Digester, &c)
	return c, nil
}

// decisionEvent returns the event that records a judgement. It has no side effects apart from generating ids
// and reading the clock. Only an applied move carries a patch.
func (e *Engine) decisionEvent(j judgement, kind record.Kind) record.Event {
	ev := e.newEvent(j.by, kind)
	ev.Time, ev.JudgeConfigHash = j.question.Now, j.question.JudgeConfigHash
	ev.Action = j.maskWords(j.question.Data.Raw()).scrubAction(j.question.Action)
	d := record.Decision{
		ID: "dec-" + e.cfg.NewID(), Verdict: j.verdict, Rubric: j.question.Rubric,
		ContextDigest: digestContext(e.cfg.Digester, j.Instance, j.question.Context.Raw()),
	}
	d.Took = sumTimes(j.verdict.Opinions)
	d.Data = maskForRecord(e.cfg.Digester, j.instance, j.question.Data)
	d.Evidence = trimEvidence(d.Evidence)
	if j.call != nil {
		ev.Call = j.call.reference()
	}
	switch kind {
	case record.Advanced:
		applyMove(&ev, &d, j)
	case record.Prechecked:
		d.Applied = false // even if the verdict allows the move: none was requested
	default:
	}
	ev.Decision = &d
	return ev
}

// sumTimes returns the total time that the layers took.
func sumTimes(opinions []judge.Opinion) (sum document.Milliseconds) {
	for _, o := range opinions {
		sum += o.Took
	}
	return sum
}

func applyMove(ev *record.Event, d *record.Decision, j judgement) {
	ev.To = j.verdict.Target
	ev.Status = statusIn(j.def, ev.To)
	ev.Patch = j.question.Data.Raw()
	ev.SetMerged(j.Context, j.question.Merged.Raw())
	if s, ok := j.def.States[j.State]; ok {
		if t, ok := s.Transitions[ev.Action]; ok {
			ev.Freezes = t.Freezes
		}
	}
	dropDuplicateData(d, ev.Patch)
}

// dropDuplicateData drops a decision's masked data if it equals the patch, which means that none of it is sensitive.
func dropDuplicateData(d *record.Decision, patch json.RawMessage) {
	if string(d.Data) == string(patch) {
		d.Data = nil
	}
}

// newEvent returns an event of an instance. Seal fills in the fields that come from the instance.
func (e *Engine) newEvent(p Principal, kind record.Kind) record.Event {
	return record.Event{Kind: kind, Time: e.Now(), Principal: p.ID, Role: string(p.Role)}
}

func statusIn(d *workflow.Definition, state string) record.Status {
	if s, ok := d.States[state]; ok && s.Final {
		return record.Complete
	}
	return record.Running
}

// describeEnd returns how an instance ended, as a value of workflow.CaseInput.Ended.
func describeEnd(inst record.Instance) string {
	switch inst.Status {
	case record.Complete:
		return "final"
	case record.Cancelled:
		return "cancelled"
	default:
		return ""
	}
}

// Seed returns the random seed for scripts. It depends only on its arguments, so that the same question gets
// the same answer.
func Seed(id string, revision int64, action string) int64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s|%d|%s", id, revision, action) // writing to a hash never fails
	return int64(h.Sum64() >> 1)
}
