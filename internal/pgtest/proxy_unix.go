//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// StartProxy starts PgBouncer in transaction mode in front of a database, with few server sessions, until the test
// ends. It returns the URL of the database there; the database is also available under the names in others. If
// PgBouncer is not installed, the test is skipped.
func StartProxy(t testing.TB, at string, others ...string) string {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("there is no pgbouncer here")
	}
	as, err := User()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "gavel-pgbouncer") //nolint:usetesting // its parents would be closed to another user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	database, entries := strings.TrimPrefix(server.Path, "/"), ""
	for _, name := range append(others, database) {
		entries += fmt.Sprintf("%s = host=%s port=%s dbname=%s\n", name, server.Hostname(), server.Port(), database)
	}
	for name, text := range map[string]string{
		"users": `"gavel" ""` + "\n",
		"ini": fmt.Sprintf("[databases]\n%s[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
			"auth_type = trust\nauth_file = %s/users\npool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 200\nunix_socket_dir =\n",
			entries, port, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // another user reads it
			t.Fatal(err)
		}
	}
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	proxy := exec.CommandContext(context.Background(), binary, filepath.Join(dir, "ini")) //nolint:gosec // the proxy that is installed here
	proxy.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	var said strings.Builder
	proxy.Stdout, proxy.Stderr = &said, &said
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = proxy.Process.Kill()
		err := proxy.Wait()
		if t.Failed() {
			t.Logf("PgBouncer ended with %v:\n%s", err, said.String())
		}
	})
	server.Host = fmt.Sprintf("127.0.0.1:%d", port)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, server.String()+"?default_query_exec_mode=exec")
		if err == nil {
			_ = conn.Close(ctx)
			return server.String()
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond): // PgBouncer does not signal when it is ready
		}
	}
}
