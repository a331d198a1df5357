package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
)

// prunedAtOnce is how many old refusals a new one takes out: more than come in, so
// that they become fewer, and few enough to cost nothing.
const prunedAtOnce = 8

// learn writes a lesson, nil for none.
func (st *statements) learn(l *store.Lesson) error {
	if l == nil {
		return nil
	}
	if l.Cleared {
		if err := st.exec(st.forgetRefusals, l.Guard); err != nil {
			return err
		}
		if l.Bound != "" {
			if err := st.exec(st.forgetBound, l.Bound); err != nil {
				return err
			}
		}
	}
	if !l.Refused {
		return nil
	}
	if err := st.exec(st.pruneRefusals, l.At.Add(-store.MaxRefusalAge).UnixNano(), prunedAtOnce); err != nil {
		return err
	}
	var opinion any // NULL without one
	if l.Opinion != nil {
		opinion = []byte(l.Opinion)
	}
	if err := st.exec(st.addRefusal, l.Guard, l.Identity, l.Principal, l.Workflow, l.Action, l.At.UnixNano(), opinion); err != nil {
		return err
	}
	if l.Bound == "" || opinion == nil {
		return nil
	}
	// A row of its own, without a guard, so that it counts for nothing.
	return st.exec(st.addRefusal, "", l.Bound, l.Principal, l.Workflow, l.Action, l.At.UnixNano(), opinion)
}

// Refusals implements store.Store.
func (s *Store) Refusals(ctx context.Context, guard, identity string, since time.Time) (n int, opinion json.RawMessage, err error) {
	err = s.read(ctx, "refusals", func(ctx context.Context) error {
		if guard != "" {
			if err := s.stmts.refusals.QueryRowContext(ctx, guard, since.UnixNano()).Scan(&n); err != nil {
				return err
			}
		}
		if identity == "" {
			return nil
		}
		var raw []byte
		err := s.stmts.refusedOpinion.QueryRowContext(ctx, identity, since.UnixNano()).Scan(&raw)
		if opinion = raw; errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return n, opinion, err
}

// ClearRefusals implements store.Store.
func (s *Store) ClearRefusals(ctx context.Context, q store.RefusalQuery) (n int, err error) {
	err = s.write(ctx, 0, "clear refusals", func(st *statements) error {
		result, err := st.clearRefusals.ExecContext(context.Background(), q.Principal, q.Workflow, q.Action, false)
		if err != nil {
			return err
		}
		count, err := result.RowsAffected()
		if n = int(count); err != nil {
			return err
		}
		return st.exec(st.clearRefusals, q.Principal, q.Workflow, q.Action, true)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
