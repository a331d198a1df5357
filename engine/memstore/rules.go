package memstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
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

// RuleHead implements engine.Store.
func (s *Store) RuleHead(ctx context.Context) (engine.RuleHead, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return engine.RuleHead{}, err
	}
	defer unlock()
	return s.ruleHead, nil
}

// Rules implements engine.Store.
func (s *Store) Rules(ctx context.Context, after int64) iter.Seq2[engine.Rule, error] {
	return func(yield func(engine.Rule, error) bool) {
		unlock, err := s.read(ctx)
		if err != nil {
			yield(engine.Rule{}, err)
			return
		}
		all, err := s.rules()
		unlock()
		if err != nil {
			yield(engine.Rule{}, err)
			return
		}
		for _, rule := range all {
			if (after == engine.UnsealedRules || rule.Seal().Place > after) && !yield(rule, nil) {
				return
			}
		}
	}
}

// rules are all of them, by place.
func (s *Store) rules() ([]engine.Rule, error) {
	var all []engine.Rule
	for _, versions := range s.definitions {
		for _, d := range versions {
			d.Document = nil
			all = append(all, engine.Rule{Definition: &d})
		}
	}
	for _, revisions := range s.judgeConfigs {
		for _, doc := range revisions {
			var c engine.JudgeConfig
			if err := json.Unmarshal(doc, &c); err != nil {
				return nil, fmt.Errorf("decode the judge config: %w", err)
			}
			all = append(all, engine.Rule{Config: &c})
		}
	}
	slices.SortFunc(all, func(a, b engine.Rule) int { return cmp.Compare(a.Seal().Place, b.Seal().Place) })
	return all, nil
}

// SealRules implements engine.Store.
func (s *Store) SealRules(ctx context.Context, was engine.RuleHead, all []engine.Rule) error {
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
		return fmt.Errorf("%w: the rules are others by now", engine.ErrConflict)
	}
	var end engine.RuleHead
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
