package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// selectedRefusals is the condition for the refusals that a store.RefusalQuery selects. For an instance, it includes
// all refusals that share a guard with one of that instance.
const selectedRefusals = `(?1 = '' OR principal = ?1) AND (?2 = '' OR workflow = ?2) AND (?3 = '' OR action = ?3)
	AND (?4 = '' OR instance = ?4 OR guard IN (SELECT guard FROM refusals WHERE guard <> '' AND instance = ?4))`

// statements are the writer's prepared statements, on its connection.
type statements struct {
	begin, commit, rollback                     *sql.Stmt
	probe                                       *sql.Stmt
	keyTaken                                    *sql.Stmt
	addInstance, updateInstance                 *sql.Stmt
	moveInstance, endInstance                   *sql.Stmt
	setCalls, subjectTaken                      *sql.Stmt
	addContext, setContext                      *sql.Stmt
	addEvent, addSnapshot                       *sql.Stmt
	addDefinition, addJudgeConfig               *sql.Stmt
	addRefusal, pruneRefusals                   *sql.Stmt
	forgetRefusals, forgetBound, forgetOpinions *sql.Stmt
	clearRefusals, clearBound                   *sql.Stmt
	moveIndex, addTerms, addTimes, setFigures   *sql.Stmt
	putReview, addAnchor                        *sql.Stmt
	anyAnchor                                   *sql.Stmt
	cutEvents, cutSnapshots                     *sql.Stmt
	sealStatements
	counterStatements
	sharedStatements

	changes []committed // made by the open transaction
}

func (s *statements) all() map[**sql.Stmt]string {
	all := map[**sql.Stmt]string{
		&s.begin:    `BEGIN IMMEDIATE`,
		&s.commit:   `COMMIT`,
		&s.rollback: `ROLLBACK`,
		&s.probe:    fmt.Sprintf(`PRAGMA application_id = %d`, applicationID), // rewrites the first page unchanged
		&s.keyTaken: `SELECT 1 FROM events WHERE key_scope = ?`,
		&s.addInstance: `INSERT INTO instances (id, workflow, version, definition_hash, owner, created_at,
			updated_at, seq, revision, state, status, head, facts, subject)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		&s.subjectTaken:   `SELECT 1 FROM instances WHERE workflow = ? AND subject = ?`,
		&s.setCalls:       `UPDATE instances SET calls = ?, subject = ? WHERE id = ?`,
		&s.updateInstance: moveInstance(``),
		&s.moveInstance:   moveInstance(`state = ?, `),
		&s.endInstance:    moveInstance(`state = ?, status = ?, `),
		&s.addContext:     `INSERT INTO contexts (n, context) SELECT n, ? FROM instances WHERE id = ?`,
		&s.setContext:     `UPDATE contexts SET context = ? WHERE n = (SELECT n FROM instances WHERE id = ?)`,
		&s.addEvent: `INSERT INTO events (n, seq, revision, kind, at, key_scope, prev_hash, hash, body)
			SELECT n, ?, ?, ?, ?, ?, ?, ?, ? FROM instances WHERE id = ?`,
		&s.addSnapshot: `INSERT OR REPLACE INTO snapshots (n, revision, instance, context)
			SELECT n, ?, ?, ? FROM instances WHERE id = ?`,
		&s.addDefinition: `INSERT INTO definitions (name, version, hash, document, owner, operator, created_at, ` + rows.SealColumns + `)
			SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11
			WHERE ?2 = 1 + (SELECT coalesce(max(version), 0) FROM definitions WHERE name = ?1) AND ` + nextPlace,
		&s.addJudgeConfig: `INSERT INTO judge_configs (workflow, revision, principal, role, scope, settings, hash, ` + rows.SealColumns + `, at)
			SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12
			WHERE ?2 = 1 + (SELECT coalesce(max(revision), 0) FROM judge_configs WHERE workflow = ?1) AND ` + nextPlace,
		&s.addRefusal:     `INSERT INTO refusals (guard, identity, instance, principal, workflow, action, at, opinion) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		&s.pruneRefusals:  `DELETE FROM refusals WHERE pos IN (SELECT pos FROM refusals WHERE at < ? ORDER BY at LIMIT ` + strconv.Itoa(maxPruned) + `)`, // SQLite compiles LIMIT ? anew for each value
		&s.forgetRefusals: `DELETE FROM refusals WHERE guard = ?`,
		&s.forgetBound:    `DELETE FROM refusals WHERE guard = '' AND identity = ? AND opinion IS NOT NULL`,
		// An opinion that other principals received on the same case would answer it again.
		&s.forgetOpinions: `UPDATE refusals SET opinion = NULL WHERE guard <> '' AND opinion IS NOT NULL AND identity IN (
			SELECT identity FROM refusals WHERE guard <> '' AND ` + selectedRefusals + `)`,
		&s.clearRefusals: `DELETE FROM refusals WHERE guard <> '' AND ` + selectedRefusals,
		&s.clearBound:    `DELETE FROM refusals WHERE guard = '' AND ` + selectedRefusals,
		&s.cutEvents:     `DELETE FROM events WHERE n = (SELECT n FROM instances WHERE id = ?) AND seq <= ?`,
		&s.cutSnapshots:  `DELETE FROM snapshots WHERE n = (SELECT n FROM instances WHERE id = ?) AND revision < ?`,
		&s.addAnchor: `INSERT INTO anchors (number, at, note, heads)
			SELECT ?1, ?2, ?3, ?4 WHERE ?1 = 1 + (SELECT coalesce(max(number), 0) FROM anchors)
				AND (?1 > 1 OR NOT EXISTS (SELECT 1 FROM events WHERE pos > ?5 AND kind = ?6))`,
		&s.anyAnchor: `SELECT 1 FROM anchors LIMIT 1`,
		&s.putReview: `INSERT INTO reviews (id, place, status, instance, workflow, principal, body, data)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET place = excluded.place, status = excluded.status, instance = excluded.instance,
				workflow = excluded.workflow, principal = excluded.principal, body = excluded.body, data = excluded.data`,
		&s.moveIndex: `UPDATE decision_index SET pos = ?1 WHERE pos = ?2 AND ?3 = (SELECT count(*) FROM events WHERE pos > ?2 AND pos <= ?1)`,
		&s.addTerms:  `INSERT INTO decision_terms (rowid, terms) VALUES (?, ?)`,
		&s.addTimes: `INSERT INTO decision_times (block, first, last, figures) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT (block) DO UPDATE SET first = min(first, excluded.first), last = max(last, excluded.last),
				figures = CASE WHEN figures IS ?5 THEN excluded.figures END`,
		&s.setFigures: `UPDATE decision_times SET figures = ?1 WHERE block = ?2 AND ?6 = (SELECT pos FROM decision_index)
			AND ?3 = (SELECT count(*) FROM events WHERE pos >= ?4 AND pos < ?5)`,
	}
	maps.Copy(all, s.sealStatements.all())
	maps.Copy(all, s.counterStatements.all())
	maps.Copy(all, s.sharedStatements.all())
	return all
}

