package engine

import (
	"context"
	"errors"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// This file holds the functions that the packages above the engine (audit, modules) need.

// RuleHead returns the end of the chain of definitions and judge configurations, or the zero Head if the chain
// cannot be trusted.
func (e *Engine) RuleHead(ctx context.Context) (record.Head, error) { return e.rules.loadHead(ctx) }

// CheckRule returns an error unless a rule is sealed with the engine's key. Without a key (see HasRuleKey), it
// checks only the hash in the seal.
func (e *Engine) CheckRule(rule store.Rule) error {
	return e.rules.sealer.Check(rule.Seal(), rule.Parts()...)
}

// HasRuleKey reports whether seals are checked with a key.
func (e *Engine) HasRuleKey() bool { return len(e.cfg.RuleKey) > 0 }

// LoadDefinition returns a version of a definition (0 is the newest) with all its settings unmasked. The
// caller must have the given right.
func (e *Engine) LoadDefinition(ctx context.Context, p Principal, right Right, name string, version int) (store.Definition, *workflow.Definition, error) {
	if err := Authorize(p, right); err != nil {
		return store.Definition{}, nil, err
	}
	l, err := e.loadNamed(ctx, p, name, version)
	return l.stored, l.def, err
}

// LoadInstance returns an instance with its sensitive values. With seq 0 it returns the present instance,
// otherwise the instance right after the event with that revision and seq. It checks no rights, so callers must
// not show the result.
func (e *Engine) LoadInstance(ctx context.Context, id string, revision, seq int64) (inst record.Instance, err error) {
	if seq > 0 {
		return e.foldTo(ctx, id, revision, seq)
	}
	if inst, err = e.load(ctx, id); errors.Is(err, store.ErrNotFound) {
		return inst, UnknownInstance(id)
	} else if err != nil {
		err = StoreError("load the instance", err)
	}
	return inst, err
}
