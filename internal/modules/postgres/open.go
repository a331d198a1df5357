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
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
)

// oldestServer is the oldest version that the tests run on.
const oldestServer = 14

// readConfig reads a URL. Open will have connections that can write only: a pool that stays on a
// server that was demoted would fail for ever.
func readConfig(url string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil || !plainURL().MatchString(url) { // else errors would name parts of a password as hosts
		return nil, asBadURL(url, err)
	}
	if cfg.ConnConfig.Database == "" {
		return nil, fmt.Errorf("%w: the URL names none; write postgres://USER@HOST/DATABASE", ErrNoDatabase)
	}
	cfg.MaxConnIdleTime = time.Minute
	// One round trip for each query and nothing kept in the session: proxies hand it to others.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	return cfg, nil
}

// asBadURL says what is wrong with a URL. Where its parts are not certain, or it has a password, what pgx
// says of it could have a part of that in it.
func asBadURL(url string, err error) error {
	if plainURL().MatchString(url) {
		if cause := errors.Unwrap(err); cause != nil {
			err = cause
		}
		switch {
		case strings.HasSuffix(err.Error(), "invalid port"):
			return fmt.Errorf("%w: its port, or PGPORT, is not a number from 1 to 65535", ErrBadURL)
		case strings.HasSuffix(err.Error(), "sslmode is invalid"):
			return fmt.Errorf("%w: its sslmode, or PGSSLMODE, is none of disable, allow, prefer, require, verify-ca and verify-full", ErrBadURL)
		case !HasPassword(url):
			return fmt.Errorf("%w: %s: %w", ErrBadURL, NameURL(url), err)
		}
	}
	return fmt.Errorf("%w: it cannot be read; write postgres://USER@HOST/DATABASE, special characters in a password as %%XX", ErrBadURL)
}

// prepareWhereDirect has statements prepared once for each connection where no proxy is between: it
// would run them in another session. A proxy shows by the number of its own that it gives a session.
// Planning costs more than half of a commit (make bench-postgres).
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

// cancelDelay is how long a server has to end a statement that it is asked to cancel.
const cancelDelay = time.Second

// cancelOnServer has a statement whose time is up cancelled by the server, and waits for its answer.
// A server that waits for a lock does not see that its client left, and pgx asks it to cancel only
// in the background: it could still commit what the caller was told is not written.
func cancelOnServer(cfg *pgxpool.Config) *pgxpool.Config {
	cfg = cfg.Copy()
	cfg.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelDelay}
	}
	return cfg
}

// newPool makes a pool; nothing is dialled yet.
func newPool(ctx context.Context, cfg *pgxpool.Config, most int32) (*pgxpool.Pool, error) {
	cfg = cfg.Copy()
	cfg.MaxConns = most
	return pgxpool.NewWithConfig(ctx, cfg) //nolint:wrapcheck // Open wraps it
}

//go:embed schema.sql
var schemaScript string

// schemaVersion is the version of schema.sql, which the comment on the schema keeps. A store of another
// version is refused.
const schemaVersion = 1

// schemaLock is the advisory lock under which tables are made.
const schemaLock = 0x6761766c

// The marks of a schema, its comment: what one of gavel's begins with; its version follows.
const (
	schemaMark     = "gavel store, schema "
	unfinishedMark = "gavel store, unfinished copy, schema " // see NewStore
)

// createSchema makes the tables of a schema that has none and gives it a mark, in one transaction that
// other processes wait for.
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

// lockSchema makes a schema where it is missing, unless it must exist, and returns its mark, "" for a new
// one. Its tables are the first on the path until the transaction ends.
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

// readSchema returns the mark of a schema, "" where there is no store in it.
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

// checkSchema refuses what cannot be read as it is.
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

// readMark returns the mark that the comment on a schema begins with, "" where it is another comment.
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