// moveInstance returns the statement that moves an instance and sets the given columns. SQLite rewrites every index
// on a column that is set, even if its value does not change.
func moveInstance(besides string) string {
	return `UPDATE instances SET version = ?, definition_hash = ?, updated_at = ?, seq = ?, revision = ?, ` + besides +
		`head = ?, facts = ? WHERE id = ? AND seq = ? AND head = ?`
}

func (s *statements) close() error { return closeAll(s.all()) }

func prepareAll(ctx context.Context, on handle, stmts map[**sql.Stmt]string) error {
	for stmt, query := range stmts {
		if *stmt != nil {
			continue // prepared by an earlier attempt
		}
		var err error
		if *stmt, err = on.PrepareContext(ctx, query); err != nil { //nolint:sqlclosecheck // closeAll closes them
			return fmt.Errorf("prepare %s: %w", query, err)
		}
	}
	return nil
}

func closeAll(stmts map[**sql.Stmt]string) error {
	var err error
	for stmt := range stmts {
		if *stmt != nil {
			err = errors.Join(err, (*stmt).Close())
		}
	}
	return err
}

// exec runs a statement. It takes no context, because a write that has begun is never interrupted: callers can cancel
// only while queued.
func (s *statements) exec(stmt *sql.Stmt, args ...any) error {
	_, err := stmt.ExecContext(context.Background(), args...)
	return err
}

// execOne runs a statement that changes one row or none; if none, it returns refused.
func (s *statements) execOne(refused error, stmt *sql.Stmt, args ...any) error {
	r, err := stmt.ExecContext(context.Background(), args...)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return refused
}

func (s *Store) write(ctx context.Context, size int, what string, apply func(*statements) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.activeCalls.Done()
	if s.writer == nil {
		return fmt.Errorf("%s: %w (it was opened read-only)", what, ErrReadOnly)
	}
	err := s.writer.submit(ctx, size, apply)
	if err != nil && !isRefusal(err) {
		err = fmt.Errorf("%s: %w", what, s.explainError(err))
	}
	s.recordOutcome(err)
	return err
}

// AddRule implements store.Store.
func (s *Store) AddRule(ctx context.Context, r store.Rule) error {
	seal, err := rows.SealValues(r.Seal())
	if err != nil {
		return err
	}
	refused := fmt.Errorf("%w: %s at place %d is not the next", store.ErrConflict, r, r.Seal().Position)
	if d := r.Definition; d != nil {
		values := append([]any{d.Name, d.Version, d.Hash, rows.OrEmpty(d.Document), d.Owner, d.Operator, d.CreatedAt.UnixNano()}, seal...)
		return s.write(ctx, len(d.Document), "add a definition", func(st *statements) error {
			return st.addRule(refused, st.addDefinition, values...)
		})
	}
	c := r.Config
	settings, err := json.Marshal(c.Settings)
	if err != nil {
		return fmt.Errorf("encode the judge settings: %w", err)
	}
	values := slices.Concat([]any{c.Workflow, c.Revision, c.Principal, c.Role, c.Scope, settings, c.Hash}, seal, []any{c.At.UnixNano()})
	return s.write(ctx, len(settings), "add a judge config", func(st *statements) error {
		return st.addRule(refused, st.addJudgeConfig, values...)
	})
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, c store.Commit) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.IsLesson() {
		return s.write(ctx, len(c.Lesson.Opinion), "keep a refusal", func(st *statements) error {
			if err := st.checkLease(c.Lease); err != nil {
				return err
			}
			return st.addLesson(c.Lesson)
		})
	}
	p, err := prepareCommit(c)
	if err != nil {
		return err
	}
	if err := s.write(ctx, p.Size, "commit", p.apply); err != nil {
		return err
	}
	s.indexer.notify(len(c.Events))
	return nil
}

