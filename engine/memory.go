package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

type memory struct{ store store.Store }

// NewMemory returns a memory from which a judge recalls its refusals. The Engine writes it, in the
// transaction of the decision.
func NewMemory(s store.Store) judge.Memory { return memory{s} }

// Recall implements judge.Memory.
func (m memory) Recall(ctx context.Context, guard, identity string, since time.Time) (judge.Recollection, error) {
	var r judge.Recollection
	if guard == "" && identity == "" {
		return r, nil
	}
	n, raw, err := m.store.Refusals(ctx, guard, identity, since)
	if err != nil {
		return r, StoreError("count earlier refusals", err)
	}
	if guard != "" {
		r.Refusals = n
	}
	if identity == "" || raw == nil {
		return r, nil
	}
	var op judge.Opinion
	if err := json.Unmarshal(raw, &op); err != nil {
		return r, fmt.Errorf("read the stored opinion: %w", err)
	}
	r.Opinion = &op
	return r, nil
}

// maxPrecedents limits how many decisions of persons a question is compared with.
const maxPrecedents = 64

// Precedents implements judge.Precedents. It leaves out decisions that came from the agent's own client, and those
// that were taken back.
func (m memory) Precedents(ctx context.Context, c judge.Case) ([]judge.Precedent, error) {
	var out []judge.Precedent
	q := store.DecisionQuery{Workflow: c.Workflow, Action: c.Action, DecidedBy: judge.ByReviewer, Kinds: []record.Kind{record.Advanced, record.Reviewed}, Limit: maxPrecedents}
	for at, err := range m.store.Decisions(ctx, q) {
		if err != nil {
			return nil, StoreError("find earlier decisions", err)
		}
		said := at.Event.Review
		if said == nil || said.Status != record.ReviewResolved || said.Channel == record.ChannelClient || at.Event.Instance == c.Instance {
			continue
		}
		row, err := store.FindReview(ctx, m.store, said.ID)
		var asked record.Event
		if err == nil {
			asked, err = history{store: m.store}.loadOpeningEvent(ctx, row.Instance, row.Seq)
		}
		switch {
		case errors.Is(err, store.ErrNotFound): // its history was cut
			continue
		case err != nil:
			return nil, StoreError("read an earlier decision", err)
		case row.Status == record.ReviewResolved && asked.Call == nil && asked.From == c.State && len(asked.Decision.Data) > 0:
			out = append(out, newPrecedent(asked, *said))
		}
	}
	return out, nil
}

// newPrecedent returns what a person decided about the criteria of a move. Of a rejection, these are the criteria that
// its reason names, and those that the model found not met.
func newPrecedent(asked record.Event, said record.Review) judge.Precedent {
	p := judge.Precedent{ID: asked.Decision.ID, Instance: asked.Instance, Principal: asked.Principal, Data: asked.Decision.Data, Criteria: map[string]string{}}
	decided := said.Criteria(*asked.Decision)
	for i, text := range asked.Decision.Rubric.Criteria {
		if status := decided["c"+strconv.Itoa(i+1)]; status != "" {
			p.Criteria[text] = status
		}
	}
	for _, o := range asked.Decision.Opinions {
		if o.Model == nil || said.Resolution == judge.Approve {
			continue
		}
		for _, c := range o.Model.Criteria {
			if c.Status == "not_met" {
				p.Criteria[c.Text] = c.Status
			}
		}
	}
	return p
}

// setMemoryKeys sets the keys that a judge's memory uses, if a model may be asked about the case. The digests
// are keyed and computed over the plain values, so cases that look alike only when masked stay distinct.
func setMemoryKeys(with Digester, c *judge.Case) {
	if !c.Rubric.Enabled || !c.Rubric.UseLLM || len(c.Illegal) > 0 {
		return
	}
	keyed := func(parts ...string) string { return with.Digest([]byte(digestParts(parts...))) }
	path, _ := json.Marshal(c.Path) // strings always encode
	parts := []string{"gavel/case/v2", c.Workflow, c.State, c.Action, string(c.Data.Canonical()), string(c.Context.Canonical()), c.DefinitionHash, c.JudgeConfigHash, c.Role, string(path)}
	c.Identity = keyed(appendCall(parts, c, document.JSON.Canonical)...)
	bindGuard(with, c, c.Instance)
	bindRefusal(with, c, c.Instance)
}

