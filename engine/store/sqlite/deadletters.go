package sqlite

import (
	"context"
	"fmt"
	"iter"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// AddDeadLetter implements store.Store.
func (s *Store) AddDeadLetter(ctx context.Context, l store.DeadLetter, lease *store.Lease) error {
	if err := l.Check(); err != nil {
		return err
	}
	return s.write(ctx, len(l.Cause), "add a dead letter", func(st *statements) error {
		if err := st.checkLease(lease); err != nil {
			return err
		}
		return st.exec(st.addDeadLetter, l.Cursor, l.Position, l.Instance, l.Seq, l.Tries, l.Cause, l.At.UnixNano())
	})
}

const deadLetterColumns = `cursor, position, instance, seq, tries, cause, at`

func scanDeadLetter(r row) (l store.DeadLetter, err error) {
	var at int64
	err = r.Scan(&l.Cursor, &l.Position, &l.Instance, &l.Seq, &l.Tries, &l.Cause, &at)
	l.At = rows.TimeOf(at)
	return l, err
}

// DeadLetters implements store.Store.
func (s *Store) DeadLetters(ctx context.Context, cursor string) iter.Seq2[store.DeadLetter, error] {
	after := store.DeadLetter{Cursor: cursor}
	return rows.Pages(ctx, 0, headsPage, func(ctx context.Context, last *store.DeadLetter, n int) (page []store.DeadLetter, err error) {
		if last == nil {
			last = &after
		}
		err = s.read(ctx, "dead letters", func(ctx context.Context) (err error) {
			page, err = queryAll(ctx, s.poolFor(ctx), scanDeadLetter, `SELECT `+deadLetterColumns+` FROM dead_letters
				WHERE (cursor, position) > (?1, ?2) AND (?3 = '' OR cursor = ?3) ORDER BY cursor, position LIMIT ?4`, last.Cursor, last.Position, cursor, n)
			return err
		})
		return page, err
	})
}

// DropDeadLetter implements store.Store.
func (s *Store) DropDeadLetter(ctx context.Context, cursor string, position int64) error {
	refused := fmt.Errorf("%w: dead letter %d of %s", store.ErrNotFound, position, cursor)
	return s.write(ctx, len(cursor), "drop a dead letter", func(st *statements) error {
		return st.execOne(refused, st.dropDeadLetter, cursor, position)
	})
}
