package postgres

import (
	"context"
	_ "embed" // the schema
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
)

// oldestServer is the oldest version that is tested.
const oldestServer = 14

// readConfig parses a URL. Open additionally requires writable connections: a pool that stays connected to a demoted
// server would fail forever.
func readConfig(url string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil || !plainURL().MatchString(url) { // otherwise errors could present parts of a password as hosts
		return nil, asBadURL(url, err)
	}
	if cfg.ConnConfig.Database == "" {
		return nil, fmt.Errorf("%w: the URL names none; write postgres://USER@HOST/DATABASE", ErrNoDatabase)
	}
	cfg.MaxConnIdleTime = time.Minute
	// One round trip per query and no session state, because proxies share sessions between clients.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	return cfg, nil
}

// asBadURL explains what is wrong with a URL. It does not pass on pgx's message if the URL has a password or
// ambiguous parts, because the message could contain a part of the password.
func asBadURL(url string, err error) error {
	if plainURL().MatchString(url) {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
		switch {
		case strings.HasSuffix(err.Error(), "invalid port"):
			return fmt.Errorf("%w: its port, or PGPORT, is not a number from 1 to 65535", ErrBadURL)
		case strings.HasSuffix(err.Error(), "sslmode is invalid"):
			return fmt.Errorf("%w: its sslmode, or PGSSLMODE, must be disable, allow, prefer, require, verify-ca or verify-full", ErrBadURL)
		case !HasPassword(url):
			return fmt.Errorf("%w: %s: %w", ErrBadURL, NameURL(url), err)
		}
	}
	return fmt.Errorf("%w: it cannot be read; write postgres://USER@HOST/DATABASE, special characters in a password as %%XX", ErrBadURL)
}

// prepareWhereDirect makes each connection prepare statements once, unless a proxy is in between, which could run
// them in another session. A proxy is recognised because it reports a backend PID of its own. Planning takes more
// than half the time of a commit (make bench-postgres).
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

// newPool creates a pool without connecting yet.
func newPool(ctx context.Context, cfg *pgxpool.Config, most int32) (*pgxpool.Pool, error) {
	cfg = cfg.Copy()
	cfg.MaxConns = most
	return pgxpool.NewWithConfig(ctx, cfg) //nolint:wrapcheck // Open wraps it
}

//go:embed schema.sql
var schemaScript string

// schemaVersion is the version of schema.sql. It is stored in the comment on the schema, and stores with another
// version are rejected.
const schemaVersion = 1

// schemaLock is the advisory lock for creating tables.
const schemaLock = 0x6761766c

// Prefixes of the comment on a gavel schema; the version follows.
const (
	schemaMark     = "gavel store, schema "
	unfinishedMark = "gavel store, unfinished copy, schema " // see NewStore
)

// createSchema creates the tables if the schema has none, and marks the schema. It does so in a single
// transaction, for which other processes wait.
func createSchema(ctx context.Context, pool *pgxpool.Pool, schema, mark string, mustExist bool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { //nolint:wrapcheck // Open wraps it
		had, err := lockSchema(ctx, tx, schema, mustExist)
		switch {
		case err != nil:
			return err
		case had == unfinishedMark && mark != unfinishedMark:
			return driver.ErrUnfinished
		case had == mark:
			return nil
		case had == "":
			_, err = tx.Exec(ctx, schemaScript, pgx.QueryExecModeSimpleProtocol)
		case mark == unfinishedMark:
			err = checkEmpty(ctx, tx)
		}
		if err != nil {
			return err //nolint:wrapcheck // Open wraps it
		}
		return setMark(ctx, tx, schema, mark)
	})
}

func setMark(ctx context.Context, tx pgx.Tx, schema, mark string) error {
	_, err := tx.Exec(ctx, `COMMENT ON SCHEMA `+pgx.Identifier{schema}.Sanitize()+` IS '`+mark+strconv.Itoa(schemaVersion)+`'`)
	return err //nolint:wrapcheck // Open wraps it
}

// lockSchema creates a missing schema, unless it must exist, and returns its mark; "" for a new schema. The schema
// comes first on the search path until the transaction ends.
func lockSchema(ctx context.Context, tx pgx.Tx, schema string, mustExist bool) (mark string, err error) {
	if err := checkServer(ctx, tx); err != nil {
		return "", err
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, schemaLock); err != nil {
		return "", err //nolint:wrapcheck // Open wraps it
	}
	quoted := pgx.Identifier{schema}.Sanitize()
	mark, exists, err := readSchema(ctx, tx, schema)
	switch {
	case err != nil:
		return "", err
	case mark == "" && mustExist:
		return "", driver.ErrNoStore
	case !exists:
		_, err = tx.Exec(ctx, `CREATE SCHEMA `+quoted)
	}
	if err == nil {
		_, err = tx.Exec(ctx, `SET LOCAL search_path TO `+quoted)
	}
	return mark, err //nolint:wrapcheck // Open wraps it
}

func checkServer(ctx context.Context, on handle) error {
	var server int
	if err := on.QueryRow(ctx, `SELECT current_setting('server_version_num')::int8 / 10000`).Scan(&server); err != nil {
		return err //nolint:wrapcheck // Open wraps it
	}
	if server < oldestServer {
		return fmt.Errorf("%w: this is version %d, and gavel needs %d or later", ErrOldServer, server, oldestServer)
	}
	return nil
}

// readSchema returns the mark of a schema; "" if it contains no store.
func readSchema(ctx context.Context, on handle, schema string) (mark string, exists bool, err error) {
	var comment *string
	var tables int
	err = on.QueryRow(ctx, `SELECT obj_description(n.oid, 'pg_namespace'), (SELECT count(*) FROM pg_class WHERE relnamespace = n.oid)
		FROM pg_namespace n WHERE n.nspname = $1`, schema).Scan(&comment, &tables)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	if err == nil && comment != nil {
		mark, err = readMark(*comment)
	}
	if err == nil && mark == "" && tables > 0 {
		err = fmt.Errorf("%w: the schema %q has tables of another program", ErrForeignTables, schema)
	}
	return mark, true, err //nolint:wrapcheck // Open wraps it
}

// checkSchema rejects a server that is too old, and a schema without a complete store of this version.
func checkSchema(ctx context.Context, on handle, schema string) error {
	if err := checkServer(ctx, on); err != nil {
		return err
	}
	mark, _, err := readSchema(ctx, on, schema)
	switch {
	case err != nil:
		return err
	case mark == "":
		return driver.ErrNoStore
	case mark == unfinishedMark:
		return driver.ErrUnfinished
	}
	return nil
}

// readMark returns the mark at the beginning of a schema's comment; "" for other comments.
func readMark(comment string) (string, error) {
	for _, mark := range []string{schemaMark, unfinishedMark} {
		if version, ok := strings.CutPrefix(comment, mark); ok && version != strconv.Itoa(schemaVersion) {
			return "", fmt.Errorf("%w: schema %s, this program reads %d", store.ErrOtherSchema, version, schemaVersion)
		} else if ok {
			return mark, nil
		}
	}
	return "", nil
}