// pending is an encoded commit. The caller's goroutine prepares it to save work for the writer.
type pending struct {
	*rows.Commit
	committed committed
}

func prepareCommit(c store.Commit) (*pending, error) {
	encoded, err := rows.NewCommit(c)
	if err != nil {
		return nil, err
	}
	p := &pending{Commit: encoded}
	p.committed = newCommitted(p)
	return p, nil
}

// apply makes all checks before it writes, so that a refusal leaves no changes.
func (p *pending) apply(st *statements) error {
	for _, key := range p.Keys {
		if err := failIfFound(store.ErrKeyTaken, st.keyTaken, key); err != nil {
			return err
		}
	}
	if err := st.checkLease(p.Lease); err != nil {
		return err
	}
	if p.Floor != nil && p.Unanchored {
		if err := failIfFound(fmt.Errorf("%w: there is an anchor", store.ErrConflict), st.anyAnchor); err != nil {
			return err
		}
	}
	if err := p.applyInstance(st); err != nil {
		return err
	}
	for _, e := range p.Rows {
		if err := st.exec(st.addEvent, e.Seq, e.Revision, e.Kind, e.At, bytesOrNull(e.Scope), e.Prev, e.Hash, e.Body, p.Next.ID); err != nil {
			return err
		}
	}
	for _, r := range p.ReviewRows {
		if err := st.exec(st.putReview, r.ID, r.SortKey, r.Status, r.Instance, r.Workflow, r.Principal, r.Body, bytesOrNull(r.Data)); err != nil {
			return err
		}
	}
	if err := st.addLesson(p.Lesson); err != nil {
		return err
	}
	if p.Snapshot != nil {
		if err := st.exec(st.addSnapshot, p.Next.Revision, p.Snapshot, rows.OrEmpty(p.Next.Context), p.Next.ID); err != nil {
			return err
		}
	}
	st.changes = append(st.changes, p.committed)
	if p.FloorSnapshot == nil {
		return nil
	}
	if err := st.exec(st.cutEvents, p.Floor.ID, p.Floor.Seq); err != nil {
		return err
	}
	if err := st.exec(st.cutSnapshots, p.Floor.ID, p.Floor.Revision); err != nil {
		return err
	}
	return st.exec(st.addSnapshot, p.Floor.Revision, p.FloorSnapshot, rows.OrEmpty(p.Floor.Context), p.Floor.ID)
}

// failIfFound returns refused if a statement finds a row.
func failIfFound(refused error, stmt *sql.Stmt, args ...any) error {
	var one int
	switch err := stmt.QueryRowContext(context.Background(), args...).Scan(&one); {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return refused
}

func (p *pending) applyInstance(st *statements) error {
	i := &p.Next
	moved := p.ConflictError()
	if p.Expect == 0 {
		if i.Subject != "" {
			if err := failIfFound(store.ErrSubjectTaken, st.subjectTaken, i.Workflow, i.Subject); err != nil {
				return err
			}
		}
		if err := st.execOne(moved, st.addInstance, i.ID, i.Workflow, i.Version, i.DefinitionHash, i.Owner,
			i.CreatedAt.UnixNano(), i.UpdatedAt.UnixNano(), i.Seq, i.Revision, i.State, string(i.Status), p.Head, p.Facts, textOrNull(i.Subject)); err != nil {
			return err
		}
		return st.exec(st.addContext, rows.OrEmpty(p.Next.Context), i.ID)
	}
	move, values := st.updateInstance, []any{i.Version, i.DefinitionHash, i.UpdatedAt.UnixNano(), i.Seq, i.Revision}
	switch state, status := p.Changes(); {
	case status:
		move, values = st.endInstance, append(values, i.State, string(i.Status))
	case state:
		move, values = st.moveInstance, append(values, i.State)
	}
	if err := st.execOne(moved, move, append(values, p.Head, p.Facts, i.ID, p.Expect, p.From)...); err != nil {
		return err
	}
	if p.ChangesCalls() {
		if err := st.exec(st.setCalls, len(i.Facts.Calls), textOrNull(i.Subject), i.ID); err != nil {
			return err
		}
	}
	if p.Context == nil {
		return nil
	}
	return st.exec(st.setContext, p.Context, i.ID)
}

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// bytesOrNull returns NULL for nil, which would otherwise be stored as an empty value.
func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
