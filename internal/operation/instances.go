package operation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// IDRequest names an instance or a review.
type IDRequest struct{ ID string }

// StatusRequest asks for an instance, as it is or as it was.
type StatusRequest struct {
	ID string
	engine.When
}

// TranscriptRequest reports messages of an agent's user.
type TranscriptRequest struct {
	ID, Key  string
	Messages json.RawMessage
}

// addTranscript rejects messages that another than the user wrote: who reports them might pass on a whole dialogue.
func addTranscript(ctx context.Context, c Call, req TranscriptRequest) (engine.TranscriptResult, error) {
	list, said := document.ReadTrusted(req.Messages), []string{}
	if list.Kind() != document.Array {
		return engine.TranscriptResult{}, NewArgumentError("messages", fmt.Sprintf("The messages must be a list, but are %s.", kindName(list)), "Send texts.")
	}
	for i, m := range list.Elements() {
		text, role := m, m.Get("role")
		if m.Kind() == document.Object {
			text = m.Get("text")
		}
		at, message := fmt.Sprintf("/messages/%d", i), ""
		switch {
		case m.Kind() == document.Object && !role.Is("user"):
			message = fmt.Sprintf("The message %d has the role %s, not \"user\".", i, quoteText(role.Text()))
		case text.Kind() != document.String:
			message = fmt.Sprintf("The message %d has no text.", i)
		}
		if message != "" {
			return engine.TranscriptResult{}, &engine.Error{Code: engine.CodeInvalidArgument, Path: at, Message: message, Hint: "Report only what the user wrote, never an agent's words or results of tools."}
		}
		said = append(said, text.Text())
	}
	return c.Engine.AddTranscript(ctx, c.Caller.Principal, engine.TranscriptRequest{ID: req.ID, Messages: said, Key: req.Key})
}

