package postgres

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

const instanceColumns = `i.id, i.workflow, i.version, i.definition_hash, i.owner, i.created_at, i.updated_at,
	i.seq, i.revision, i.state, i.status, i.head, i.facts, i.subject, c.context`

const eventColumns = `e.prev_hash, e.hash, e.body`

// wrapDamaged wraps an error of decoding a row in store.ErrDamaged; nil stays nil.
func wrapDamaged(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", store.ErrDamaged, err)
}

// Load implements store.Store.
func (s *Store) Load(ctx context.Context, id string) (inst record.Instance, err error) {
	err = s.read(ctx, "instance "+id, func(ctx context.Context, on handle) (err error) {
		inst, err = scanInstance(on.QueryRow(ctx, s.sql(`SELECT `+instanceColumns+` FROM gavel.instances i JOIN gavel.contexts c USING (n) WHERE i.id = $1`), textOrNull(id)))
		return err
	})
	return inst, err
}

// textOrNull returns a value for a text column; NULL for text that cannot be stored.
func textOrNull(s string) any {
	if strings.ContainsRune(s, 0) || strings.ToValidUTF8(s, "") != s {
		return nil
	}
	return s
}

func scanInstance(r pgx.Row) (record.Instance, error) {
	var i record.Instance
	var created, updated int64
	var owner, head, facts, subject, doc []byte
	err := r.Scan(&i.ID, &i.Workflow, &i.Version, &i.DefinitionHash, &owner, &created, &updated,
		&i.Seq, &i.Revision, &i.State, (*string)(&i.Status), &head, &facts, &subject, &doc)
	if err != nil {
		return record.Instance{}, err //nolint:wrapcheck // read wraps it
	}
	if err := json.Unmarshal(facts, &i.Facts); err != nil {
		return record.Instance{}, wrapDamaged(fmt.Errorf("the facts of %s: %w", i.ID, err))
	}
	i.Owner, i.CreatedAt, i.UpdatedAt, i.Subject = string(owner), rows.TimeOf(created), rows.TimeOf(updated), string(subject)
	i.Head, i.Context = hex.EncodeToString(head), doc
	return i, nil
}

// ByKey implements store.Store.
func (s *Store) ByKey(ctx context.Context, scope string) (e record.Event, err error) {
	raw, hexErr := hex.DecodeString(scope)
	err = s.read(ctx, "idempotency key", func(ctx context.Context, on handle) (err error) {
		if hexErr != nil {
			return pgx.ErrNoRows // no such key can be stored
		}
		e, err = scanEvent(on.QueryRow(ctx, s.sql(`SELECT `+eventColumns+` FROM gavel.events e WHERE e.key_scope = $1`), raw))
		return err
	})
	return e, err
}

func scanEvent(r pgx.Row, before ...any) (record.Event, error) {
	var prev, hash, body []byte
	if err := r.Scan(append(before, &prev, &hash, &body)...); err != nil {
		return record.Event{}, err //nolint:wrapcheck // read wraps it
	}
	return rows.DecodeEvent(prev, hash, body) //nolint:wrapcheck // the error is already specific
}

// scanFiled scans an event and checks that its columns match its body.
func scanFiled(r pgx.Row) (record.Event, error) {
	var revision, at int64
	var kind string
	var scope []byte
	e, err := scanEvent(r, &revision, &kind, &at, &scope)
	if err == nil {
		err = wrapDamaged(rows.CheckColumns(e, revision, kind, at, scope))
	}
	if err != nil {
		return record.Event{}, err
	}
	return e, nil
}

// Snapshot implements store.Store.
func (s *Store) Snapshot(ctx context.Context, id string, revision int64) (inst record.Instance, err error) {
	err = s.read(ctx, fmt.Sprintf("snapshot of %s at revision %d", id, revision), func(ctx context.Context, on handle) error {
		var doc, contextDoc []byte
		err := on.QueryRow(ctx, s.sql(`SELECT instance, context FROM gavel.snapshots
			WHERE n = (SELECT n FROM gavel.instances WHERE id = $1) AND revision <= $2 ORDER BY revision DESC LIMIT 1`), textOrNull(id), revision).Scan(&doc, &contextDoc)
		if err == nil {
			inst, err = rows.DecodeSnapshot(doc, contextDoc)
			err = wrapDamaged(err)
		}
		return err //nolint:wrapcheck // read wraps it
	})
	return inst, err
}

// where collects the conditions of a query.
type where struct {
	builder
	conditions []string
}

// add adds a condition in which % represents a value.
func (w *where) add(condition string, v any) {
	w.conditions = append(w.conditions, strings.Replace(condition, "%", w.value(v), 1))
}

