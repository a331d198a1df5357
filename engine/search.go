package engine

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// DecisionsRequest searches the decisions that the caller may see, newest first.
type DecisionsRequest struct {
	// Query selects decisions. Its Before and Limit are ignored: see Cursor and Limit.
	Query  store.DecisionQuery
	Cursor string // NextCursor of the previous page
	Limit  int    // 0 is 100; at most 1000
	// BareEvidence omits the content of evidence for every caller; the fact that it was fetched, the time and
	// the digest remain. Use it for data that leaves the organisation.
	BareEvidence bool
}

// FoundDecision is a decision with its instance.
type FoundDecision struct {
	Instance string `json:"id"`
	Workflow string `json:"workflow"`
	Version  int    `json:"version"`
	HistoryEntry
}

// DecisionsResult answers a DecisionsRequest.
type DecisionsResult struct {
	Decisions []FoundDecision `json:"decisions"` // never nil
	Count     int             `json:"count"`     // of this page
	// NextCursor continues the list, unaffected by later commits; "" at the end.
	NextCursor string `json:"nextCursor,omitempty"`
}

// Decisions finds decisions. Agents find those about their own instances and shared ones. Each decision is
// shown as History shows it.
func (e *Engine) Decisions(ctx context.Context, p Principal, req DecisionsRequest) (DecisionsResult, error) {
	for {
		out, hidden, err := e.decisionsPage(ctx, p, req)
		if err != nil || !hidden || len(out.Decisions) > 0 || out.NextCursor == "" {
			return out, err
		}
		req.Cursor = out.NextCursor // continue as if the hidden decisions did not exist
	}
}

// decisionsPage returns a page of decisions; hidden reports that some were omitted.
func (e *Engine) decisionsPage(ctx context.Context, p Principal, req DecisionsRequest) (_ DecisionsResult, hidden bool, _ error) {
	ctx, read, err := e.beginList(ctx, p, req.Limit, defaultHistoryPage, maxHistoryPage)
	if err != nil {
		return DecisionsResult{}, false, err
	}
	defer read.End()
	q, limit := req.Query, read.limit
	if q.Before, err = decisionCursor(req.Cursor); err != nil {
		return DecisionsResult{}, false, err
	}
	q.Limit = limit + 1
	if err := e.checkSearch(ctx, p, q); err != nil {
		return DecisionsResult{}, false, err
	}
	out := DecisionsResult{Decisions: []FoundDecision{}}
	next := func(position int64) { out.NextCursor = strconv.FormatInt(position, 10) }
	q.OnScan = func(position int64) bool { // called even while nothing is found
		if read.isFull() {
			next(position)
		}
		return !read.isFull()
	}
	page, more, err := read.collectEvents(ctx, "look for decisions", e.searchScoped(ctx, read.sight, q), limit)
	if err != nil {
		return DecisionsResult{}, false, err
	}
	show := e.newView(p)
	entries, err := showEvents(ctx, read.BulkRead, page, func(h store.PlacedEvent) (HistoryEntry, error) { return show.renderEntry(ctx, h.Event) })
	if err != nil {
		return DecisionsResult{}, false, err
	}
	if n := len(entries); more || n < len(page) {
		next(page[n-1].Position)
	}
	for i, entry := range entries {
		ev := page[i].Event
		if !matchesMasked(q, ev, entry) {
			hidden = true
			continue
		}
		if req.BareEvidence {
			entry.Evidence = withoutContent(entry.Evidence)
		}
		out.Decisions = append(out.Decisions, FoundDecision{
			Instance: ev.Instance, Workflow: ev.Workflow, Version: ev.Version, HistoryEntry: entry,
		})
	}
	out.Count = len(out.Decisions)
	return out, hidden, nil
}

