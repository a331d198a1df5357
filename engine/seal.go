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

// SealRequest asks for seals for all rules of a store as they stand, whatever was wrong with
// them: an operator looked at them and answers for them.
type SealRequest struct {
	// DryRun seals nothing, and says what would be sealed.
	DryRun bool
}

// SealResult is what was sealed.
type SealResult struct {
	// Rules are all that the store holds, in their order.
	Rules []SealedRule `json:"rules"`
	// Sealed counts those whose seal was made anew or for the first time.
	Sealed int `json:"sealed"`
}

// SealedRule is a rule that was sealed, or would be.
type SealedRule struct {
	Workflow string `json:"workflow"`
	// Version is a definition's, Revision a judge configuration's: one of them is 0.
	Version  int `json:"version,omitempty"`
	Revision int `json:"revision,omitempty"`
	// Principal made it, as the store says.
	Principal string    `json:"principal"`
	Operator  bool      `json:"operator"`
	At        time.Time `json:"at"`
	// Wrong says why it was not used before; "" when it was sealed well.
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
	case was.Place < 1:
		out.Wrong = "it has no seal"
	case was.Place != now.Place:
		out.Wrong = fmt.Sprintf("it is at place %d instead of %d of the chain", was.Place, now.Place)
	case was != now:
		out.Wrong = "its seal is not that of this content, this place and this key"
	}
	return out
}

// SealRules gives the definitions and judge configurations of a store their seals. That
// says nothing about how they came there before. It is an operator's to do.
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

// CheckRules reports whether all definitions and judge configurations can be used: nil,
// or CodeUntrustedRules with what is wrong. Documents are checked when they are used.
func (e *Engine) CheckRules(ctx context.Context) error {
	return e.rules.refresh(ctx)
}

// sealAll seals all rules in their order in the chain, and behind them those without a
// place: what was sealed well keeps its seal. ErrConflict when one was added meanwhile.
func (r *rules) sealAll(ctx context.Context, req SealRequest) (SealResult, error) {
	head, all, err := r.store.Rules(ctx, store.AllRules)
	if err != nil {
		return SealResult{}, err // the caller says what it was for
	}
	sortRules(all)
	out := SealResult{Rules: []SealedRule{}}
	var end record.RuleSeal
	for _, rule := range all {
		was := rule.Seal()
		end = r.sealer.Seal(end.Place+1, end.Hash, rule.Parts()...)
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
	r.mu.Lock() // until the end of the old chain is forgotten: refresh compares it
	defer r.mu.Unlock()
	if err := r.store.SealRules(ctx, head, all); err != nil {
		return SealResult{}, err // the caller says what it was for
	}
	r.sealings++
	r.end = store.RuleHead{}
	clear(r.counts)
	r.configs.Purge()
	return out, nil
}

// sortRules orders rules by their places, those without one last and by name. The rules
// of one workflow are in the order of their numbers in any case.
func sortRules(all []store.Rule) {
	place := func(r store.Rule) int64 {
		if at := r.Seal().Place; at > 0 {
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
