package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// readStatements are the prepared statements of the reader pool.
type readStatements struct {
	load, byKey, snapshot    *sql.Stmt
	refusals, refusedOpinion *sql.Stmt
	judgeConfigs             *sql.Stmt
	ruleHead                 *sql.Stmt
	dataKey                  *sql.Stmt
}

const instanceColumns = `i.id, i.workflow, i.version, i.definition_hash, i.owner, i.created_at, i.updated_at,
	i.seq, i.revision, i.state, i.status, i.head, i.facts, i.subject, c.context`

const eventColumns = `e.prev_hash, e.hash, e.body`

func (s *readStatements) all() map[**sql.Stmt]string {
	return map[**sql.Stmt]string{
		&s.load:  `SELECT ` + instanceColumns + ` FROM instances i JOIN contexts c ON c.n = i.n WHERE i.id = ?`,
		&s.byKey: `SELECT ` + eventColumns + ` FROM events e WHERE e.key_scope = ?`,
		&s.snapshot: `SELECT s.instance, s.context FROM snapshots s
			WHERE s.n = (SELECT n FROM instances WHERE id = ?) AND s.revision <= ? ORDER BY s.revision DESC LIMIT 1`,
		&s.refusals: `SELECT count(*) FROM refusals WHERE guard = ? AND at >= ?`,
		&s.refusedOpinion: `SELECT opinion FROM refusals WHERE identity = ? AND at >= ? AND opinion IS NOT NULL
			ORDER BY at DESC, pos DESC LIMIT 1`,
		&s.judgeConfigs: `SELECT ` + configColumns + ` FROM judge_configs WHERE workflow = ? ORDER BY revision`,
		&s.ruleHead:     ruleHead,
		&s.dataKey: `SELECT ` + dataKeyColumns + ` FROM data_keys WHERE instance = ?1 AND (number = ?2 OR ?2 = 0)
			ORDER BY number DESC LIMIT 1`,
	}
}

func (s *readStatements) prepare(ctx context.Context, db *sql.DB) error {
	if err := prepareAll(ctx, db, s.all()); err != nil {
		return errors.Join(err, s.close())
	}
	return nil
}

func (s *readStatements) close() error { return closeAll(s.all()) }

// row is implemented by *sql.Row and *sql.Rows.
type row interface{ Scan(dest ...any) error }

// poolFor returns the pool of a read. Bulk reads have their own, so that other reads never wait for them.
func (s *Store) poolFor(ctx context.Context) *sql.DB {
	if store.IsBulkRead(ctx) {
		return s.bulk
	}
	return s.readers
}

// read runs a read through a pool. It checks the context only beforehand: interrupting a read costs more than
// finishing it.
func (s *Store) read(ctx context.Context, what string, do func(context.Context) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.activeCalls.Done()
	if s.writer != nil {
		s.writer.readers.wait()
	}
	err := do(context.WithoutCancel(ctx))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: %s", store.ErrNotFound, what)
	}
	err = fmt.Errorf("read %s: %w", what, s.explainError(err))
	s.health.countFailure(err)
	return err
}

// Load implements store.Store.
func (s *Store) Load(ctx context.Context, id string) (inst record.Instance, err error) {
	err = s.read(ctx, "instance "+id, func(ctx context.Context) (err error) {
		load := func() (record.Instance, error) { return scanInstance(s.stmts.load.QueryRowContext(ctx, id)) }
		if store.IsBulkRead(ctx) { // bulk reads load many instances, each only once
			inst, err = load()
		} else {
			inst, err = s.heads.loadInstance(id, load)
		}
		return err
	})
	return inst, err
}

func scanInstance(r row) (record.Instance, error) {
	var i record.Instance
	var created, updated int64
	var head, facts, doc []byte
	var subject sql.NullString
	err := r.Scan(&i.ID, &i.Workflow, &i.Version, &i.DefinitionHash, &i.Owner, &created, &updated,
		&i.Seq, &i.Revision, &i.State, &i.Status, &head, &facts, &subject, &doc)
	if err != nil {
		return record.Instance{}, err
	}
	if err := json.Unmarshal(facts, &i.Facts); err != nil {
		return record.Instance{}, fmt.Errorf("%w: the facts of %s: %w", ErrCorrupt, i.ID, err)
	}
	i.CreatedAt, i.UpdatedAt, i.Subject = rows.TimeOf(created), rows.TimeOf(updated), subject.String
	i.Head, i.Context = hex.EncodeToString(head), doc
	return i, nil
}

// ByKey implements store.Store.
func (s *Store) ByKey(ctx context.Context, scope string) (e record.Event, err error) {
	raw, hexErr := hex.DecodeString(scope)
	err = s.read(ctx, "idempotency key", func(ctx context.Context) (err error) {
		if hexErr != nil {
			return sql.ErrNoRows // no such key can be stored
		}
		e, err = scanEvent(s.stmts.byKey.QueryRowContext(ctx, raw))
		return err
	})
	return e, err
}

