package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// counterStatements are the writer's statements for counters.
type counterStatements struct{ pruneCounters, addCounter *sql.Stmt }

func (s *counterStatements) all() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&s.pruneCounters: `DELETE FROM counters WHERE name IN (SELECT name FROM counters WHERE ends <= ? ORDER BY ends LIMIT 4)`, // more than are usually added
		&s.addCounter: `INSERT INTO counters AS c (name, n, ends) SELECT ?1, max(?2, 0), ?5 + ?4 WHERE ?3 = 0 OR ?2 <= ?3
			ON CONFLICT (name) DO UPDATE SET
				n = CASE WHEN c.ends <= ?5 THEN excluded.n ELSE max(c.n + ?2, 0) END,
				ends = CASE WHEN c.ends <= ?5 THEN excluded.ends ELSE c.ends END
			WHERE ?3 = 0 OR ?2 + CASE WHEN c.ends <= ?5 THEN 0 ELSE c.n END <= ?3
			RETURNING n, ends - ?5`,
	}
}

// Count implements store.Store.
func (s *Store) Count(ctx context.Context, all ...store.Addition) (counts []store.Count, err error) {
	err = s.write(ctx, 0, "count", func(st *statements) error {
		now := time.Now().UnixNano()
		if err := st.exec(st.pruneCounters, now); err != nil {
			return err
		}
		counts = counts[:0]
		for _, a := range all {
			var c store.Count
			err := st.addCounter.QueryRowContext(context.Background(), []byte(a.Name), a.Add, a.Max, int64(a.Lifetime), now).Scan(&c.N, &c.Left)
			if c.Full = errors.Is(err, sql.ErrNoRows); err != nil && !c.Full {
				return err
			}
			counts = append(counts, c)
		}
		return nil
	})
	return counts, err
}
