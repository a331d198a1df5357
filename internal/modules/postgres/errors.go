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

// Errors of a Store, in addition to those of package store.
var (
	// ErrBadURL is returned if the URL is malformed.
	ErrBadURL = errors.New("invalid database URL")
	// ErrNoDatabase is returned if the URL names no database, or one that does not exist.
	ErrNoDatabase = errors.New("no such database")
	// ErrDenied is returned if the server rejects the user or denies the operation.
	ErrDenied = errors.New("the server denied the operation")
	// ErrOtherDatabase is returned if the user may not connect to another database of the server that a guest needs.
	ErrOtherDatabase = errors.New("the user may not connect to another database of the server")
	// ErrOldServer is returned if the server's version is too old.
	ErrOldServer = errors.New("the server is too old")
	// ErrForeignTables is returned if the schema contains tables of another program.
	ErrForeignTables = errors.New("not a store of gavel")
	// ErrReadOnly is returned for writes to a store that was opened read-only.
	ErrReadOnly = errors.New("the store was opened read-only")
	// ErrUnreachable is returned if the server is down, full, starting or read-only.
	ErrUnreachable = errors.New("the database cannot be reached or written")
)

// classify wraps errors of the server or the network in the errors above. An expired deadline is the store's own, and
// must not look like the end of the caller's request.
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

// queryCanceled is the code of a statement that was cancelled, by this program or by statement_timeout.
const queryCanceled = "57014"

// isAway reports whether a code means that the server cannot serve requests now.
func isAway(code string) bool {
	switch code[:2] {
	case "08", "53", "57", "58":
		return true
	}
	return code == "25006" // read-only: the server was demoted
}

// isConnect reports whether no connection was established. The error may also be a PgError, if the server gave a
// reason.
func isConnect(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok
}

// describeConnect returns in one line why no connection was established, without repeating a reason.
func describeConnect(err error) string {
	failed, _ := errors.AsType[*pgconn.ConnectError](err)
	var said []string
	for line := range strings.SplitSeq(errors.Unwrap(failed).Error(), "\n") {
		if !slices.Contains(said, line) {
			said = append(said, line)
		}
	}
	if len(said) > 1 { // pgx tried again without TLS
		said = slices.DeleteFunc(said, func(line string) bool { return strings.HasSuffix(line, "server refused TLS connection") })
	}
	return strings.Join(said, "; ")
}

func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
}

// isLost reports whether the connection ended before the result, or leads to a server that no longer serves requests.
func isLost(err error) bool {
	if err == nil || isOurs(err) {
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return isAway(pg.Code)
	}
	return isConnect(err) || isNetwork(err) || pgconn.Timeout(err)
}

// isRolledBack reports whether the server rolled back a transaction that may succeed if it is retried.
func isRolledBack(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40001" || pg.Code == "40P01")
}

// isUniqueViolation reports whether a unique index already contains the value.
func isUniqueViolation(err error, index string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" && pg.ConstraintName == index
}

// isRefusal reports whether nothing was written because of existing data.
func isRefusal(err error) bool {
	return isAny(err, store.ErrNotFound, store.ErrConflict, store.ErrKeyTaken, store.ErrSubjectTaken, store.ErrLeaseTaken, store.ErrLeaseLost)
}

func isAny(err error, known ...error) bool {
	return slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
}
