package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// ReviewsRequest lists the reviews that the caller may see: those of its own requests and of shared
// instances, or all for reviewers, operators and auditors.
type ReviewsRequest struct {
	// Status is a review status, "rejected" for those that a person rejected, or "all". Empty means open;
	// for agents it also includes rejected reviews of instances that are still in the same state.
	Status   string
	Instance string // an instance's id
	Workflow string // a workflow's name
	Cursor   string // NextCursor of the previous page
	Limit    int    // 0 is 50; at most 500
}

// ReviewsResult answers a ReviewsRequest: most urgent first, then oldest first.
type ReviewsResult struct {
	Reviews    []ReviewSummary `json:"reviews"` // never nil
	Count      int             `json:"count"`
	NextCursor string          `json:"nextCursor,omitempty"`
}

// ReviewView is a complete review, with all that a person needs to decide it.
type ReviewView struct {
	ReviewSummary
	// Position is the present position of the instance.
	Position Position `json:"instance"`
	// Data is the action's data, Context the instance's present context. Sensitive values are digests,
	// except for operators and the owner.
	Data    json.RawMessage `json:"data"`
	Context json.RawMessage `json:"context"`
	// Escalation is the decision that a person has to review, with every opinion. Its Evidence is complete
	// but masked.
	Escalation HistoryEntry `json:"escalation"`
	// Description of the action and Criteria of its judgement, from the definition.
	Description string   `json:"description,omitempty"`
	Criteria    []string `json:"criteria,omitempty"`
	// Risk is the risk level of the transition when it was judged.
	Risk judge.Risk `json:"risk,omitempty"`
}

// Reviews lists reviews.
func (e *Engine) Reviews(ctx context.Context, p Principal, req ReviewsRequest) (ReviewsResult, error) {
	ctx, read, err := e.beginList(ctx, p, req.Limit, defaultInstancesPage, maxInstancesPage)
	if err != nil {
		return ReviewsResult{}, err
	}
	defer read.End()
	limit := read.limit
	q := store.ReviewQuery{Instance: req.Instance, Limit: limit + 1}
	if p.Workflows != "" {
		q.Limit = 0 // the store returns reviews out of scope, which are skipped below
	}
	if q.Status, err = reviewStatus(req.Status); err != nil {
		return ReviewsResult{}, err
	}
	if q.After, err = reviewCursor(req.Cursor); err != nil {
		return ReviewsResult{}, err
	}
	status := q.Status
	// Overdue reviews whose end is not recorded yet are still open in the store.
	own := !seesAll(p.Role)
	if status == record.ReviewExpired || own && req.Status == "" {
		q.Status, q.Limit = "", 0
	}
	if req.Status == reviewRejected {
		q.Limit = 0
	}
	var rows []store.Review
	found := e.findReviews(ctx, read.sight.listParts(req.Workflow, ""), q, p.ID, own && req.Status == "", limit+1)
	for row, err := range withYield(ctx, read.BulkRead, "list the reviews", found) {
		wanted := err == nil && p.InScope(row.Workflow)
		if wanted {
			wanted, err = e.hasRequestedStatus(ctx, row, req.Status, status, own)
		}
		if err != nil {
			return ReviewsResult{}, err
		}
		if wanted {
			rows = append(rows, row)
		}
		if len(rows) > limit {
			break
		}
	}
	out := ReviewsResult{Reviews: []ReviewSummary{}}
	show := e.newView(p)
	for i, row := range rows {
		if i == limit {
			out.NextCursor = cursorOf(rows[limit-1])
			break
		}
		s, err := show.renderReview(ctx, row)
		if err != nil {
			return ReviewsResult{}, err
		}
		if status == "" || s.Status == status || own && req.Status == "" && s.Status == record.ReviewResolved {
			out.Reviews = append(out.Reviews, s)
		}
	}
	out.Count = len(out.Reviews)
	return out, nil
}

// hasRequestedStatus reports whether a listed review has the requested status. asked is the status in the request,
// and status the review status that it stands for. own is set for a caller that does not see all reviews.
func (e *Engine) hasRequestedStatus(ctx context.Context, row store.Review, asked string, status record.ReviewStatus, own bool) (bool, error) {
	switch {
	case asked == reviewRejected:
		return isRejected(row), nil
	case own && asked == "" && row.Status != record.ReviewOpen:
		return e.isReviewCurrent(ctx, row)
	case status == record.ReviewExpired:
		return e.summarizeReview(row).Status == status, nil
	}
	return true, nil
}