// matchesMasked reports whether a query also selects a decision in its masked form. Otherwise masked values
// could be found by guessing them.
func matchesMasked(q store.DecisionQuery, ev record.Event, shown HistoryEntry) bool {
	if q.Action != "" && shown.Action != q.Action {
		return false
	}
	d := *ev.Decision
	d.Reasoning, d.Findings = shown.Reasoning, shown.Findings
	ev.Decision = &d
	return q.MatchesText(ev)
}

func (e *Engine) checkSearch(ctx context.Context, p Principal, q store.DecisionQuery) error {
	if err := e.checkQuery(q); err != nil || q.Instance == "" {
		return err
	}
	_, err := e.loadInstance(ctx, p, q.Instance)
	return err
}

func (past history) searchScoped(ctx context.Context, sees sight, q store.DecisionQuery) iter.Seq2[store.PlacedEvent, error] {
	parts := sees.listParts(q.Workflow, q.Owner)
	if sees.p.Workflows == "" {
		return past.mergeDecisions(ctx, q, parts)
	}
	q.Limit = 0 // the store returns decisions out of scope, which are skipped below
	return func(yield func(store.PlacedEvent, error) bool) {
		for h, err := range past.mergeDecisions(ctx, q, parts) {
			if (err != nil || sees.p.InScope(h.Event.Workflow)) && !yield(h, err) {
				return
			}
		}
	}
}

// Values that a search may request, as recorded in decisions.
var (
	// Outcomes lists the outcomes of decisions.
	Outcomes = []judge.Outcome{judge.Approve, judge.Reject, judge.Escalate}
	// Deciders lists the layers and other deciders of decisions.
	Deciders = []judge.LayerName{
		judge.LayerTransition, judge.LayerFields, judge.LayerSchema, judge.LayerEvidence, judge.LayerScript, judge.LayerState,
		judge.LayerContent, judge.LayerModel, judge.ByFallback, judge.ByPolicy, judge.ByReviewer,
	}
	// Assurances lists the levels of assurance, lowest first.
	Assurances = workflow.Assurances
)

// checkQuery rejects queries that cannot match any decision, because they are most likely mistakes.
func (e *Engine) checkQuery(q store.DecisionQuery) error {
	if err := checkOneOf("outcome", q.Outcome, Outcomes); err != nil {
		return err
	}
	if err := checkOneOf("decidedBy", q.DecidedBy, Deciders); err != nil {
		return err
	}
	if err := checkOneOf("assurance", q.Assurance, Assurances); err != nil {
		return err
	}
	for field, c := range map[string]*float64{"minConfidence": q.MinConfidence, "maxConfidence": q.MaxConfidence} {
		if c != nil && !(*c >= 0 && *c <= 1) { // also rejects NaN
			return &Error{Code: CodeInvalidArgument, Path: "/" + field, Message: fmt.Sprintf("%s must be from 0 to 1, not %v.", field, *c), Hint: "Leave it out for any."}
		}
	}
	switch {
	case q.MinConfidence != nil && q.MaxConfidence != nil && *q.MinConfidence > *q.MaxConfidence:
		return &Error{Code: CodeInvalidArgument, Path: "/minConfidence", Message: "minConfidence is greater than maxConfidence.", Hint: "Swap them."}
	case !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until):
		return &Error{Code: CodeInvalidArgument, Path: "/since", Message: "since is not before until.", Hint: "Swap them."}
	}
	if err := e.CheckText("text", q.Text); err != nil {
		return err
	}
	if q.Empty() { // the ranges themselves are valid
		return &Error{Code: CodeInvalidArgument, Path: "/text", Message: "The search text contains no word.", Hint: "Give letters, digits or symbols such as emoji; punctuation is ignored."}
	}
	return nil
}

func checkOneOf[T ~string](field string, value T, of []T) error {
	if value == "" || slices.Contains(of, value) {
		return nil
	}
	return newError(CodeInvalidArgument, "/"+field, "There is no %s %.80q.", field, string(value)).
		withHint("It is one of " + joinWords(of) + ".")
}

