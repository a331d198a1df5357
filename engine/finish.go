package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// FinishRequest asks whether an agent may end.
type FinishRequest struct {
	ID string // the instance
	// States are the states in which it may end.
	States []string
	// Attempts is how many stops of a session are refused while the instance does not move; the next one
	// is allowed. It is at least 1.
	Attempts int
	// Session is the client session that wants to end, of any length; "" counts the stops of all sessions.
	Session string
	Key     string // idempotency key, "" for none; a result that records nothing does not bind it
}

// FinishResult answers a FinishRequest.
type FinishResult struct {
	Position
	MayEnd bool `json:"mayEnd"`
	// Reason explains the result. Hint is what to do first if the agent may not end.
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
	// Next is the action of the next step; "" if there is none or the agent has to wait.
	Next string `json:"nextStep,omitempty"`
	// Refused is how many stops of the session were refused since the instance last moved, including this
	// one.
	Refused int `json:"refusedStops"`
	// Review is the open review because of which the agent may end: that of its own move or call, or of its
	// early end.
	Review   *ReviewSummary `json:"review,omitempty"`
	Replayed bool           `json:"replayed,omitempty"`
}

// Finish decides whether an agent may end. It may if its instance is in one of the given states, has ended in
// another state, or waits for a person or another agent. Any other stop is refused, and the refusal is
// recorded.
//
// After Attempts refused stops of the session without a move of the instance, the agent may end, and a
// review reports the early end. Several sessions share one review. The review blocks nothing: a move
// closes it.
//
// Only the owner of the instance and operators may call it. The error is an *Error: no decision was
// possible, and nothing was recorded.
func (e *Engine) Finish(ctx context.Context, p Principal, req FinishRequest) (FinishResult, error) {
	if req.Session != "" {
		sum := sha256.Sum256([]byte(req.Session))
		req.Session = hex.EncodeToString(sum[:8])
	}
	m := mutation{
		right: RightAdvance, scope: "finish", id: req.ID, key: req.Key,
		content: func() []string { return append([]string{strconv.Itoa(req.Attempts), req.Session}, req.States...) },
		check: func() error {
			if len(req.States) == 0 || req.Attempts < 1 {
				return InternalError("let an agent end", errors.New("it names no states or no attempts"))
			}
			return nil
		},
		permit: func(_ context.Context, inst instance) error {
			if p.Role != RoleOperator && p.ID != inst.Owner {
				return newError(CodeForbidden, "", "The instance belongs to another principal.").withHint("Only its owner or an operator may ask whether the agent may end.")
			}
			return nil
		},
	}
	return mutate(ctx, e, p, m, func(ctx context.Context, inst *instance) (FinishResult, error) {
		if err := e.settleOverdueOf(ctx, inst); err != nil {
			return FinishResult{}, err
		}
		return e.finish(ctx, stopRequest{instance: *inst, FinishRequest: req})
	}, e.replayFinish)
}

// stopRequest is an agent's request to end, with its instance.
type stopRequest struct {
	instance
	FinishRequest
}

func (e *Engine) finish(ctx context.Context, s stopRequest) (FinishResult, error) {
	if why := s.findEnd(); why != "" {
		return s.allow(why, nil), nil
	}
	waits, err := e.findOwnReview(ctx, s)
	if err != nil {
		return FinishResult{}, err
	}
	switch {
	case waits != nil && waits.EndedEarly:
		return s.allow("A person is notified that the agent ends early.", waits), nil
	case waits != nil && !s.Facts.HasOpenCall():
		return s.allow(fmt.Sprintf("The review %s waits for a person.", waits.ID), waits), nil
	case s.Facts.Stops.Accepted:
		return s.allow("A person accepted that the agent ends here.", nil), nil
	}
	return e.refuseStop(ctx, s)
}

func (s stopRequest) allow(why string, review *ReviewSummary) FinishResult {
	return FinishResult{Position: s.position(), MayEnd: true, Reason: why, Refused: s.Facts.Stops.CountIn(s.Session), Review: review}
}

// findEnd returns why the agent has nothing left to do, or "" if something is left.
func (s stopRequest) findEnd() string {
	switch {
	case s.Facts.HasOpenCall():
		return ""
	case s.Status == record.Cancelled:
		return fmt.Sprintf("The instance was cancelled in %q.", s.State)
	case s.takenOver:
		return ""
	case slices.Contains(s.States, s.State):
		return fmt.Sprintf("The instance is in %q.", s.State)
	case s.Status != record.Running:
		return fmt.Sprintf("The instance has ended in %q and can no longer move.", s.State)
	case len(s.listSteps()) == 0:
		return fmt.Sprintf("The instance is in %q, where only others can act.", s.State)
	}
	return ""
}

