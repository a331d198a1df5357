// Package pgtest starts PostgreSQL for tests: a server of their own, in a temporary folder, on a
// free port of this computer. Where no server can be started they are skipped and say so.
package pgtest

import (
	"context"
	"net/url"
	"os"
	"sync"
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

// Shared is the server that all tests of a package share. It starts with the first that needs it, and
// skips the test where there is none.
func Shared(t testing.TB) *Server {
	t.Helper()
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
	switch {
	case shared.missing != "":
		t.Skip(shared.missing)
	case shared.err != nil:
		t.Fatal("the PostgreSQL of the tests: ", shared.err)
	}
	return shared.server
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
	ctx := context.Background() // also in a cleanup
	conn, err := pgx.Connect(ctx, s.Fast)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, query, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// NewDatabase makes a database that goes with the test, and returns its URL. It answers before a
// commit is on disk.
func (s *Server) NewDatabase(t testing.TB, name string) string {
	t.Helper()
	s.Exec(t, "DROP DATABASE IF EXISTS "+name)
	s.Exec(t, "CREATE DATABASE "+name)
	s.Exec(t, "ALTER DATABASE "+name+" SET synchronous_commit = off")
	t.Cleanup(func() { s.Exec(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.Path = "/" + name
	return at.String()
}
