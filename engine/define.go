package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Define registers a definition under its name: a new name, or a new version of one that the caller
// governs. Instances stay pinned to the version they started with. Defining the newest version again
// changes nothing.
func (e *Engine) Define(ctx context.Context, p Principal, req DefineRequest) (DefineResult, error) {
	if err := Authorize(p, RightDefine); err != nil {
		return DefineResult{}, err
	}
	if isRecorder(p.ID) {
		return DefineResult{}, newError(CodeForbidden, "", "The principal %q is reserved for gavel.", p.ID).withHint("Use another name for the credential.")
	}
	return e.define(ctx, p, req)
}

// ownPrefix begins the names of gavel's own workflows, which agents can neither define nor start.
const ownPrefix = "gavel."

// listReserved returns the prefixes of the names of workflows that gavel itself creates. An agent's workflow
// with such a name would look like gavel's records.
func listReserved() []string {
	return append(slices.Sorted(maps.Values(recorders)), ownPrefix)
}

func (e *Engine) define(ctx context.Context, p Principal, req DefineRequest) (DefineResult, error) {
	d, warnings, err := e.examineDefinition(ctx, p, req, true)
	if err != nil {
		return DefineResult{}, err
	}
	if !p.InScope(d.Name) {
		return DefineResult{}, outOfScope(p, d.Name)
	}
	if reserved := listReserved(); p.Role != RoleOperator && slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(d.Name, prefix) }) {
		return DefineResult{}, newError(CodeForbidden, "/name", "Names that begin with %s are reserved for gavel's own records.", strings.Join(reserved, " or ")).withHint("Choose another name.")
	}
	if p.Role != RoleOperator { // operators have no quota
		release, err := e.startCounts.lockCounts(ctx, p, "definitions")
		if err != nil {
			return DefineResult{}, err
		}
		defer release()
	}
	for {
		newest, err := e.rules.loadDefinition(ctx, d.Name, 0)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return DefineResult{}, StoreError("read the definition", err)
		}
		exists := err == nil
		if newest.Operator && newest.Owner != p.ID && (isRecorder(newest.Owner) || isRecorder(p.ID)) {
			return DefineResult{}, recorderNameError(newest)
		}
		rights, ofOperator, err := e.loadAgentRights(ctx, d.Name)
		if err != nil {
			return DefineResult{}, err
		}
		if exists && !rights.Redefine && !canGovern(p, newest) {
			return DefineResult{}, definitionOwnerError(newest)
		}
		same := newest
		if p.Role == RoleOperator {
			same = ofOperator.stored
		}
		if same.Hash == d.Hash {
			return defineResult(same, d, warnings, false), nil
		}
		if err := e.mayDefine(ctx, p, d.Name, exists); err != nil {
			return DefineResult{}, err
		}
		if err := e.ledger.checkBudget(ctx, p, budgetBytes); err != nil {
			return DefineResult{}, err
		}
		s := store.Definition{
			Name: d.Name, Version: newest.Version + 1, Hash: d.Hash, Document: d.Document,
			Owner: p.ID, Operator: p.Role == RoleOperator, CreatedAt: e.Now(),
		}
		err = e.rules.addRule(ctx, store.Rule{Definition: &s})
		switch {
		case err == nil:
			e.ledger.charge(p, budgetBytes, int64(len(d.Document)))
			e.cacheDefinition(definition{stored: s, def: d, gates: e.gates})
			return defineResult(s, d, warnings, true), nil
		case !errors.Is(err, store.ErrConflict):
			return DefineResult{}, StoreError("store the definition", err)
		}
	}
}

// recorderNameError returns the rejection of a name that a recorder's workflow has or would have.
func recorderNameError(s store.Definition) error {
	if isRecorder(s.Owner) {
		return newError(CodeForbidden, "/name", "The workflow %q records runs; only gavel may define it.", s.Name).withHint("Define it under another name.")
	}
	return newError(CodeForbidden, "/name", "The runs would be recorded as the workflow %q, which an operator has defined.", s.Name).withHint("Give the runs another name, or rename that workflow.")
}

func definitionOwnerError(s store.Definition) error {
	who := "another principal"
	if s.Operator {
		who = "an operator"
	}
	return newError(CodeForbidden, "/name", "The workflow %q belongs to %s; you may not redefine it.", s.Name, who).
		withHint("Define it under another name, or ask its owner or an operator.")
}

func defineResult(s store.Definition, d *workflow.Definition, warnings []workflow.Issue, created bool) DefineResult {
	return DefineResult{
		Name: s.Name, Version: s.Version, Hash: s.Hash, Created: created, InitialState: d.InitialState,
		States: d.StateNames, Owner: s.Owner, Warnings: warnings,
	}
}

// List returns the newest version of every definition, by name.
func (e *Engine) List(ctx context.Context, p Principal) ([]DefinitionSummary, error) {
	if err := Authorize(p, RightRead); err != nil {
		return nil, err
	}
	all, err := e.rules.listDefinitions(ctx)
	if err != nil {
		return nil, StoreError("list the definitions", err)
	}
	out := make([]DefinitionSummary, 0, len(all))
	for _, s := range all {
		if !p.InScope(s.Name) {
			continue
		}
		shared, err := e.isShared(ctx, s)
		if err != nil {
			return nil, err
		}
		if !shared && !canUse(p, s) {
			continue
		}
		l, err := e.loadDefinition(ctx, s.Name, s.Version)
		if err != nil {
			return nil, err
		}
		out = append(out, summarizeDefinition(l, shared))
	}
	return out, nil
}