// listSteps returns the actions that the agent can perform, itself or through a gate.
func (s stopRequest) listSteps() []string {
	return slices.DeleteFunc(s.def.NextActions(s.State, string(s.by.Role)), func(action string) bool {
		illegal, _ := s.def.CheckLegality(workflow.CaseInput{
			State: s.State, Action: action, Facts: s.Facts, Principal: s.by.ID, Role: string(s.by.Role),
		})
		return len(illegal) > 0
	})
}

// isExhausted reports whether the session has reached its limit of refused stops.
func (s stopRequest) isExhausted() bool { return s.Facts.Stops.CountIn(s.Session) >= s.Attempts }

// findOwnReview returns the review of the agent's early end if its session is exhausted, else an open
// review of its own move or call; nil if there is none.
func (e *Engine) findOwnReview(ctx context.Context, s stopRequest) (*ReviewSummary, error) {
	var ids []string
	for _, open := range s.Facts.Reviews {
		if open.Action != "" {
			ids = append(ids, open.ID)
		} else if s.isExhausted() {
			ids = []string{open.ID}
			break
		}
	}
	for _, c := range s.Facts.Calls {
		if !c.IsOpen() {
			ids = append(ids, c.Review)
		}
	}
	for _, id := range ids {
		row, err := store.FindReview(ctx, e.cfg.Store, id)
		switch {
		case errors.Is(err, store.ErrNotFound): // a repair may have lost it
			continue
		case err != nil:
			return nil, StoreError("read the review", err)
		}
		if out := e.summarizeReview(row); out.Status == record.ReviewOpen && (row.Principal == s.by.ID || row.Principal == s.Owner) {
			return out, nil
		}
	}
	return nil, nil //nolint:nilnil // nothing waits
}

// refuseStop refuses a stop. Once too many were refused, it allows the stop and opens a review.
func (e *Engine) refuseStop(ctx context.Context, s stopRequest) (FinishResult, error) {
	why, next, err := e.describeUnfinished(ctx, s)
	if err != nil {
		return FinishResult{}, err
	}
	ev := e.newEvent(s.by, record.Refused)
	ev.Decision = e.newStopDecision(s, judge.Reject, why)
	do := change{event: ev, exempt: true}
	if s.isExhausted() {
		do = e.allowEarlyEnd(s, ev, why)
	}
	w, err := e.commit(ctx, s.instance, do)
	if err != nil {
		return FinishResult{}, err
	}
	if s.instance = w.next; w.opens != nil {
		return s.allow("A person is notified that the agent ends early. "+why.Message, e.summarizeReview(*w.opens)), nil
	}
	return FinishResult{Position: s.position(), Reason: why.Message, Hint: why.Hint, Next: next, Refused: s.Facts.Stops.CountIn(s.Session)}, nil
}

// allowEarlyEnd converts a refusal into an escalation that allows the agent to end.
func (e *Engine) allowEarlyEnd(s stopRequest, ev record.Event, why validators.Finding) change {
	scope, question := bindReview(s.Instance, s.by.ID, "", nil, nil, nil)
	row := e.newOpenReview(s.instance, record.PriorityNormal, ev.Time)
	row.Digest = e.cfg.Digester.DigestIn(scope, question)
	why.Message = fmt.Sprintf("The agent ended early, after %s. %s", formatCount(s.Facts.Stops.CountIn(s.Session), "refused stop"), why.Message)
	ev.Kind, ev.Decision = record.Escalated, e.newStopDecision(s, judge.Escalate, why)
	ev.Review = newOpening(row)
	return change{event: ev, opens: &row, exempt: true}
}

func (e *Engine) newStopDecision(s stopRequest, outcome judge.Outcome, why validators.Finding) *record.Decision {
	var data json.RawMessage
	if s.Session != "" {
		data = record.NewStopData(s.Session)
	}
	return &record.Decision{
		ID: "dec-" + e.cfg.NewID(), Data: data, ContextDigest: digestContext(e.cfg.Digester, s.Instance, s.Context),
		Verdict: judge.Verdict{
			Outcome: outcome, Proposed: judge.Reject, Code: why.Code, Confidence: 1, Assurance: judge.AssuranceNone,
			DecidedBy: judge.LayerTransition, Mode: judge.Enforce, Reasoning: strings.TrimSpace(why.Message + " " + why.Hint), Findings: []validators.Finding{why},
		},
	}
}

