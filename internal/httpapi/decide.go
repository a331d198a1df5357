package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
)

// DecideRequest asks what would be decided of an action, of no instance.
type DecideRequest struct {
	// Key lets a model's answer to exactly this be used again.
	Key string `header:"Idempotency-Key"`
	// Workflow is the name of one that is defined; or give a definition.
	Workflow string `json:"workflow"`
	// Version of the workflow, from 1; the newest when left out.
	Version int `json:"version"`
	// Definition is one that is not stored.
	Definition json.RawMessage `json:"definition"`
	// State is the one that the action would be performed in.
	State string `json:"state" required:"true"`
	// Action of that state.
	Action string `json:"action" required:"true"`
	// Data of the action.
	Data json.RawMessage `json:"data"`
	// Context is what an instance would know.
	Context json.RawMessage `json:"context"`
}

// Decide is the stateless judgement.
var Decide = Operation[DecideRequest, engine.DecideResult]{
	Route: Route{
		Method: http.MethodPost, Path: "/v1/decide", ID: "decide", Tag: "decide",
		Summary:     "Judge an action of no instance",
		Description: "For callers that keep their own state and only want the judgement. Nothing is recorded; notChecked lists the rules that need a history and were not asked.",
	},
	run: func(ctx context.Context, h *Handler, who auth.Identity, req DecideRequest) (engine.DecideResult, error) {
		return h.cfg.Engine.Decide(ctx, who.Principal, engine.DecideRequest{
			Workflow: req.Workflow, Version: req.Version, Definition: req.Definition,
			State: req.State, Action: req.Action, Data: req.Data, Context: req.Context, Key: req.Key,
		})
	},
}
