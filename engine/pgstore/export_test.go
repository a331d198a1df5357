package pgstore

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// Uncount takes positions from a sequence, as no reader could rely on: what any other way of
// numbering could gain at most.
func (s *Store) Uncount(ctx context.Context) error {
	if _, err := s.writes.Exec(ctx, s.sql(`CREATE SEQUENCE IF NOT EXISTS gavel.positions`)); err != nil {
		return err
	}
	_, rest, _ := strings.Cut(insertEvents, "INSERT INTO")
	rest = strings.Replace(rest, "counted.base + e.place", "nextval('gavel.positions')", 1)
	s.writer.insert = s.sql("INSERT INTO" + strings.Replace(rest, "FROM counted, unnest", "FROM (SELECT $1::int8) counted, unnest", 1))
	return nil
}

// Groups is how many transactions were committed, with how many commits in them.
func (s *Store) Groups() (groups, commits uint64) {
	return s.writer.groups.Load(), s.writer.commits.Load()
}

// Plain commits in transactions of their own, on as many connections as there are callers: what a
// group is compared with.
type Plain struct {
	s    *Store
	pool *pgxpool.Pool
}

// NewPlain makes a Plain beside a store.
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
	m := &member{Commit: encoded}
	for _, e := range c.Events {
		m.terms = append(m.terms, strings.Join(store.DecisionTerms(e, c.Next.Owner), " "))
	}
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
