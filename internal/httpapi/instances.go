package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// StartRequest starts an instance.
type StartRequest struct {
	// Key makes a retry safe: the same key is answered and not repeated.
	Key string `header:"Idempotency-Key"`
	// Type is the name of the workflow.
	Type string `json:"type" required:"true"`
	// Context is what the instance knows from the beginning.
	Context json.RawMessage `json:"context"`
}

// InstancesRequest lists instances.
type InstancesRequest struct {
	// Workflow: only of this one.
	Workflow string `query:"workflow"`
	// State: only in this one.
	State string `query:"state"`
	// Status: only with this one.
	Status record.Status `query:"status"`
	// Cursor is nextCursor of the page before.
	Cursor string `query:"cursor"`
	// Limit is how many at most, 1 to 500; 50 when left out.
	Limit int `query:"limit"`
}

// InstanceRequest asks for an instance, as it is or as it was.
type InstanceRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// Revision asks how it was at this one.
	Revision int64 `query:"revision"`
	// At asks how it was at this time (RFC 3339).
	At time.Time `query:"at"`
}

func (r InstanceRequest) when() engine.When { return engine.When{Revision: r.Revision, At: r.At} }

// InstanceDiagramRequest asks for a drawing of an instance.
type InstanceDiagramRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// Format is mermaid (when left out) or dot.
	Format string `query:"format"`
}

// CanExecuteRequest asks whether an instance is in one of some states.
type CanExecuteRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// States is one or more of them.
	States []string `query:"state"`
}

// AdvanceRequest asks for an action.
type AdvanceRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// Key makes a retry safe: the same key is answered and not repeated.
	Key string `header:"Idempotency-Key"`
	// ExpectedRevision is the ETag of what was read, or a revision in double quotes:
	// the answer is 412 when it is not the instance's any more.
	ExpectedRevision *int64 `header:"If-Match"`
	// Action is one of nextActions.
	Action string `json:"action" required:"true"`
	// Data of the action.
	Data json.RawMessage `json:"data"`
}

// ValidateRequest asks whether an action would pass.
type ValidateRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// ExpectedRevision is the ETag of what was read, or a revision in double quotes:
	// the answer is 412 when it is not the instance's any more.
	ExpectedRevision *int64 `header:"If-Match"`
	// Action is one of nextActions.
	Action string `json:"action" required:"true"`
	// Data of the action.
	Data json.RawMessage `json:"data"`
}

// CancelRequest ends an instance without a final state.
type CancelRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// Key makes a retry safe: the same key is answered and not repeated.
	Key string `header:"Idempotency-Key"`
	// ExpectedRevision is the ETag of what was read, or a revision in double quotes:
	// the answer is 412 when it is not the instance's any more.
	ExpectedRevision *int64 `header:"If-Match"`
	// Reason is one sentence for the record.
	Reason string `json:"reason"`
}

// UndoRequest takes the last move back, or makes it again.
type UndoRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// Key makes a retry safe: the same key is answered and not repeated.
	Key string `header:"Idempotency-Key"`
	// ExpectedRevision is the ETag of what was read, or a revision in double quotes:
	// the answer is 412 when it is not the instance's any more.
	ExpectedRevision *int64 `header:"If-Match"`
}

// CheckpointRequest names the present revision.
type CheckpointRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// Key makes a retry safe: the same key is answered and not repeated.
	Key string `header:"Idempotency-Key"`
	// Description is for whoever rolls back.
	Description string `json:"description"`
	// Metadata is stored and returned.
	Metadata json.RawMessage `json:"metadata"`
}

// RollbackRequest restores a checkpoint.
type RollbackRequest struct {
	// ID of the instance.
	ID string `path:"id"`
	// Key makes a retry safe: the same key is answered and not repeated.
	Key string `header:"Idempotency-Key"`
	// ExpectedRevision is the ETag of what was read, or a revision in double quotes:
	// the answer is 412 when it is not the instance's any more.
	ExpectedRevision *int64 `header:"If-Match"`
	// CheckpointID is one that checkpoints lists.
	CheckpointID string `json:"checkpointId" required:"true"`
}

// IDRequest names an instance.
type IDRequest struct {
	// ID of the instance.
	ID string `path:"id"`
}

