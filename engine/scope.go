package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
)

// deals reports whether a workflow's name is in the caller's scope.
func (p Principal) deals(workflow string) bool {
	if p.Workflows == "" {
		return true
	}
	for pattern := range strings.FieldsSeq(p.Workflows) {
		if matchName(pattern, workflow) {
			return true
		}
	}
	return false
}

// matchName reports whether a name is a pattern's, where * is any run of characters.
func matchName(pattern, name string) bool {
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

// wholeStore are the operations that are about everything in a store: a caller with a
// scope may not ask for them.
var wholeStore = map[operation]bool{opImport: true, opExport: true, opAnchor: true, opVerify: true, opRetain: true}

// inScope refuses what a caller's scope leaves out. Whether it is there is not told.
func (e *Engine) inScope(ctx context.Context, p Principal, workflow string) error {
	if p.deals(workflow) {
		return nil
	}
	return e.unknownWorkflow(ctx, p, workflow, 0)
}

// named is definition for a name that a caller gave.
func (e *Engine) named(ctx context.Context, p Principal, name string, version int) (loaded, error) {
	if err := e.inScope(ctx, p, name); err != nil {
		return loaded{}, err
	}
	l, err := e.definition(ctx, name, version)
	if CodeOf(err) == CodeUnknownWorkflow { // again, for what this caller may know of
		return loaded{}, e.unknownWorkflow(ctx, p, name, version)
	}
	return l, err
}

func outOfScope(p Principal, name string) error {
	return &Error{
		Code: CodeForbidden, Path: "/name",
		Message: fmt.Sprintf("The caller may deal with workflows named %s, and %.80q is none of them.", strings.Join(strings.Fields(p.Workflows), ", "), name),
		Hint:    "Define it under such a name, or ask an operator for another credential.",
	}
}

// replayable reports whether an answer that a key was given may be given again: the
// caller may have lost sight of the workflow since.
func replayable(p Principal, ev record.Event) error {
	if p.deals(ev.Workflow) {
		return nil
	}
	return unknownInstance(ev.Instance)
}
