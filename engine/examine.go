package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/fairshare"
	"github.com/gavel-mcp/gavel/validators"
)

// examine parses and lints a definition that a caller brought; errors come back as one
// *Error with every issue. Callers share the few places where that is done, and the time
// counts for them while it passes.
func (e *Engine) examine(ctx context.Context, p Principal, req DefineRequest) (*workflow.Definition, []workflow.Issue, error) {
	if req.Name != "" && !p.deals(req.Name) {
		return nil, nil, outOfScope(p, req.Name)
	}
	release, err := e.examining.Acquire(ctx, p.ID)
	switch {
	case errors.Is(err, fairshare.ErrBusy):
		return nil, nil, &Error{Code: CodeBusy, Message: "Too many definitions of yours wait to be read.", Hint: "Define one after the other; nothing was stored.", Err: err}
	case err != nil:
		return nil, nil, judgeError(err)
	}
	defer release()
	ctx, settle, err := e.ledger.chargeWork(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	defer settle()
	d, issues, err := e.lint(ctx, p, req)
	if err != nil {
		return nil, nil, err
	}
	warnings := []workflow.Issue{}
	var bad []workflow.Issue
	for _, i := range issues {
		if i.Severity == workflow.SeverityError {
			bad = append(bad, i)
		} else {
			warnings = append(warnings, i)
		}
	}
	if len(bad) > 0 {
		return nil, nil, invalidDefinition(bad)
	}
	return d, warnings, nil
}

// lint parses a definition and finds what is wrong with it.
func (e *Engine) lint(ctx context.Context, p Principal, req DefineRequest) (*workflow.Definition, []workflow.Issue, error) {
	d, err := workflow.Parse(req.Source, req.Document)
	if err != nil {
		if pe, ok := errors.AsType[*workflow.ParseError](err); ok {
			return nil, nil, invalidDefinition(pe.Issues)
		}
		return nil, nil, &Error{Code: CodeInvalidDefinition, Message: err.Error(), Err: err}
	}
	if req.Name != "" && d.Name != req.Name {
		return nil, nil, &Error{
			Code: CodeInvalidArgument, Path: "/name", Message: fmt.Sprintf("The definition's name is not the address's, which is %.80q.", req.Name),
			Hint: "Make the two the same.",
		}
	}
	if p.Role != RoleOperator {
		if issues := d.Exceeded(e.ledger.quotas.Load().bounds()); len(issues) > 0 {
			return nil, nil, invalidDefinition(issues)
		}
	}
	issues, err := d.Lint(ctx, workflow.LintOptions{
		Compiler: e.cfg.Compiler, Owner: validators.Owner{ID: p.ID, Trusted: p.Role == RoleOperator}, Models: e.cfg.Models, Sources: e.cfg.Sources,
	})
	if known, ok := errors.AsType[*Error](context.Cause(ctx)); ok && err != nil {
		return nil, nil, known
	}
	if err != nil {
		return nil, nil, judgeError(err)
	}
	return d.WithoutLines(), issues, nil
}

func invalidDefinition(issues []workflow.Issue) *Error {
	e := &Error{Code: CodeInvalidDefinition, Issues: issues, Hint: "Mend it and define it again; nothing was stored."}
	switch len(issues) {
	case 0:
		e.Message = "The definition is not valid."
	case 1:
		e.Message = fmt.Sprintf("The definition is not valid: %s", issues[0])
	default:
		e.Message = fmt.Sprintf("The definition has %d errors; the first: %s", len(issues), issues[0])
	}
	if len(issues) > 0 {
		e.Path = issues[0].Path
	}
	return e
}

// chargeEvery is how often a look at a definition is charged while it lasts.
const chargeEvery = 100 * time.Millisecond

// chargeWork counts the time until settle is called as time of the sandbox: that compiles
// what is in a definition, and whoever is refused can send another. The context ends when
// the principal has no more of it, with the refusal as its cause.
func (l *ledger) chargeWork(ctx context.Context, p Principal) (metered context.Context, settle func(), err error) {
	if err := l.workerLeft(p); err != nil {
		return nil, nil, err
	}
	ctx, meter := validators.WithMeter(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	began, charged := time.Now(), time.Duration(0)
	charge := func() {
		used := time.Since(began) - meter.Waited()
		l.worked(p, used-charged)
		charged = used
	}
	done, settled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(settled)
		defer charge()
		tick := time.NewTicker(chargeEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			charge()
			if err := l.workerLeft(p); err != nil {
				cancel(err)
			}
		}
	}()
	return ctx, func() { close(done); <-settled; cancel(nil) }, nil
}
