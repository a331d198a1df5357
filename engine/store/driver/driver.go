// Package driver is the registry of database drivers. Programs that open a store by its address find its driver here.
//
//   - An address belongs to at most one driver.
//   - The package must never import a driver.
package driver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// Errors that every driver returns.
var (
	// ErrNoStore is returned if the database contains no store.
	ErrNoStore = errors.New("the database contains no gavel store")
	// ErrUnfinished is returned if a copy of another store into the database is in progress or was interrupted.
	ErrUnfinished = errors.New("a copy into this database was not finished; run gavel store copy again, or drop the schema")
	// ErrNotEmpty is returned if the target database of a copy already contains rows.
	ErrNotEmpty = errors.New("the database already contains a store")
	// ErrCopying is returned if another process is copying into the database.
	ErrCopying = errors.New("another process is copying into this database")
	// ErrNoDriver is returned if no driver is registered for the address.
	ErrNoDriver = errors.New("this program has no driver for this kind of database")
)

// Driver opens stores in one kind of database.
type Driver struct {
	// Schemes are the prefixes of its addresses, such as "postgres://".
	Schemes []string
	// Describe returns an address without its password and settings, for people and logs. HasPassword reports whether
	// an address contains, or may contain, a password.
	Describe    func(address string) string
	HasPassword func(address string) bool

	Open       func(context.Context, Config) (Database, error)
	OpenToRead func(ctx context.Context, address string) (Database, error)
	// Create begins a store that is filled row by row, or resumes an unfinished one.
	Create func(ctx context.Context, address string) (NewStore, error)
	// InspectGuest inspects the schema of a library, whose version is in the table named by versions. It also checks
	// that the user may create a missing schema and may connect to the databases in others.
	InspectGuest func(ctx context.Context, address, schema, versions string, others ...string) (Guest, error)
	// Failures explain what to do about the driver's errors.
	Failures []Failure
}

// Config configures Open.
type Config struct {
	Address string
	// MustExist makes Open return ErrNoStore, instead of creating a store, if the database has none.
	MustExist bool
	// Logger receives warnings; nil discards them.
	Logger *slog.Logger
}

// Database is a store that several programs share, with the other data they share.
type Database interface {
	store.Store
	store.Entries
	IsEmpty(ctx context.Context) (bool, error)
	OpenView(ctx context.Context) (rows.View, error)
}

// NewStore is a store that is filled row by row.
type NewStore interface {
	rows.Writer
	store.Entries
	Finish(ctx context.Context) error
	Close() error
}

// Guest describes the schema of a library that keeps its own tables in a store's database.
type Guest struct {
	// Version is the library's schema version; 0 if there are no tables yet.
	Version int64
	// Proxied reports that a proxy sits in front of the database and shares sessions between clients.
	Proxied bool
}

// Failure explains what to do about an error.
type Failure struct {
	Err error
	// Away reports that the server does not answer, so the address and the user's rights are not the cause.
	Away bool
	Hint string
}

var drivers []*Driver

// Register adds a driver. It is called from init functions.
func Register(d *Driver) { drivers = append(drivers, d) }

// Find returns the driver of an address, or nil if there is none; the address is then a file path.
func Find(address string) *Driver {
	for _, d := range drivers {
		if slices.ContainsFunc(d.Schemes, func(scheme string) bool { return strings.HasPrefix(address, scheme) }) {
			return d
		}
	}
	return nil
}

// Open opens the store in a database. It returns ErrNoDriver for an unknown kind of address.
func Open(ctx context.Context, cfg Config) (Database, error) {
	d := Find(cfg.Address)
	if d == nil {
		return nil, ErrNoDriver
	}
	return d.Open(ctx, cfg)
}

// Failures returns the failures of all drivers.
func Failures() (all []Failure) {
	for _, d := range drivers {
		all = append(all, d.Failures...)
	}
	return all
}
