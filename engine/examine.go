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

// ExamineDefinition parses and lints a definition from a caller; all its issues are returned in one
// *Error. Callers share a limited number of concurrent examinations, and the time is charged to the caller
// as it passes.
func (e *Engine) ExamineDefinition(ctx context.Context, p Principal, req DefineRequest) (*workflow.Definition, []workflow.Issue, error) {
	return e.examineDefinition(ctx, p, req, false)
}

// examineDefinition is ExamineDefinition; try also runs the scripts once.
func (e *Engine) examineDefinition(ctx context.Context, p Principal, req DefineRequest, try bool) (*workflow.Definition, []workflow.Issue, error) {
	if req.Name != "" && !p.InScope(req.Name) {
		return nil, nil, outOfScope(p, req.Name)
	}
	release, err := e.examinations.Acquire(ctx, p.ID)
	switch {
	case errors.Is(err, fairshare.ErrBusy):
		return nil, nil, &Error{Code: CodeBusy, Message: "You have too many definitions waiting to be checked.", Hint: "Define one at a time; nothing was stored.", Err: err}
	case err != nil:
		return nil, nil, judgeError(err)
	}
	defer release()
	ctx, stop, err := e.ledger.chargeWork(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	d, issues, err := e.lintDefinition(ctx, p, req, try)
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

// lintDefinition parses a definition and lints it. The Reader, if there is one, reads definitions that do
// not come from operators.
func (e *Engine) lintDefinition(ctx context.Context, p Principal, req DefineRequest, try bool) (*workflow.Definition, []workflow.Issue, error) {
	options := workflow.LintOptions{
		Compiler: e.cfg.Compiler, Owner: validators.Owner{ID: p.ID, Trusted: p.Role == RoleOperator}, Models: e.cfg.Models, Sources: e.cfg.Sources, Try: try,
	}
	d, issues, err := e.parseWithReader(ctx, p, req, options)
	elsewhere := err == nil
	if !elsewhere && errors.Is(err, validators.ErrNoReader) {
		d, err = e.parseInProcess(p, req)
	}
	switch {
	case err != nil:
		return nil, nil, examinationError(ctx, err)
	case d == nil:
		return nil, nil, invalidDefinition(issues)
	case req.Name != "" && d.Name != req.Name:
		return nil, nil, newError(CodeInvalidArgument, "/name", "The definition's name differs from the name in the address, %.80q.", req.Name).
			withHint("Use the same name in both.")
	case elsewhere:
		issues, err = d.FinishLint(ctx, options, issues)
	default:
		issues, err = d.Lint(ctx, options)
	}
	if err != nil {
		return nil, nil, examinationError(ctx, err)
	}
	return d.WithoutLines(), issues, nil
}

// examinationError returns the error for an examination that did not finish: that of the caller's quota, if the
// quota ended it.
func examinationError(ctx context.Context, err error) error {
	if known, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return known
	}
	return judgeError(err)
}

func (e *Engine) parseInProcess(p Principal, req DefineRequest) (*workflow.Definition, error) {
	if p.Role != RoleOperator {
		req.Files = nil
	}
	d, err := workflow.ParseWithFiles(req.Source, req.Document, req.Files)
	if pe, ok := errors.AsType[*workflow.ParseError](err); ok {
		return nil, invalidDefinition(pe.Issues)
	}
	if err != nil {
		return nil, &Error{Code: CodeInvalidDefinition, Message: err.Error(), Err: err}
	}
	if p.Role != RoleOperator {
		if issues := d.CheckBounds(e.ledger.quotas.Load().bounds()); len(issues) > 0 {
			return nil, invalidDefinition(issues)
		}
	}
	return d, nil
}

// parseWithReader has the Reader parse and lint a definition. The error wraps validators.ErrNoReader if this
// process has to read it.
func (e *Engine) parseWithReader(ctx context.Context, p Principal, req DefineRequest, o workflow.LintOptions) (*workflow.Definition, []workflow.Issue, error) {
	if e.cfg.Reader == nil || p.Role == RoleOperator {
		return nil, nil, validators.ErrNoReader
	}
	if len(req.Document) > workflow.MaxDefinition {
		return nil, nil, validators.ErrNoReader // rejected by its length alone, which costs nothing
	}
	r := workflow.LintRequest{Source: req.Source, Document: req.Document, Bounds: e.ledger.quotas.Load().bounds(), Models: o.Models, Sources: o.Sources}
	request, err := r.Encode()
	if err != nil {
		return nil, nil, InternalError("encode a definition", err)
	}
	answer, err := e.cfg.Reader.Read(ctx, p.ID, request)
	if errors.Is(err, validators.ErrTooCostly) {
		return nil, []workflow.Issue{{Rule: "size", Severity: workflow.SeverityError, Message: "reading the definition takes too much time or memory; make it smaller"}}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	d, issues, err := r.ParseAnswer(answer)
	if err != nil {
		return nil, nil, InternalError("read a definition in the sandbox", err)
	}
	return d, issues, nil
}

func invalidDefinition(issues []workflow.Issue) *Error {
	e := &Error{Code: CodeInvalidDefinition, Issues: issues, Hint: "Fix it and define it again; nothing was stored."}
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

// chargeInterval is the interval at which an examination in progress is charged.
const chargeInterval = 100 * time.Millisecond

// chargeWork charges the time until stop is called to the principal's sandbox time. Examining a definition
// compiles its scripts, and a rejected caller could send definition after definition. The returned context
// is cancelled when the budget is used up, with the rejection as its cause.
func (l *ledger) chargeWork(ctx context.Context, p Principal) (metered context.Context, stop func(), err error) {
	if err := l.checkBudget(ctx, p, budgetWorker); err != nil {
		return nil, nil, err
	}
	ctx, meter := validators.WithMeter(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	began, charged := time.Now(), time.Duration(0)
	charge := func() {
		used := time.Since(began) - meter.Waited()
		l.charge(p, budgetWorker, int64(used-charged))
		charged = used
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer charge()
		tick := time.NewTicker(chargeInterval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			charge()
			if err := l.checkBudget(ctx, p, budgetWorker); err != nil {
				cancel(err)
			}
		}
	}()
	return ctx, func() { close(done); <-ended; cancel(nil) }, nil
}
