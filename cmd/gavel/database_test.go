package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/pgtest"
	"github.com/gavel-mcp/gavel/internal/term"
)

// canaryPassword is in every URL of these tests. gavel must never print it.
const canaryPassword = "Hunter2-C4n4ry"

// withPassword adds the canary to a URL. The tests' server requires a password only from the user locked.
func withPassword(t *testing.T, at, user string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, canaryPassword)
	return u.String()
}

// makeStore creates a store in a new database. It returns its URL and key file.
func makeStore(t *testing.T) (at, key string) {
	t.Helper()
	at, key = pgtest.Shared(t).NewDatabase(t), filepath.Join(t.TempDir(), "store.key")
	runGavel(t, "store", "init", "--store", at, "--store-key", key)
	return at, key
}

// printed returns all output of a command, and its exit code.
func printed(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), args, strings.NewReader(""), &stdout, &stderr)
	all := stdout.String() + stderr.String()
	if strings.Contains(all, canaryPassword) || strings.Contains(all, url.QueryEscape(canaryPassword)) {
		t.Errorf("gavel %s prints the password:\n%s", strings.Join(args, " "), all)
	}
	return all, code
}

// An error about a database is one sentence with a next step. It never contains the password, regardless of where
// the URL comes from and of the output format.
func TestDatabaseThatCannotBeUsed(t *testing.T) {
	needsProgram(t)
	server := pgtest.Shared(t)
	ready, key := makeStore(t)
	execute := func(at string, queries ...string) {
		t.Helper()
		if err := pgtest.Execute(at, queries...); err != nil {
			t.Fatal(err)
		}
	}
	in := func(queries ...string) string {
		at := server.NewDatabase(t)
		execute(at, queries...)
		return withPassword(t, at, "gavel")
	}
	inStore := func(queries ...string) string {
		at := server.NewDatabase(t)
		runGavel(t, "store", "init", "--store", at, "--store-key", key)
		execute(at, queries...)
		return withPassword(t, at, "gavel")
	}
	server.Exec(t, `DROP ROLE IF EXISTS locked, poor`)
	server.Exec(t, `CREATE ROLE locked LOGIN PASSWORD 'another'; CREATE ROLE poor LOGIN`)
	t.Cleanup(func() { server.Exec(t, `DROP ROLE locked, poor`) })
	empty, host := server.NewDatabase(t), strings.TrimPrefix(server.URL, "postgres://gavel@")
	const look = "verify"
	for _, c := range []struct {
		name, url, command string
		code               int
		says, hint         string
	}{
		{"no database in it", strings.TrimSuffix(withPassword(t, server.URL, "gavel"), "/postgres"), look, term.ExitUsage, "the URL names none", "postgres://USER@HOST/DATABASE"},
		{"a database that is not there", strings.Replace(withPassword(t, server.URL, "gavel"), "/postgres", "/nowhere", 1), look, term.ExitUsage, `database "nowhere" does not exist`, "createdb"},
		{"a wrong password", withPassword(t, ready, "locked"), look, term.ExitUsage, "password authentication failed", "PGPASSFILE"},
		{"no right to create", withPassword(t, empty, "poor"), "init", term.ExitUsage, "permission denied for database", "docs/postgres.md"},
		{"no right to look", withPassword(t, ready, "poor"), look, term.ExitUsage, "permission denied for schema gavel", "docs/postgres.md"},
		{"an old server", withPassword(t, pgtest.OldServer(t), "gavel"), look, term.ExitUsage, "this is version 13, and gavel needs 14 or later", "newer server"},
		{"tables of another program", in(`CREATE SCHEMA gavel`, `CREATE TABLE gavel.things ()`), "init", term.ExitUsage, `the schema "gavel" has tables of another program`, "a database of its own"},
		{"another schema", in(`CREATE SCHEMA gavel`, `COMMENT ON SCHEMA gavel IS 'gavel store, schema 99'`), "serve", term.ExitUsage, "schema 99, this program reads 1", "use the gavel version that wrote it"},
		{"a copy that was not finished", in(`CREATE SCHEMA gavel`, `COMMENT ON SCHEMA gavel IS 'gavel store, unfinished copy, schema 1'`), look, term.ExitUsage, "was not finished; run gavel store copy again", ""},
		{"no store", withPassword(t, empty, "gavel"), "serve", term.ExitUsage, "the database contains no gavel store", "gavel store init"},
		{"secrets that were changed", inStore(`UPDATE gavel.entries SET body = substr(body, 1, 10)`), "serve", term.ExitUnknown, "cannot open its secrets: the store is damaged: they are truncated", "from a dump"},
		{"secrets that are gone", inStore(`DELETE FROM gavel.entries`, `UPDATE gavel.counter SET last = 1`), "init", term.ExitUsage, "the database has records, but their secrets are gone", "from a dump"},
		{"a server that is not there", "postgres://gavel:" + canaryPassword + "@127.0.0.1:1/gavel", look, term.ExitUnknown, "connection refused", "check that the server is running"},
		{"a server that only reads", inStore(`DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_read_only = on'; END $$`), "serve", term.ExitUnknown, "read only connection", "accepts writes"},
		{"a URL that cannot be read", "postgres://gavel:" + canaryPassword + "/x@" + host, look, term.ExitUsage, "invalid database URL: it cannot be read", "postgres://USER@HOST/DATABASE"},
		{"a port that is none", "postgres://gavel:" + canaryPassword + "@127.0.0.1:99999/gavel", look, term.ExitUsage, "invalid database URL: its port, or PGPORT, is not a number from 1 to 65535", "docs/postgres.md"},
		{"a password with colons", "postgres://gavel:" + canaryPassword + ":x@127.0.0.1:1/gavel", look, term.ExitUnknown, "connection refused", ""},
		{"a setting that is none", withPassword(t, ready, "gavel") + "?sslmode=" + canaryPassword, look, term.ExitUsage, "invalid database URL: its sslmode, or PGSSLMODE, must be disable, allow, prefer, require, verify-ca or verify-full", "docs/postgres.md"},
		{"a password among the settings", "postgres://locked@" + host + "?password=" + canaryPassword, look, term.ExitUsage, "password authentication failed", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.says, "password authentication") && os.Getenv(pgtest.Variable) != "" {
				t.Skip("another server may let anybody in")
			}
			command := map[string][]string{look: {"verify"}, "init": {"store", "init"}, "serve": {"serve", "--listen", "127.0.0.1:0", "--auth", "none"}}[c.command]
			command = append(command, "--store-key", key)
			settings := filepath.Join(t.TempDir(), "gavel.yaml")
			if err := os.WriteFile(settings, fmt.Appendf(nil, "store: %q\n", c.url), 0o600); err != nil {
				t.Fatal(err)
			}
			check := func(all string, code int) {
				t.Helper()
				all = strings.ReplaceAll(all, `\"`, `"`)
				if code != c.code || !strings.Contains(all, c.says) || !strings.Contains(all, c.hint) {
					t.Errorf("exit code %d, want %d, %q and %q:\n%s", code, c.code, c.says, c.hint, all)
				}
			}
			all, code := printed(t, append(command, "--config", settings)...)
			check(all, code)
			if n := strings.Count(strings.TrimSpace(all), "\n"); n > 1 {
				t.Errorf("more than a sentence and a hint:\n%s", all)
			}
			t.Setenv("GAVEL_STORE", c.url)
			check(printed(t, append(command, "--log-level", "debug", "--log-format", "json")...))
			if c.command != "serve" {
				check(printed(t, append(command, "--json")...))
			}
			for _, args := range [][]string{{"config", "print"}, {"config", "print", "--json"}, {"config", "check", settings}, {"token", "list"}, {"backup", "copy.db"}, {"verify", c.url}, {"verify", "--stor=" + c.url}, {c.url}} {
				printed(t, args...)
			}
			t.Setenv("GAVEL_STORE", "")
			if all, code := printed(t, "verify", "--store", c.url); code != term.ExitUsage || !strings.Contains(all, "--store has a password") {
				t.Errorf("a password among the arguments: exit code %d\n%s", code, all)
			}
		})
	}
}
