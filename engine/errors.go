package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Code is the stable machine code of an error: why something could not be decided or done. Refusals are
// results, not errors; they carry the code of their decision.
type Code string

// The codes. docs/reference/error-codes.md is generated from Codes.
const (
	CodeUnknownWorkflow     Code = "unknown_workflow"
	CodeUnknownInstance     Code = "unknown_instance"
	CodeUnknownCheckpoint   Code = "unknown_checkpoint"
	CodeUnknownRevision     Code = "unknown_revision"
	CodeNothingToUndo       Code = "nothing_to_undo"
	CodeInvalidDefinition   Code = "invalid_definition"
	CodeInvalidArgument     Code = "invalid_argument"
	CodeInvalidData         Code = "invalid_data"
	CodeTooLarge            Code = "too_large"
	CodeForbidden           Code = "forbidden"
	CodeConflict            Code = "conflict"
	CodeKeyReused           Code = "idempotency_key_reused"
	CodeInstanceEnded       Code = "instance_ended"
	CodeDefinitionTakenOver Code = "definition_taken_over"
	CodeUnknownReview       Code = "unknown_review"
	CodeReviewClosed        Code = "review_closed"
	CodeGatedAction         Code = "gated_action"
	CodeCallOpen            Code = "call_open"
	CodeUnknownCall         Code = "unknown_call"
	CodeSubjectTaken        Code = "subject_taken"
	CodeTooManyEvents       Code = "too_many_events"
	CodeTooManyDefinitions  Code = "too_many_definitions"
	CodeTooManyConfigs      Code = "too_many_configurations"
	CodeTooManyInstances    Code = "too_many_instances"
	CodeBytesSpent          Code = "bytes_spent"
	CodeWorkerTimeSpent     Code = "worker_time_spent"
	CodeModelTokensSpent    Code = "model_tokens_spent"
	CodeRateLimited         Code = "rate_limited"
	CodeTooManyStreams      Code = "too_many_streams"
	CodeUnauthenticated     Code = "unauthenticated"
	CodeBusy                Code = "busy"
	CodeUnavailable         Code = "unavailable"
	CodeUntrustedRules      Code = "untrusted_rules"
	CodeValuesDestroyed     Code = "values_destroyed"
	CodeValuesUnreadable    Code = "values_unreadable"
	CodeCancelled           Code = "cancelled"
	CodeInternal            Code = "internal"
)

// CodeInfo documents one code.
type CodeInfo struct {
	Code Code
	// Meaning is one sentence; Do is what the caller should do next.
	Meaning, Do string
	// Retryable reports whether the same request may succeed later without a change.
	Retryable bool
}