func (w *where) addText(condition, value string) {
	if value != "" {
		w.add(condition, textOrNull(value))
	}
}

func (w *where) addBytes(condition, value string) {
	if value != "" {
		w.add(condition, []byte(value))
	}
}

func (w *where) String() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

// pageSize is how many rows an iterator reads at a time. Between pages it holds no connection and no snapshot.
const pageSize = 64

// headsPage is the page size for rows without contexts.
const headsPage = 1024

// Events implements store.Store.
func (s *Store) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	return rows.Pages(ctx, q.Limit, pageSize, func(ctx context.Context, after *record.Event, n int) (page []record.Event, err error) {
		from := q.AfterSeq
		if after != nil {
			from = after.Seq
		}
		var w where
		w.addText("e.n = (SELECT n FROM gavel.instances WHERE id = %)", q.Instance)
		w.add("e.seq > %", from)
		if store.IsMarking(q.Kinds) {
			w.conditions = append(w.conditions, "e.kind IN ('checkpointed', 'truncated', 'heard')") // as in the partial index of these kinds
		}
		if len(q.Kinds) > 0 {
			kinds := make([]string, len(q.Kinds))
			for i, k := range q.Kinds {
				kinds[i] = string(k)
			}
			w.add("e.kind = ANY (%)", kinds)
		}
		err = s.read(ctx, "events of "+q.Instance, func(ctx context.Context, on handle) (err error) {
			page, err = queryAll(ctx, on, scanFiled, s.sql(`SELECT e.revision, e.kind, e.at, e.key_scope, `+eventColumns+
				` FROM gavel.events e`+w.String()+` ORDER BY e.seq LIMIT `+w.value(n)), w.args...)
			return err
		})
		page = q.UpToRevision(page)
		// An event's own seq may differ from the one it is stored under (damage). The next page could then repeat
		// this one.
		if err == nil && len(page) == n && page[n-1].Seq <= from {
			err = wrapDamaged(fmt.Errorf("the events of %s after number %d go backwards", q.Instance, from))
		}
		return page, err
	})
}

// Instances implements store.Store.
func (s *Store) Instances(ctx context.Context, q store.InstanceQuery) iter.Seq2[record.Instance, error] {
	size, scan := pageSize, scanInstance
	if q.Heads {
		size, scan = headsPage, scanHead
	}
	if q.MovedAfter > 0 {
		size = math.MaxInt32 // finding the moved instances again for each page would cost more than pages save
	}
	return rows.Pages(ctx, q.Limit, size, func(ctx context.Context, after *record.Instance, n int) (page []record.Instance, err error) {
		below := q
		if after != nil {
			below.BeforeID = after.ID
		}
		err = s.read(ctx, "instances", func(ctx context.Context, on handle) (err error) {
			query, args := instancesQuery(below, n)
			page, err = queryAll(ctx, on, scan, s.sql(query), args...)
			return err
		})
		return page, err
	})
}

func instancesQuery(q store.InstanceQuery, n int) (query string, args []any) {
	columns, joined := instanceColumns, " JOIN gavel.contexts c USING (n)"
	if q.Heads {
		columns, joined = "i.id, i.seq, i.head", ""
	}
	id := "i.id"
	if q.Workflow != "" || q.State != "" || q.Status != "" || q.Owner != "" {
		id = `i.id COLLATE "POSIX"` // the collation of the indexes on these columns
	}
	var w where
	w.addText(id+" < %", q.BeforeID)
	w.addText("i.workflow = %", q.Workflow)
	w.addText("i.state = %", q.State)
	w.addText("i.status = %", string(q.Status))
	w.addBytes("i.owner = %", q.Owner)
	w.addBytes("i.subject = %", q.Subject)
	if q.OpenCalls {
		w.conditions = append(w.conditions, "i.calls > 0")
	}
	if q.MovedAfter > 0 {
		w.add("i.n IN (SELECT n FROM gavel.events WHERE pos > %)", q.MovedAfter)
	}
	return `SELECT ` + columns + ` FROM gavel.instances i` + joined + w.String() + ` ORDER BY ` + id + ` DESC LIMIT ` + w.value(n), w.args
}

func scanHead(r pgx.Row) (i record.Instance, err error) {
	var head []byte
	err = r.Scan(&i.ID, &i.Seq, &head)
	i.Head = hex.EncodeToString(head)
	return i, err //nolint:wrapcheck // read wraps it
}

