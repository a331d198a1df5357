package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators"
)

// Define registers a definition under its name: a new name, or a new version of
// one that the caller governs. Instances stay pinned to the version they started
// with. Defining the newest version again changes nothing.
func (e *Engine) Define(ctx context.Context, p Principal, req DefineRequest) (DefineResult, error) {
	if err := authorize(p, opDefine); err != nil {
		return DefineResult{}, err
	}
	d, warnings, err := e.examine(ctx, p, req)
	if err != nil {
		return DefineResult{}, err
	}
	for {
		newest, err := e.cfg.Store.Definition(ctx, d.Name, 0)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return DefineResult{}, storeError("read the definition", err)
		}
		exists := err == nil
		if exists && !governs(p, newest) {
			return DefineResult{}, ownedByOthers(newest)
		}
		// An operator takes an agent's name over even with the same document.
		if exists && newest.Hash == d.Hash && newest.Operator == (p.Role == RoleOperator) {
			return defineResult(newest, d, warnings, false), nil
		}
		s := StoredDefinition{
			Name: d.Name, Version: newest.Version + 1, Hash: d.Hash, Document: d.Document,
			Owner: p.ID, Operator: p.Role == RoleOperator, CreatedAt: e.now(),
		}
		err = e.cfg.Store.AddDefinition(ctx, s)
		switch {
		case err == nil:
			e.definitions.put(loaded{stored: s, def: d})
			return defineResult(s, d, warnings, true), nil
		case !errors.Is(err, ErrConflict):
			return DefineResult{}, storeError("store the definition", err)
		}
	}
}

// examine parses and lints; errors come back as one *Error with every issue.
func (e *Engine) examine(ctx context.Context, p Principal, req DefineRequest) (*workflow.Definition, []workflow.Issue, error) {
	d, err := workflow.Parse(req.Source, req.Document)
	if err != nil {
		if pe, ok := errors.AsType[*workflow.ParseError](err); ok {
			return nil, nil, invalidDefinition(pe.Issues)
		}
		return nil, nil, &Error{Code: CodeInvalidDefinition, Message: err.Error(), Err: err}
	}
	issues, err := d.Lint(ctx, workflow.LintOptions{
		Compiler: e.cfg.Compiler, Owner: validators.Owner{ID: p.ID, Trusted: p.Role == RoleOperator}, Models: e.cfg.Models, Sources: e.cfg.Sources,
	})
	if err != nil {
		return nil, nil, judgeError(err)
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

func ownedByOthers(s StoredDefinition) error {
	who := "another principal"
	if s.Operator {
		who = "an operator"
	}
	return &Error{
		Code: CodeForbidden, Path: "/name",
		Message: fmt.Sprintf("The workflow %q belongs to %s; you may not redefine it.", s.Name, who),
		Hint:    "Define it under another name, or ask its owner or an operator.",
	}
}

func defineResult(s StoredDefinition, d *workflow.Definition, warnings []workflow.Issue, created bool) DefineResult {
	return DefineResult{
		Name: s.Name, Version: s.Version, Hash: s.Hash, Created: created, InitialState: d.InitialState,
		States: d.StateNames, Owner: s.Owner, Warnings: warnings,
	}
}

// List returns the newest version of every definition, by name.
func (e *Engine) List(ctx context.Context, p Principal) ([]DefinitionSummary, error) {
	if err := authorize(p, opRead); err != nil {
		return nil, err
	}
	all, err := e.cfg.Store.Definitions(ctx)
	if err != nil {
		return nil, storeError("list the definitions", err)
	}
	out := make([]DefinitionSummary, 0, len(all))
	for _, s := range all {
		l, err := e.definition(ctx, s.Name, s.Version)
		if err != nil {
			return nil, err
		}
		out = append(out, summary(l))
	}
	return out, nil
}

func summary(l loaded) DefinitionSummary {
	return DefinitionSummary{
		Name: l.stored.Name, Description: l.def.Description, Version: l.stored.Version, Hash: l.stored.Hash,
		Owner: l.stored.Owner, Operator: l.stored.Operator, States: len(l.def.States), CreatedAt: l.stored.CreatedAt,
	}
}

// Describe returns one version of a definition, the newest for version 0, with
// the judge configuration in force for the caller's instances.
func (e *Engine) Describe(ctx context.Context, p Principal, name string, version int) (DefinitionView, error) {
	if err := authorize(p, opRead); err != nil {
		return DefinitionView{}, err
	}
	if name == "" {
		return DefinitionView{}, missing("name", "A name that list returns.")
	}
	if version < 0 {
		return DefinitionView{}, &Error{Code: CodeInvalidArgument, Path: "/version", Message: "A version is 1 or more.", Hint: "Leave it out for the newest."}
	}
	l, err := e.definition(ctx, name, version)
	if err != nil {
		return DefinitionView{}, err
	}
	overlays, _, err := e.overlays(ctx, l.stored, p.ID)
	if err != nil {
		return DefinitionView{}, err
	}
	return DefinitionView{DefinitionSummary: summary(l), Definition: l.stored.Document, Judge: l.def.Rubric(overlays)}, nil
}
