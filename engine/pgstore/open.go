package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gavel-mcp/gavel/engine/store"
)

// oldestServer is the oldest version that the tests run on.
const oldestServer = 14

// readConfig reads a URL. Each connection will be one that can write: a pool that stays on a server
// that was demoted would fail for ever.
func readConfig(url string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil { // pgx leaves the password out of it
		return nil, fmt.Errorf("%w: %w", ErrNoDatabase, err)
	}
	if cfg.ConnConfig.Database == "" {
		return nil, fmt.Errorf("%w: the URL names none; write postgres://USER@HOST/DATABASE", ErrNoDatabase)
	}
	cfg.MaxConnIdleTime = time.Minute
	// One round trip for each query and nothing kept in the session: proxies hand it to others.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if cfg.ConnConfig.ValidateConnect == nil {
		cfg.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	return cfg, nil
}

// prepareWhereDirect has statements prepared once for each connection where no proxy is between: it
// would run them in another session. A proxy shows by the number of its own that it gives a session.
// Planning costs more than half of a commit (BenchmarkCommit).
func prepareWhereDirect(ctx context.Context, cfg *pgxpool.Config) error {
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return err //nolint:wrapcheck // Open wraps it
	}
	defer conn.Close(ctx)
	var pid uint32
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return err //nolint:wrapcheck // Open wraps it
	}
	if pid == conn.PgConn().PID() {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	}
	return nil
}

// newPool makes a pool; nothing is dialled yet.
func newPool(ctx context.Context, cfg *pgxpool.Config, most int32) (*pgxpool.Pool, error) {
	cfg = cfg.Copy()
	cfg.MaxConns = most
	return pgxpool.NewWithConfig(ctx, cfg) //nolint:wrapcheck // Open wraps it
}

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the scripts in their order; the version of a schema counts those that were applied.
var migrations = func() []string {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql") // sorted
	if err != nil {
		panic(err) // of the pattern
	}
	return names
}()

// migrationLock is the advisory lock under which tables are made and changed.
const migrationLock = 0x6761766c

// The marks of a schema, its comment: what one of gavel's begins with; its version follows.
const (
	schemaMark     = "gavel store, schema "
	unfinishedMark = "gavel store, unfinished copy, schema " // see NewStore
)

// migrateSchema brings the tables of a schema to this program's version and gives it a mark, in one
// transaction that other processes wait for.
func migrateSchema(ctx context.Context, pool *pgxpool.Pool, schema, mark string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { //nolint:wrapcheck // Open wraps it
		have, had, err := lockSchema(ctx, tx, schema)
		switch {
		case err != nil:
			return err
		case have > len(migrations):
			return fmt.Errorf("%w: %d, and this program knows %d", store.ErrNewerSchema, have, len(migrations))
		case had == unfinishedMark && mark != unfinishedMark:
			return ErrUnfinished
		case had == mark && have == len(migrations):
			return nil
		}
		for _, name := range migrations[have:] {
			text, err := migrationFiles.ReadFile(name)
			if err == nil {
				_, err = tx.Exec(ctx, string(text), pgx.QueryExecModeSimpleProtocol)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if had == schemaMark && mark == unfinishedMark {
			if err := checkEmpty(ctx, tx); err != nil {
				return err
			}
		}
		return setMark(ctx, tx, schema, mark)
	})
}

func setMark(ctx context.Context, tx pgx.Tx, schema, mark string) error {
	_, err := tx.Exec(ctx, `COMMENT ON SCHEMA `+pgx.Identifier{schema}.Sanitize()+` IS '`+mark+strconv.Itoa(len(migrations))+`'`)
	return err //nolint:wrapcheck // Open wraps it
}

// lockSchema makes a schema where it is missing, and returns its version, 0 for a new one, and its
// mark. Its tables are the first on the path until the transaction ends.
func lockSchema(ctx context.Context, tx pgx.Tx, schema string) (version int, mark string, err error) {
	var server int
	if err := tx.QueryRow(ctx, `SELECT current_setting('server_version_num')::int8 / 10000`).Scan(&server); err != nil {
		return 0, "", err //nolint:wrapcheck // Open wraps it
	}
	if server < oldestServer {
		return 0, "", fmt.Errorf("%w: this is version %d, and gavel needs %d or later", ErrOldServer, server, oldestServer)
	}
	quoted := pgx.Identifier{schema}.Sanitize()
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, migrationLock); err != nil {
		return 0, "", err //nolint:wrapcheck // Open wraps it
	}
	var said *string
	var tables int
	err = tx.QueryRow(ctx, `SELECT obj_description(n.oid, 'pg_namespace'), (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid)
		FROM pg_namespace n WHERE n.nspname = $1`, schema).Scan(&said, &tables)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		_, err = tx.Exec(ctx, `CREATE SCHEMA `+quoted)
	case err != nil:
	default:
		version, mark, err = readMark(said)
		if version == 0 && err == nil && tables > 0 {
			return 0, "", fmt.Errorf("%w: the schema %s has tables of another program; name another one", ErrForeignTables, quoted)
		}
	}
	if err == nil {
		_, err = tx.Exec(ctx, `SET LOCAL search_path TO `+quoted)
	}
	return version, mark, err //nolint:wrapcheck // Open wraps it
}

// readMark is the version and the mark in the comment on a schema; zero for another one.
func readMark(comment *string) (version int, mark string, err error) {
	for _, mark := range []string{schemaMark, unfinishedMark} {
		if comment != nil && strings.HasPrefix(*comment, mark) {
			version, err := strconv.Atoi(strings.TrimPrefix(*comment, mark))
			return version, mark, err //nolint:wrapcheck // Open wraps it
		}
	}
	return 0, "", nil
}