func summarizeDefinition(l definition, shared bool) DefinitionSummary {
	return DefinitionSummary{
		Name: l.stored.Name, Description: l.def.Description, Version: l.stored.Version, Hash: l.stored.Hash,
		Owner: l.stored.Owner, Operator: l.stored.Operator, Shared: shared, StartRequires: l.def.StartFields(), States: len(l.def.States), CreatedAt: l.stored.CreatedAt,
	}
}

// Describe returns a version of a definition with the judge configuration in force for the caller's
// instances. Version 0 is the newest.
func (e *Engine) Describe(ctx context.Context, p Principal, name string, version int) (DefinitionView, error) {
	return e.DescribeAt(ctx, p, DescribeRequest{Name: name, Version: version})
}

// DescribeRequest asks for a definition by name, or for the definition of an instance.
type DescribeRequest struct {
	// Name may come with a Version, or with When.At for the newest version of that time. With neither, the
	// newest version is returned.
	Name    string
	Version int
	// ID is an instance; the result is the version that it is pinned to, or was pinned to at When.
	ID string
	When
}

// DescribeAt returns a present or past version of a definition. It includes the judge configuration in
// force at that time, for the caller's instances or for the instance in the request.
func (e *Engine) DescribeAt(ctx context.Context, p Principal, req DescribeRequest) (DefinitionView, error) {
	if err := Authorize(p, RightRead); err != nil {
		return DefinitionView{}, err
	}
	if err := req.check(); err != nil {
		return DefinitionView{}, err
	}
	l, owner, until, err := e.findDefinition(ctx, p, req)
	if err != nil {
		return DefinitionView{}, err
	}
	overlays, _, err := e.loadOverlays(ctx, l, owner, until)
	if err != nil {
		return DefinitionView{}, err
	}
	known, err := e.showsJudgeOf(ctx, p, l.stored)
	if err != nil {
		return DefinitionView{}, err
	}
	shared, err := e.isShared(ctx, l.stored)
	if err != nil {
		return DefinitionView{}, err
	}
	return e.definitionView(known, l, shared, overlays)
}

func (req DescribeRequest) check() error {
	switch {
	case req.Name == "" && req.ID == "":
		return MissingField("name", "A name that list returns; or the id of an instance.")
	case req.Name != "" && req.ID != "":
		return &Error{Code: CodeInvalidArgument, Path: "/id", Message: "A name and an id were both given.", Hint: "Give only one: name for a workflow, id for the definition of an instance."}
	case req.Version < 0:
		return &Error{Code: CodeInvalidArgument, Path: "/version", Message: "A version is 1 or more.", Hint: "Leave it out for the newest."}
	case req.Version > 0 && (req.ID != "" || !req.At.IsZero()):
		return &Error{Code: CodeInvalidArgument, Path: "/version", Message: "version cannot be combined with id or at.", Hint: "Give a name with a version, a name with a time, or an id."}
	case req.Revision != 0 && req.ID == "":
		return &Error{Code: CodeInvalidArgument, Path: "/revision", Message: "revision needs the id of an instance.", Hint: "Give the id, or a version of the workflow."}
	}
	return req.When.validate()
}

// findDefinition returns the requested version, the owner whose instances the judge configuration applies
// to, and the time at which it applies; zero is now.
func (e *Engine) findDefinition(ctx context.Context, p Principal, req DescribeRequest) (l definition, owner string, until time.Time, err error) {
	if req.ID == "" {
		l, err = e.definitionAt(ctx, p, req.Name, req.Version, req.At)
		return l, p.ID, req.At, err
	}
	inst, err := e.loadInstance(ctx, p, req.ID)
	if err != nil {
		return definition{}, "", time.Time{}, err
	}
	ctx, read, err := e.BeginBulkRead(ctx, p)
	if err != nil {
		return definition{}, "", time.Time{}, err
	}
	defer read.End()
	then, l, now, err := e.loadPast(ctx, inst.Instance, req.When)
	if until = req.At; !now && until.IsZero() {
		until = then.UpdatedAt
	}
	return l, inst.Owner, until, err
}

// definitionAt returns a version of a definition; with a time, the newest one at that time.
func (lib *library) definitionAt(ctx context.Context, p Principal, name string, version int, at time.Time) (definition, error) {
	l, err := lib.loadNamed(ctx, p, name, version)
	for err == nil && !at.IsZero() && l.stored.CreatedAt.After(at) {
		if l.stored.Version == 1 {
			return definition{}, &Error{
				Code: CodeUnknownRevision, Path: "/at", Message: fmt.Sprintf("The workflow %q was not defined yet at %s; it was at %s.", l.stored.Name, formatTime(at), formatTime(l.stored.CreatedAt)),
				Hint: "Give a later time.",
			}
		}
		l, err = lib.loadNamed(ctx, p, name, l.stored.Version-1)
	}
	return l, err
}
