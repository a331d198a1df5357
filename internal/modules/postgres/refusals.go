package postgres

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/store"
)

// maxPruned is how many old refusals a new one deletes: more than one, so that their number shrinks, and few
// enough to cost nothing.
const maxPruned = 8

// addLesson adds the parts that write a commit's lesson, if it has one.
func (m *member) addLesson(b *builder) {
	l := m.Lesson
	if l == nil {
		return
	}
	if l.Cleared {
		b.with("cleared", `DELETE FROM gavel.refusals WHERE guard = `+b.value([]byte(l.Guard))+` AND EXISTS (SELECT FROM moved)`)
		if l.Bound != "" {
			b.with("unbound", `DELETE FROM gavel.refusals WHERE guard = '' AND identity = `+b.value([]byte(l.Bound))+` AND opinion IS NOT NULL AND EXISTS (SELECT FROM moved)`)
		}
	}
	if !l.Refused {
		return
	}
	b.with("pruned", `DELETE FROM gavel.refusals WHERE pos IN (SELECT pos FROM gavel.refusals WHERE at < `+b.value(l.At.Add(-store.MaxRefusalAge).UnixNano())+
		` ORDER BY at LIMIT `+strconv.Itoa(maxPruned)+` FOR UPDATE SKIP LOCKED)`)
	add := func(name, guard, identity string) {
		b.with(name, `INSERT INTO gavel.refusals (guard, identity, instance, principal, workflow, action, at, opinion) SELECT `+
			b.values([]byte(guard), []byte(identity), []byte(l.Instance), []byte(l.Principal), []byte(l.Workflow), []byte(l.Action), l.At.UnixNano(), bytesOrNull(l.Opinion))+` FROM moved`)
	}
	add("refused", l.Guard, l.Identity)
	if l.Bound != "" && l.Opinion != nil { // a separate row without a guard, so that it is not counted as a refusal
		add("bound", "", l.Bound)
	}
}

// Refusals implements store.Store.
func (s *Store) Refusals(ctx context.Context, guard, identity string, since time.Time) (n int, opinion json.RawMessage, err error) {
	err = s.read(ctx, "refusals", func(ctx context.Context, on handle) error {
		var raw []byte
		err := on.QueryRow(ctx, s.sql(`SELECT CASE WHEN $1::bytea = '' THEN 0 ELSE (SELECT count(*) FROM gavel.refusals WHERE guard = $1 AND at >= $3) END,
			CASE WHEN $2::bytea = '' THEN NULL ELSE (SELECT opinion FROM gavel.refusals WHERE identity = $2 AND at >= $3 AND opinion IS NOT NULL
				ORDER BY at DESC, pos DESC LIMIT 1) END`), []byte(guard), []byte(identity), since.UnixNano()).Scan(&n, &raw)
		opinion = raw
		return err //nolint:wrapcheck // read wraps it
	})
	return n, opinion, err
}

// selectedRefusals is the condition for the refusals that a store.RefusalQuery selects. For an instance, it includes
// all refusals that share a guard with one of that instance.
const selectedRefusals = `($1::bytea = '' OR principal = $1) AND ($2::bytea = '' OR workflow = $2) AND ($3::bytea = '' OR action = $3)
	AND ($4::bytea = '' OR instance = $4 OR guard IN (SELECT guard FROM gavel.refusals WHERE guard <> '' AND instance = $4))`

// ClearRefusals implements store.Store.
func (s *Store) ClearRefusals(ctx context.Context, q store.RefusalQuery) (n int, err error) {
	args := []any{[]byte(q.Principal), []byte(q.Workflow), []byte(q.Action), []byte(q.Instance)}
	err = s.transact(ctx, "clear refusals", func(ctx context.Context, tx pgx.Tx) error {
		for _, query := range []string{
			// Opinions that other principals received on the same cases would otherwise answer these cases again.
			`UPDATE gavel.refusals SET opinion = NULL WHERE guard <> '' AND opinion IS NOT NULL AND identity IN (
				SELECT identity FROM gavel.refusals WHERE guard <> '' AND ` + selectedRefusals + `)`,
			`DELETE FROM gavel.refusals WHERE guard = '' AND ` + selectedRefusals,
			`DELETE FROM gavel.refusals WHERE guard <> '' AND ` + selectedRefusals,
		} {
			tag, err := tx.Exec(ctx, s.sql(query), args...)
			if err != nil {
				return err //nolint:wrapcheck // transact wraps it
			}
			n = int(tag.RowsAffected())
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