// The operations on instances.
var (
	Start = Operation[StartRequest, engine.StartResult]{
		Route: Route{
			Method: http.MethodPost, Path: "/v1/instances", ID: "start", Tag: "instances", Created: true, Tagged: true,
			Summary:     "Start an instance",
			Description: "Answers 201 with the instance, or 200 with a decision that says why the start was refused; then there is none, and nothing was recorded.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req StartRequest) (engine.StartResult, error) {
			return h.cfg.Engine.Start(ctx, who.Principal, engine.StartRequest{Type: req.Type, Context: req.Context, Key: req.Key})
		},
		about: func(_ StartRequest, res engine.StartResult) headers {
			if res.ID == "" {
				return headers{}
			}
			return headers{location: "/v1/instances/" + url.PathEscape(res.ID), revision: res.Revision, replayed: res.Replayed}
		},
	}
	ListInstances = Operation[InstancesRequest, engine.InstancesResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/instances", ID: "listInstances", Tag: "instances",
			Summary: "List instances", Description: "Those that the caller may see, the newest first, page by page.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req InstancesRequest) (engine.InstancesResult, error) {
			return h.cfg.Engine.Instances(ctx, who.Principal, engine.InstancesRequest{
				Workflow: req.Workflow, State: req.State, Status: req.Status, Cursor: req.Cursor, Limit: req.Limit,
			})
		},
		about: func(_ InstancesRequest, res engine.InstancesResult) headers {
			return headers{nextParam: "cursor", nextValue: res.NextCursor}
		},
	}
	GetInstance = Operation[InstanceRequest, engine.StatusResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/instances/{id}", ID: "getInstance", Tag: "instances", Tagged: true,
			Summary:     "Show an instance",
			Description: "Where it stands and what it knows, now, at a revision or at a time. The ETag begins with the revision and is what If-Match takes.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req InstanceRequest) (engine.StatusResult, error) {
			if req.when() == (engine.When{}) {
				return h.cfg.Engine.Status(ctx, who.Principal, req.ID)
			}
			return h.cfg.Engine.StatusAt(ctx, who.Principal, req.ID, req.when())
		},
		about: func(_ InstanceRequest, res engine.StatusResult) headers { return headers{revision: res.Revision} },
	}
	InstanceDefinition = Operation[InstanceRequest, engine.DefinitionView]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/instances/{id}/definition", ID: "instanceDefinition", Tag: "instances",
			Summary: "Show the definition of an instance", Description: "The version that it is pinned to, or was pinned to at a revision or time.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req InstanceRequest) (engine.DefinitionView, error) {
			return h.cfg.Engine.DescribeAt(ctx, who.Principal, engine.DescribeRequest{ID: req.ID, When: req.when()})
		},
	}
	InstanceDiagram = Operation[InstanceDiagramRequest, engine.DiagramResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/instances/{id}/diagram", ID: "instanceDiagram", Tag: "instances",
			Summary: "Draw an instance", Description: "Its definition with its way and its state marked.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req InstanceDiagramRequest) (engine.DiagramResult, error) {
			return h.cfg.Engine.Diagram(ctx, who.Principal, engine.DiagramRequest{ID: req.ID, Format: req.Format})
		},
	}
	CanExecute = Operation[CanExecuteRequest, engine.CanExecuteResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/instances/{id}/can-execute", ID: "canExecute", Tag: "instances",
			Summary: "Ask whether an instance is in one of some states", Description: "For tools that may be used in certain states only.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req CanExecuteRequest) (engine.CanExecuteResult, error) {
			return h.cfg.Engine.CanExecute(ctx, who.Principal, req.ID, req.States)
		},
	}
	Advance = Operation[AdvanceRequest, engine.AdvanceResult]{
		Route: Route{
			Method: http.MethodPost, Path: "/v1/instances/{id}/advance", ID: "advance", Tag: "instances", Tagged: true,
			Summary:     "Perform an action",
			Description: "The move is judged before it happens. A refused or parked one is an answer too: decision.applied says whether it happened, decision says why not, and review which person's word it waits for.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req AdvanceRequest) (engine.AdvanceResult, error) {
			return h.cfg.Engine.Advance(ctx, who.Principal, engine.AdvanceRequest{
				ID: req.ID, Action: req.Action, Data: req.Data, ExpectedRevision: req.ExpectedRevision, Key: req.Key,
			})
		},
		about: func(_ AdvanceRequest, res engine.AdvanceResult) headers {
			return headers{revision: res.Revision, replayed: res.Replayed}
		},
	}
	Validate = Operation[ValidateRequest, engine.ValidateResult]{
		Route: Route{
			Method: http.MethodPost, Path: "/v1/instances/{id}/validate", ID: "validate", Tag: "instances", Tagged: true,
			Summary: "Ask whether an action would pass", Description: "Judges as advance does and moves nothing. The question is recorded.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req ValidateRequest) (engine.ValidateResult, error) {
			return h.cfg.Engine.Validate(ctx, who.Principal, engine.AdvanceRequest{ID: req.ID, Action: req.Action, Data: req.Data, ExpectedRevision: req.ExpectedRevision})
		},
		about: func(_ ValidateRequest, res engine.ValidateResult) headers { return headers{revision: res.Revision} },
	}
	Cancel = Operation[CancelRequest, engine.CancelResult]{
		Route: Route{
			Method: http.MethodPost, Path: "/v1/instances/{id}/cancel", ID: "cancel", Tag: "instances", Tagged: true,
			Summary: "Cancel an instance", Description: "Ends it without a final state.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req CancelRequest) (engine.CancelResult, error) {
			return h.cfg.Engine.Cancel(ctx, who.Principal, engine.CancelRequest{ID: req.ID, Reason: req.Reason, Key: req.Key, ExpectedRevision: req.ExpectedRevision})
		},
		about: func(_ CancelRequest, res engine.CancelResult) headers {
			return headers{revision: res.Revision, replayed: res.Replayed}
		},
	}
	Undo = Operation[UndoRequest, engine.UndoResult]{
		Route: Route{
			Method: http.MethodPost, Path: "/v1/instances/{id}/undo", ID: "undo", Tag: "instances", Tagged: true,
			Summary: "Take the last move back", Description: "Nothing is erased: it is an event like any other.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req UndoRequest) (engine.UndoResult, error) {
			return h.cfg.Engine.Undo(ctx, who.Principal, engine.UndoRequest{ID: req.ID, Key: req.Key, ExpectedRevision: req.ExpectedRevision})
		},
		about: func(_ UndoRequest, res engine.UndoResult) headers {
			return headers{revision: res.Revision, replayed: res.Replayed}
		},
	}
	Redo = Operation[UndoRequest, engine.UndoResult]{
		Route: Route{
			Method: http.MethodPost, Path: "/v1/instances/{id}/redo", ID: "redo", Tag: "instances", Tagged: true,
			Summary: "Make the last undone move again", Description: "Exactly as it was: nothing is judged anew.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req UndoRequest) (engine.UndoResult, error) {
			return h.cfg.Engine.Redo(ctx, who.Principal, engine.UndoRequest{ID: req.ID, Key: req.Key, ExpectedRevision: req.ExpectedRevision})
		},
		about: func(_ UndoRequest, res engine.UndoResult) headers {
			return headers{revision: res.Revision, replayed: res.Replayed}
		},
	}
	Checkpoint = Operation[CheckpointRequest, engine.CheckpointResult]{
		Route: Route{
			Method: http.MethodPost, Path: "/v1/instances/{id}/checkpoints", ID: "checkpoint", Tag: "instances",
			Summary: "Name the present revision", Description: "So that a rollback can come back to it.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req CheckpointRequest) (engine.CheckpointResult, error) {
			return h.cfg.Engine.Checkpoint(ctx, who.Principal, engine.CheckpointRequest{ID: req.ID, Description: req.Description, Metadata: req.Metadata, Key: req.Key})
		},
		about: func(_ CheckpointRequest, res engine.CheckpointResult) headers { return headers{replayed: res.Replayed} },
	}
	ListCheckpoints = Operation[IDRequest, engine.CheckpointsResult]{
		Route: Route{
			Method: http.MethodGet, Path: "/v1/instances/{id}/checkpoints", ID: "listCheckpoints", Tag: "instances",
			Summary: "List the checkpoints", Description: "The newest first.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req IDRequest) (engine.CheckpointsResult, error) {
			return h.cfg.Engine.ListCheckpoints(ctx, who.Principal, req.ID)
		},
	}
	Rollback = Operation[RollbackRequest, engine.RollbackResult]{
		Route: Route{
			Method: http.MethodPost, Path: "/v1/instances/{id}/rollback", ID: "rollback", Tag: "instances", Tagged: true,
			Summary: "Restore a checkpoint", Description: "State, context and facts are again what they were. Nothing is erased.",
		},
		run: func(ctx context.Context, h *Handler, who auth.Identity, req RollbackRequest) (engine.RollbackResult, error) {
			return h.cfg.Engine.Rollback(ctx, who.Principal, engine.RollbackRequest{
				ID: req.ID, CheckpointID: req.CheckpointID, Key: req.Key, ExpectedRevision: req.ExpectedRevision,
			})
		},
		about: func(_ RollbackRequest, res engine.RollbackResult) headers {
			return headers{revision: res.Revision, replayed: res.Replayed}
		},
	}
)
