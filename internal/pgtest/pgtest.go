// Package pgtest starts PostgreSQL for tests: a dedicated server in a temporary folder, on a free port of this
// machine. Tests are skipped, with the reason, if no server can be started.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Variable names an environment variable with the URL of a database that is used instead of a dedicated server. In
// that database, tests may create schemas, roles and other databases.
const Variable = "GAVEL_TEST_POSTGRES"

// Server is a PostgreSQL server.
type Server struct {
	// URL is the URL of a database whose commits are durable.
	URL string
	// Fast is the URL of a database that acknowledges commits before they are on disk.
	Fast string

	*process // nil for a server that tests must not stop
}

// shared is the server that all tests of a package share.
var shared struct {
	once    sync.Once
	server  *Server
	missing string
	err     error
}

// Find returns the server that all tests of a package share, and starts it on the first call. missing is the reason
// if there is no server.
func Find() (s *Server, missing string, err error) {
	shared.once.Do(func() {
		if at := os.Getenv(Variable); at != "" {
			shared.server = &Server{URL: at, Fast: at}
			return
		}
		bin := findBinaries()
		if bin == "" {
			shared.missing = "there is no initdb here, and " + Variable + " names no server"
			return
		}
		shared.server, shared.err = start(bin)
	})
	return shared.server, shared.missing, shared.err
}

// Shared is like Find, but skips the test if there is no server.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, missing, err := Find()
	switch {
	case missing != "":
		t.Skip(missing)
	case err != nil:
		t.Fatal("the PostgreSQL of the tests: ", err)
	}
	return s
}

// StopShared stops the shared server if it was started. Call it last in TestMain.
func StopShared() {
	if s := shared.server; s != nil && s.process != nil {
		s.Stop()
	}
}

// New starts a dedicated server that the test may kill, and stops it when the test ends.
func New(t testing.TB) *Server {
	t.Helper()
	bin := findBinaries()
	if bin == "" {
		t.Skip("initdb is not installed, and this test needs its own server")
	}
	s, err := start(bin)
	if err != nil {
		t.Fatal("start a PostgreSQL server for this test: ", err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Exec runs a statement in the fast database.
func (s *Server) Exec(t testing.TB, query string) {
	t.Helper()
	if err := Execute(s.Fast, query); err != nil {
		t.Fatal(err)
	}
}

// Execute runs statements in a database that the test may be unable to reach otherwise.
func Execute(at string, queries ...string) error {
	ctx := context.Background() // also in a cleanup
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	for _, query := range queries {
		if _, err := conn.Exec(ctx, query, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return nil
}

var databases atomic.Int64

// MakeDatabase creates a database, and returns its URL and a function that drops it. The database acknowledges
// commits before they are on disk.
func (s *Server) MakeDatabase() (at string, drop func() error, err error) {
	name := fmt.Sprintf("gavel_%d_%d", os.Getpid(), databases.Add(1))
	if err := Execute(s.Fast, "CREATE DATABASE "+name, "ALTER DATABASE "+name+" SET synchronous_commit = off"); err != nil {
		return "", nil, err
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", Variable, err)
	}
	u.Path = "/" + name
	return u.String(), func() error { return Execute(s.Fast, "DROP DATABASE "+name+" WITH (FORCE)") }, nil
}

// NewDatabase is like MakeDatabase, and drops the database when the test ends.
func (s *Server) NewDatabase(t testing.TB) string {
	t.Helper()
	at, drop, err := s.MakeDatabase()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	})
	return at
}
