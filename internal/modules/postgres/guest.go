package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gavel-mcp/gavel/engine/store/driver"
)

// InspectGuest inspects the schema of a library; its table named versions holds the schema's version. It also checks
// that the user may create a missing schema and may connect to the databases in others.
//
// Errors: ErrBadURL, ErrNoDatabase, ErrDenied, ErrOtherDatabase, ErrOldServer, ErrForeignTables, ErrUnreachable.
func InspectGuest(ctx context.Context, url, schema, versions string, others ...string) (driver.Guest, error) {
	g, err := inspectGuest(ctx, url, schema, versions, others)
	return g, classify(err)
}

func inspectGuest(ctx context.Context, url, schema, versions string, others []string) (g driver.Guest, err error) {
	cfg, err := readConfig(url)
	if err != nil {
		return g, err
	}
	if err := prepareWhereDirect(ctx, cfg); err != nil {
		return g, err
	}
	g.Proxied = cfg.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return g, err //nolint:wrapcheck // InspectGuest names it
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := checkServer(ctx, conn); err != nil {
		return g, err
	}
	var exists, mayMake, hasVersions bool
	var tables int
	err = conn.QueryRow(ctx, `SELECT count(n.oid) > 0, has_database_privilege(current_database(), 'CREATE'), count(c.oid), coalesce(bool_or(c.relname = $2), false)
		FROM (SELECT oid FROM pg_namespace WHERE nspname = $1) n LEFT JOIN pg_class c ON c.relnamespace = n.oid`, schema, versions).Scan(&exists, &mayMake, &tables, &hasVersions)
	switch {
	case err != nil:
		return g, err //nolint:wrapcheck // InspectGuest names it
	case !exists && !mayMake:
		return g, fmt.Errorf("%w: the user may not create the schema %q", ErrDenied, schema)
	case tables > 0 && !hasVersions:
		return g, fmt.Errorf("%w: the schema %q has tables of another program", ErrForeignTables, schema)
	case hasVersions:
		err = conn.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM `+pgx.Identifier{schema, versions}.Sanitize()).Scan(&g.Version)
	}
	for _, database := range others {
		if err == nil {
			err = checkConnect(ctx, cfg.ConnConfig, database)
		}
	}
	return g, err //nolint:wrapcheck // InspectGuest names it
}

func checkConnect(ctx context.Context, cfg *pgx.ConnConfig, database string) error {
	cfg = cfg.Copy()
	cfg.Database = database
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if pg, told := errors.AsType[*pgconn.PgError](err); told { // a proxy without the database reports it as down
		return fmt.Errorf("%w, %q: %s", ErrOtherDatabase, database, pg.Message)
	}
	if err != nil {
		return err //nolint:wrapcheck // InspectGuest names it
	}
	return conn.Close(ctx) //nolint:wrapcheck // InspectGuest names it
}