// appendCall appends the call that a case is about, if any, with its arguments in the given form.
func appendCall(parts []string, c *judge.Case, form func(document.JSON) []byte) []string {
	if c.Call == nil {
		return parts
	}
	return append(parts, "call", c.Call.Tool, string(form(c.Call.Arguments)))
}

// bindGuard sets the key by which refusals of the case are counted. Data that identify the question on their
// own (judge.IsQuestion) are counted across all instances. Other data are counted per instance, because short
// data ("squash") are sent to many instances.
func bindGuard(keyed Digester, c *judge.Case, instance string) {
	if c.Identity == "" {
		return
	}
	parts := []string{"gavel/guard/v1", c.Principal, c.Workflow, c.Action, string(judge.FingerprintOf(c.Data))}
	if !judge.IsQuestion(c.Data) {
		parts = append(parts, instance)
	}
	parts = appendCall(parts, c, judge.FingerprintOf)
	c.Guard = keyed.Digest([]byte(digestParts(parts...)))
}

// bindRefusal sets the key to which a refusal of the case is bound. It covers the instance and the question,
// but neither the caller nor the judge's configuration.
func bindRefusal(keyed Digester, c *judge.Case, instance string) {
	if c.Identity == "" {
		return
	}
	parts := []string{"gavel/bound/v1", instance, c.Workflow, c.State, c.Action, string(judge.FingerprintOf(c.Data)), string(c.Context.Canonical())}
	c.Bound = keyed.Digest([]byte(digestParts(appendCall(parts, c, judge.FingerprintOf)...)))
}

// maxGuardWait limits how long a decision waits for others with its guard key, and how long an overtaken request
// waits for others of its caller on the instance. With the time of a judgement added, the wait stays below the
// usual timeout of clients.
const maxGuardWait = 30 * time.Second

// lockGuard serialises decisions with the same guard key, from reading the count to writing it. Otherwise
// parallel callers would all see the count before the first refusal. Each additional process over the store can
// still exceed the limit by one attempt.
//
// A case without a guard key asks no model and does not wait. If the instance moved during the wait, the
// error is a *conflict, so that the model is not asked about an outdated state. Other errors are an
// *Error.
func (e *Engine) lockGuard(ctx context.Context, inst record.Instance, guard string) (release func(), err error) {
	if guard == "" {
		return func() {}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, maxGuardWait)
	defer cancel()
	release, waited := e.guards.acquire(bounded.Done(), guard)
	switch {
	case release == nil:
		return nil, queueError(ctx, "the same data")
	case !waited || inst.Seq == 0: // no instance that could have moved
		return release, nil
	}
	current, err := e.cfg.Store.Load(ctx, inst.ID)
	switch {
	case err != nil:
		err = StoreError("load the instance", err)
	case current.Revision != inst.Revision:
		err = &conflict{inst.ID}
	default:
		return release, nil
	}
	release()
	return nil, err
}

// newLesson returns what must be written with the event of a judgement, nil if nothing. made reports
// whether the move is made.
func newLesson(c judge.Case, v judge.Verdict, made bool) *store.Lesson {
	if c.Guard == "" {
		return nil
	}
	v.Applied = v.Applied && made
	learnt := v.Lesson()
	if !learnt.Refused && !learnt.Cleared {
		return nil
	}
	l := &store.Lesson{
		Guard: c.Guard, Identity: judge.IdentityWith(c.Identity, v.Evidence), Bound: judge.BoundWith(c.Bound, v.Evidence), Principal: c.Principal, Workflow: c.Workflow, Action: c.Action,
		Instance: c.Instance, At: c.Now, Refused: learnt.Refused, Cleared: learnt.Cleared,
	}
	if learnt.Opinion != nil {
		raw, err := json.Marshal(learnt.Opinion)
		if err == nil { // an opinion that cannot be encoded is requested again
			l.Opinion = raw
		}
	}
	return l
}

