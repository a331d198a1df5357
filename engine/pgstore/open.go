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
var migrations embed.FS

// migrationLock is the advisory lock under which tables are made and changed.
const migrationLock = 0x6761766c

// migrateSchema brings the tables of a schema to this program's version, in one transaction that other
// processes wait for.
func migrateSchema(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return fmt.Errorf("list the migrations: %w", err)
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { //nolint:wrapcheck // Open wraps it
		have, err := lockSchema(ctx, tx, schema)
		switch {
		case err != nil:
			return err
		case have > len(files):
			return fmt.Errorf("%w: %d, and this program knows %d", store.ErrNewerSchema, have, len(files))
		case have == len(files):
			return nil
		}
		for _, name := range files[have:] {
			text, err := migrations.ReadFile(name)
			if err == nil {
				_, err = tx.Exec(ctx, string(text), pgx.QueryExecModeSimpleProtocol)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		_, err = tx.Exec(ctx, `COMMENT ON SCHEMA `+pgx.Identifier{schema}.Sanitize()+` IS '`+schemaMark+strconv.Itoa(len(files))+`'`)
		return err //nolint:wrapcheck // Open wraps it
	})
}

// schemaMark is what the comment on a schema of gavel's begins with; its version follows.
const schemaMark = "gavel store, schema "

// lockSchema makes a schema where it is missing, and returns its version, 0 for a new one. Its
// tables are the first on the path until the transaction ends.
func lockSchema(ctx context.Context, tx pgx.Tx, schema string) (version int, err error) {
	var server int
	if err := tx.QueryRow(ctx, `SELECT current_setting('server_version_num')::int8 / 10000`).Scan(&server); err != nil {
		return 0, err //nolint:wrapcheck // Open wraps it
	}
	if server < oldestServer {
		return 0, fmt.Errorf("%w: this is version %d, and gavel needs %d or later", ErrOldServer, server, oldestServer)
	}
	quoted := pgx.Identifier{schema}.Sanitize()
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, migrationLock); err != nil {
		return 0, err //nolint:wrapcheck // Open wraps it
	}
	var said *string
	var tables int
	err = tx.QueryRow(ctx, `SELECT obj_description(n.oid, 'pg_namespace'), (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid)
		FROM pg_namespace n WHERE n.nspname = $1`, schema).Scan(&said, &tables)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		_, err = tx.Exec(ctx, `CREATE SCHEMA `+quoted)
	case err != nil:
	case said != nil && strings.HasPrefix(*said, schemaMark):
		version, err = strconv.Atoi(strings.TrimPrefix(*said, schemaMark))
	case tables > 0:
		return 0, fmt.Errorf("%w: the schema %s has tables of another program; name another one", ErrForeignTables, quoted)
	}
	if err == nil {
		_, err = tx.Exec(ctx, `SET LOCAL search_path TO `+quoted)
	}
	return version, err //nolint:wrapcheck // Open wraps it
}
