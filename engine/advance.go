package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// Advance asks for an action. When the judge approves, the instance moves; when
// it refuses, the refusal is recorded and returned as a result. The error is an
// *Error: the request was wrong, the instance moved meanwhile (CodeConflict), or
// nothing could be decided. Without ExpectedRevision, a request that another one
// overtook is judged again on the new state, as long as the action is legal there.
func (e *Engine) Advance(ctx context.Context, p Principal, req AdvanceRequest) (AdvanceResult, error) {
	ask := workflow.CaseInput{Action: req.Action}
	m := e.judged(RightAdvance, req, &ask)
	m.key, m.settled, m.action = req.Key, true, req.Action
	return mutate(ctx, e, p, m, func(ctx context.Context, inst *instance) (AdvanceResult, error) {
		j, done, err := e.judgeAction(ctx, inst, ask, nil)
		if err != nil {
			return AdvanceResult{}, err
		}
		defer done()
		return e.recordAnswer(ctx, j)
	}, e.replayAdvance)
}

// judged is a request for an action, whose data is read into ask.
func (e *Engine) judged(right Right, req AdvanceRequest, ask *workflow.CaseInput) mutation {
	return mutation{
		right: right, id: req.ID, revision: req.ExpectedRevision, moves: true, judged: true,
		says: func() []string {
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

// recordAnswer records what was decided of an action, or joins the review that waits for the same.
func (e *Engine) recordAnswer(ctx context.Context, j judgement) (AdvanceResult, error) {
	if j.waits.joins(j.verdict) {
		return e.joinReview(ctx, j.instance, j.waits.review)
	}
	if j.rejected != nil && j.verdict.DecidedBy == judge.ByReviewer {
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

// kindOf is the kind of the event of a move that is made, or of one that is not.
func kindOf(v judge.Verdict) record.Kind {
	if v.Applied {
		return record.Advanced
	}
	return record.Refused
}

// commitMove records what came of an action, with the review that it opens, and answers.
func (e *Engine) commitMove(ctx context.Context, j judgement, ev record.Event, opens *store.Review) (AdvanceResult, error) {
	w, err := e.commit(ctx, j.instance, change{event: ev, lesson: newLesson(j.question, j.verdict, true), opens: opens, replaces: j.waits.id()})
	if same, ok := errors.AsType[*alreadyParkedError](err); ok {
		return e.joinNewer(ctx, j.instance, same.review)
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

// replayAdvance rebuilds the answer that was given when ev was committed. A move that was
// parked is answered with what became of it.
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

// Validate asks what Advance would say, without moving. The answer is recorded
// as a pre-check: seq grows; revision, state and context do not.
func (e *Engine) Validate(ctx context.Context, p Principal, req AdvanceRequest) (ValidateResult, error) {
	ask := workflow.CaseInput{Action: req.Action, Precheck: true}
	return mutate(ctx, e, p, e.judged(RightValidate, req, &ask), func(ctx context.Context, inst *instance) (ValidateResult, error) {
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

// judgement is what came of a request for an action.
type judgement struct {
	instance
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

// judgeAction builds the case and asks the judge. It is the same way for Advance, Validate and
// BeginCall. done must be called when the decision is recorded, or will not be; it is nil with an error.
func (e *Engine) judgeAction(ctx context.Context, inst *instance, ask workflow.CaseInput, call *gatedCall) (j judgement, done func(), err error) {
	j.call = call
	if !ask.Precheck {
		if j.waits, err = e.findParked(ctx, inst, ask, call); err != nil || j.waits.joins(judge.Verdict{}) {
			j.instance = *inst
			return j, func() {}, err
		}
	}
	if err := e.checkEventQuota(ctx, *inst); err != nil {
		return j, nil, err
	}
	j.instance = *inst // a review that nobody decided in time may have ended
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
	if inst.request.lost > 0 && len(c.Illegal) > 0 && !ask.Precheck {
		inst.request.over = true
		return j, nil, &conflict{inst.ID}
	}
	if j.rejected, err = e.findRejected(ctx, *inst, c, call); err != nil {
		return j, nil, err
	}
	release, err := e.takeTurn(ctx, inst.Instance, c.Guard)
	if err != nil {
		return j, nil, err
	}
	defer func() {
		if done == nil { // no decision, or a panic: nobody else will
			release()
		}
	}()
	if j.granted, err = e.findGrant(ctx, *inst, ask.Action, call); err != nil {
		return j, nil, err
	}
	if j.verdict, err = e.askJudge(ctx, inst.by, *c, j.granted); err != nil {
		return j, nil, err
	}
	if slices.ContainsFunc(j.verdict.Opinions, askedModel) {
		inst.request.asked++
	}
	return j, release, nil
}

// newCase is the case of an action that the caller asks for; in holds the action, its data, and what
// the instance does not say.
func (e *Engine) newCase(inst instance, in workflow.CaseInput) (judge.Case, error) {
	in.Operation, in.Version, in.Owner = judge.Advance, inst.Version, inst.owner()
	in.Instance, in.State, in.Ended, in.Facts = inst.ID, inst.State, howEnded(inst.Instance), inst.Facts
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

// decisionEvent is pure but for ids and the clock: the event that records a
// judgement. Only an applied move carries a patch.
func (e *Engine) decisionEvent(j judgement, kind record.Kind) record.Event {
	ev := e.newEvent(j.by, kind)
	ev.Time, ev.JudgeConfigHash = j.question.Now, j.question.JudgeConfigHash
	ev.Action = j.maskWords(j.question.Data.Raw()).scrubAction(j.question.Action)
	d := record.Decision{
		ID: "dec-" + e.cfg.NewID(), Verdict: j.verdict, Rubric: j.question.Rubric,
		ContextDigest: digestContext(e.cfg.Digester, j.Instance, j.question.Context.Raw()),
	}
	d.Took = sumTimes(j.verdict.Opinions)
	d.Data = maskForRecord(e.cfg.Digester, j.Owner, j.def, j.question.Data)
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
	ev.Status = statusIn(j.def, ev.To)
	ev.Patch = j.question.Data.Raw()
	ev.SetMerged(j.Context, j.question.Merged.Raw())
	if s, ok := j.def.States[j.State]; ok {
		if t, ok := s.Transitions[ev.Action]; ok {
			ev.Freezes = t.Freezes
		}
	}
	dropRepeated(d, ev.Patch)
}

// dropRepeated drops the data of a decision where the patch says the same, since nothing in it is sensitive.
func dropRepeated(d *record.Decision, patch json.RawMessage) {
	if string(d.Data) == string(patch) {
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
