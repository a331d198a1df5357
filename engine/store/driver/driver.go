// Package driver is where the drivers of databases register, by how their addresses begin. Whatever
// opens a store by its address finds the driver here.
//
// It promises that an address belongs to one driver at most. It must never import a driver.
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

// Errors of every driver.
var (
	// ErrNoStore: there is no store in the database.
	ErrNoStore = errors.New("there is no store of gavel in the database")
	// ErrUnfinished: rows of another store are being copied into the database, or were.
	ErrUnfinished = errors.New("a copy into this database was not finished; run gavel store copy again, or drop the schema")
	// ErrNotEmpty: there are rows already where a copy is to be made.
	ErrNotEmpty = errors.New("the database holds a store already")
	// ErrCopying: another process is copying into the database.
	ErrCopying = errors.New("another process is copying into this database")
	// ErrNoDriver: no driver is registered for the address.
	ErrNoDriver = errors.New("this program has no driver for such a database")
)

// Driver opens the stores in databases of one kind.
type Driver struct {
	// Schemes are how its addresses begin, such as "postgres://".
	Schemes []string
	// Describe returns an address without password and settings, for people and logs. HasPassword reports
	// whether an address has one in it, or may have.
	Describe    func(address string) string
	HasPassword func(address string) bool

	Open       func(context.Context, Config) (Database, error)
	OpenToRead func(ctx context.Context, address string) (Database, error)
	// Create begins a store that is made row by row, or continues with it.
	Create func(ctx context.Context, address string) (NewStore, error)
	// InspectGuest looks at the schema of a library whose table versions has the version of the others, and
	// at what the library needs to make it: that the user may, and may look into the databases of these names too.
	InspectGuest func(ctx context.Context, address, schema, versions string, others ...string) (Guest, error)
	// Failures say what to do about errors of the driver.
	Failures []Failure
}

// Config says how a database is opened.
type Config struct {
	Address string
	// MustExist refuses a database without a store, instead of making one (ErrNoStore).
	MustExist bool
	// Logger gets warnings; nil discards them.
	Logger *slog.Logger
}

// Database is a store that several programs share, and what they share besides.
type Database interface {
	store.Store
	store.Entries
	IsEmpty(ctx context.Context) (bool, error)
	OpenView(ctx context.Context) (rows.View, error)
}

// NewStore is a store that is made row by row.
type NewStore interface {
	rows.Writer
	store.Entries
	Finish(ctx context.Context) error
	Close() error
}

// Guest is the schema of a library that keeps tables of its own in the database of a store.
type Guest struct {
	// Version is what the library says of its tables; 0 where there are none yet.
	Version int64
	// Proxied says that a proxy is between, which hands a session to others.
	Proxied bool
}

// Failure says what to do about an error.
type Failure struct {
	Err error
	// Away says that nothing is wrong with the address or the rights: the server does not answer.
	Away bool
	Hint string
}

var drivers []*Driver

// Register adds a driver. An init function calls it.
func Register(d *Driver) { drivers = append(drivers, d) }

// Find returns the driver of an address, nil if there is none: then it is the path of a file.
func Find(address string) *Driver {
	for _, d := range drivers {
		if slices.ContainsFunc(d.Schemes, func(scheme string) bool { return strings.HasPrefix(address, scheme) }) {
			return d
		}
	}
	return nil
}

// Open opens the store in a database.
func Open(ctx context.Context, cfg Config) (Database, error) {
	d := Find(cfg.Address)
	if d == nil {
		return nil, ErrNoDriver
	}
	return d.Open(ctx, cfg)
}

// Failures are those of all drivers.
func Failures() (all []Failure) {
	for _, d := range drivers {
		all = append(all, d.Failures...)
	}
	return all
}
