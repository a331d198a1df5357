package engine

import (
	"encoding/json"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Role determines what a principal may do. The engine alone checks it, for every face.
type Role string

// The roles.
const (
	RoleAgent    Role = "agent"
	RoleReviewer Role = "reviewer"
	RoleOperator Role = "operator"
	RoleAuditor  Role = "auditor"
	RoleProxy    Role = "proxy" // reports what an agent's user said, and may do nothing else
)

// Principal is a caller.
type Principal struct {
	ID   string // for example "local:agent"
	Role Role
	// Workflows lists the names that it may use, separated by spaces. Each is exact, or has * for any run of
	// characters ("deploy refund-*"); "" means all. To this principal, other workflows do not exist.
	Workflows string
	// Alias is another principal that may be the same person, "" for none. The actions that it performed count for
	// notBy when this principal decides a review.
	Alias string
}

// MCP tool results omit default values and values that other fields already show. Fields that all other results
// have are therefore marked omitzero too.

// Position is the state of an instance and what is possible there. Every result about an instance contains it.
type Position struct {
	ID       string `json:"id,omitzero"`
	Workflow string `json:"workflow,omitzero"`
	Version  int    `json:"version,omitzero"`
	// DefinitionOwner is the owner of this version of the workflow.
	DefinitionOwner DefinitionOwner `json:"definitionOwner,omitzero"`
	State           string          `json:"state"`
	NextActions     []string        `json:"nextActions"` // never nil; without actions that only a gate performs
	// NextTools lists the gated tools that the caller may call now.
	NextTools []string `json:"nextTools,omitempty"`
	// Next describes the input of the first actions; MoreActions counts the others. Lists of instances omit both.
	Next        []workflow.NextAction `json:"next,omitempty"`
	MoreActions int                   `json:"moreActions,omitempty"`
	// Progress describes the position in one sentence, for a person or a model.
	Progress string        `json:"progress,omitzero"`
	Complete bool          `json:"complete"` // a final state was reached
	Status   record.Status `json:"status,omitzero"`
	Outcome  string        `json:"outcome,omitempty"` // of the final state
	Revision int64         `json:"revision,omitzero"`
	Seq      int64         `json:"seq,omitzero"`
}

// DefinitionOwner is the owner of a version of a workflow, relative to the caller. Names are global, so a reader of a
// name must know whose rules an instance follows.
type DefinitionOwner string

// The owners.
const (
	OwnedByOperator DefinitionOwner = "operator"
	OwnedByCaller   DefinitionOwner = "you"
	OwnedByOther    DefinitionOwner = "other"
)

// Decision is a recorded decision as callers see it. None of its fields holds sensitive values.
type Decision struct {
	ID string `json:"decisionId,omitempty"` // "" when nothing was recorded
	// Verdict is masked. Its Opinions are only in the history, and in answers of Decide to roles that see all instances.
	// Only operators, reviewers and auditors see the content of its Evidence.
	judge.Verdict
	Violations []string `json:"violations,omitzero"`
}

// DefineRequest registers a definition.
type DefineRequest struct {
	// Source names the document in messages ("workflow.define", a file name).
	Source string
	// Document is JSON or YAML.
	Document []byte
	// Name, when not "", is the name that the definition must have.
	Name string
	// Files resolves {file: NAME} in the document; nil rejects such names. It is used for operators only, and no face
	// sets it.
	Files workflow.Files
}

// DefineResult answers a DefineRequest.
type DefineResult struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
	Hash    string `json:"hash"`
	// Created is false when the newest version already was this definition.
	Created      bool             `json:"created"`
	InitialState string           `json:"initialState"`
	States       []string         `json:"states"`
	Owner        string           `json:"owner"`
	Warnings     []workflow.Issue `json:"warnings"` // never nil
}

// DefinitionSummary is one entry of a list.
type DefinitionSummary struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     int    `json:"version"`
	Hash        string `json:"hash,omitzero"`
	Owner       string `json:"owner,omitzero"`
	Operator    bool   `json:"operatorOwned,omitempty"`
	// Shared reports that an operator lets every agent see and start an agent's workflow.
	Shared bool `json:"shared,omitempty"`
	// StartRequires are the fields that a start context must have.
	StartRequires []string  `json:"startRequires,omitempty"`
	States        int       `json:"states"`
	CreatedAt     time.Time `json:"createdAt,omitzero"`
}