// describeUnfinished describes the remaining work, and returns the action of the next step.
func (e *Engine) describeUnfinished(ctx context.Context, s stopRequest) (out validators.Finding, next string, err error) {
	goals := slices.DeleteFunc(slices.Clone(s.States), func(name string) bool { return s.def.States[name] == nil })
	out = validators.Finding{
		Code:    workflow.CodeNotFinished,
		Message: fmt.Sprintf("The workflow %q is in %q; an agent may end in %s.", s.Workflow, s.State, joinQuoted(s.States)),
	}
	switch at := slices.IndexFunc(s.Facts.Calls, workflow.OpenCall.IsOpen); {
	case at >= 0:
		c := s.Facts.Calls[at]
		out.Hint = fmt.Sprintf("The call %s of %s is open until %s: wait for its answer.", c.ID, c.Gate, formatTime(c.Deadline))
		return out, "", nil
	case s.takenOver:
		out.Hint = "An operator has taken over the workflow's name: cancel the instance, or ask an operator to migrate it."
		return out, "", nil
	case len(goals) == 0:
		out.Hint = fmt.Sprintf("Version %d of the workflow has no such state: tell the operator.", s.Version)
		return out, "", nil
	}
	next = s.def.FindStep(s.State, s.listSteps(), goals)
	out.Hint = e.describeStep(s, next)
	sentBack, err := e.findSendBackReason(ctx, s)
	if sentBack != "" {
		out.Message += fmt.Sprintf(" A person sent the agent back: %q", sentBack)
	}
	return out, next, err
}

// describeStep describes how to perform an action; "" means that no action leads to the goal.
func (e *Engine) describeStep(s stopRequest, action string) string {
	if action == "" {
		return "None of the agent's actions leads there: tell the operator."
	}
	if tool := e.findGate(s.Workflow, action); tool != "" {
		return fmt.Sprintf("Next: %q of %s, performed by calling %s.", action, s.ID, tool)
	}
	takes := s.def.DescribeActions(s.State, []string{action}, s.Context, s.overlays)[0]
	if len(takes.Requires) == 0 {
		return fmt.Sprintf("Next: perform %q of %s with workflow.advance.", action, s.ID)
	}
	return fmt.Sprintf("Next: perform %q of %s with workflow.advance; its data needs %s.", action, s.ID, strings.Join(takes.Requires, ", "))
}

// findSendBackReason returns why a person sent the agent back since the instance last moved.
func (e *Engine) findSendBackReason(ctx context.Context, s stopRequest) (string, error) {
	rows, err := e.findRejections(ctx, s.Instance)
	if err != nil {
		return "", err
	}
	for _, row := range rows {
		if row.Action == "" {
			shown, err := e.newView(s.by).withInstance(s.instance).renderReview(ctx, row)
			return shown.Reason, err
		}
	}
	return "", nil
}

func joinQuoted(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, " or ")
}

// replayFinish answers a repeated key. If the agent was allowed to end, the result shows the present state
// of the review.
func (e *Engine) replayFinish(ctx context.Context, now instance, ev record.Event) (FinishResult, error) {
	then, err := e.instanceAfter(ctx, now, ev)
	if err != nil {
		return FinishResult{}, err
	}
	out := FinishResult{Position: then.position(), Reason: ev.Decision.Reasoning, MayEnd: ev.Kind == record.Escalated, Replayed: true}
	if ev.Review != nil {
		out.Review, err = e.findReviewView(ctx, now.by, ev.Review.ID)
	}
	return out, err
}

// resolveStop records a person's decision on an agent that ended early: approve accepts the early end,
// reject means that it has to continue. The instance does not move.
func (e *Engine) resolveStop(ctx context.Context, r reviewCase) (ResolveResult, error) {
	message, code := "The early end is accepted; the instance does not move.", ""
	if r.req.Decision == judge.Reject {
		message, code = "The agent gets the reason when it resumes or tries to end again.", judge.CodeReviewRejected
	}
	return e.finishReview(ctx, r, newReviewEnd(r), e.newReviewDecision(r, newReviewerVerdict(r, code, r.req.Reason)), message)
}
