package postgres

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
)

// Errors of a Store, beyond those of package store.
var (
	// ErrBadURL: the URL cannot be used as it is written.
	ErrBadURL = errors.New("the URL of the database cannot be used")
	// ErrNoDatabase: the URL names no database that is there.
	ErrNoDatabase = errors.New("no such database")
	// ErrDenied: the server does not let this user in, or not do this.
	ErrDenied = errors.New("the server denies it")
	// ErrOtherDatabase: the user is not let into another database of the server, which a guest needs too.
	ErrOtherDatabase = errors.New("the user is not let into another database of the server")
	// ErrOldServer: the server is of an older version.
	ErrOldServer = errors.New("the server is too old")
	// ErrForeignTables: the schema has tables of another program.
	ErrForeignTables = errors.New("not a store of gavel")
	// ErrReadOnly: the store was opened to be read.
	ErrReadOnly = errors.New("the store was opened to be read only")
	// ErrUnreachable: the server is away, full, starting, or read-only.
	ErrUnreachable = errors.New("the database cannot be reached or written")
)

// classify gives an error of the server or the network a name. A deadline that passed is one of the store's own:
// no caller may take it for the end of its request.
func classify(err error) error {
	pg, told := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil, isOurs(err):
		return err
	case !told && isConnect(err):
		return fmt.Errorf("%w: %s", ErrUnreachable, describeConnect(err))
	case !told && (isNetwork(err) || pgconn.Timeout(err)):
		return fmt.Errorf("%w: %s", ErrUnreachable, err.Error())
	case !told:
		return err
	}
	switch known := map[string]error{"28": ErrDenied, "42501": ErrDenied, "3D": ErrNoDatabase}; {
	case known[pg.Code] != nil:
		return fmt.Errorf("%w: %s", known[pg.Code], pg.Message)
	case known[pg.Code[:2]] != nil:
		return fmt.Errorf("%w: %s", known[pg.Code[:2]], pg.Message)
	case pg.Code[:2] == "XX":
		return fmt.Errorf("%w: %w", store.ErrDamaged, err)
	case pg.Code == queryCanceled:
		return fmt.Errorf("%w: the server ended a statement that took too long (%s)", ErrUnreachable, pg.Message)
	case isAway(pg.Code):
		return fmt.Errorf("%w: %s (%s)", ErrUnreachable, pg.Message, pg.Code)
	}
	return err
}

func isOurs(err error) bool {
	return isRefusal(err) || isAny(err, store.ErrTooLarge, store.ErrClosed, store.ErrDamaged, store.ErrOtherSchema,
		ErrBadURL, ErrNoDatabase, ErrDenied, ErrOtherDatabase, ErrOldServer, ErrForeignTables, ErrUnreachable, driver.ErrUnfinished, driver.ErrNotEmpty, driver.ErrCopying,
		driver.ErrNoStore, ErrReadOnly)
}

// queryCanceled is the code of a statement that was cancelled, by us or by statement_timeout.
const queryCanceled = "57014"

// isAway reports whether a code says that the server cannot serve now.
func isAway(code string) bool {
	switch code[:2] {
	case "08", "53", "57", "58":
		return true
	}
	return code == "25006" // read-only: it was demoted
}

// isConnect reports whether no connection came about: where the server said why, it is a PgError too.
func isConnect(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok
}

// describeConnect says in one line why no connection came about, once for each server.
func describeConnect(err error) string {
	failed, _ := errors.AsType[*pgconn.ConnectError](err)
	var said []string
	for line := range strings.SplitSeq(errors.Unwrap(failed).Error(), "\n") {
		if !slices.Contains(said, line) {
			said = append(said, line)
		}
	}
	if len(said) > 1 { // without TLS it was tried again
		said = slices.DeleteFunc(said, func(line string) bool { return strings.HasSuffix(line, "server refused TLS connection") })
	}
	return strings.Join(said, "; ")
}

func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
}

// isLost reports whether the connection ended before the answer, or leads to a server that does
// not serve any more.
func isLost(err error) bool {
	if err == nil || isOurs(err) {
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return isAway(pg.Code)
	}
	return isConnect(err) || isNetwork(err) || pgconn.Timeout(err)
}

// isUndone reports whether the server undid a transaction that would succeed on its own.
func isUndone(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40001" || pg.Code == "40P01")
}

// isTaken reports whether a unique index has the value already.
func isTaken(err error, index string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" && pg.ConstraintName == index
}

// isRefusal reports whether nothing was written because of what is there.
func isRefusal(err error) bool {
	return isAny(err, store.ErrNotFound, store.ErrConflict, store.ErrKeyTaken, store.ErrSubjectTaken, store.ErrLeaseTaken, store.ErrLeaseLost)
}

func isAny(err error, known ...error) bool {
	return slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
}