// DefinitionView is a whole definition.
type DefinitionView struct {
	DefinitionSummary
	Definition json.RawMessage `json:"definition"`
	// Judge is the judge configuration in force, revisions applied.
	Judge RubricView `json:"judge"`
	// Withheld names the judge settings that are missing from Definition and Judge. Only callers who may change the
	// definition, or who see all instances, get them.
	Withheld []string `json:"withheld,omitempty"`
}

// RubricView is a judge configuration as a caller may see it.
type RubricView struct {
	judge.Rubric
	// MinConfidence is 0..1; it is absent if it is withheld.
	MinConfidence *float64 `json:"minConfidence,omitempty"`
	// LoopGuard describes after how many refusals a person has to decide, and how to lift that. It is absent if no
	// model is asked.
	LoopGuard string `json:"loopGuard,omitempty"`
}

// StartRequest starts an instance.
type StartRequest struct {
	Type    string
	Context json.RawMessage // a JSON object; nil is {}
	Key     string          // idempotency key, "" for none
	// Subject, if not "", is what the instance is about. No other instance of the workflow may have the same subject
	// until this one reaches a final state with outcome success, or an operator releases it.
	Subject string
}

// StartResult answers a StartRequest. If the start was refused, Decision gives the reason, Position holds only
// Workflow and Version, and nothing was recorded.
type StartResult struct {
	Position
	Decision Decision `json:"decision"`
	Replayed bool     `json:"replayed,omitempty"`
}

// AdvanceRequest asks for an action. Validate takes it too, and ignores Key.
type AdvanceRequest struct {
	ID     string
	Action string
	Data   document.JSON // a JSON object, already parsed; absent is {}
	// ExpectedRevision, when not nil, must be the instance's revision.
	ExpectedRevision *int64
	Key              string
}

// AdvanceResult answers an AdvanceRequest. Position is the one after the move, or the unchanged one if the move was
// refused.
type AdvanceResult struct {
	Position
	From     string   `json:"from,omitzero"`
	Action   string   `json:"action,omitzero"`
	Decision Decision `json:"decision"`
	// Note describes the outcome of a question that a face asked a person.
	Note string `json:"note,omitempty"`
	// Review is the review in which a person decides the move; nil unless the move was parked.
	Review   *ReviewSummary `json:"review,omitempty"`
	Replayed bool           `json:"replayed,omitempty"`
}

// ValidateResult answers a pre-check. Position is the present one.
type ValidateResult struct {
	Position
	Action   string   `json:"action,omitzero"`
	Approved bool     `json:"approved"`
	Decision Decision `json:"decision"`
}

// StatusResult is an instance as its owner sees it.
type StatusResult struct {
	Position
	Context   json.RawMessage `json:"context"`
	Owner     string          `json:"owner"`
	Visited   []string        `json:"visited"`
	CreatedAt time.Time       `json:"createdAt"`
	UpdatedAt time.Time       `json:"updatedAt"`
	// Warnings describe what prevents moves from being judged as the definition requires.
	Warnings []string `json:"warnings,omitempty"`
	// Reviews lists the moves that wait for a person, and those that a person rejected in this state.
	Reviews []ReviewSummary `json:"reviews,omitempty"`
	// Calls lists calls of other servers' tools that are open or have an unknown outcome.
	Calls []CallSummary `json:"calls,omitempty"`
	// Past is set if the result describes a point in the past.
	Past *Past `json:"past,omitempty"`
}

// CancelRequest ends an instance without a final state.
type CancelRequest struct {
	ID, Reason, Key  string
	ExpectedRevision *int64
}

// MovedResult answers a request that changes an instance without a judgement.
type MovedResult struct {
	Position
	// For an undo or a redo: the move that was undone or redone, and the state before it.
	Action string `json:"action,omitempty"`
	From   string `json:"from,omitempty"`
	// Context is the context that a rollback, an undo or a redo restored.
	Context  json.RawMessage `json:"context,omitempty"`
	Message  string          `json:"message"`
	Replayed bool            `json:"replayed,omitempty"`
}

// CheckpointRequest names the present revision.
type CheckpointRequest struct {
	ID, Description string
	Metadata        json.RawMessage // any JSON object; nil for none
	Key             string
}