func decisionCursor(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return n, nil
	}
	return 0, &Error{Code: CodeInvalidArgument, Path: "/cursor", Message: "The cursor was not returned by a search.", Hint: "Use nextCursor of the previous page, or leave it out."}
}

// StatisticsRequest asks for statistics about decisions.
type StatisticsRequest struct {
	Workflow     string    // "" is all
	Since, Until time.Time // inclusive, exclusive; zero means unbounded
}

// StatisticsResult answers a StatisticsRequest.
type StatisticsResult struct {
	// Transitions is sorted by workflow, state and action. Never nil.
	Transitions []TransitionStatistics `json:"transitions"`
	// Decisions is the number of decisions examined, including pre-checks.
	Decisions int64 `json:"total"`
	// NotShown counts decisions about transitions beyond the first 1000 found: agents may request any
	// number of unknown actions.
	NotShown int64 `json:"notShown,omitempty"`
}

// TransitionStatistics holds the figures of one action in one state. Prechecks (judge.validate) are
// counted separately and in no other figure.
type TransitionStatistics struct {
	Workflow string `json:"workflow"`
	// State and Action are empty for starts.
	State     string `json:"state,omitempty"`
	Action    string `json:"action,omitempty"`
	Decisions int64  `json:"total"`
	Prechecks int64  `json:"prechecks"`

	Approved  int64 `json:"approvals"`
	Rejected  int64 `json:"rejections"`
	Escalated int64 `json:"escalations"`
	Degraded  int64 `json:"degradations"`
	// DecidedBy counts by layer. Codes holds the most frequent refusal codes, most frequent first.
	DecidedBy []Counted `json:"decidedByCounts"`
	Codes     []Counted `json:"codes"`

	// TookMedianMs and TookP95Ms are the durations of decisions, accurate to 2 percent or half a microsecond.
	TookMedianMs float64 `json:"tookMedianMs"`
	TookP95Ms    float64 `json:"tookP95Ms"`
	// Quartiles of confidence, to three decimals.
	ConfidenceLower  float64 `json:"confidenceLower"`
	ConfidenceMedian float64 `json:"confidenceMedian"`
	ConfidenceUpper  float64 `json:"confidenceUpper"`
}

// Counted is the number of occurrences of a name.
type Counted struct {
	Name  string `json:"what"`
	Count int64  `json:"times"`
}

// Statistics computes figures per transition over all decisions that the caller may see.
func (e *Engine) Statistics(ctx context.Context, p Principal, req StatisticsRequest) (StatisticsResult, error) {
	q := store.DecisionQuery{Workflow: req.Workflow, Since: req.Since, Until: req.Until}
	ctx, read, err := e.beginList(ctx, p, 0, 0, 0)
	if err != nil {
		return StatisticsResult{}, err
	}
	defer read.End()
	if err := e.checkSearch(ctx, p, q); err != nil {
		return StatisticsResult{}, err
	}
	var interrupted error
	q.OnScan = func(int64) bool { // called even while nothing is found
		interrupted = read.yield(ctx)
		return interrupted == nil
	}
	t := tally{store.Tally{}}
	out := StatisticsResult{}
	for _, of := range read.sight.listParts(req.Workflow, "") {
		q.Workflow, q.Owner = of.workflow, of.owner
		for f, err := range withYield(ctx, read.BulkRead, "read the decisions", e.cfg.Store.Figures(ctx, q)) {
			if err != nil {
				return StatisticsResult{}, err
			}
			if !p.InScope(f.Workflow) || of.workflow == "" && read.sight.isShared(f.Workflow) { // shared workflows have a separate part
				continue
			}
			n := f.Decisions + f.Prechecks
			out.Decisions += n
			if !t.add(f) {
				out.NotShown += n
			}
		}
	}
	if interrupted != nil {
		return StatisticsResult{}, StoreError("read the decisions", interrupted)
	}
	out.Transitions = t.listTransitions()
	return out, nil
}