func scanEvent(r row) (record.Event, error) {
	var prev, hash, body []byte
	if err := r.Scan(&prev, &hash, &body); err != nil {
		return record.Event{}, err
	}
	return rows.DecodeEvent(prev, hash, body)
}

// indexedEventColumns are the columns of an event and those by which events are found.
const indexedEventColumns = `e.revision, e.kind, e.at, e.key_scope, ` + eventColumns

// scanIndexedEvent scans an event and checks that its columns match its body. Otherwise queries would miss it, or return it
// in the wrong place.
func scanIndexedEvent(r row) (record.Event, error) {
	var revision, at int64
	var kind string
	var scope []byte
	e, err := scanEvent(prefixScanner{r, []any{&revision, &kind, &at, &scope}})
	if err != nil {
		return record.Event{}, err
	}
	if err := rows.CheckColumns(e, revision, kind, at, scope); err != nil {
		return record.Event{}, wrapCorrupt(err)
	}
	return e, nil
}

const (
	definitionColumns = `name, version, hash, document, owner, operator, created_at, ` + rows.SealColumns
	listedColumns     = `name, version, hash, NULL, owner, operator, created_at, ` + rows.SealColumns // without the document
	configColumns     = `workflow, revision, principal, role, scope, settings, hash, at, ` + rows.SealColumns
)

func scanDefinition(r row) (store.Definition, error) {
	var d store.Definition
	var created int64
	var doc []byte
	var seal rows.Seal
	if err := r.Scan(append([]any{&d.Name, &d.Version, &d.Hash, &doc, &d.Owner, &d.Operator, &created}, seal.Targets()...)...); err != nil {
		return store.Definition{}, err
	}
	d.Document, d.CreatedAt, d.Seal = doc, rows.TimeOf(created), seal.Decode()
	return d, nil
}

// Definition implements store.Store.
func (s *Store) Definition(ctx context.Context, name string, version int) (d store.Definition, err error) {
	const query = `SELECT ` + definitionColumns + ` FROM definitions
		WHERE name = ?1 AND (version = ?2 OR ?2 = 0) ORDER BY version DESC LIMIT 1`
	err = s.read(ctx, fmt.Sprintf("definition %s version %d", name, version), func(ctx context.Context) (err error) {
		d, err = scanDefinition(s.readers.QueryRowContext(ctx, query, name, version))
		return err
	})
	return d, err
}

// Definitions implements store.Store.
func (s *Store) Definitions(ctx context.Context) (all []store.Definition, err error) {
	const query = `SELECT ` + listedColumns + ` FROM definitions d
		WHERE version = (SELECT max(version) FROM definitions WHERE name = d.name) ORDER BY name`
	err = s.read(ctx, "definitions", func(ctx context.Context) (err error) {
		all, err = queryAll(ctx, s.poolFor(ctx), scanDefinition, query)
		return err
	})
	return all, err
}

// JudgeConfigs implements store.Store.
func (s *Store) JudgeConfigs(ctx context.Context, workflow string) (all []store.JudgeConfig, err error) {
	err = s.read(ctx, "judge configs of "+workflow, func(ctx context.Context) error {
		rows, err := s.stmts.judgeConfigs.QueryContext(ctx, workflow) // needed for every judgement
		if err == nil {
			all, err = scanAll(rows, scanJudgeConfig)
		}
		return err
	})
	return all, err
}

func scanJudgeConfig(r row) (store.JudgeConfig, error) {
	var c store.JudgeConfig
	var settings []byte
	var at int64
	var seal rows.Seal
	if err := r.Scan(append([]any{&c.Workflow, &c.Revision, &c.Principal, &c.Role, &c.Scope, &settings, &c.Hash, &at}, seal.Targets()...)...); err != nil {
		return store.JudgeConfig{}, err
	}
	if err := json.Unmarshal(settings, &c.Settings); err != nil {
		return store.JudgeConfig{}, fmt.Errorf("%w: judge config %d of %s: %w", ErrCorrupt, c.Revision, c.Workflow, err)
	}
	c.At, c.Seal = rows.TimeOf(at), seal.Decode()
	return c, nil
}

func scanOne[T any](r row) (v T, err error) {
	err = r.Scan(&v)
	return v, err
}

// handle is implemented by connections, pools and transactions.
type handle interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func queryAll[T any](ctx context.Context, on handle, scan func(row) (T, error), query string, args ...any) (out []T, err error) {
	rows, err := on.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return scanAll(rows, scan)
}

// scanAll scans all rows and closes them.
func scanAll[T any](rows *sql.Rows, scan func(row) (T, error)) (out []T, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}
