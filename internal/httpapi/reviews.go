package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/judge"
)

// ReviewsRequest lists reviews.
type ReviewsRequest struct {
	// Status is open when left out; all is every one.
	Status string `query:"status"`
	// Instance: only of this one.
	Instance string `query:"instance"`
	// Workflow: only of this one.
	Workflow string `query:"workflow"`
	// Cursor is nextCursor of the page before.
	Cursor string `query:"cursor"`
	// Limit is how many at most, 1 to 500; 50 when left out.
	Limit int `query:"limit"`
}

// ReviewRequest names a review.
type ReviewRequest struct {
	// ID of the review.
	ID string `path:"id"`
}

// ResolveRequest decides a review.
type ResolveRequest struct {
	// ID of the review.
	ID string `path:"id"`
	// Key makes a retry safe: the same key is answered and not repeated.
	Key string `header:"Idempotency-Key"`
	// Decision is approve or reject.
	Decision judge.Outcome `json:"decision" required:"true"`
	// Reason is recorded, and whoever asked for the move reads it.
	Reason string `json:"reason" required:"true"`
}

// SourceList lists the sources of evidence.
type SourceList struct {
	Sources []Source `json:"sources"`
	Count   int      `json:"count"`
}

// WhoAmI says who the server takes the caller for.
type WhoAmI struct {
	// Principal is the caller's id.
	Principal string `json:"principal"`
	// Role is what it may do.
	Role engine.Role `json:"role"`
	// Workflows are the names that it may deal with, separated by spaces; all when empty.
	Workflows string `json:"workflows,omitempty"`
	// Kind is how it is known: token, jwt or none.
	Kind auth.Kind `json:"kind"`
	// Credential names the credential. It is not secret.
	Credential string `json:"credential,omitempty"`
	// Expires is when the credential ends.
	Expires time.Time `json:"expires,omitzero"`
}

// The operations on reviews, and the rest.
var (
	ListReviews = Operation[ReviewsRequest, engine.ReviewsResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/reviews", ID: "listReviews", Tag: "reviews",
			Summary: "List reviews", Description: "Moves that wait for a person: those that the caller asked for, or all for reviewers, operators and auditors. The most urgent first, then the oldest.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req ReviewsRequest) (engine.ReviewsResult, error) {
			return h.cfg.Engine.Reviews(ctx, who.Principal, engine.ReviewsRequest{
				Status: req.Status, WorkflowID: req.Instance, Workflow: req.Workflow, Cursor: req.Cursor, Limit: req.Limit,
			})
		},
		about: func(_ ReviewsRequest, res engine.ReviewsResult) headers {
			return headers{nextParam: "cursor", nextValue: res.NextCursor}
		},
	}
	GetReview = Operation[ReviewRequest, engine.ReviewView]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/reviews/{id}", ID: "getReview", Tag: "reviews",
			Summary: "Show a review", Description: "All that a person needs to decide it.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req ReviewRequest) (engine.ReviewView, error) {
			return h.cfg.Engine.Review(ctx, who.Principal, req.ID)
		},
	}
	Resolve = Operation[ResolveRequest, engine.ResolveResult]{
		Route: Route{
			Method: http.MethodPost, Path: "/v1/reviews/{id}/resolve", ID: "resolve", Tag: "reviews",
			Summary:     "Decide a review",
			Description: "Once, by a reviewer or an operator who did not ask for the move. An approval asks the deterministic layers again; applied says whether the move was made.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req ResolveRequest) (engine.ResolveResult, error) {
			return h.cfg.Engine.Resolve(ctx, who.Principal, engine.ResolveRequest{ID: req.ID, Decision: req.Decision, Reason: req.Reason, Key: req.Key})
		},
		about: func(_ ResolveRequest, res engine.ResolveResult) headers { return headers{replayed: res.Replayed} },
	}
	ListSources = Operation[Empty, SourceList]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/evidence/sources", ID: "listSources", Tag: "evidence",
			Summary: "List the sources of evidence", Description: "What operators configured, by name. What is asked and with which secrets is not shown. A caller that may deal with some workflows only is refused: the definition of each names its sources.",
		},
		run: func(_ context.Context, h *Handler, who auth.Identity, _ Empty) (SourceList, error) {
			if who.Workflows != "" {
				return SourceList{}, &engine.Error{
					Code: engine.CodeForbidden, Message: "The sources of evidence are those of all workflows, and your credential is for some.",
					Hint: "Look at the definition of a workflow: it names its sources.",
				}
			}
			all := append([]Source{}, h.cfg.Sources()...)
			return SourceList{Sources: all, Count: len(all)}, nil
		},
	}
	Who = Operation[Empty, WhoAmI]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/whoami", ID: "whoami", Tag: "identity",
			Summary: "Show who you are", Description: "Who the server takes the caller for, and what it may do.",
		},
		run: func(_ context.Context, _ *Handler, who auth.Identity, _ Empty) (WhoAmI, error) {
			return WhoAmI{
				Principal: who.ID, Role: who.Role, Workflows: who.Workflows, Kind: who.Kind, Credential: who.Credential, Expires: who.Expires,
			}, nil
		},
	}
)
