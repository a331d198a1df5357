package postgres

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

const (
	definitionColumns = `name, version, hash, document, owner, operator, created_at, ` + rows.SealColumns
	listedColumns     = `name, version, hash, NULL::bytea, owner, operator, created_at, ` + rows.SealColumns // without the document
	configColumns     = `workflow, revision, principal, role, scope, settings, hash, at, ` + rows.SealColumns
)

// ruleLock is the advisory lock for extending the chain of rules.
const ruleLock = 0x67617672

func scanDefinition(r pgx.Row) (d store.Definition, err error) {
	var created int64
	var doc, owner []byte
	var seal rows.Seal
	err = r.Scan(append([]any{&d.Name, &d.Version, &d.Hash, &doc, &owner, &d.Operator, &created}, seal.Targets()...)...)
	d.Document, d.Owner, d.CreatedAt, d.Seal = doc, string(owner), rows.TimeOf(created), seal.Decode()
	return d, err //nolint:wrapcheck // read wraps it
}

func scanJudgeConfig(r pgx.Row) (c store.JudgeConfig, err error) {
	var principal, role, scope, settings []byte
	var at int64
	var seal rows.Seal
	if err := r.Scan(append([]any{&c.Workflow, &c.Revision, &principal, &role, &scope, &settings, &c.Hash, &at}, seal.Targets()...)...); err != nil {
		return c, err //nolint:wrapcheck // read wraps it
	}
	if err := json.Unmarshal(settings, &c.Settings); err != nil {
		return c, wrapDamaged(fmt.Errorf("judge config %d of %s: %w", c.Revision, c.Workflow, err))
	}
	c.Principal, c.Role, c.Scope, c.At, c.Seal = string(principal), string(role), string(scope), rows.TimeOf(at), seal.Decode()
	return c, nil
}

// Definition implements store.Store.
func (s *Store) Definition(ctx context.Context, name string, version int) (d store.Definition, err error) {
	err = s.read(ctx, fmt.Sprintf("definition %s version %d", name, version), func(ctx context.Context, on handle) (err error) {
		d, err = scanDefinition(on.QueryRow(ctx, s.sql(`SELECT `+definitionColumns+` FROM gavel.definitions
			WHERE name = $1 AND (version = $2 OR $2 = 0) ORDER BY version DESC LIMIT 1`), textOrNull(name), version))
		return err
	})
	return d, err
}

// Definitions implements store.Store.
func (s *Store) Definitions(ctx context.Context) (all []store.Definition, err error) {
	err = s.read(ctx, "definitions", func(ctx context.Context, on handle) (err error) {
		all, err = queryAll(ctx, on, scanDefinition, s.sql(`SELECT DISTINCT ON (name) `+listedColumns+` FROM gavel.definitions ORDER BY name, version DESC`))
		return err
	})
	return all, err
}

// JudgeConfigs implements store.Store.
func (s *Store) JudgeConfigs(ctx context.Context, workflow string) (all []store.JudgeConfig, err error) {
	err = s.read(ctx, "judge configs of "+workflow, func(ctx context.Context, on handle) (err error) {
		all, err = queryAll(ctx, on, scanJudgeConfig, s.sql(`SELECT `+configColumns+` FROM gavel.judge_configs WHERE workflow = $1 ORDER BY revision`), textOrNull(workflow))
		return err
	})
	return all, err
}

const ruleHead = `SELECT coalesce(r.place, 0), r.seal
	FROM (SELECT) one LEFT JOIN LATERAL (SELECT place, seal FROM (
		(SELECT place, seal FROM gavel.definitions WHERE place > 0 ORDER BY place DESC LIMIT 1) UNION ALL
		(SELECT place, seal FROM gavel.judge_configs WHERE place > 0 ORDER BY place DESC LIMIT 1)) ends ORDER BY place DESC LIMIT 1) r ON true`

func scanRuleHead(r pgx.Row) (head store.RuleHead, err error) {
	var hash []byte
	err = r.Scan(&head.Position, &hash)
	head.Hash = hex.EncodeToString(hash)
	return head, err //nolint:wrapcheck // read wraps it
}

