//go:build unix

package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// Servers report when their database closes their connections or rejects writes for a while. They continue without
// a restart. Their logs never contain the password.
func TestDatabaseComesBack(t *testing.T) {
	t.Setenv("PGPASSWORD", canaryPassword) // the tests' server does not require it
	server := pgtest.Shared(t)
	w := serveTogether(t, "--log-level", "debug")
	at, err := url.Parse(w.store[1])
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(at.Path, "/")
	end := func() {
		server.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '`+name+`'`)
	}
	wait := func(s *served, want int) (answer object) {
		t.Helper()
		for until := time.Now().Add(patience); time.Now().Before(until); <-time.After(50 * time.Millisecond) { // polled, as by load balancers
			var status int
			if status, answer = s.ask("", http.MethodGet, "/readyz", ""); status == want {
				return answer
			}
		}
		t.Fatalf("readiness does not come to %d: %v", want, answer)
		return nil
	}
	id := w.a.begin(w.a.owner, "shipping")
	end()
	w.b.must(w.b.owner, http.MethodGet, "/v1/instances/"+id, "") // retried on another connection
	w.a.begin(w.a.owner, "shipping")                             // retried

	server.Exec(t, `ALTER DATABASE `+name+` SET default_transaction_read_only = on`)
	end()
	for _, s := range []*served{w.a, w.b} {
		parts, _ := wait(s, http.StatusServiceUnavailable)["parts"].([]any)
		if part, _ := parts[0].(object); part["name"] != "store" || part["ok"] != false {
			t.Errorf("it does not say that the store is why: %v", parts)
		}
		if status, answer := s.ask(s.owner, http.MethodPost, "/v1/instances", `{"type":"shipping"}`); status != http.StatusServiceUnavailable || answer["code"] != "unavailable" {
			t.Errorf("a start while nothing can be written: %d %v", status, answer)
		}
	}
	server.Exec(t, `ALTER DATABASE `+name+` RESET default_transaction_read_only`)
	for _, s := range []*served{w.a, w.b} {
		wait(s, http.StatusOK)
		s.begin(s.owner, "shipping")
		if strings.Contains(s.stderr.String(), canaryPassword) {
			t.Error("the log has the password")
		}
	}
}
