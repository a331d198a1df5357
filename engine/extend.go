package engine

import (
	"context"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// What the packages over the engine (audit, transfer) need of it: they answer with its
// errors, ask for its rights and keep to its clock.

// Authorize returns an error unless the principal's role has the right.
func Authorize(p Principal, right Right) error { return authorize(p, right) }

// StoreError is the answer to an error of the store; op completes "could not ...".
func StoreError(op string, err error) error { return storeError(op, err) }

// InternalError is the answer to a defect of the program.
func InternalError(op string, err error) error { return internalError(op, err) }

// MissingField is the answer to a request without an argument; what says what it is.
func MissingField(field, what string) error { return missingField(field, what) }

// UnknownInstance is the answer where an instance is not there or not visible.
func UnknownInstance(id string) error { return unknownInstance(id) }

// Now is the engine's clock, as it is recorded.
func (e *Engine) Now() time.Time { return e.now() }

// Publish tells the engine's observer what was committed.
func (e *Engine) Publish(ctx context.Context, events ...record.Event) {
	e.notifyObserver(ctx, events...)
}

// RuleHead is the end of the chain of definitions and judge configurations as far as it can
// be trusted; the zero Head where it cannot.
func (e *Engine) RuleHead(ctx context.Context) (record.Head, error) { return e.rules.loadHead(ctx) }

// CheckRule returns an error unless a rule is sealed with the engine's key, or sealed at all
// where it has none (HasRuleKey).
func (e *Engine) CheckRule(rule store.Rule) error {
	return e.rules.sealer.Check(rule.Seal(), rule.Parts()...)
}

// HasRuleKey reports whether seals are compared with a key.
func (e *Engine) HasRuleKey() bool { return len(e.cfg.RuleKey) > 0 }

// LoadDefinition returns a version of a definition (0 is the newest) with all its settings.
// It needs RightExport.
func (e *Engine) LoadDefinition(ctx context.Context, p Principal, name string, version int) (store.Definition, *workflow.Definition, error) {
	if err := authorize(p, RightExport); err != nil {
		return store.Definition{}, nil, err
	}
	l, err := e.loadNamed(ctx, p, name, version)
	return l.stored, l.def, err
}
