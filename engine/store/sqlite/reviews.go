package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

const reviewColumns = `r.id, r.body, r.data`

// reviewRow holds the columns of a review. body is its JSON without the data, which is stored separately so that it
// is returned byte for byte.
type reviewRow struct {
	id         string
	body, data []byte
}

func scanReview(r row) (reviewRow, error) {
	var out reviewRow
	err := r.Scan(&out.id, &out.body, &out.data)
	return out, err
}

// Reviews implements store.Store. It reads all rows in a single query rather than in pages, because a review that
// becomes urgent during the iteration would move out of the remaining pages.
func (s *Store) Reviews(ctx context.Context, q store.ReviewQuery) iter.Seq2[store.Review, error] {
	return func(yield func(store.Review, error) bool) {
		var found []reviewRow
		err := s.read(ctx, "reviews", func(ctx context.Context) (err error) {
			query, args := reviewsQuery(q)
			found, err = queryAll(ctx, s.poolFor(ctx), scanReview, query, args...)
			return err
		})
		if err != nil {
			yield(store.Review{}, err)
			return
		}
		for _, r := range found {
			if err := ctx.Err(); err != nil {
				yield(store.Review{}, err)
				return
			}
			stored, err := rows.DecodeReview(r.id, r.body, r.data)
			if err != nil {
				yield(store.Review{}, fmt.Errorf("read reviews: %w", wrapCorrupt(err)))
				return
			}
			if !yield(stored, nil) {
				return
			}
		}
	}
}

func reviewsQuery(q store.ReviewQuery) (string, []any) {
	var w where
	w.addText("r.id = ?", q.ID)
	w.addText("r.instance = ?", q.Instance)
	w.addText("r.principal = ?", q.Principal)
	w.addText("r.status = ?", string(q.Status))
	w.addText("r.workflow = ?", q.Workflow)
	if q.After != nil {
		w.add("(r.place, r.id) > (?, ?)", rows.SortKeyOf(q.After.Rank), q.After.ID)
	}
	limit := -1 // none
	if q.Limit != 0 {
		limit = q.Limit
	}
	return `SELECT ` + reviewColumns + ` FROM reviews r` + reviewsIndex(q) + w.String() + ` ORDER BY r.place, r.id LIMIT ?`, append(w.args, limit)
}

// reviewsIndex returns the index hint for a list. Each index has list order. Without a hint, the planner would read
// all reviews of a principal to find the few of a single instance.
func reviewsIndex(q store.ReviewQuery) string {
	switch {
	case q.ID != "":
		return ""
	case q.Instance != "":
		return " INDEXED BY reviews_instance"
	case q.Principal != "" && q.Status != "":
		return " INDEXED BY reviews_principal_status"
	case q.Principal != "":
		return " INDEXED BY reviews_principal"
	case q.Status != "":
		return " INDEXED BY reviews_status"
	}
	return " INDEXED BY reviews_place"
}

// maxPruned is how many old refusals a new one deletes: more than one, so that their number shrinks, and few
// enough to cost nothing.
const maxPruned = 8

// addLesson writes a lesson; nil does nothing.
func (s *statements) addLesson(l *store.Lesson) error {
	if l == nil {
		return nil
	}
	if l.Cleared {
		if err := s.exec(s.forgetRefusals, l.Guard); err != nil {
			return err
		}
		if l.Bound != "" {
			if err := s.exec(s.forgetBound, l.Bound); err != nil {
				return err
			}
		}
	}
	if !l.Refused {
		return nil
	}
	if err := s.exec(s.pruneRefusals, l.At.Add(-store.MaxRefusalAge).UnixNano()); err != nil {
		return err
	}
	var opinion any // NULL without one
	if l.Opinion != nil {
		opinion = []byte(l.Opinion)
	}
	if err := s.exec(s.addRefusal, l.Guard, l.Identity, l.Instance, l.Principal, l.Workflow, l.Action, l.At.UnixNano(), opinion); err != nil {
		return err
	}
	if l.Bound == "" || opinion == nil {
		return nil
	}
	// A separate row without a guard, so that it is not counted as a refusal.
	return s.exec(s.addRefusal, "", l.Bound, l.Instance, l.Principal, l.Workflow, l.Action, l.At.UnixNano(), opinion)
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
		selected := []any{q.Principal, q.Workflow, q.Action, q.Instance}
		if err := st.exec(st.forgetOpinions, selected...); err != nil {
			return err
		}
		if err := st.exec(st.clearBound, selected...); err != nil {
			return err
		}
		result, err := st.clearRefusals.ExecContext(context.Background(), selected...)
		if err != nil {
			return err
		}
		count, err := result.RowsAffected()
		n = int(count)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