// Codes lists every code in the order of the reference page.
var Codes = []CodeInfo{
	{CodeUnknownWorkflow, "No definition has this name.", "List the definitions, or define it first.", false},
	{CodeUnknownInstance, "No instance with this id is visible to the caller.", "Use the id that start returned, or list your instances.", false},
	{CodeUnknownCheckpoint, "The instance has no checkpoint with this id.", "List the instance's checkpoints.", false},
	{CodeUnknownRevision, "The instance or definition did not exist at this revision or time, or its history from then was removed.", "Ask for one that the message names.", false},
	{CodeNothingToUndo, "The instance has no move to undo or redo.", "Look at the status; roll back to a checkpoint to go further back.", false},
	{CodeInvalidDefinition, "The definition does not parse or does not pass lint.", "Fix every listed issue; each names its path and line.", false},
	{CodeInvalidArgument, "An argument is missing, unknown, or of the wrong type.", "Correct the named argument.", false},
	{CodeInvalidData, "A document is not acceptable JSON: invalid UTF-8, duplicate keys, a number that a float64 cannot represent, too deep, or not an object.", "Send a plain JSON object; quote large numbers as strings.", false},
	{CodeTooLarge, "A document, event or key is larger than its limit.", "Send less; keep large content elsewhere and refer to it.", false},
	{CodeForbidden, "The caller's role or ownership does not allow this.", "Ask the owner or an operator.", false},
	{CodeConflict, "The instance moved: it is not at the expected revision, or the action is no longer legal there.", "Look at the current state in the answer and decide again.", false},
	{CodeKeyReused, "The idempotency key was used before with another request.", "Use a new key for a new request.", false},
	{CodeInstanceEnded, "The instance has ended and no longer allows this.", "Start a new instance.", false},
	{CodeDefinitionTakenOver, "The instance cannot move: it has an agent's version of a workflow that an operator has since defined.", "Cancel it and start a new one, or ask an operator to migrate it.", false},
	{CodeUnknownReview, "No review with this id is visible to the caller.", "List the reviews.", false},
	{CodeReviewClosed, "The review has been resolved, has expired, or was overtaken.", "Look at the review; if the move is still wanted, request it again.", false},
	{CodeGatedAction, "The action belongs to a gate: only a call of the gate's tool performs it.", "Call the tool that the message names.", false},
	{CodeCallOpen, "A call of another server's tool is open; the instance cannot move until it ends.", "Wait for its answer; status shows the deadline.", true},
	{CodeUnknownCall, "The caller has not begun this call.", "Settle only calls that were begun, as the principal that began them.", false},
	{CodeSubjectTaken, "Another instance of the workflow has this subject and has not ended with success.", "Continue with that instance, or ask an operator to release the subject.", false},
	{CodeTooManyEvents, "The caller has reached the limit of refusals, pre-checks and checkpoints since the instance last moved; no more are judged or recorded.", "Do not repeat the request; ask an operator to move the instance, or cancel it.", false},
	{CodeTooManyDefinitions, "The caller has defined the maximum number of workflows.", "Define a new version of an existing workflow, or ask an operator.", false},
	{CodeTooManyConfigs, "The caller has reached the limit of judge configurations for this workflow.", "Ask an operator to change it; the present configuration stays.", false},
	{CodeTooManyInstances, "The caller has the maximum number of running instances.", "Complete or cancel some of them.", false},
	{CodeBytesSpent, "The caller has used up its hourly recording quota.", "Wait for the time in the answer, and send less.", true},
	{CodeWorkerTimeSpent, "The caller has used up its hourly quota of sandbox time.", "Wait for the time in the answer.", true},
	{CodeModelTokensSpent, "The caller has used up its hourly quota of model tokens.", "Wait for the time in the answer.", true},
	{CodeRateLimited, "The caller exceeds its request rate limit.", "Wait for the time in the answer.", true},
	{CodeTooManyStreams, "The maximum number of streams or sessions is open, for the caller or in total.", "Close unused ones.", true},
	{CodeUnauthenticated, "The request has no valid credential.", "Send a valid credential: Authorization: Bearer TOKEN.", false},
	{CodeBusy, "Nothing was decided or recorded. The script sandbox, an evidence source or the model is overloaded or too slow. Or you have reached your limit per minute for the model, or contributed to its provider's limit. Or earlier requests about the same data are still being judged, or another process runs the store's chains.", "Try again shortly.", true},
	{CodeUnavailable, "The store could not be reached or written; nothing was acknowledged.", "Try again; tell the operator if it persists.", true},
	{CodeUntrustedRules, "A definition or judge configuration in the store differs from its sealed form, so none is used; nothing was decided or recorded.", "Ask the operator to run gavel verify, which names the change.", false},
	{CodeValuesDestroyed, "The key of the instance's sensitive values was destroyed, so it cannot move and gets no new ones.", "Start a new instance; the remaining history can still be read and verified.", false},
	{CodeValuesUnreadable, "A sensitive value in the store cannot be decrypted: it belongs to another key, or was changed or moved. Nothing was decided or recorded.", "Ask the operator to check the log, which names the value.", false},
	{CodeCancelled, "The caller cancelled the request or its deadline passed before the decision was recorded.", "Check the status before trying again, or use an idempotency key.", true},
	{CodeInternal, "A bug in gavel; the details are in its log.", "Report it with the log line.", false},
}

// Error is an error with a code, a message and what to do next.
type Error struct {
	Code    Code
	Message string // one clear sentence, without sensitive values
	Hint    string // what to do next
	// Path is a JSON pointer to the offending part of the request, "" for none.
	Path string
	// Current is the present position of the instance, for CodeConflict and CodeInstanceEnded among
	// others.
	Current *Position
	// Issues lists the issues of the definition, for CodeInvalidDefinition.
	Issues []workflow.Issue
	// RetryAfter is how long to wait before trying again; 0 if unknown.
	RetryAfter time.Duration
	// Err is the cause; its text is for logs, not for callers.
	Err error
}

// newError returns an error with its message, at a JSON pointer into the request ("" for none).
func newError(code Code, path, format string, args ...any) *Error {
	return &Error{Code: code, Path: path, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) withHint(next string) *Error {
	e.Hint = next
	return e
}

func (e *Error) withCause(err error) *Error {
	e.Err = err
	return e
}

func (e *Error) withPosition(pos Position) *Error {
	e.Current = &pos
	return e
}

// Error returns the message and the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " " + e.Hint
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf classifies any error: the code of the *Error in its chain, else CodeCancelled for a cancelled
// context or a passed deadline, else CodeInternal. It is "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return CodeCancelled
	default:
		return CodeInternal
	}
}
