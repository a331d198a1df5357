package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// conflict reports that an instance moved between read and write; the caller converts it into an *Error
// with the present position.
type conflict struct{ id string }

func (c *conflict) Error() string { return "instance " + c.id + " has moved since it was loaded" }

// Is makes a conflict match ErrConflict.
func (c *conflict) Is(target error) bool { return target == store.ErrConflict }

// conflictFor adds the present position to a conflict; it returns other errors unchanged.
func (e *Engine) conflictFor(ctx context.Context, p Principal, err error) error {
	var c *conflict
	if !errors.As(err, &c) || p.Role == workflow.RoleInterpreter { // a recorder retries
		return err
	}
	inst, lerr := e.loadInstance(ctx, p, c.id)
	if lerr != nil {
		return lerr
	}
	return inst.conflict()
}

func (i instance) conflict() *Error {
	return newError(CodeConflict, "", "The instance has moved: it is in state %q at revision %d.", i.State, i.Revision).
		withHint("Look at the current state and decide again; nothing was recorded.").withPosition(i.position()).withCause(store.ErrConflict)
}

func (i instance) hasEnded(verb string) *Error {
	return newError(CodeInstanceEnded, "", "The instance is %s in state %q and cannot be %s.", i.Status, i.State, verb).
		withHint("Start a new instance.").withPosition(i.position())
}

// StoreError classifies an error of a Store. op completes the sentence "The store could not ...".
func StoreError(op string, err error) error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return err
	case valuesError(err) != nil:
		return valuesError(err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: CodeCancelled, Message: fmt.Sprintf("The request ended before gavel could %s.", op), Hint: "Check the status before trying again.", Err: err}
	case errors.Is(err, store.ErrSubjectTaken):
		return newError(CodeSubjectTaken, "/subject", "Another instance of the workflow has this subject.").
			withHint("Continue with that instance; an operator can release the subject.").withCause(err)
	case errors.Is(err, store.ErrTooLarge):
		return tooLarge("", "The event is larger than the store's limit.")
	default:
		return &Error{Code: CodeUnavailable, Message: fmt.Sprintf("The store could not %s.", op), Hint: "Try again; tell the operator if it persists.", Err: err}
	}
}

func sealError(err error) error {
	if errors.Is(err, record.ErrTooLarge) {
		return &Error{Code: CodeTooLarge, Message: "The event with its decision is larger than 128 KiB.", Hint: "Send less data.", Err: err}
	}
	return InternalError("seal the event", err)
}

func judgeError(err error) error {
	var known *Error
	var held *validators.QuarantineError
	var busy *judge.BusyError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &held):
		return &Error{
			Code: CodeBusy, RetryAfter: held.RetryAfter, Err: err,
			Message: "This workflow's scripts are paused for you: on your data they repeatedly exceeded the sandbox's hard limits.",
			Hint:    fmt.Sprintf("Wait %s, then send less data; nothing was recorded.", held.RetryAfter.Round(time.Second)),
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: CodeCancelled, Message: "The request ended before a decision was reached.", Hint: "Try again; nothing was recorded.", Err: err}
	case errors.As(err, &busy):
		return &Error{Code: CodeBusy, Message: busy.Message, RetryAfter: busy.RetryAfter, Hint: "Leave the data as it is and try again later; nothing was recorded.", Err: err}
	case errors.Is(err, judge.ErrBusy):
		return &Error{Code: CodeBusy, Message: "Too many fetches of evidence are in progress.", Hint: "Try again shortly; nothing was recorded.", Err: err}
	case errors.Is(err, validators.ErrUnavailable):
		return &Error{Code: CodeBusy, Message: "The script sandbox could not accept the request.", Hint: "Try again shortly; nothing was recorded.", Err: err}
	default:
		return InternalError("decide", err)
	}
}

// InternalError returns the error for a defect of the program.
func InternalError(op string, err error) error {
	return &Error{Code: CodeInternal, Message: "An internal error kept gavel from answering.", Hint: "The log has the details.", Err: fmt.Errorf("%s: %w", op, err)}
}

// MissingField returns the error for a missing argument; what describes the argument.
func MissingField(field, what string) error {
	return &Error{Code: CodeInvalidArgument, Path: "/" + field, Message: fmt.Sprintf("The argument %q is missing.", field), Hint: what}
}

// suggestNearest returns the end of a sentence about an unknown name, with the nearest known name if one is
// close.
func suggestNearest(name string, known []string) string {
	if near := document.Suggest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "."
}

func tooLarge(path, format string, args ...any) error {
	return newError(CodeTooLarge, path, format, args...).withHint("Keep large content elsewhere and refer to it.")
}

// readDocument checks a JSON object from a caller: size first, then form. nil is {}.
func readDocument(field string, doc json.RawMessage, limit int) (document.JSON, error) {
	return readWith(workflow.ReadDocument, field, doc, len(doc), limit)
}

func readWith[T any](read func(T) (document.JSON, error), field string, doc T, size, limit int) (document.JSON, error) {
	if size == 0 {
		return document.ReadTrusted(emptyData), nil
	}
	if size > limit {
		return document.JSON{}, tooLarge("/"+field, "%q has %d bytes; the limit is %d.", field, size, limit)
	}
	v, err := read(doc)
	if err != nil {
		return document.JSON{}, &Error{Code: CodeInvalidData, Path: "/" + field, Message: fmt.Sprintf("%q is not acceptable: %v", field, err), Err: err}
	}
	return v, nil
}

// CheckText rejects a text of a request that exceeds the limit.
func (e *Engine) CheckText(field, s string) error {
	if len(s) > e.cfg.Limits.Text {
		return tooLarge("/"+field, "%q has %d bytes; the limit is %d.", field, len(s), e.cfg.Limits.Text)
	}
	return nil
}

func unknownWorkflow(name string, version int) *Error {
	out := newError(CodeUnknownWorkflow, "", "There is no workflow %q.", name)
	if version > 0 {
		out = newError(CodeUnknownWorkflow, "", "There is no version %d of a workflow %q.", version, name)
	}
	return out.withHint("List the definitions, or define it first.").withCause(store.ErrNotFound)
}

// explainUnknownWorkflow returns the error for an unknown workflow, and suggests the nearest definition that the
// caller may see. Missing and hidden names get the same answer.
func (lib *library) explainUnknownWorkflow(ctx context.Context, p Principal, name string, version int) error {
	out := unknownWorkflow(name, version)
	if version > 0 {
		return out
	}
	names, err := lib.rules.listNames(ctx)
	if err != nil {
		return out
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !p.InScope(n) })
	near := document.Suggest(name, names)
	if !workflow.IsName(name) { // an import may have derived a name from it; the distinct one wins
		for _, made := range workflow.SuggestNames(name) {
			if slices.Contains(names, made) {
				near = made
			}
		}
	}
	if near != "" {
		if d, err := lib.rules.loadDefinition(ctx, near, 0); err == nil && canUse(p, d) {
			out.Message = fmt.Sprintf("There is no workflow %q; did you mean %q?", name, near)
		}
	}
	return out
}

// UnknownInstance returns the error for an instance that is missing or hidden from the caller.
func UnknownInstance(id string) error {
	return newError(CodeUnknownInstance, "", "There is no instance %q that you may see.", id).
		withHint("Use the id that start returned, or list your instances.").withCause(store.ErrNotFound)
}