// CheckpointResult is one checkpoint.
type CheckpointResult struct {
	CheckpointID string          `json:"checkpointId"`
	Instance     string          `json:"id"`
	State        string          `json:"state"`
	Revision     int64           `json:"revision"`
	Timestamp    time.Time       `json:"timestamp"`
	Description  string          `json:"description"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	Replayed     bool            `json:"replayed,omitempty"`
}

// RollbackRequest restores a checkpoint's revision.
type RollbackRequest struct {
	ID, CheckpointID, Key string
	ExpectedRevision      *int64
}

// UndoRequest undoes the last move, or redoes the last undone one.
type UndoRequest struct {
	ID, Key          string
	ExpectedRevision *int64
}

// CheckpointsResult lists checkpoints, newest first.
type CheckpointsResult struct {
	Instance    string             `json:"id"`
	Checkpoints []CheckpointResult `json:"checkpoints"` // never nil
	Count       int                `json:"count"`
}

// JudgeConfigRequest changes the judge settings that are not nil.
type JudgeConfigRequest struct {
	Name     string
	Settings workflow.JudgeSettings
}

// JudgeConfigResult answers a JudgeConfigRequest. A refusal is an *Error with
// CodeForbidden.
type JudgeConfigResult struct {
	Success  bool       `json:"success"`
	Message  string     `json:"message"`
	Config   RubricView `json:"config"` // in force for the caller's instances from the next decision
	Revision int        `json:"revision"`
	Hash     string     `json:"hash"`
}

// HistoryRequest asks for the decisions of an instance, oldest first.
type HistoryRequest struct {
	ID       string
	AfterSeq int64 // 0 from the start
	Limit    int   // 0 is 100; at most 1000
	// Until is the point in the past at which the history ends; zero is now.
	Until When
}

// HistoryEntry is one decision with the request that it answered.
type HistoryEntry struct {
	Seq       int64           `json:"seq"`
	Time      time.Time       `json:"time"`
	Kind      record.Kind     `json:"kind"`
	Precheck  bool            `json:"precheck,omitempty"`
	Principal string          `json:"principal"`
	Role      string          `json:"role"`
	Action    string          `json:"action,omitempty"`
	From      string          `json:"from,omitempty"`
	To        string          `json:"to,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"` // sensitive values masked
	Decision
	// Took is how long all layers took together. CostUSD is the cost of the model, if prices are configured; only
	// operators, reviewers and auditors get it.
	Took    document.Milliseconds `json:"tookMs,omitempty"`
	CostUSD *float64              `json:"costUSD,omitempty"`
	// ReviewID is the review that the decision opened, or that the decision resolved.
	ReviewID string `json:"reviewId,omitempty"`
	// Tool is the gated tool, if the decision was about a call.
	Tool string `json:"tool,omitempty"`
	Hash string `json:"hash"`
}

// HistoryResult answers a HistoryRequest.
type HistoryResult struct {
	Instance  string         `json:"id,omitzero"`
	Decisions []HistoryEntry `json:"decisions"` // never nil
	Count     int            `json:"count"`     // of this page
	// Total is the number of decisions on all pages; absent above 1,000.
	Total *int `json:"total,omitempty"`
	// NextAfter continues the listing; 0 at the end.
	NextAfter int64 `json:"nextAfter,omitempty"`
}

// InstancesRequest lists instances that the caller may see, newest first.
type InstancesRequest struct {
	Workflow, State string
	Status          record.Status
	Cursor          string // NextCursor of the previous page
	Limit           int    // 0 is 50; at most 500
}

// InstanceSummary is one entry of a list.
type InstanceSummary struct {
	Position
	Owner     string    `json:"owner"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// InstancesResult answers an InstancesRequest.
type InstancesResult struct {
	Instances  []InstanceSummary `json:"instances"` // never nil
	Count      int               `json:"count"`
	NextCursor string            `json:"nextCursor,omitempty"`
}

// CanExecuteRequest asks whether an instance is in one of some states, whether an action is
// possible, or both.
type CanExecuteRequest struct {
	ID, Action string
	States     []string
}

// CanExecuteResult answers a CanExecuteRequest.
type CanExecuteResult struct {
	Position
	Allowed bool `json:"allowed"`
	// Required are the states asked for, or those in which the action is possible.
	Required []string `json:"requiredStates"`
	Reason   string   `json:"reason"`
}
