package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// Uncount takes positions from a sequence, on which readers could not rely. It shows the most that any other
// numbering could gain.
func (s *Store) Uncount(ctx context.Context) error {
	if _, err := s.writes.Exec(ctx, s.sql(`CREATE SEQUENCE IF NOT EXISTS gavel.positions`)); err != nil {
		return err
	}
	s.writer.insert = s.sql(strings.NewReplacer("UPDATE gavel.counter SET last = last + $1 RETURNING last - $1 AS base", "SELECT $1::int8",
		"counted.base + e.place", "nextval('gavel.positions')").Replace(insertEvents))
	return nil
}

// Groups returns the number of committed transactions and of the commits in them.
func (s *Store) Groups() (groups, commits uint64) {
	return s.writer.groups.Load(), s.writer.commits.Load()
}

// Plain commits in separate transactions, on as many connections as there are callers. Groups are compared with it.
type Plain struct {
	s    *Store
	pool *pgxpool.Pool
}

// NewPlain creates a Plain for a store.
func NewPlain(ctx context.Context, s *Store, url string, callers int32) (*Plain, error) {
	config, err := readConfig(url)
	if err == nil {
		err = prepareWhereDirect(ctx, config)
	}
	if err != nil {
		return nil, err
	}
	pool, err := newPool(ctx, config, callers)
	return &Plain{s, pool}, err
}

func (p *Plain) Close() { p.pool.Close() }

func (p *Plain) Commit(ctx context.Context, c store.Commit) error {
	encoded, err := rows.NewCommit(c)
	if err != nil {
		return err
	}
	m := newMember(encoded)
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	r := &request{member: m}
	if _, err := p.s.writer.transact(ctx, conn, []*request{r}); err != nil {
		return err
	}
	return r.err
}

// Fill writes instances with their histories, bypassing the writer. Each instance is given by its commits; the events
// are written in commit order.
func (s *Store) Fill(ctx context.Context, instances [][]store.Commit) error {
	return pgx.BeginFunc(ctx, s.writes, func(tx pgx.Tx) error {
		var n, pos int64
		if err := tx.QueryRow(ctx, s.sql(`SELECT coalesce(max(n), 0), (SELECT last FROM gavel.counter) FROM gavel.instances`)).Scan(&n, &pos); err != nil {
			return err
		}
		var insts, contexts, events, reviews [][]any
		for _, commits := range instances {
			n++
			for _, c := range commits {
				encoded, err := rows.NewCommit(c)
				if err != nil {
					return err
				}
				m := newMember(encoded)
				for i, e := range m.Rows {
					pos++
					events = append(events, []any{pos, n, e.Seq, e.Revision, e.Kind, e.At, e.Scope, e.Prev, e.Hash, e.Body, strings.Split(m.terms[i], " ")})
				}
				for _, r := range m.ReviewRows {
					reviews = append(reviews, []any{r.ID, r.SortKey, r.Status, r.Instance, r.Workflow, []byte(r.Principal), r.Body, r.Data})
				}
				if c.Expect != commits[len(commits)-1].Expect {
					continue
				}
				i := &c.Next
				insts = append(insts, []any{
					n, i.ID, i.Workflow, i.Version, i.DefinitionHash, []byte(i.Owner), i.CreatedAt.UnixNano(), i.UpdatedAt.UnixNano(),
					i.Seq, i.Revision, i.State, string(i.Status), m.Head, m.Facts,
				})
				contexts = append(contexts, []any{n, rows.OrEmpty(i.Context)})
			}
		}
		for _, t := range []struct {
			name, columns string
			rows          [][]any
		}{
			{"instances", "n id workflow version definition_hash owner created_at updated_at seq revision state status head facts", insts},
			{"contexts", "n context", contexts},
			{"events", "pos n seq revision kind at key_scope prev_hash hash body terms", events},
			{"reviews", "id place status instance workflow principal body data", reviews},
		} {
			if _, err := tx.CopyFrom(ctx, pgx.Identifier{strings.Trim(s.schema, `".`), t.name}, strings.Fields(t.columns), pgx.CopyFromRows(t.rows)); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
		_, err := tx.Exec(ctx, s.sql(`UPDATE gavel.counter SET last = $1`), pos)
		return err
	})
}

// BeginFill drops the indexes that Fill would update row by row. finish rebuilds them, the blocks, and the
// statistics, which a server would otherwise update late.
func (s *Store) BeginFill(ctx context.Context) (finish func() error, err error) {
	schema := strings.Trim(s.schema, `".`)
	found, err := s.writes.Query(ctx, `SELECT indexdef FROM pg_indexes WHERE schemaname = $1 AND indexdef NOT LIKE 'CREATE UNIQUE%'`, schema)
	if err != nil {
		return nil, err
	}
	var queries []string
	var build string
	_, err = pgx.ForEachRow(found, []any{&build}, func() error {
		queries = append(queries, build)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, build := range queries {
		name := strings.Fields(build)[2]
		if _, err := s.writes.Exec(ctx, `DROP INDEX `+pgx.Identifier{schema, name}.Sanitize()); err != nil {
			return nil, err
		}
	}
	queries = append(
		queries,
		buildBlocks,
		`SELECT setval(pg_get_serial_sequence('gavel.instances', 'n'), max(n)) FROM gavel.instances`,
		`ANALYZE gavel.instances, gavel.contexts, gavel.events, gavel.reviews, gavel.blocks`,
	)
	return func() error {
		for _, query := range queries {
			if _, err := s.writes.Exec(ctx, s.sql(query)); err != nil {
				return fmt.Errorf("%s: %w", query, err)
			}
		}
		return nil
	}, nil
}

// Page is a query for a page, with its arguments.
type Page struct {
	SQL  string
	Args []any
}

// PagesOf returns the queries for a list page of this size.
func (s *Store) PagesOf(q any, last int64, n int) (all []Page) {
	add := func(query string, args []any) { all = append(all, Page{s.sql(query), args}) }
	of := func(f search) {
		for _, next := range f.queries() {
			q := next(n)
			add(q.sql, q.args)
		}
	}
	switch q := q.(type) {
	case store.InstanceQuery:
		add(instancesQuery(q, n))
	case store.ReviewQuery:
		q.Limit = n
		add(reviewsQuery(q))
	case store.DecisionQuery:
		of(search{q: q, below: cmp.Or(q.Before, last+1), newestFirst: true})
	case store.TailQuery:
		of(search{q: store.DecisionQuery{Instance: q.Instance, Workflow: q.Workflow, Owner: q.Owner}, above: q.After, below: math.MaxInt64})
	}
	return all
}

// KeptFigures returns how many blocks have stored figures.
func (s *Store) KeptFigures(t testing.TB) (n int) {
	if err := s.reads.QueryRow(t.Context(), s.sql(`SELECT count(*) FROM gavel.figures WHERE body IS NOT NULL`)).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// CancelOnServer changes how the statements of a pool are cancelled.
var CancelOnServer = cancelOnServer
