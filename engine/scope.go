package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine/store"
)

// InScope reports whether the principal may use workflows with this name.
func (p Principal) InScope(workflow string) bool {
	if p.Workflows == "" {
		return true
	}
	for pattern := range strings.FieldsSeq(p.Workflows) {
		if MatchName(pattern, workflow) {
			return true
		}
	}
	return false
}

// MatchName reports whether a name matches a pattern, in which * stands for any run of characters.
func MatchName(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	rest := name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

// storeWideRights lists the operations that concern an entire store. A caller whose scope is limited may not
// request them.
var storeWideRights = map[Right]bool{RightImport: true, RightExport: true, RightAnchor: true, RightVerify: true, RightRetain: true, RightPin: true}

// loadNamed is loadDefinition for a name from a caller. Definitions that the caller may not use get the same
// error as missing ones.
func (lib *library) loadNamed(ctx context.Context, p Principal, name string, version int) (definition, error) {
	if !p.InScope(name) {
		return definition{}, lib.explainUnknownWorkflow(ctx, p, name, version)
	}
	l, err := lib.loadDefinition(ctx, name, version)
	if err == nil {
		err = lib.checkUse(ctx, p, l.stored)
	}
	if CodeOf(err) == CodeUnknownWorkflow {
		return definition{}, lib.explainUnknownWorkflow(ctx, p, name, version)
	}
	return l, err
}

// canUse reports whether a version is the caller's or an operator's, or whether the caller's role may see
// all versions.
func canUse(p Principal, s store.Definition) bool {
	return s.Operator || s.Owner == p.ID || seesAll(p.Role)
}

// checkUse rejects a version that belongs to another agent, unless an operator shared it or lets agents
// redefine its workflow.
func (lib *library) checkUse(ctx context.Context, p Principal, s store.Definition) error {
	if canUse(p, s) {
		return nil
	}
	shared, err := lib.isShared(ctx, s)
	if err == nil && !shared {
		err = unknownWorkflow(s.Name, 0)
	}
	return err
}

func (lib *library) isShared(ctx context.Context, s store.Definition) (bool, error) {
	if s.Operator {
		return false, nil
	}
	revisions, err := lib.rules.listConfigs(ctx, s.Name)
	if err != nil {
		return false, StoreError("read the judge configuration", err)
	}
	rights, _, err := lib.loadAgentRights(ctx, s.Name)
	if err != nil {
		return false, err
	}
	shared := rights.Redefine // it is a version of an operator's workflow
	for _, r := range revisions {
		if r.Settings.Shared != nil && Role(r.Role) == RoleOperator {
			shared = *r.Settings.Shared
		}
	}
	return shared, nil
}

func outOfScope(p Principal, name string) error {
	return newError(CodeForbidden, "/name", "The caller has access only to workflows named %s, not %.80q.", strings.Join(strings.Fields(p.Workflows), ", "), name).
		withHint("Use such a name, or ask an operator for another credential.")
}

// confusables replaces characters that people and models confuse with others, such as 0 and o, by one of
// them, and drops separators. Names contain only ASCII letters, digits, dot, underscore and hyphen.
var confusables = strings.NewReplacer(
	"0", "o", "1", "l", "i", "l", "|", "l", "5", "s", "2", "z", "8", "b", "rn", "m", "vv", "w",
	".", "", "_", "", "-", "",
)

// foldName returns a form that is equal for names that look alike.
func foldName(name string) string { return confusables.Replace(strings.ToLower(name)) }

// checkName rejects a name that could be mistaken for an operator's: a reader of "refund" must know whose
// rules applied. same reports whether the identical name counts as well.
func (lib *library) checkName(ctx context.Context, p Principal, name string, same bool) error {
	if p.Role == RoleOperator {
		return nil
	}
	names, err := lib.rules.listNames(ctx)
	if err != nil {
		return StoreError("list the definitions", err)
	}
	own := foldName(name)
	for _, other := range names {
		if foldName(other) != own || other == name && !same {
			continue
		}
		ofOperator, err := lib.rules.findNewestOperatorVersion(ctx, other)
		if err != nil {
			return StoreError("read the definition", err)
		}
		if ofOperator == 0 {
			continue
		}
		shown := "an operator's workflow"
		if p.InScope(other) {
			shown = fmt.Sprintf("the operator's workflow %q", other)
		}
		return newError(CodeForbidden, "/name", "The name %q could be taken for %s.", name, shown).
			withHint("Choose a more distinct name.")
	}
	return nil
}
