package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
)

//go:embed assets/review.html
var reviewTemplates string

// Limits of the pages of reviews.
const (
	listedReviews = 50
	queueLength   = 500 // of the reviews among which a page leads on
)

// reviewsData is what the list of reviews shows.
type reviewsData struct {
	Filter       engine.ReviewsRequest
	Found        engine.ReviewsResult
	Statuses     []string
	Newest, More string // addresses of the first and the next page
	IsWhole      bool   // the page has all of them, and is in the order in which they have waited
}

func reviewsPage() module.Page {
	return module.Page{
		Path: "reviews", Title: "Reviews", Place: module.InMenu, Order: 20, Needs: engine.RightRead,
		Templates: reviewTemplates, Regions: []string{"filter", "reviews"},
		Load:   func(ctx context.Context, v module.Visit) (any, error) { return loadReviews(ctx, v) },
		Follow: func(v module.Visit) engine.TailRequest { return engine.TailRequest{Workflow: v.Values.Get("workflow")} },
	}
}

func loadReviews(ctx context.Context, v module.Visit) (d reviewsData, err error) {
	for _, s := range []record.ReviewStatus{record.ReviewOpen, record.ReviewResolved, record.ReviewReopened, record.ReviewStale, record.ReviewExpired, record.ReviewSuperseded} {
		d.Statuses = append(d.Statuses, string(s))
	}
	d.Statuses = slices.Insert(d.Statuses, 2, "rejected")
	d.Filter = engine.ReviewsRequest{
		Workflow: v.Values.Get("workflow"), Status: cmp.Or(v.Values.Get("status"), string(record.ReviewOpen)), Cursor: v.Values.Get("cursor"), Limit: listedReviews,
	}
	d.Found, err = ask(ctx, v, operation.Reviews, d.Filter)
	q := url.Values{"status": {d.Filter.Status}}
	if d.Filter.Workflow != "" {
		q.Set("workflow", d.Filter.Workflow)
	}
	d.Newest = base + "reviews?" + q.Encode()
	if d.IsWhole = d.Filter.Cursor == "" && d.Found.NextCursor == ""; d.IsWhole {
		sortOldestFirst(d.Found.Reviews)
	}
	if d.Found.NextCursor != "" {
		q.Set("cursor", d.Found.NextCursor)
		d.More = base + "reviews?" + q.Encode()
	}
	return d, err
}

// reviewData is what the page of a review shows.
type reviewData struct {
	engine.ReviewView
	explained
	queue
	effect
}

// PageTitle implements titled.
func (d reviewData) PageTitle() string { return "Review: " + firstOf(d.Action, "an early end") }

// IsOpen reports whether it can be decided, IsRejected whether it can be reopened.
func (d reviewData) IsOpen() bool { return d.ReviewView.Status == record.ReviewOpen }

// IsRejected reports whether it can be reopened.
func (d reviewData) IsRejected() bool {
	return d.ReviewView.Status == record.ReviewResolved && d.ReviewView.Decision == judge.Reject && d.CallID == "" && d.Kind == ""
}

// queue is the place of a review among those that wait.
type queue struct {
	Back, Next     string // reviews; "" for none
	Place, Waiting int    // from 1; 0 if it does not wait
	HasMore        bool   // there are more than Waiting
}

// effect is what a move would do that cannot be undone.
type effect struct {
	IsFinal bool // it leads to a final state
	Outcome string
	Freezes []string // fields that never change again
}

func reviewPage() module.Page {
	return module.Page{
		Path: "reviews/{id}", Title: "Review", Place: module.Nowhere, Needs: engine.RightRead,
		Templates: decisionParts + reviewTemplates, Regions: []string{"queue", "state", "question", "matter", "decide"},
		Load: func(ctx context.Context, v module.Visit) (any, error) { return loadReview(ctx, v) },
		Follow: func(v module.Visit) engine.TailRequest {
			d, err := ask(context.Background(), v, operation.Review, operation.IDRequest{ID: v.Path("id")})
			if err != nil {
				return engine.TailRequest{} // the page says so when it is loaded
			}
			return engine.TailRequest{Instance: d.Instance}
		},
		Actions: map[string]func(context.Context, module.Visit) (string, string, error){"resolve": resolveReview},
		Files: map[string]func(context.Context, module.Visit) (module.File, error){
			"review.json":   reviewFile("review", func(d reviewData) any { return d.ReviewView }),
			"data.json":     reviewFile("data", func(d reviewData) any { return d.ReviewView.Data }),
			"context.json":  reviewFile("context", func(d reviewData) any { return d.Before }),
			"evidence.json": reviewFile("evidence", func(d reviewData) any { return d.Escalation.Evidence }),
		},
	}
}

// reviewFile is a download of a part of a review. Its name has the name of the part.
func reviewFile(name string, part func(reviewData) any) func(context.Context, module.Visit) (module.File, error) {
	return func(ctx context.Context, v module.Visit) (module.File, error) {
		d, err := loadReview(ctx, v)
		return documentFile(v.Path("id")+"-"+name+".json", part(d)), err
	}
}