// Reviews implements store.Store. It reads all rows in a single query rather than in pages, because a review that
// becomes urgent during the iteration would move out of the remaining pages.
func (s *Store) Reviews(ctx context.Context, q store.ReviewQuery) iter.Seq2[store.Review, error] {
	return func(yield func(store.Review, error) bool) {
		var found []reviewRow
		err := s.read(ctx, "reviews", func(ctx context.Context, on handle) (err error) {
			query, args := reviewsQuery(q)
			found, err = queryAll(ctx, on, scanReview, s.sql(query), args...)
			return err
		})
		for i := 0; err == nil && i < len(found); i++ {
			if err = ctx.Err(); err != nil {
				break
			}
			var r store.Review
			if r, err = rows.DecodeReview(found[i].id, found[i].body, found[i].data); err != nil {
				err = fmt.Errorf("read reviews: %w", wrapDamaged(err))
			} else if !yield(r, nil) {
				return
			}
		}
		if err != nil {
			yield(store.Review{}, err)
		}
	}
}

func reviewsQuery(q store.ReviewQuery) (query string, args []any) {
	var w where
	w.addText("id = %", q.ID)
	w.addText("instance = %", q.Instance)
	w.addText("workflow = %", q.Workflow)
	w.addText("status = %", string(q.Status))
	w.addBytes("principal = %", q.Principal)
	if q.After != nil {
		w.conditions = append(w.conditions, "(place, id) > ("+w.values(rows.SortKeyOf(q.After.Rank), q.After.ID)+")")
	}
	query = `SELECT id, body, data FROM gavel.reviews` + w.String() + ` ORDER BY place, id`
	if q.Limit != 0 {
		query += ` LIMIT ` + w.value(q.Limit)
	}
	return query, w.args
}

type reviewRow struct {
	id         string
	body, data []byte
}

func scanReview(r pgx.Row) (out reviewRow, err error) {
	err = r.Scan(&out.id, &out.body, &out.data)
	return out, err //nolint:wrapcheck // read wraps it
}

// LastPosition implements store.Store.
func (s *Store) LastPosition(ctx context.Context) (n int64, err error) {
	err = s.read(ctx, "the last position", func(ctx context.Context, on handle) error {
		return on.QueryRow(ctx, s.sql(`SELECT last FROM gavel.counter`)).Scan(&n) //nolint:wrapcheck // read wraps it
	})
	return n, err
}

// anchorLock is the advisory lock for adding an anchor, and for shortening a history while there is no anchor.
const anchorLock = 0x67617661

// AddAnchor implements store.Store.
func (s *Store) AddAnchor(ctx context.Context, a store.Anchor) error {
	return s.transact(ctx, "add an anchor", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, anchorLock); err != nil {
			return err //nolint:wrapcheck // transact wraps it
		}
		if err := s.checkLease(ctx, tx, a.Lease); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.sql(`INSERT INTO gavel.anchors (number, at, note, heads)
			SELECT $1, $2, $3, $4 WHERE $1 = 1 + (SELECT coalesce(max(number), 0) FROM gavel.anchors)
				AND ($1 > 1 OR NOT EXISTS (SELECT FROM gavel.events WHERE pos > $5 AND kind = 'truncated'))`),
			a.Number, a.At.UnixNano(), []byte(a.Note), rows.OrEmpty(a.Heads), a.Seen)
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("%w: anchor %d is not the next, or a history was shortened in the meantime", store.ErrConflict, a.Number)
		}
		return err //nolint:wrapcheck // transact wraps it
	})
}

// Anchors implements store.Store.
func (s *Store) Anchors(ctx context.Context, after int64) iter.Seq2[store.Anchor, error] {
	order, limit := "", 0
	if after == store.LastAnchor {
		order, limit = " DESC", 1
	}
	return rows.Pages(ctx, limit, 1, func(ctx context.Context, last *store.Anchor, n int) (page []store.Anchor, err error) { // heads can be large
		from := after
		if last != nil {
			from = last.Number
		}
		err = s.read(ctx, "anchors", func(ctx context.Context, on handle) (err error) {
			page, err = queryAll(ctx, on, scanAnchor, s.sql(`SELECT number, at, note, heads FROM gavel.anchors WHERE number > $1 ORDER BY number`+order+` LIMIT $2`), from, n)
			return err
		})
		return page, err
	})
}

func scanAnchor(r pgx.Row) (a store.Anchor, err error) {
	var at int64
	var note []byte
	err = r.Scan(&a.Number, &at, &note, &a.Heads)
	a.At, a.Note = rows.TimeOf(at), string(note)
	return a, err //nolint:wrapcheck // read wraps it
}
