package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/pgtest"
	"github.com/gavel-mcp/gavel/internal/term"
)

// TestServersShareRuns: two servers over one database both answer for all runs. If one is killed, the other continues
// its runs.
func TestServersShareRuns(t *testing.T) {
	t.Parallel()
	store, key := makeStore(t)
	config := writeChains(t, `{"name":"ask","steps":[{"id":"w","type":"wait","signal":"go","save_output_to":"variables.output.said"}]}`)
	put(t, config, "chains: {definitions: chains, lease: 1s}\n")
	serve := func() *served {
		return serveStore(t, store, "--store-key", key, "--auth", "none", "--config", config)
	}
	first, second := serve(), serve()
	run, _ := first.must("", http.MethodPost, "/v1/runs", `{"chain":"ask"}`)["run"].(string)
	read := func() object { return second.must("", http.MethodGet, "/v1/runs/"+run, "") }
	second.until("the question to be seen at the other server", func() bool { return read()["waiting"] != nil })
	operate := func(verb string) {
		t.Helper()
		runGavel(t, "chain", verb, run, "--store", store, "--store-key", key, "--config", config)
	}
	operate("pause")
	first.until("the pause", func() bool { return first.must("", http.MethodGet, "/v1/runs/"+run, "")["status"] == "paused" })
	_ = first.cmd.Process.Kill()
	<-first.ended
	operate("resume")
	second.must("", http.MethodPost, "/v1/runs/"+run+"/signal", `{"name":"go","value":7}`)
	second.until("the end", func() bool { return read()["status"] == "done" })
	if got := read()["output"]; marshal(got) != `{"said":7}` {
		t.Errorf("it ended with %v", got)
	}
}

// TestSecondProcess: while one process executes the runs of a file, another can start and control runs. It takes over
// when the first is killed.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	config := writeChains(t, `{"name":"ask","steps":[{"id":"w","type":"wait","signal":"go","save_output_to":"variables.output.said"}]}`)
	store := storeIn(t)
	serve := func() *served { return serveStore(t, store, "--auth", "none", "--config", config) }
	first := serve()
	second := serve()
	start := func() string {
		t.Helper()
		run, _ := second.must("", http.MethodPost, "/v1/runs", `{"chain":"ask"}`)["run"].(string)
		return run
	}
	read := func(run string) object { return second.must("", http.MethodGet, "/v1/runs/"+run, "") }
	runs := []string{start(), start()}
	second.until("the question", func() bool { return read(runs[0])["waiting"] != nil && read(runs[1])["waiting"] != nil })
	end := func(run string) {
		t.Helper()
		second.must("", http.MethodPost, "/v1/runs/"+run+"/signal", `{"name":"go","value":7}`)
		second.until("the end", func() bool { return read(run)["status"] == "done" })
	}
	end(runs[0])
	_ = first.cmd.Process.Kill()
	<-first.ended
	end(runs[1])
	end(start())
}

// TestChainsThatCannotRun: an unusable database of runs is reported in one sentence, without the password, and no
// server starts.
func TestChainsThatCannotRun(t *testing.T) {
	needsProgram(t)
	server := pgtest.Shared(t)
	ready, key := makeStore(t)
	inAs := func(user string, queries ...string) string {
		at := server.NewDatabase(t)
		if err := pgtest.Execute(at, queries...); err != nil {
			t.Fatal(err)
		}
		return withPassword(t, at, user)
	}
	in := func(queries ...string) string { return inAs("gavel", queries...) }
	server.Exec(t, `DROP ROLE IF EXISTS pauper`)
	server.Exec(t, `CREATE ROLE pauper LOGIN`)
	server.Exec(t, `REVOKE CONNECT ON DATABASE postgres FROM PUBLIC`)
	t.Cleanup(func() {
		server.Exec(t, `GRANT CONNECT ON DATABASE postgres TO PUBLIC`)
		server.Exec(t, `DROP ROLE pauper`)
	})
	file := filepath.Join(t.TempDir(), "gavel.db")
	for _, c := range []struct {
		name, store, state string
		code               int
		says               string
	}{
		{"a server that is not there", ready, "postgres://gavel:" + canaryPassword + "@127.0.0.1:1/gavel", term.ExitUnknown, "cannot run chains over postgres://gavel@127.0.0.1:1/gavel: the database cannot be reached"},
		{"no right to create", ready, withPassword(t, server.NewDatabase(t), "pauper"), term.ExitUsage, `the user may not create the schema "gavel_chains"`},
		{"not let into the other database", ready, inAs("pauper", `CREATE SCHEMA gavel_chains AUTHORIZATION pauper`), term.ExitUsage, `the user may not connect to another database of the server, "postgres": permission denied for database "postgres"`},
		{"tables of another program", ready, in(`CREATE SCHEMA gavel_chains`, `CREATE TABLE gavel_chains.things ()`), term.ExitUsage, `the schema "gavel_chains" has tables of another program`},
		{"newer tables", ready, in(`CREATE SCHEMA gavel_chains`, `CREATE TABLE gavel_chains.dbos_migrations (version bigint)`, `INSERT INTO gavel_chains.dbos_migrations VALUES (9999)`), term.ExitUsage, "the tables of runs have version 9999, but this program supports"},
		{"a URL that cannot be read", ready, "postgres://gavel:" + canaryPassword + "/x@127.0.0.1/gavel", term.ExitUsage, "invalid database URL"},
		{"a store in a file", file, withPassword(t, server.NewDatabase(t), "gavel"), term.ExitUsage, "runs in a database need a store in a database"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := writeChains(t, `{"name":"c","steps":[{"id":"w","type":"wait","seconds":1}]}`)
			put(t, config, "chains: {definitions: chains, state: \""+c.state+"\"}\n")
			args := []string{"serve", "--listen", "127.0.0.1:0", "--auth", "none", "--store", c.store, "--config", config}
			if c.store != file {
				args = append(args, "--store-key", key)
			}
			all, code := printed(t, args...)
			if code != c.code || !strings.Contains(strings.ReplaceAll(all, `\"`, `"`), c.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.says, all)
			}
			if n := strings.Count(strings.TrimSpace(all), "\n"); n > 1 {
				t.Errorf("more than a sentence and a hint:\n%s", all)
			}
			if all, code := printed(t, "config", "print", "--config", config); code != 0 && !strings.Contains(all, "chains") {
				t.Errorf("config print: exit code %d\n%s", code, all)
			}
		})
	}
	_ = os.Remove(file)
}
