package memstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// takePlace moves the end of the chain to a seal that is the next one, or counts a
// rule without one.
func (s *Store) takePlace(seal record.RuleSeal) bool {
	switch seal.Place {
	case 0:
		s.ruleHead.Unsealed++
	case s.ruleHead.Place + 1:
		s.ruleHead.Place, s.ruleHead.Hash = seal.Place, seal.Hash
	default:
		return false
	}
	return true
}

// RuleHead implements store.Store.
func (s *Store) RuleHead(ctx context.Context) (store.RuleHead, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return store.RuleHead{}, err
	}
	defer unlock()
	return s.ruleHead, nil
}

// Rules implements store.Store.
func (s *Store) Rules(ctx context.Context, after int64) iter.Seq2[store.Rule, error] {
	return func(yield func(store.Rule, error) bool) {
		unlock, err := s.read(ctx)
		if err != nil {
			yield(store.Rule{}, err)
			return
		}
		all, err := s.rules()
		unlock()
		if err != nil {
			yield(store.Rule{}, err)
			return
		}
		for _, rule := range all {
			if (after == store.UnsealedRules || rule.Seal().Place > after) && !yield(rule, nil) {
				return
			}
		}
	}
}

// rules are all of them, by place.
func (s *Store) rules() ([]store.Rule, error) {
	var all []store.Rule
	for _, versions := range s.definitions {
		for _, d := range versions {
			d.Document = nil
			all = append(all, store.Rule{Definition: &d})
		}
	}
	for _, revisions := range s.judgeConfigs {
		for _, doc := range revisions {
			var c store.JudgeConfig
			if err := json.Unmarshal(doc, &c); err != nil {
				return nil, fmt.Errorf("decode the judge config: %w", err)
			}
			all = append(all, store.Rule{Config: &c})
		}
	}
	slices.SortFunc(all, func(a, b store.Rule) int { return cmp.Compare(a.Seal().Place, b.Seal().Place) })
	return all, nil
}

// SealRules implements store.Store.
func (s *Store) SealRules(ctx context.Context, was store.RuleHead, all []store.Rule) error {
	unlock, err := s.write(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	have, err := s.rules()
	if err != nil {
		return err
	}
	if s.ruleHead != was || len(have) != len(all) {
		return fmt.Errorf("%w: the rules are others by now", store.ErrConflict)
	}
	var end store.RuleHead
	for _, rule := range all {
		if c := rule.Config; c != nil {
			doc, err := json.Marshal(c)
			if err != nil {
				return fmt.Errorf("encode the judge config: %w", err)
			}
			s.judgeConfigs[c.Workflow][c.Revision-1] = doc
		} else {
			s.definitions[rule.Definition.Name][rule.Definition.Version-1].Seal = rule.Definition.Seal
		}
		if seal := rule.Seal(); seal.Place > end.Place {
			end.Place, end.Hash = seal.Place, seal.Hash
		}
	}
	s.ruleHead = end
	return nil
}