// Rules implements store.Store.
func (s *Store) Rules(ctx context.Context, after int64) (head store.RuleHead, all []store.Rule, err error) {
	err = s.read(ctx, "the chain of rules", func(ctx context.Context, on handle) (err error) {
		head, err = scanRuleHead(on.QueryRow(ctx, s.sql(ruleHead)))
		if err != nil || head.Position <= after {
			return err
		}
		from, to := after, head.Position
		if after == store.AllRules {
			from, to = math.MinInt64, math.MaxInt64 // all rules
		}
		const chosen = ` WHERE place > $1 AND place <= $2`
		definitions, err := queryAll(ctx, on, scanDefinition, s.sql(`SELECT `+listedColumns+` FROM gavel.definitions`+chosen), from, to)
		if err != nil {
			return err
		}
		configs, err := queryAll(ctx, on, scanJudgeConfig, s.sql(`SELECT `+configColumns+` FROM gavel.judge_configs`+chosen), from, to)
		all = nil
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

// AddRule implements store.Store.
func (s *Store) AddRule(ctx context.Context, r store.Rule) error {
	seal, err := rows.SealValues(r.Seal())
	if err != nil {
		return err
	}
	const next = `($8::int8 = 0 OR $8 = 1 + greatest((SELECT coalesce(max(place), 0) FROM gavel.definitions), (SELECT coalesce(max(place), 0) FROM gavel.judge_configs)))`
	query, values := `INSERT INTO gavel.definitions (name, version, hash, document, owner, operator, created_at, `+rows.SealColumns+`)
		SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
		WHERE $2 = 1 + (SELECT coalesce(max(version), 0) FROM gavel.definitions WHERE name = $1) AND `+next, []any(nil)
	if d := r.Definition; d != nil {
		values = append([]any{d.Name, d.Version, d.Hash, rows.OrEmpty(d.Document), []byte(d.Owner), d.Operator, d.CreatedAt.UnixNano()}, seal...)
	} else {
		c := r.Config
		settings, err := json.Marshal(c.Settings)
		if err != nil {
			return fmt.Errorf("encode the judge settings: %w", err)
		}
		query = `INSERT INTO gavel.judge_configs (workflow, revision, principal, role, scope, settings, hash, ` + rows.SealColumns + `, at)
			SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
			WHERE $2 = 1 + (SELECT coalesce(max(revision), 0) FROM gavel.judge_configs WHERE workflow = $1) AND ` + next
		values = slices.Concat([]any{c.Workflow, c.Revision, []byte(c.Principal), []byte(c.Role), []byte(c.Scope), settings, c.Hash}, seal, []any{c.At.UnixNano()})
	}
	return s.transact(ctx, "add a rule", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, ruleLock); err != nil {
			return err //nolint:wrapcheck // transact wraps it
		}
		return execOne(ctx, tx, fmt.Errorf("%w: %s at place %d is not the next", store.ErrConflict, r, r.Seal().Position), s.sql(query), values...)
	})
}

// execOne runs a statement that changes one row or none; if none, it returns refused.
func execOne(ctx context.Context, tx pgx.Tx, refused error, query string, args ...any) error {
	tag, err := tx.Exec(ctx, query, args...)
	if err == nil && tag.RowsAffected() != 1 {
		return refused
	}
	return err //nolint:wrapcheck // transact wraps it
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
	refused := fmt.Errorf("%w: the rules have changed in the meantime", store.ErrConflict)
	return s.transact(ctx, "seal the rules", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, ruleLock); err != nil {
			return err //nolint:wrapcheck // transact wraps it
		}
		head, err := scanRuleHead(tx.QueryRow(ctx, s.sql(ruleHead)))
		if err != nil {
			return err
		}
		var count int
		if err := tx.QueryRow(ctx, s.sql(`SELECT (SELECT count(*) FROM gavel.definitions) + (SELECT count(*) FROM gavel.judge_configs)`)).Scan(&count); err != nil {
			return err //nolint:wrapcheck // transact wraps it
		}
		if head != was || count != len(all) {
			return refused
		}
		for i, rule := range all {
			query, key := `UPDATE gavel.definitions SET place = $3, prev_seal = $4, seal = $5, mac = $6 WHERE name = $1 AND version = $2`, []any(nil)
			if c := rule.Config; c != nil {
				query = `UPDATE gavel.judge_configs SET place = $3, prev_seal = $4, seal = $5, mac = $6 WHERE workflow = $1 AND revision = $2`
				key = []any{c.Workflow, c.Revision}
			} else {
				key = []any{rule.Definition.Name, rule.Definition.Version}
			}
			if err := execOne(ctx, tx, refused, s.sql(query), append(key, values[i]...)...); err != nil {
				return err
			}
		}
		return nil
	})
}
