package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// Right names what a caller asks for, for authorisation and messages.
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
	RightImport     Right = "import"
	RightExport     Right = "export"
	RightAnchor     Right = "anchor"
	RightVerify     Right = "verify"
	RightRetain     Right = "remove records of"
)

// allowed is the table of which roles may ask for what at all. Ownership is
// looked at after that: see mayTouch and mayGovern. Which actions a role may
// perform is the transition's affair (roles, notBy).
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
	RightImport:     {RoleOperator},
	RightExport:     {RoleOperator, RoleAuditor},
	RightAnchor:     {RoleOperator},
	RightVerify:     {RoleOperator, RoleAuditor},
	RightRetain:     {RoleOperator},
}

// Roles are the roles that may ask for it.
func (r Right) Roles() []Role { return slices.Clone(allowed[r]) }

// Authorize refuses a caller without an id, with an unknown role, or whose role
// may never do this.
func Authorize(p Principal, op Right) error {
	if p.ID == "" {
		return &Error{Code: CodeForbidden, Message: "The caller has no identity.", Hint: "Authenticate first."}
	}
	if !slices.Contains(allowed[op], p.Role) {
		return newError(CodeForbidden, "", "The role %q may not %s a workflow.", p.Role, op).
			hint(fmt.Sprintf("Roles that may: %s.", joinWords(allowed[op])))
	}
	if p.Workflows != "" && wholeStore[op] {
		return newError(CodeForbidden, "", "To %s concerns every workflow, and the caller may deal with some only.", op).
			hint("Ask somebody whose credential is not limited to some workflows.")
	}
	return nil
}

// seesAll reports whether a role sees instances of every principal. Agents see
// their own.
func seesAll(r Role) bool { return r == RoleOperator || r == RoleReviewer || r == RoleAuditor }

func canSee(p Principal, inst record.Instance) bool {
	return p.inScope(inst.Workflow) && (seesAll(p.Role) || inst.Owner == p.ID)
}

// seesPlain reports whether the caller gets the context unmasked: who owns the
// instance, and operators.
func seesPlain(p Principal, inst record.Instance) bool {
	return p.Role == RoleOperator || inst.Owner == p.ID
}

// canGovern reports whether the caller may redefine, loosen or roll back what the
// definition guards: an operator always, an agent only what is its own.
func canGovern(p Principal, s store.Definition) bool {
	return p.Role == RoleOperator || (!s.Operator && s.Owner == p.ID)
}

func joinWords[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, w := range words {
		texts[i] = string(w)
	}
	return strings.Join(texts, ", ")
}