// The operations on instances.
var (
	Start = Add(Operation{
		ID: "start", Group: "instances", Title: "Start an instance", Right: engine.RightStart,
		Description: "Start an instance of a workflow. Returns its id, its state and nextActions. If the workflow does not accept the start context, nothing is created.",
		Fields: []Field{
			{Name: "type", Required: true, Help: "The workflow's name, from list."},
			{Name: "context", Open: true, Help: "The start context: a JSON object with the fields that list shows in startRequires.", HTTPHelp: "The start context: a JSON object with the fields that the definition's startRequires names."},
			{Name: "subject", Help: "The subject of the instance. A subject has one instance until that ends with success. Give it when a tool asks for it."},
			fieldKey,
		},
		Tool: Tool{Name: "workflow.start", Without: []string{"seq"}},
		Routes: []Route{{
			At: "POST /v1/instances", Created: true, Tagged: true,
			Note: "Answers 201 with the instance, or 200 with the decision that refused it.",
		}},
		Show: Adapt(briefStart), Refused: Adapt(func(r engine.StartResult) bool { return !r.Decision.Applied }),
		Location: Adapt(func(r engine.StartResult) string {
			if r.ID == "" {
				return ""
			}
			return "/v1/instances/" + url.PathEscape(r.ID)
		}),
	}, callEngine(Engine.Start))
	Instances = Add(Operation{
		ID: "listInstances", Group: "instances", Title: "List instances", Right: engine.RightRead,
		Description: "List your instances, newest first. Use it to find an instance whose id you lost.",
		Fields: []Field{
			fieldWorkflow,
			{Name: "state", Help: "Only instances in this state."},
			{Name: "status", Enum: []string{"running", "complete", "cancelled"}, Help: "Only instances with this status."},
			FieldCursor, PageLimit("instances", 500),
		},
		Tool:   Tool{Name: "workflow.instances", ReadOnly: true},
		Routes: []Route{{At: "GET /v1/instances", Note: "Reviewers, operators and auditors see the instances of all callers."}},
	}, callEngine(Engine.Instances))
	Status = Add(Operation{
		ID: "getInstance", Group: "instances", Title: "Show an instance", Right: engine.RightRead,
		Description: "Show an instance: state, context, nextActions, progress, and whether it is complete. Use it whenever you are not sure. With revision or at it shows the past; past.currentState is the state now.",
		Fields:      []Field{fieldID, fieldPast, fieldAt},
		Tool:        Tool{Name: "workflow.status", ReadOnly: true},
		Routes: []Route{{
			At: "GET /v1/instances/{id}", Tagged: true,
			Note: "The ETag begins with the revision; send it as If-Match.",
		}},
	}, func(ctx context.Context, c Call, req StatusRequest) (engine.StatusResult, error) {
		return c.Engine.StatusAt(ctx, c.Caller.Principal, req.ID, req.When)
	})
	CanExecute = Add(Operation{
		ID: "canExecute", Group: "instances", Title: "Check before acting", Right: engine.RightRead,
		Description: "Check whether an instance is in one of the given states, or whether an action is possible now, before you use a tool that depends on it. Nothing is judged or recorded.",
		Fields: []Field{
			fieldID,
			{Name: "action", Help: "The action that would be performed."},
			{Name: "states", HTTPName: "state", Help: "The states in which the tool may be used."},
		},
		Tool:   Tool{Name: "workflow.canExecute", ReadOnly: true, Note: "Give action, states or both.", Without: omitPosition},
		Routes: []Route{{At: "GET /v1/instances/{id}/can-execute", Note: "Give `action`, `state` or both."}},
		Show:   Adapt(briefCanExecute),
	}, callEngine(Engine.CanExecute))
	Advance = Add(Operation{
		ID: "advance", Group: "instances", Title: "Perform an action", Right: engine.RightAdvance,
		Description: "Request an action. It is judged first: if approved, the instance moves to the next state and data is merged into its context. If refused, nothing changes and the answer names what is missing. Only an approved advance means that the step is done.",
		Fields:      []Field{fieldID, fieldAction, fieldData, fieldExpected, fieldKey},
		Tool:        Tool{Name: "workflow.advance", Without: omitMove},
		Routes: []Route{{
			At: "POST /v1/instances/{id}/advance", Tagged: true,
			Note: "A refused or parked move also gets 200: decision.applied is false, decision gives the reason, and review is the review that a parked move waits for.",
		}},
		Show:    Adapt(briefAdvance),
		Refused: Adapt(func(r engine.AdvanceResult) bool { return !r.Decision.Applied }),
	}, callEngine(Engine.Advance))
	Validate = Add(Operation{
		ID: "validate", Group: "instances", Title: "Ask whether an action would pass", Right: engine.RightValidate,
		Description: "Judge an action without performing it. Returns approved, confidence, reasoning, violations and suggestions. The state does not change; the question is recorded.",
		Fields:      []Field{fieldID, fieldAction, fieldData, fieldExpected},
		Tool:        Tool{Name: "workflow.judge.validate", Without: omitMove},
		Routes: []Route{{
			At: "POST /v1/instances/{id}/validate", Tagged: true,
			Description: "Judges as advance does, but moves nothing. The question is recorded.",
		}},
		Show: Adapt(briefValidate),
	}, callEngine(Engine.Validate))
	Cancel = Add(Operation{
		ID: "cancel", Group: "instances", Title: "Cancel an instance", Right: engine.RightCancel,
		Description: "End an instance for good without reaching a final state. Its history is kept.",
		Fields:      []Field{fieldID, {Name: "reason", Help: "Why, for the record."}, fieldExpected, fieldKey},
		Tool:        Tool{Name: "workflow.cancel", Destructive: true, Without: omitFrom},
		Routes:      []Route{{At: "POST /v1/instances/{id}/cancel", Tagged: true}},
		Show:        Adapt(briefMoved),
	}, callEngine(Engine.Cancel))
	Release = Add(Operation{
		ID: "release", Group: "instances", Title: "Release the subject of an instance", Right: engine.RightRelease,
		Description: "Free the subject of an instance that has not ended with success, so that another instance of the workflow can have it. Operators only.",
		Fields:      []Field{fieldID, {Name: "reason", Help: "Why, for the record."}},
		Routes:      []Route{{At: "POST /v1/instances/{id}/release"}},
	}, callEngine(Engine.ReleaseSubject))
	Undo = Add(Operation{
		ID: "undo", Group: "instances", Title: "Undo the last move", Right: engine.RightUndo,
		Description: "Undo the last approved move of an instance: its state and context from before the move are restored. Call it again to undo the move before. Nothing outside is undone, and the history is kept. Only an operator may undo a move of an operator's workflow, or one that a person approved.",
		Fields:      []Field{fieldID, fieldExpected, fieldKey},
		Tool:        Tool{Name: "workflow.undo", Destructive: true, Without: omitFrom},
		Routes:      []Route{{At: "POST /v1/instances/{id}/undo", Tagged: true}},
		Show:        Adapt(briefMoved),
	}, callEngine(Engine.Undo))
	Redo = Add(Operation{
		ID: "redo", Group: "instances", Title: "Redo the last undone move", Right: engine.RightRedo,
		Description: "Make the last undone move again, exactly as it was. Possible until another move is made. Needs the same rights as undo.",
		Fields:      []Field{fieldID, fieldExpected, fieldKey},
		Tool:        Tool{Name: "workflow.redo", Destructive: true, Without: omitFrom},
		Routes:      []Route{{At: "POST /v1/instances/{id}/redo", Tagged: true}},
		Show:        Adapt(briefMoved),
	}, callEngine(Engine.Redo))
	Checkpoint = Add(Operation{
		ID: "checkpoint", Group: "instances", Title: "Set a checkpoint", Right: engine.RightCheckpoint,
		Description: "Save the current state and context of an instance, to roll back to later. Use it before a step that may go wrong.",
		Fields: []Field{
			fieldID,
			{Name: "description", Help: "A description of the checkpoint."},
			{Name: "metadata", Open: true, Help: "Anything else to keep with it: a JSON object."},
			fieldKey,
		},
		Tool:   Tool{Name: "workflow.checkpoint"},
		Routes: []Route{{At: "POST /v1/instances/{id}/checkpoints"}},
		Show:   Adapt(showCheckpoint),
	}, callEngine(Engine.Checkpoint))
	ListCheckpoints = Add(Operation{
		ID: "listCheckpoints", Group: "instances", Title: "List checkpoints", Right: engine.RightRead,
		Description: "List an instance's checkpoints, newest first.",
		Fields:      []Field{fieldID},
		Tool:        Tool{Name: "workflow.listCheckpoints", ReadOnly: true},
		Routes:      []Route{{At: "GET /v1/instances/{id}/checkpoints"}},
		Show:        Adapt(showCheckpoints),
	}, func(ctx context.Context, c Call, req IDRequest) (engine.CheckpointsResult, error) {
		return c.Engine.ListCheckpoints(ctx, c.Caller.Principal, req.ID)
	})
	Rollback = Add(Operation{
		ID: "rollback", Group: "instances", Title: "Roll back to a checkpoint", Right: engine.RightRollback,
		Description: "Restore the state and context that an instance had at a checkpoint. The history is kept. On an operator's workflow, only an operator may do this.",
		Fields:      []Field{fieldID, {Name: "checkpointId", Required: true, Help: "The checkpoint's id (cp-...)."}, fieldExpected, fieldKey},
		Tool:        Tool{Name: "workflow.rollback", Destructive: true, Without: omitFrom},
		Routes:      []Route{{At: "POST /v1/instances/{id}/rollback", Tagged: true}},
		Show:        Adapt(briefMoved),
	}, callEngine(Engine.Rollback))
	AddTranscript = Add(Operation{
		ID: "addTranscript", Group: "instances", Title: "Add the user's messages", Right: engine.RightTranscript,
		Description: "Report what the user of an instance's agent said, as evidence for later decisions. For the operator's proxy between user and agent; never for the agent.",
		Fields: []Field{
			fieldID,
			{Name: "messages", Kind: Any, Required: true, Help: `The user's messages, oldest first: a list of texts, or of {"role": "user", "text": "..."}.`},
			fieldKey,
		},
		Routes: []Route{{At: "POST /v1/instances/{id}/transcript"}},
	}, addTranscript)
)
