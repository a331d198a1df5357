// Package pgtest starts PostgreSQL for tests: a server of their own, in a temporary folder, on a
// free port of this computer. Where no server can be started they are skipped and say so.
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

// Variable names a server that is used instead of one of the tests' own: the URL of a database in
// which the tests may make schemas, roles and other databases.
const Variable = "GAVEL_TEST_POSTGRES"

// Server is a PostgreSQL server.
type Server struct {
	// URL is that of a database whose commits are durable.
	URL string
	// Fast is that of one that answers before a commit is on disk.
	Fast string

	*process // nil for a server that is not the tests' to stop
}

// shared is the one server of all tests of a package.
var shared struct {
	once    sync.Once
	server  *Server
	missing string
	err     error
}

// Find returns the server that all tests of a package share, and starts it for the first that needs
// it; missing says why there is none.
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

// Shared is Find for a test, which it skips where there is no server.
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

// StopShared stops the shared server, if it was started: the last thing in a TestMain.
func StopShared() {
	if s := shared.server; s != nil && s.process != nil {
		s.Stop()
	}
}

// New starts a server that is one test's own to kill, and stops it when the test ends.
func New(t testing.TB) *Server {
	t.Helper()
	bin := findBinaries()
	if bin == "" {
		t.Skip("there is no initdb here, and this test needs a server of its own")
	}
	s, err := start(bin)
	if err != nil {
		t.Fatal("a PostgreSQL of the test's own: ", err)
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

// Execute runs statements in a database, which the test may not be able to reach otherwise.
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

// MakeDatabase makes a database and returns its URL, and what drops it. It answers before a commit is
// on disk.
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

// NewDatabase is MakeDatabase for a test, with which the database goes.
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
