package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Right names an operation, for authorisation and messages.
type Right string

// The rights.
const (
	RightDefine     Right = "define"
	RightRead       Right = "read"
	RightStart      Right = "start"
	RightAdvance    Right = "advance"
	RightValidate   Right = "validate"
	RightDecide     Right = "ask for a decision of"
	RightCancel     Right = "cancel"
	RightCheckpoint Right = "checkpoint"
	RightRollback   Right = "rollback"
	RightUndo       Right = "undo moves of"
	RightRedo       Right = "redo moves of"
	RightMigrate    Right = "migrate instances of"
	RightConfigure  Right = "configure the judge of"
	RightClear      Right = "clear refusals of"
	RightResolve    Right = "resolve a review of"
	RightLabel      Right = "read the labels of"
	RightImport     Right = "import"
	RightExport     Right = "export"
	RightAnchor     Right = "anchor"
	RightVerify     Right = "verify"
	RightRetain     Right = "remove records of"
	RightRelease    Right = "release the subject of"
	RightOperate    Right = "pause, resume or redrive runs of"
	RightTranscript Right = "add the user's messages to"
	RightPin        Right = "pin the tools of other servers for"
)

// allowed lists the roles that may request each right. Ownership is checked afterwards: see sight and
// canGovern. Which actions a role may perform depends on the transition (roles, notBy).
var allowed = map[Right][]Role{
	RightDefine:     {RoleAgent, RoleOperator},
	RightRead:       {RoleAgent, RoleReviewer, RoleOperator, RoleAuditor},
	RightStart:      {RoleAgent, RoleOperator},
	RightAdvance:    {RoleAgent, RoleReviewer, RoleOperator},
	RightValidate:   {RoleAgent, RoleReviewer, RoleOperator},
	RightDecide:     {RoleAgent, RoleReviewer, RoleOperator},
	RightCancel:     {RoleAgent, RoleOperator},
	RightCheckpoint: {RoleAgent, RoleOperator},
	RightRollback:   {RoleAgent, RoleOperator},
	RightUndo:       {RoleAgent, RoleOperator},
	RightRedo:       {RoleAgent, RoleOperator},
	RightMigrate:    {RoleOperator},
	RightConfigure:  {RoleAgent, RoleOperator},
	RightClear:      {RoleOperator},
	RightResolve:    {RoleReviewer, RoleOperator},
	RightLabel:      {RoleReviewer, RoleOperator, RoleAuditor},
	RightImport:     {RoleOperator},
	RightExport:     {RoleOperator, RoleAuditor},
	RightAnchor:     {RoleOperator},
	RightVerify:     {RoleOperator, RoleAuditor},
	RightRetain:     {RoleOperator},
	RightRelease:    {RoleOperator},
	RightOperate:    {RoleOperator},
	RightTranscript: {RoleProxy, RoleOperator},
	RightPin:        {RoleOperator},
}

// Roles returns the roles that may request the right.
func (r Right) Roles() []Role { return slices.Clone(allowed[r]) }

// Authorize rejects a caller without an id, with an unknown role, or whose role never has this right.
func Authorize(p Principal, op Right) error {
	if p.ID == "" {
		return &Error{Code: CodeForbidden, Message: "The caller has no identity.", Hint: "Authenticate first."}
	}
	if !slices.Contains(allowed[op], p.Role) {
		return newError(CodeForbidden, "", "The role %q may not %s a workflow.", p.Role, op).
			withHint(fmt.Sprintf("Roles that may: %s.", joinWords(allowed[op])))
	}
	if p.Workflows != "" && storeWideRights[op] {
		return newError(CodeForbidden, "", "Permission to %s covers every workflow, but the caller has access to only some.", op).
			withHint("Use a credential that is not limited to some workflows.")
	}
	return nil
}

// seesAll reports whether a role sees the instances of all principals. Agents see their own instances and
// those of shared workflows (sight).
func seesAll(r Role) bool {
	return r == RoleOperator || r == RoleReviewer || r == RoleAuditor || r == RoleProxy
}

// seesUnmasked reports whether the caller sees the context unmasked: only the owner of the instance and operators
// do.
func (i instance) seesUnmasked() bool { return i.by.Role == RoleOperator || i.Owner == i.by.ID }

// canGovern reports whether the caller may redefine the definition, loosen it, or roll its instances back.
// Operators always may; agents only for their own definitions.
func canGovern(p Principal, s store.Definition) bool {
	return p.Role == RoleOperator || (!s.Operator && s.Owner == p.ID)
}

