package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// SealRequest asks for new seals for all rules of a store as they are, even if they are defective. An operator
// has examined them and takes responsibility for them.
type SealRequest struct {
	// DryRun reports what would be sealed and seals nothing.
	DryRun bool
}

// SealResult lists the sealed rules.
type SealResult struct {
	// Rules lists all rules in the store, in chain order.
	Rules []SealedRule `json:"rules"`
	// Sealed is the number of rules that got a new or a first seal.
	Sealed int `json:"sealed"`
}

// SealedRule is a rule that was or would be sealed.
type SealedRule struct {
	Workflow string `json:"workflow"`
	// Version is set for a definition, Revision for a judge configuration; the other one is 0.
	Version  int `json:"version,omitempty"`
	Revision int `json:"revision,omitempty"`
	// Principal made the rule, according to the store.
	Principal string    `json:"principal"`
	Operator  bool      `json:"operator"`
	At        time.Time `json:"at"`
	// Wrong is why the rule was not usable before; "" if its seal was correct.
	Wrong string `json:"wrong,omitempty"`
}

func newSealedRule(r store.Rule, was record.RuleSeal) SealedRule {
	out := SealedRule{Workflow: r.Workflow()}
	switch {
	case r.Config != nil:
		out.Revision, out.Principal, out.Operator, out.At = r.Config.Revision, r.Config.Principal, Role(r.Config.Role) == RoleOperator, r.Config.At
	default:
		out.Version, out.Principal, out.Operator, out.At = r.Definition.Version, r.Definition.Owner, r.Definition.Operator, r.Definition.CreatedAt
	}
	switch now := r.Seal(); {
	case was.Position < 1:
		out.Wrong = "it has no seal"
	case was.Position != now.Position:
		out.Wrong = fmt.Sprintf("it is at place %d instead of %d of the chain", was.Position, now.Position)
	case was != now:
		out.Wrong = "its seal does not match its content, place and key"
	}
	return out
}

// SealRules seals the definitions and judge configurations of a store. The new seals prove nothing about
// how the rules got there. Only operators may call it.
func (e *Engine) SealRules(ctx context.Context, p Principal, req SealRequest) (SealResult, error) {
	if err := Authorize(p, RightMigrate); err != nil {
		return SealResult{}, err
	}
	for {
		result, err := e.rules.sealAll(ctx, req)
		switch {
		case err == nil:
			return result, nil
		case !errors.Is(err, store.ErrConflict):
			return result, StoreError("seal the rules", err)
		}
	}
}

// CheckRules returns nil if all definitions and judge configurations can be used, or an error with
// CodeUntrustedRules that names the defect. Documents are checked only when they are used.
func (e *Engine) CheckRules(ctx context.Context) error {
	return e.rules.refresh(ctx)
}

// sealAll seals all rules in chain order, followed by those without a place. Rules with a correct seal
// keep it. It returns ErrConflict if a rule was added in the meantime.
func (r *rules) sealAll(ctx context.Context, req SealRequest) (SealResult, error) {
	head, all, err := r.store.Rules(ctx, store.AllRules)
	if err != nil {
		return SealResult{}, err // the caller wraps the error
	}
	sortRules(all)
	out := SealResult{Rules: []SealedRule{}}
	var end record.RuleSeal
	for _, rule := range all {
		was := rule.Seal()
		end = r.sealer.Seal(end.Position+1, end.Hash, rule.Parts()...)
		rule.SetSeal(end)
		sealed := newSealedRule(rule, was)
		if sealed.Wrong != "" {
			out.Sealed++
		}
		out.Rules = append(out.Rules, sealed)
	}
	if out.Sealed == 0 || req.DryRun {
		return out, nil
	}
	r.mu.Lock() // held until the old end is reset, because refresh compares with it
	defer r.mu.Unlock()
	if err := r.store.SealRules(ctx, head, all); err != nil {
		return SealResult{}, err // the caller wraps the error
	}
	r.resealCount++
	r.end = store.RuleHead{}
	clear(r.counts)
	r.configs.Purge()
	return out, nil
}

// sortRules orders rules by their places; rules without a place come last, by name. Rules of one workflow
// are always in the order of their numbers.
func sortRules(all []store.Rule) {
	place := func(r store.Rule) int64 {
		if at := r.Seal().Position; at > 0 {
			return at
		}
		return math.MaxInt64
	}
	slices.SortStableFunc(all, func(a, b store.Rule) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a.Workflow(), b.Workflow()), cmp.Compare(a.Number(), b.Number()))
	})
	type kind struct {
		name   string
		config bool
	}
	at := map[kind][]int{}
	for i, rule := range all {
		k := kind{rule.Workflow(), rule.Config != nil}
		at[k] = append(at[k], i)
	}
	for _, places := range at {
		own := make([]store.Rule, len(places))
		for i, p := range places {
			own[i] = all[p]
		}
		slices.SortStableFunc(own, func(a, b store.Rule) int { return cmp.Compare(a.Number(), b.Number()) })
		for i, p := range places {
			all[p] = own[i]
		}
	}
}
