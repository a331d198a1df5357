package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

const ruleHead = `SELECT coalesce(d.place, 0), d.seal, coalesce(j.place, 0), j.seal
	FROM (SELECT 1)
	LEFT JOIN (SELECT place, seal FROM definitions WHERE place > 0 ORDER BY place DESC LIMIT 1) d
	LEFT JOIN (SELECT place, seal FROM judge_configs WHERE place > 0 ORDER BY place DESC LIMIT 1) j`

func scanRuleHead(r row) (store.RuleHead, error) {
	var head store.RuleHead
	var other int64
	var hash, otherHash []byte
	if err := r.Scan(&head.Position, &hash, &other, &otherHash); err != nil {
		return store.RuleHead{}, err
	}
	if other > head.Position {
		head.Position, hash = other, otherHash
	}
	head.Hash = hex.EncodeToString(hash)
	return head, nil
}

// Rules implements store.Store.
func (s *Store) Rules(ctx context.Context, after int64) (head store.RuleHead, all []store.Rule, err error) {
	const chosen = ` WHERE place > ?1 AND (place <= ?2 OR ?2 < 0)`
	err = s.read(ctx, "the chain of rules", func(ctx context.Context) (err error) {
		head, err = s.heads.loadRuleHead(func() (store.RuleHead, error) { // needed for every judgement
			return scanRuleHead(s.stmts.ruleHead.QueryRowContext(ctx))
		})
		if err != nil || head.Position <= after {
			return err
		}
		from, to := after, head.Position
		if after == store.AllRules {
			from, to = math.MinInt64, -1 // all rules
		}
		definitions, err := queryAll(ctx, s.readers, scanDefinition, `SELECT `+listedColumns+` FROM definitions`+chosen, from, to)
		if err != nil {
			return err
		}
		configs, err := queryAll(ctx, s.readers, scanJudgeConfig, `SELECT `+configColumns+` FROM judge_configs`+chosen, from, to)
		for i := range definitions {
			all = append(all, store.Rule{Definition: &definitions[i]})
		}
		for i := range configs {
			all = append(all, store.Rule{Config: &configs[i]})
		}
		return err
	})
	slices.SortStableFunc(all, func(a, b store.Rule) int { return cmp.Compare(a.Seal().Position, b.Seal().Position) })
	return head, all, err
}

// SealRules implements store.Store.
func (s *Store) SealRules(ctx context.Context, was store.RuleHead, all []store.Rule) error {
	values := make([][]any, len(all))
	for i, rule := range all {
		var err error
		if values[i], err = rows.SealValues(rule.Seal()); err != nil {
			return err
		}
	}
	refused := fmt.Errorf("%w: the rules have changed since", store.ErrConflict)
	return s.write(ctx, len(all)*100, "seal the rules", func(st *statements) error {
		head, err := scanRuleHead(st.ruleHead.QueryRowContext(context.Background()))
		if err != nil {
			return err
		}
		var count int
		if err := st.countRules.QueryRowContext(context.Background()).Scan(&count); err != nil {
			return err
		}
		if head != was || count != len(all) {
			return refused
		}
		st.changes = append(st.changes, committed{rules: true})
		for i, rule := range all {
			stmt, key := st.sealDefinition, []any(nil)
			if c := rule.Config; c != nil {
				stmt, key = st.sealConfig, []any{c.Workflow, c.Revision}
			} else {
				key = []any{rule.Definition.Name, rule.Definition.Version}
			}
			if err := st.execOne(refused, stmt, append(key, values[i]...)...); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *statements) addRule(refused error, stmt *sql.Stmt, args ...any) error {
	s.changes = append(s.changes, committed{rules: true})
	return s.execOne(refused, stmt, args...)
}

// sealStatements are the writer's statements for seals.
type sealStatements struct{ ruleHead, countRules, sealDefinition, sealConfig *sql.Stmt }

func (s *sealStatements) all() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&s.ruleHead:       ruleHead,
		&s.countRules:     `SELECT (SELECT count(*) FROM definitions) + (SELECT count(*) FROM judge_configs)`,
		&s.sealDefinition: `UPDATE definitions SET place = ?3, prev_seal = ?4, seal = ?5, mac = ?6 WHERE name = ?1 AND version = ?2`,
		&s.sealConfig:     `UPDATE judge_configs SET place = ?3, prev_seal = ?4, seal = ?5, mac = ?6 WHERE workflow = ?1 AND revision = ?2`,
	}
}

// nextPlace is an insert condition: the place is the next one, or 0.
const nextPlace = `(?8 = 0 OR ?8 = 1 + max((SELECT coalesce(max(place), 0) FROM definitions), (SELECT coalesce(max(place), 0) FROM judge_configs)))`
