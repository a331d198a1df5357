package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
)

// operation names what a caller asks for, for authorisation and messages.
type operation string

const (
	opDefine     operation = "define"
	opRead       operation = "read"
	opStart      operation = "start"
	opAdvance    operation = "advance"
	opValidate   operation = "validate"
	opDecide     operation = "ask for a decision of"
	opCancel     operation = "cancel"
	opCheckpoint operation = "checkpoint"
	opRollback   operation = "rollback"
	opUndo       operation = "undo moves of"
	opRedo       operation = "redo moves of"
	opMigrate    operation = "migrate instances of"
	opConfigure  operation = "configure the judge of"
	opClear      operation = "clear refusals of"
	opResolve    operation = "resolve a review of"
	opImport     operation = "import"
	opExport     operation = "export"
	opAnchor     operation = "anchor"
	opVerify     operation = "verify"
	opRetain     operation = "remove records of"
)

// allowed is the table of which roles may ask for what at all. Ownership is
// looked at after that: see mayTouch and mayGovern. Which actions a role may
// perform is the transition's affair (roles, notBy).
var allowed = map[operation][]Role{
	opDefine:     {RoleAgent, RoleOperator},
	opRead:       {RoleAgent, RoleReviewer, RoleOperator, RoleAuditor},
	opStart:      {RoleAgent, RoleOperator},
	opAdvance:    {RoleAgent, RoleReviewer, RoleOperator},
	opValidate:   {RoleAgent, RoleReviewer, RoleOperator},
	opDecide:     {RoleAgent, RoleReviewer, RoleOperator},
	opCancel:     {RoleAgent, RoleOperator},
	opCheckpoint: {RoleAgent, RoleOperator},
	opRollback:   {RoleAgent, RoleOperator},
	opUndo:       {RoleAgent, RoleOperator},
	opRedo:       {RoleAgent, RoleOperator},
	opMigrate:    {RoleOperator},
	opConfigure:  {RoleAgent, RoleOperator},
	opClear:      {RoleOperator},
	opResolve:    {RoleReviewer, RoleOperator},
	opImport:     {RoleOperator},
	opExport:     {RoleOperator, RoleAuditor},
	opAnchor:     {RoleOperator},
	opVerify:     {RoleOperator, RoleAuditor},
	opRetain:     {RoleOperator},
}

// authorize refuses a caller without an id, with an unknown role, or whose role
// may never do this.
func authorize(p Principal, op operation) error {
	if p.ID == "" {
		return &Error{Code: CodeForbidden, Message: "The caller has no identity.", Hint: "Authenticate first."}
	}
	if !slices.Contains(allowed[op], p.Role) {
		return &Error{
			Code:    CodeForbidden,
			Message: fmt.Sprintf("The role %q may not %s a workflow.", p.Role, op),
			Hint:    fmt.Sprintf("Roles that may: %s.", joinRoles(allowed[op])),
		}
	}
	if p.Workflows != "" && wholeStore[op] {
		return &Error{
			Code: CodeForbidden, Message: fmt.Sprintf("To %s concerns every workflow, and the caller may deal with some only.", op),
			Hint: "Ask somebody whose credential is not limited to some workflows.",
		}
	}
	return nil
}

// seesAll reports whether a role sees instances of every principal. Agents see
// their own.
func seesAll(r Role) bool { return r == RoleOperator || r == RoleReviewer || r == RoleAuditor }

// sees reports whether the caller may know of the instance.
func sees(p Principal, inst record.Instance) bool {
	return p.deals(inst.Workflow) && (seesAll(p.Role) || inst.Owner == p.ID)
}

// seesPlain reports whether the caller gets the context unmasked: who owns the
// instance, and operators.
func seesPlain(p Principal, inst record.Instance) bool {
	return p.Role == RoleOperator || inst.Owner == p.ID
}

// governs reports whether the caller may redefine, loosen or roll back what the
// definition guards: an operator always, an agent only what is its own.
func governs(p Principal, s StoredDefinition) bool {
	return p.Role == RoleOperator || (!s.Operator && s.Owner == p.ID)
}

func joinRoles(roles []Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}
