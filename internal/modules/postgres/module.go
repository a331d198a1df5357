package postgres

import (
	"context"

	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/postgres/command"
)

func init() {
	module.Register(module.Module{Name: "postgres", Commands: command.Commands})
	driver.Register(&driver.Driver{
		Schemes:  []string{"postgres://", "postgresql://"},
		Describe: NameURL, HasPassword: HasPassword,
		Open: func(ctx context.Context, cfg driver.Config) (driver.Database, error) {
			return asDatabase(Open(ctx, Config{URL: cfg.Address, MustExist: cfg.MustExist, Logger: cfg.Logger}))
		},
		OpenToRead: func(ctx context.Context, url string) (driver.Database, error) {
			return asDatabase(OpenToRead(ctx, Config{URL: url}))
		},
		Create: func(ctx context.Context, url string) (driver.NewStore, error) {
			s, err := Create(ctx, Config{URL: url})
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		InspectGuest: InspectGuest,
		Failures: []driver.Failure{
			{Err: ErrBadURL, Hint: "docs/postgres.md describes the URL"},
			{Err: ErrNoDatabase, Hint: "name an existing one: postgres://USER@HOST/DATABASE; createdb creates one"},
			{Err: ErrDenied, Hint: "check the user, the password (PGPASSWORD, PGPASSFILE) and the user's rights; docs/postgres.md lists them"},
			{Err: ErrOtherDatabase, Hint: `GRANT CONNECT ON DATABASE postgres TO the user, and in a proxy add an entry "postgres", which may lead to the database of the store; docs/postgres.md#rights`},
			{Err: ErrOldServer, Hint: "use a newer server"},
			{Err: ErrForeignTables, Hint: "give gavel a database of its own"},
			{Err: ErrUnreachable, Away: true, Hint: "check that the server is running and accepts writes"},
		},
	})
}

// asDatabase returns a nil interface on failure, instead of an interface that holds a nil *Store.
func asDatabase(s *Store, err error) (driver.Database, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
