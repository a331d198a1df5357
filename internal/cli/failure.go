package cli

import (
	"errors"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

// EngineFailure maps an engine's error to its exit code on the command line.
func EngineFailure(err error) error {
	if err == nil {
		return nil
	}
	if _, told := errors.AsType[*term.ExitError](err); told {
		return err
	}
	known, ok := errors.AsType[*engine.Error](err)
	if !ok {
		return term.UnknownErrorf("", "%w", err)
	}
	f := &term.ExitError{Code: term.ExitUsage, Err: errors.New(known.Message), Hint: known.Hint, Reason: string(known.Code)}
	switch known.Code {
	case engine.CodeUnavailable, engine.CodeUntrustedRules, engine.CodeValuesUnreadable, engine.CodeBusy, engine.CodeInternal, engine.CodeCancelled:
		f.Code = term.ExitUnknown
		cause := known.Err
		if busy, ok := errors.AsType[*judge.BusyError](err); ok {
			cause = busy.Err // the error itself repeats the message
		}
		if cause != nil {
			f.Err = &engine.Error{Message: known.Message, Hint: "(" + cause.Error() + ")", Err: known.Err}
		}
		if errors.Is(err, store.ErrDamaged) {
			f.Hint = "" // the error already has a hint
		}
	case engine.CodeInvalidDefinition:
		f.Code = term.ExitBad
	default:
	}
	return f
}

// TokenFailure maps an error about tokens to its exit code on the command line.
func TokenFailure(err error) error {
	if errors.Is(err, auth.ErrBadToken) {
		return term.UsageErrorf("", "%w", err)
	}
	return term.UnknownErrorf("", "%w", err)
}
