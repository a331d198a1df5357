package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine/store"
)

// AddRule implements store.Store.
func (s *Store) AddRule(ctx context.Context, r store.Rule) error {
	doc, err := json.Marshal(r.Config)
	if err != nil {
		return fmt.Errorf("encode the judge config: %w", err)
	}
	name := r.Workflow()
	return s.write(ctx, func() error {
		have := len(s.definitions[name])
		if r.Config != nil {
			have = len(s.judgeConfigs[name])
		}
		seal := r.Seal()
		switch {
		case r.Number() != have+1:
			return fmt.Errorf("%w: %s follows number %d", store.ErrConflict, r, have)
		case seal.Position == 0:
		case seal.Position == s.ruleHead.Position+1:
			s.ruleHead.Position, s.ruleHead.Hash = seal.Position, seal.Hash
		default:
			return fmt.Errorf("%w: place %d is not the next", store.ErrConflict, seal.Position)
		}
		if r.Config != nil {
			s.judgeConfigs[name] = append(s.judgeConfigs[name], doc)
		} else {
			s.definitions[name] = append(s.definitions[name], cloneDefinition(*r.Definition))
		}
		return nil
	})
}

func cloneDefinition(d store.Definition) store.Definition {
	d.Document = bytes.Clone(d.Document)
	return d
}

// Definition implements store.Store.
func (s *Store) Definition(ctx context.Context, name string, version int) (d store.Definition, err error) {
	err = s.read(ctx, func() error {
		all := s.definitions[name]
		at := cmp.Or(version, len(all))
		if at < 1 || at > len(all) {
			return fmt.Errorf("%w: definition %s version %d", store.ErrNotFound, name, version)
		}
		d = cloneDefinition(all[at-1])
		return nil
	})
	return d, err
}

// Definitions implements store.Store.
func (s *Store) Definitions(ctx context.Context) (out []store.Definition, err error) {
	err = s.read(ctx, func() error {
		for _, all := range s.definitions {
			d := all[len(all)-1]
			d.Document = nil
			out = append(out, d)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b store.Definition) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

// JudgeConfigs implements store.Store.
func (s *Store) JudgeConfigs(ctx context.Context, workflow string) (out []store.JudgeConfig, err error) {
	err = s.read(ctx, func() error {
		out, err = decodeConfigs(s.judgeConfigs[workflow])
		return err
	})
	return out, err
}

func decodeConfigs(docs [][]byte) ([]store.JudgeConfig, error) {
	out := make([]store.JudgeConfig, len(docs))
	for i, doc := range docs {
		if err := json.Unmarshal(doc, &out[i]); err != nil {
			return nil, fmt.Errorf("decode the judge config: %w", err)
		}
	}
	return out, nil
}

// Rules implements store.Store.
func (s *Store) Rules(ctx context.Context, after int64) (head store.RuleHead, all []store.Rule, err error) {
	err = s.read(ctx, func() error {
		if head = s.ruleHead; head.Position <= after {
			return nil
		}
		all, err = s.listRules()
		return err
	})
	all = slices.DeleteFunc(all, func(r store.Rule) bool { return after != store.AllRules && r.Seal().Position <= after })
	return head, all, err
}

// listRules returns all rules, ordered by place.
func (s *Store) listRules() (all []store.Rule, err error) {
	for _, versions := range s.definitions {
		for _, d := range versions {
			d.Document = nil
			all = append(all, store.Rule{Definition: &d})
		}
	}
	for _, docs := range s.judgeConfigs {
		revisions, err := decodeConfigs(docs)
		if err != nil {
			return nil, err
		}
		for i := range revisions {
			all = append(all, store.Rule{Config: &revisions[i]})
		}
	}
	slices.SortFunc(all, func(a, b store.Rule) int { return cmp.Compare(a.Seal().Position, b.Seal().Position) })
	return all, nil
}

// SealRules implements store.Store.
func (s *Store) SealRules(ctx context.Context, was store.RuleHead, all []store.Rule) error {
	return s.write(ctx, func() error {
		have, err := s.listRules()
		if err != nil {
			return err
		}
		if s.ruleHead != was || len(have) != len(all) {
			return fmt.Errorf("%w: the rules have changed since", store.ErrConflict)
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
			if seal := rule.Seal(); seal.Position > end.Position {
				end.Position, end.Hash = seal.Position, seal.Hash
			}
		}
		s.ruleHead = end
		return nil
	})
}