func loadReview(ctx context.Context, v module.Visit) (d reviewData, err error) {
	if d.ReviewView, err = ask(ctx, v, operation.Review, operation.IDRequest{ID: v.Path("id")}); err != nil {
		return d, err
	}
	if d.queue, err = findPlace(ctx, v, d.ReviewView.ID); err != nil {
		return d, err
	}
	d.Before = d.ReviewView.Context
	if !d.IsOpen() && d.ReviewView.Revision > 0 {
		then, err := ask(ctx, v, operation.Status, operation.StatusRequest{ID: d.Instance, When: engine.When{Revision: d.ReviewView.Revision}})
		if err != nil && engine.CodeOf(err) != engine.CodeUnknownRevision {
			return d, err
		}
		d.Before = then.Context
	}
	d.Changed = compareJSON(pickMembers(d.Before, d.ReviewView.Data), d.ReviewView.Data)
	d.explain(d.Escalation, d.ReviewView.Data)
	d.effect, err = readEffect(ctx, v, d.ReviewView)
	return d, err
}

// sortOldestFirst sorts reviews by how long they have waited; equally old ones stay in the order of their priority.
func sortOldestFirst(all []engine.ReviewSummary) {
	slices.SortStableFunc(all, func(a, b engine.ReviewSummary) int { return a.ParkedAt.Compare(b.ParkedAt) })
}

// findPlace returns the place of a review among those that wait, oldest first.
func findPlace(ctx context.Context, v module.Visit, id string) (q queue, err error) {
	open, err := ask(ctx, v, operation.Reviews, engine.ReviewsRequest{Limit: queueLength})
	if err != nil {
		return q, err
	}
	all := open.Reviews
	sortOldestFirst(all)
	q.Waiting, q.HasMore = len(all), open.NextCursor != ""
	at := slices.IndexFunc(all, func(s engine.ReviewSummary) bool { return s.ID == id })
	switch {
	case at < 0 && len(all) > 0:
		q.Next = all[0].ID
	case at >= 0:
		q.Place = at + 1
		if at > 0 {
			q.Back = all[at-1].ID
		}
		if at+1 < len(all) {
			q.Next = all[at+1].ID
		}
	}
	return q, nil
}

// readEffect reads in the definition what the move would do.
func readEffect(ctx context.Context, v module.Visit, r engine.ReviewView) (e effect, err error) {
	d, err := ask(ctx, v, operation.Describe, engine.DescribeRequest{ID: r.Instance})
	if err != nil {
		return e, err
	}
	var def struct {
		States map[string]struct {
			Final       bool
			Outcome     string
			Transitions map[string]json.RawMessage
		}
	}
	if json.Unmarshal(d.Definition, &def) != nil {
		return e, nil // then the page does not say it
	}
	to := def.States[r.Target]
	e.IsFinal, e.Outcome = to.Final, to.Outcome
	var move struct{ Freezes []string }
	if json.Unmarshal(def.States[r.From].Transitions[r.Action], &move) == nil { // a transition can also be only a name
		e.Freezes = move.Freezes
	}
	return e, nil
}

// resolveReview sends a person's decision, and leads to the next review that waits.
func resolveReview(ctx context.Context, v module.Visit) (next, message string, err error) {
	id := v.Path("id")
	req := engine.ResolveRequest{ID: id, Decision: judge.Outcome(v.Values.Get("decision")), Reason: v.Values.Get("reason"), Key: formKey(v, id)}
	if output := strings.TrimSpace(v.Values.Get("output")); output != "" {
		if !json.Valid([]byte(output)) {
			return "", "", &engine.Error{Code: engine.CodeInvalidArgument, Path: "/output", Message: "The output is not JSON.", Hint: `Text needs quotes: "text".`}
		}
		req.Output = json.RawMessage(output)
	}
	place, err := findPlace(ctx, v, id)
	if err != nil {
		return "", "", err
	}
	done, err := ask(ctx, v, operation.Resolve, req)
	if err != nil {
		return "", "", err
	}
	if req.Decision == judge.Approve && !done.Applied && done.Review.Status != record.ReviewResolved {
		return "reviews/" + url.PathEscape(id), done.Message, nil
	}
	following := firstOf(place.Next, place.Back)
	if following == "" {
		return "reviews", done.Message + " No other review waits.", nil
	}
	return "reviews/" + url.PathEscape(following), done.Message + " This is the next review.", nil
}

// formKey is the idempotency key of a form: the same form that is sent twice acts once.
func formKey(v module.Visit, about string) string {
	values := url.Values{"about": {about}}
	for name, value := range v.Values {
		if name != "csrf" && name != "from" {
			values[name] = value
		}
	}
	sum := sha256.Sum256([]byte(values.Encode()))
	return fmt.Sprintf("console-%s", hex.EncodeToString(sum[:16]))
}