// findReviews lists the reviews in the given parts. If atIssue is set, a part for all owners lists only open
// reviews, up to limit, and those of asker are listed in addition: a rejected review concerns only the principal
// that asked for the move.
func (past history) findReviews(ctx context.Context, parts []listPart, q store.ReviewQuery, asker string, atIssue bool, limit int) iter.Seq2[store.Review, error] {
	if atIssue && len(parts) == 1 && parts[0].owner == "" {
		parts = append(parts, listPart{parts[0].workflow, asker})
	}
	return mergeParts(parts, func(of listPart) iter.Seq2[store.Review, error] {
		q := q
		q.Workflow, q.Principal = of.workflow, of.owner
		if of.owner == "" && atIssue {
			q.Status, q.Limit = record.ReviewOpen, limit
		}
		return past.store.Reviews(ctx, q)
	}, mostUrgentFirst)
}

// reviewRejected selects the reviews that a person rejected.
const reviewRejected = "rejected"

func reviewStatus(text string) (record.ReviewStatus, error) {
	switch s := record.ReviewStatus(text); s {
	case "":
		return record.ReviewOpen, nil
	case "all":
		return "", nil
	case reviewRejected:
		return record.ReviewResolved, nil
	case record.ReviewOpen, record.ReviewResolved, record.ReviewStale, record.ReviewExpired, record.ReviewSuperseded, record.ReviewReopened:
		return s, nil
	}
	return "", &Error{Code: CodeInvalidArgument, Path: "/status", Message: fmt.Sprintf("There is no status %.80q of a review.", text), Hint: "Statuses: open, resolved, rejected, reopened, stale, expired, superseded, all."}
}

func cursorOf(row store.Review) string { return strconv.Itoa(row.Priority.Rank()) + "." + row.ID }

func reviewCursor(text string) (*store.ReviewCursor, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // from the beginning
	}
	rank, id, ok := strings.Cut(text, ".")
	n, err := strconv.Atoi(rank)
	if !ok || err != nil {
		return nil, &Error{Code: CodeInvalidArgument, Path: "/cursor", Message: "The cursor was not returned by a list.", Hint: "Use nextCursor of the previous page, or leave it out."}
	}
	return &store.ReviewCursor{Rank: n, ID: id}, nil
}

// Review shows one review.
func (e *Engine) Review(ctx context.Context, p Principal, id string) (ReviewView, error) {
	if err := Authorize(p, RightRead); err != nil {
		return ReviewView{}, err
	}
	at, err := e.loadReview(ctx, p, id)
	if err != nil {
		return ReviewView{}, err
	}
	row, inst := at.row, at.instance
	if row.Call != "" {
		return e.showCallReview(ctx, at)
	}
	ev, err := e.loadOpeningEvent(ctx, inst.ID, row.Seq)
	if err != nil {
		return ReviewView{}, err
	}
	show := e.newView(p).withInstance(inst)
	entry, err := show.renderEntry(ctx, ev)
	if err != nil {
		return ReviewView{}, err
	}
	summary, err := show.renderReview(ctx, row)
	if err != nil {
		return ReviewView{}, err
	}
	out := ReviewView{ReviewSummary: summary, Position: inst.position(), Escalation: entry}
	// The event in the history is authoritative, not the stored row.
	out.Action, out.From, out.Target, out.RequestedBy = ev.Action, ev.From, ev.Decision.Target, ev.Principal
	out.Data = entry.Data
	switch {
	case ev.IsStop():
		out.EndedEarly, out.Data = true, emptyData
	case row.Data != nil && inst.seesUnmasked():
		out.Data = row.Data
	}
	if out.Context, err = inst.visibleContext(); err != nil {
		return ReviewView{}, err
	}
	if seesAll(p.Role) && row.Evidence != nil {
		mask, err := show.maskingFor(ctx, ev)
		if err != nil {
			return ReviewView{}, err
		}
		out.Escalation.Evidence = mask.maskEvidence(row.Evidence)
	}
	out.Risk = ev.Decision.Rubric.Risk
	if s := inst.def.States[row.From]; s != nil && s.Transitions[row.Action] != nil {
		out.Description = s.Transitions[row.Action].Description
	}
	if seesAll(p.Role) {
		out.Criteria = ev.Decision.Rubric.CriteriaWithProofs()
	}
	return out, nil
}

// showCallReview shows the review of a call with an unknown outcome.
func (e *Engine) showCallReview(ctx context.Context, at reviewCase) (ReviewView, error) {
	summary, err := e.newView(at.by).withInstance(at.instance).renderReview(ctx, at.row)
	if err != nil {
		return ReviewView{}, err
	}
	called, _, err := e.findCallEvents(ctx, at.ID, at.row.Call)
	if err != nil {
		return ReviewView{}, err
	}
	out := ReviewView{ReviewSummary: summary, Position: at.position(), Data: emptyData}
	out.Escalation = HistoryEntry{
		Seq: called.Seq, Time: called.Time, Kind: called.Kind, Principal: called.Principal, Role: called.Role, Action: called.Action,
		From: called.From, To: called.To, Decision: decisionView(nil), Tool: at.row.Tool, ReviewID: at.row.ID, Hash: called.Hash,
	}
	out.Context, err = at.visibleContext()
	return out, err
}