// loadAgentRights returns the rights that the newest operator-defined version of a workflow gives agents,
// and that version. It returns zero values if an operator never defined the workflow.
func (lib *library) loadAgentRights(ctx context.Context, name string) (workflow.AgentRights, definition, error) {
	version, err := lib.rules.findNewestOperatorVersion(ctx, name)
	if err != nil || version == 0 {
		return workflow.AgentRights{}, definition{}, err
	}
	l, err := lib.loadDefinition(ctx, name, version)
	if err != nil {
		return workflow.AgentRights{}, definition{}, err
	}
	return l.def.Agents, l, nil
}

// checkTakeBack checks whether the caller may roll back, undo or redo. No one may on a recorder's workflow; on
// all others, operators may.
//
// If an operator never defined the workflow, anyone who governs the definition may, and the instance's owner
// may undo and redo.
//
// A workflow that an operator once defined stays the operator's, even if an agent redefined it later. On it,
// the instance's owner may if the newest operator version lets agents roll back. If an operator also defined
// the instance's own version, that version must let them too.
func (lib *library) checkTakeBack(ctx context.Context, inst instance, op Right) error {
	if err := rejectRecorderMade(inst.definition, "change its history"); err != nil || inst.by.Role == RoleOperator {
		return err
	}
	rights, ofOperator, err := lib.loadAgentRights(ctx, inst.Workflow)
	switch {
	case err != nil:
		return err
	case ofOperator.def == nil:
		if canGovern(inst.by, inst.stored) || inst.Owner == inst.by.ID && op != RightRollback {
			return nil
		}
		return newError(CodeForbidden, "", "The workflow %q belongs to another principal; only its owner or an operator may %s.", inst.Workflow, op.verb()).
			withHint("Ask its owner or an operator.")
	case inst.Owner == inst.by.ID && rights.Rollback && (!inst.stored.Operator || inst.def.Agents.Rollback):
		return nil
	}
	return newError(CodeForbidden, "", "The workflow %q belongs to an operator; only an operator may %s.", inst.Workflow, op.verb()).
		withHint("Ask an operator, or perform one of nextActions.")
}

func joinWords[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, ", ")
}

// withheldSettings are judge settings that are hidden from principals judged by another principal's definition:
// the thresholds, which models are asked and how often, and the reference answers. Criteria are shown, because
// they are the requirements.
var withheldSettings = []string{"minConfidence", "samples", "panel", "reference", "exemplars"}

func showsJudge(p Principal, s store.Definition) bool { return canGovern(p, s) || seesAll(p.Role) }

// showsJudgeOf is showsJudge for a version that may not be the newest. A caller that may not govern the newest
// version does not see the settings of older ones either.
func (lib *library) showsJudgeOf(ctx context.Context, p Principal, s store.Definition) (bool, error) {
	if !showsJudge(p, s) || seesAll(p.Role) {
		return showsJudge(p, s), nil
	}
	newest, err := lib.loadDefinition(ctx, s.Name, 0)
	return err == nil && canGovern(p, newest.stored), err
}

func (e *Engine) definitionView(known bool, l definition, shared bool, overlays []workflow.Overlay) (DefinitionView, error) {
	out := DefinitionView{DefinitionSummary: summarizeDefinition(l, shared), Definition: l.stored.Document, Judge: e.rubricView(known, l, overlays)}
	if known {
		return out, nil
	}
	open, cut, err := workflow.RemoveJudgeSettings(l.stored.Document, withheldSettings...)
	if err != nil {
		return DefinitionView{}, InternalError(fmt.Sprintf("stored definition %s version %d does not parse", l.stored.Name, l.stored.Version), err)
	}
	out.Definition, out.Withheld = open, cut
	if !slices.Contains(cut, withheldSettings[0]) { // every definition has this setting
		out.Withheld = append([]string{withheldSettings[0]}, cut...)
	}
	return out, nil
}

func (e *Engine) rubricView(known bool, l definition, overlays []workflow.Overlay) RubricView {
	r := l.def.Rubric(overlays)
	out := RubricView{Rubric: r, LoopGuard: describeLoopGuard(e.cfg.Judge, l, overlays)}
	if known {
		out.MinConfidence = &r.MinConfidence
		return out
	}
	out.Rubric.MinConfidence, out.Samples, out.Panel, out.Reference, out.Exemplars = 0, 0, nil, "", nil
	return out
}
