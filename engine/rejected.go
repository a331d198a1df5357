package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
)

// maxRejections limits how many rejected reviews of an instance are compared with a request, newest
// first: each comparison loads the event that opened the review.
const maxRejections = 10

func isRejected(row store.Review) bool {
	return row.Status == record.ReviewResolved && row.Resolution == judge.Reject && row.Call == ""
}

// findRejections returns the reviews of an instance that a person rejected in its present state, newest first.
func (past history) findRejections(ctx context.Context, inst record.Instance) ([]store.Review, error) {
	if inst.Seq < 3 || inst.Status != record.Running { // a rejection takes at least three events: started, escalated, reviewed
		return nil, nil
	}
	var out []store.Review
	for row, err := range past.store.Reviews(ctx, store.ReviewQuery{Instance: inst.ID, Status: record.ReviewResolved}) {
		if err != nil {
			return nil, StoreError("list the reviews", err)
		}
		if isRejectionCurrent(row, inst) {
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(a, b store.Review) int { return cmp.Compare(b.Seq, a.Seq) })
	return out, nil
}

// findRejected returns the review in which a person rejected exactly this request: the same principal,
// action, state, data, context and rules. It adds the rejection to the case, so that the evidence is
// compared once it is fetched.
func (e *Engine) findRejected(ctx context.Context, inst instance, c *judge.Case, call *gatedCall) (*store.Review, error) {
	if len(c.Illegal) > 0 || !c.Rubric.MayEscalate() {
		return nil, nil //nolint:nilnil // nothing was rejected
	}
	rows, err := e.findRejections(ctx, inst.Instance)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(row store.Review) bool {
		return row.Principal != inst.by.ID || row.Action != c.Action || row.DefinitionHash != inst.DefinitionHash
	})
	for _, row := range rows[:min(len(rows), maxRejections)] {
		asked, err := e.loadOpeningEvent(ctx, inst.ID, row.Seq)
		switch {
		case CodeOf(err) == CodeUnknownReview: // the opening event was removed
			continue
		case err != nil:
			return nil, err
		}
		scope := contextScope(inst.Owner, inst.Workflow)
		if !call.matches(asked.Call) || canonicalText(asked.Decision.Data) != canonicalText(maskForRecord(e.cfg.Digester, inst, c.Data)) ||
			!e.cfg.Digester.Matches(asked.Decision.ContextDigest, scope, c.Context.Raw()) {
			continue
		}
		c.Rejected = &judge.Rejection{Review: row.ID, By: row.By, Reason: row.Reason, Evidence: asked.Decision.Evidence}
		return &row, nil
	}
	return nil, nil //nolint:nilnil // nothing was rejected
}

// appendRejections adds, for each action without an open review, the newest rejection in the instance's present
// state.
func (e *Engine) appendRejections(ctx context.Context, inst instance, reviews []ReviewSummary) ([]ReviewSummary, error) {
	rows, err := e.findRejections(ctx, inst.Instance)
	if err != nil {
		return nil, err
	}
	show := e.newView(inst.by).withInstance(inst)
	for _, row := range rows {
		if slices.ContainsFunc(reviews, func(s ReviewSummary) bool { return s.Action == row.Action }) {
			continue
		}
		s, err := show.renderReview(ctx, row)
		if err != nil {
			return nil, err
		}
		reviews = append(reviews, s)
	}
	return reviews, nil
}

// isRejectionCurrent reports whether a rejected review still applies: its instance must still be in that state. The
// rejection of a stop applies only until the next move, even if the instance returns to the state.
func isRejectionCurrent(row store.Review, inst record.Instance) bool {
	return isRejected(row) && inst.Status == record.Running && inst.State == row.From && (!row.IsStop() || row.Revision == inst.Revision)
}

// isReviewCurrent is isRejectionCurrent for callers that have not loaded the instance.
func (past history) isReviewCurrent(ctx context.Context, row store.Review) (bool, error) {
	if !isRejected(row) {
		return false, nil
	}
	inst, err := past.store.Load(ctx, row.Instance)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, StoreError("load the instance", err)
	}
	return isRejectionCurrent(row, inst), nil
}

// repeatRejection records a refusal that repeats a person's rejection, and returns the review.
func (e *Engine) repeatRejection(ctx context.Context, j judgement) (AdvanceResult, error) {
	ev := e.decisionEvent(j, record.Refused)
	ev.Review = &record.Review{ID: j.rejection.ID, Status: record.ReviewResolved, Resolution: judge.Reject, By: j.rejection.By}
	out, err := e.commitMove(ctx, j, ev, nil)
	if err != nil {
		return AdvanceResult{}, err
	}
	review, err := e.newView(j.by).withInstance(j.instance).renderReview(ctx, *j.rejection)
	out.Review = &review
	return out, err
}

// findReviewView returns a review as a caller sees it.
func (e *Engine) findReviewView(ctx context.Context, p Principal, id string) (*ReviewSummary, error) {
	row, err := e.findReview(ctx, id)
	if err != nil {
		return nil, StoreError("read the review", err)
	}
	s, err := e.newView(p).renderReview(ctx, row)
	return &s, err
}

// reopenReview withdraws a rejection. The review no longer has the data of the request, so the request has
// to be made again; nothing else changes.
func (e *Engine) reopenReview(ctx context.Context, r reviewCase) (ResolveResult, error) {
	end := record.Review{ID: r.row.ID, Status: record.ReviewReopened, By: r.by.ID, Channel: r.req.Channel, Reason: r.req.Reason}
	do := change{event: e.reviewEvent(r.by, r.row, end), reopens: &r.row, end: end}
	return e.commitReview(ctx, r, do, "Reopened; the same request may be made again, and a person will decide it.")
}