// loadReview loads a review that the caller may see, with its instance and definition. A review hidden
// from the caller gets the same error as a missing one.
func (e *Engine) loadReview(ctx context.Context, p Principal, id string) (reviewCase, error) {
	if id == "" {
		return reviewCase{}, MissingField("reviewId", "An id that the list of reviews shows.")
	}
	row, err := store.FindReview(ctx, e.cfg.Store, id)
	destroyed := false
	if err == nil {
		row, destroyed, err = e.values.OpenReview(ctx, row)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return reviewCase{}, unknownReview(id)
	case err != nil:
		return reviewCase{}, StoreError("read the review", err)
	}
	inst, err := e.loadInstance(ctx, p, row.Instance)
	if CodeOf(err) == CodeUnknownInstance {
		return reviewCase{}, unknownReview(id)
	}
	return reviewCase{instance: inst, row: row, destroyed: destroyed || inst.IsDestroyed()}, err
}

func unknownReview(id string) error {
	return newError(CodeUnknownReview, "/reviewId", "There is no review %.80q that you may see.", id).
		withHint("List the reviews to see their ids.").withCause(store.ErrNotFound)
}

func (e *Engine) isOverdue(row store.Review) bool {
	return row.Status == record.ReviewOpen && !row.ExpiresAt.IsZero() && !e.Now().Before(row.ExpiresAt)
}

// Waiting summarises the reviews that wait for a person.
type Waiting struct {
	Count int
	Since time.Time // when the oldest was opened; zero if there is none
}

// WaitingReviews counts the open reviews of all principals. An overdue review counts only if it does not expire
// because its definition has its priority raised instead.
func (e *Engine) WaitingReviews(ctx context.Context) (Waiting, error) {
	var w Waiting
	for row, err := range e.cfg.Store.Reviews(store.BulkRead(ctx), store.ReviewQuery{Status: record.ReviewOpen}) {
		if err != nil {
			return Waiting{}, StoreError("count the reviews", err)
		}
		if e.isOverdue(row) && row.OnExpire != workflow.ExpireRaise {
			continue
		}
		if w.Count++; w.Since.IsZero() || row.ParkedAt.Before(w.Since) {
			w.Since = row.ParkedAt
		}
	}
	return w, nil
}

func (e *Engine) expireReview(ctx context.Context, row store.Review) error {
	end := record.Review{ID: row.ID, Status: record.ReviewExpired, Reason: "It was not decided in time."}
	if row.OnExpire == workflow.ExpireRaise {
		end = record.Review{ID: row.ID, Status: record.ReviewOpen, Priority: record.PriorityUrgent, Reason: "It was not decided in time."}
	}
	_, err := e.endReview(ctx, deadlinePrincipal, row, end)
	return err
}

// endReview ends a review without a decision. It returns false if another request has already ended the review.
func (e *Engine) endReview(ctx context.Context, by Principal, row store.Review, end record.Review) (bool, error) {
	inst, err := e.load(ctx, row.Instance)
	if err != nil {
		return false, StoreError("load the instance", err)
	}
	_, err = e.commit(ctx, instance{Instance: inst}, change{event: e.reviewEvent(by, row, end), resolves: &row, end: end})
	if errors.Is(err, errReviewClosed) || errors.Is(err, store.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// deadlinePrincipal is the principal of actions that gavel takes when a deadline passes.
var deadlinePrincipal = Principal{ID: "gavel", Role: "clock"}

// ExpireReviews expires overdue reviews, or raises their priority if the definition requires that, and returns
// their number. Calling it is optional: an overdue review is treated as expired or raised even before that is
// recorded.
func (e *Engine) ExpireReviews(ctx context.Context) (int, error) {
	var due []store.Review
	for row, err := range e.cfg.Store.Reviews(store.BulkRead(ctx), store.ReviewQuery{Status: record.ReviewOpen}) {
		if err != nil {
			return 0, StoreError("list the reviews", err)
		}
		if e.isOverdue(row) {
			due = append(due, row)
		}
	}
	if len(due) == 0 {
		return 0, nil
	}
	done := 0
	err := e.tryLead(ctx, jobReviews, func(ctx context.Context) error {
		var errs []error
		for _, row := range due { // one that cannot be ended must not hold up the others
			if err := e.expireReview(ctx, row); err != nil {
				errs = append(errs, err)
				continue
			}
			done++
		}
		return errors.Join(errs...)
	})
	return done, err
}
