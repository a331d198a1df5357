//go:build unix

package pgstore_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gavel-mcp/gavel/engine/pgstore/pgtest"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// TestConformanceBehindAProxy is the suite behind PgBouncer, which gives each transaction another
// session.
func TestConformanceBehindAProxy(t *testing.T) {
	if !storetest.Long() {
		t.Skip("the suite once more; GAVEL_LONG=1 has the time")
	}
	pgtest.Shared(t)
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("there is no pgbouncer here")
	}
	at := startProxy(t, binary)
	defer dropSpare(t)
	reopen := func(t testing.TB, s store.Store) store.Store {
		schema := s.(unheard).schema
		return unheard{openAt(t, at, schema), schema}
	}
	storetest.Run(t, storetest.Driver{
		Open: func(t testing.TB) store.Store {
			schema := emptySchema(t)
			return unheard{openAt(t, at, schema), schema}
		},
		Reopen: reopen, Beside: reopen, Sample: true,
	})
}

// unheard is a store without store.Waker: behind a proxy nothing is heard.
type unheard struct {
	store.Store
	schema string
}

// startProxy starts PgBouncer in transaction mode before the server of the tests, with few sessions
// behind it, until the test ends.
func startProxy(t *testing.T, binary string) (at string) {
	as, err := pgtest.User()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "gavel-pgbouncer") //nolint:usetesting // its parents would be closed to another user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port, err := pgtest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(pgtest.Shared(t).Fast)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"users": `"gavel" ""` + "\n",
		"ini": fmt.Sprintf("[databases]\nfast = host=%s port=%s dbname=fast\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
			"auth_type = trust\nauth_file = %s/users\npool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 200\nunix_socket_dir =\n",
			server.Hostname(), server.Port(), port, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	proxy := exec.Command(binary, filepath.Join(dir, "ini"))
	proxy.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = proxy.Process.Kill()
		_ = proxy.Wait()
	})
	at = fmt.Sprintf("postgres://gavel@127.0.0.1:%d/fast", port)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, at+"?default_query_exec_mode=exec")
		if err == nil {
			_ = conn.Close(ctx)
			return at
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond): // it tells nobody when it listens
		}
	}
}
