package operation

import (
	"cmp"
	"context"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// Source is a source of evidence that an operator configured.
type Source struct {
	// Name is the name in definitions.
	Name string `json:"name"`
	// Kind is how the source is queried, for example command or http.
	Kind string `json:"kind"`
	// Description is the operator's description.
	Description string `json:"description,omitempty"`
	// ReadOnly reports that a query changes nothing.
	ReadOnly bool `json:"readOnly"`
}

// SourceList lists the sources of evidence.
type SourceList struct {
	Sources []Source `json:"sources"`
	Count   int      `json:"count"`
}

// WhoAmI describes the caller as the server identified it.
type WhoAmI struct {
	// Principal is the caller's id.
	Principal string `json:"principal"`
	// Role determines what the caller may do.
	Role engine.Role `json:"role"`
	// Workflows lists the names that the caller may use, separated by spaces; empty means all.
	Workflows string `json:"workflows,omitempty"`
	// Kind is how the caller was identified: token, jwt or none.
	Kind auth.Kind `json:"kind"`
	// Credential names the credential. It is not secret.
	Credential string `json:"credential,omitempty"`
	// Expires is when the credential expires.
	Expires time.Time `json:"expires,omitzero"`
}

// The operations on reviews, and the rest.
var (
	Reviews = Add(Operation{
		ID: "listReviews", Group: "reviews", Title: "List reviews", Right: engine.RightRead,
		Description: "List the moves that wait for a person's decision, most urgent first. An agent sees those of its own and of shared instances. Use it after an escalated advance to see whether a person has decided.",
		Fields: []Field{
			{Name: "status", Enum: []string{"open", "resolved", "rejected", "reopened", "stale", "expired", "superseded", "all"}, Help: "Only with this status. The default is open; for agents also rejected, while the instance is still in the same state."},
			{Name: "id", Go: "Instance", Help: "Only for this instance (wf-...)."},
			fieldWorkflow, FieldCursor, PageLimit("reviews", 500),
		},
		Tool: Tool{
			Name: "workflow.review.list", ReadOnly: true, Or: "getReview", OrFirst: true,
			Note: "With reviewId it shows that review in full instead: the request and its data, why the judge did not decide, and how the review ended.",
		},
		Routes: []Route{{At: "GET /v1/reviews"}},
	}, callEngine(Engine.Reviews))
	Review = Add(Operation{
		ID: "getReview", Group: "reviews", Title: "Show a review", Right: engine.RightRead,
		Description: "Everything that a person needs to decide a review.",
		Fields: []Field{{
			Name: "reviewId", Go: "ID", Required: true, HTTPHelp: "The review's id (rev-...).",
			Help: "Show the review with this id (rev-...) in full, instead of a list. Give it alone.",
		}},
		Routes: []Route{{At: "GET /v1/reviews/{reviewId}"}},
	}, func(ctx context.Context, c Call, req IDRequest) (engine.ReviewView, error) {
		return c.Engine.Review(ctx, c.Caller.Principal, req.ID)
	})
	Resolve = Add(Operation{
		ID: "resolve", Group: "reviews", Title: "Decide a review", Right: engine.RightResolve,
		Description: "Decide a move that waits for a person; the decision is final. Approve makes the move, if the workflow's own rules still allow it; reject refuses it.",
		Fields: []Field{
			{Name: "reviewId", Go: "ID", Required: true, Help: "The review's id (rev-...)."},
			{Name: "decision", Required: true, Enum: []string{"approve", "reject", "reopen", "give-up"}, Help: "approve or reject; there is no default. reopen allows a rejected request again; give-up fails the step of a chain if the review is about one."},
			{Name: "output", Kind: Any, Help: "With approve: the output of the chain's step (null for none) if the review has kind step, or the input if it has kind input."},
			{Name: "reason", Required: true, Help: "The reason, in one sentence. It is recorded and shown to the caller that requested the move."},
			fieldKey,
		},
		Tool: Tool{
			Name: "workflow.review.resolve", Destructive: true, Restricted: true, Without: omitPosition,
			Note: "Read the whole review first, with workflow.review.list and its reviewId. This is for a person's decision: never decide on your own.",
		},
		Routes: []Route{{
			At:   "POST /v1/reviews/{reviewId}/resolve",
			Note: "Only reviewers and operators who did not request the move may decide it. applied shows whether it was made.",
		}},
		Show: Adapt(briefResolve),
		Refused: Adapt(func(r engine.ResolveResult) bool {
			return !r.Applied && r.Review.Status != record.ReviewResolved && r.Review.Status != record.ReviewReopened
		}),
	}, func(ctx context.Context, c Call, req engine.ResolveRequest) (engine.ResolveResult, error) {
		req.Channel = cmp.Or(req.Channel, c.Channel)
		return c.Engine.Resolve(ctx, c.Caller.Principal, req)
	})
	Sources = Add(Operation{
		ID: "listSources", Group: "evidence", Title: "List the sources of evidence",
		Description: "The sources that operators configured, by name, without their queries and secrets. Callers limited to some workflows are rejected; the definition of a workflow names its sources.",
		Routes:      []Route{{At: "GET /v1/evidence/sources"}},
	}, func(_ context.Context, c Call, _ Empty) (SourceList, error) {
		if c.Caller.Workflows != "" {
			return SourceList{}, &engine.Error{
				Code: engine.CodeForbidden, Message: "The list covers all workflows, and your credential is limited to some.",
				Hint: "Read the definition of a workflow: it names its sources.",
			}
		}
		all := []Source{}
		if c.Sources != nil {
			all = append(all, c.Sources()...)
		}
		return SourceList{Sources: all, Count: len(all)}, nil
	})
	Who = Add(Operation{
		ID: "whoami", Group: "identity", Title: "Show who you are",
		Description: "The caller as the server identified it, with its rights.",
		Routes:      []Route{{At: "GET /v1/whoami"}},
	}, func(_ context.Context, c Call, _ Empty) (WhoAmI, error) {
		who := c.Caller
		return WhoAmI{
			Principal: who.ID, Role: who.Role, Workflows: who.Workflows, Kind: who.Kind, Credential: who.Credential, Expires: who.Expires,
		}, nil
	})
)