// ClearRefusals resets the counts of a judge's loop guard. Operators use it to unblock a principal. The
// model is asked again from then on. Reviews that were opened only because of the guard are closed; their
// actions have to be requested again.
func (e *Engine) ClearRefusals(ctx context.Context, p Principal, req ClearRefusalsRequest) (ClearRefusalsResult, error) {
	if err := Authorize(p, RightClear); err != nil {
		return ClearRefusalsResult{}, err
	}
	if req.Principal == "" && req.Workflow == "" && req.ID == "" {
		return ClearRefusalsResult{}, &Error{Code: CodeInvalidArgument, Message: "Specify which refusals to clear.", Hint: "Give an instance's id, a principal or a workflow, or a combination."}
	}
	if req.ID != "" {
		if _, err := e.loadInstance(ctx, p, req.ID); err != nil {
			return ClearRefusalsResult{}, err
		}
	} else if p.Workflows != "" && !p.InScope(req.Workflow) {
		return ClearRefusalsResult{}, e.explainUnknownWorkflow(ctx, p, req.Workflow, 0)
	}
	n, err := e.cfg.Store.ClearRefusals(ctx, store.RefusalQuery{Principal: req.Principal, Workflow: req.Workflow, Action: req.Action, Instance: req.ID})
	if err != nil {
		return ClearRefusalsResult{}, StoreError("clear the refusals", err)
	}
	released, err := e.releaseReviews(ctx, p, req)
	if err != nil {
		return ClearRefusalsResult{}, err
	}
	out := ClearRefusalsResult{Forgotten: n, Released: released, Message: "There were no refusals to clear."}
	if n > 0 {
		out.Message = fmt.Sprintf("%s cleared; the model may be asked again.", formatCount(n, "refusal"))
	}
	if released > 0 {
		out.Message += fmt.Sprintf(" %s that only the loop guard had opened; request the action again.", formatCount(released, "review")+" closed")
	}
	return out, nil
}

func formatCount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// releaseReviews ends the open reviews that the loop guard caused.
func (e *Engine) releaseReviews(ctx context.Context, p Principal, req ClearRefusalsRequest) (n int, err error) {
	var held []store.Review
	for row, err := range e.cfg.Store.Reviews(ctx, store.ReviewQuery{Instance: req.ID, Workflow: req.Workflow, Principal: req.Principal, Status: record.ReviewOpen}) {
		if err != nil {
			return 0, StoreError("list the reviews", err)
		}
		if row.Call == "" && (req.Action == "" || row.Action == req.Action) {
			held = append(held, row)
		}
	}
	for _, row := range held {
		asked, err := e.loadOpeningEvent(ctx, row.Instance, row.Seq)
		switch {
		case CodeOf(err) == CodeUnknownReview: // the opening event was removed
			continue
		case err != nil:
			return n, err
		case asked.Decision.Code != judge.CodeLoopGuard:
			continue
		}
		end := record.Review{ID: row.ID, Status: record.ReviewStale, Reason: "The loop guard that opened this review was cleared."}
		ended, err := e.endReview(ctx, p, row, end)
		if err != nil {
			return n, err
		}
		if ended {
			n++
		}
	}
	return n, nil
}

// ClearRefusalsRequest selects refusals; an empty Action selects all. ID is an instance. If ID is set, refusals
// of data long enough to count on any instance are cleared for all instances.
type ClearRefusalsRequest struct{ ID, Principal, Workflow, Action string }

// ClearRefusalsResult answers a ClearRefusalsRequest.
type ClearRefusalsResult struct {
	// Forgotten is how many refusals no longer count.
	Forgotten int `json:"forgotten"`
	// Released is how many reviews were closed that were open only because of the loop guard.
	Released int    `json:"released"`
	Message  string `json:"message"`
}

// describeLoopGuard describes when the loop guard of a definition steps in and how to lift it; it returns "" if it
// never does.
func describeLoopGuard(j Judge, l definition, overlays []workflow.Overlay) string {
	counts, ok := j.(interface{ LoopGuard() (int, time.Duration) })
	if !ok || len(l.def.RequiredModels(overlays)) == 0 {
		return ""
	}
	limit, window := counts.LoopGuard()
	if limit == 0 {
		return ""
	}
	return fmt.Sprintf("After %d refusals of the same data on an instance within %s (for long data: on any instance) a person must decide; an operator lifts this with workflow.judge.clear.",
		limit, strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(window.String()))
}
