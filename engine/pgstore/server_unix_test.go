//go:build unix

package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// cluster is a PostgreSQL server of the tests' own.
type cluster struct {
	url  string // of its database postgres
	fast string // of one that answers before a commit is on disk
	data string
	stop func()

	command func() *exec.Cmd
	end     func(with syscall.Signal) // and waits for it
}

// findBinaries returns the folder of the newest initdb, "" where there is none.
func findBinaries() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian's place; a pattern that is right
	slices.SortFunc(found, func(a, b string) int { return versionOf(a) - versionOf(b) })
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1])
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return ""
	}
	return filepath.Dir(path)
}

func versionOf(initdb string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb))))
	return n
}

// serverUser is whom the server runs as: PostgreSQL refuses root.
func serverUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // as this process
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
			gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uidErr, gidErr)
		}
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
}

// startCluster makes a server in a temporary folder and starts it. Its commits are durable.
func startCluster(bin string) (_ *cluster, err error) {
	as, err := serverUser()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gavel-pg")
	if err != nil {
		return nil, err
	}
	c := &cluster{data: filepath.Join(dir, "data"), stop: func() { _ = os.RemoveAll(dir) }}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			return nil, err
		}
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
		return cmd
	}
	if out, err := command("initdb", "-D", c.data, "-U", "gavel", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	c.url = fmt.Sprintf("postgres://gavel@127.0.0.1:%d/postgres", port)
	c.command = func() *exec.Cmd {
		return command("postgres", "-D", c.data, "-k", dir, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-c", "fsync=on", "-c", "max_connections=300")
	}
	c.stop = func() {
		c.end(syscall.SIGINT) // the fast shutdown
		_ = os.RemoveAll(dir)
	}
	return c, c.start()
}

// start starts the server and waits until it serves. After one that was killed that may take more
// than one attempt: what is left of it has to end first.
func (c *cluster) start() (err error) {
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if err = c.startOnce(); err == nil {
			break
		}
	}
	return err
}

func (c *cluster) startOnce() error {
	log, err := os.OpenFile(filepath.Join(filepath.Dir(c.data), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	server, ended := c.command(), make(chan struct{})
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		return err
	}
	go func() { _ = server.Wait(); close(ended) }()
	c.end = func(with syscall.Signal) {
		_ = server.Process.Signal(with)
		<-ended
	}
	return c.wait(ended)
}

// wait returns when the server serves.
func (c *cluster) wait(ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, c.url)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(filepath.Join(filepath.Dir(c.data), "log"))
			return fmt.Errorf("the server ended: %s", text)
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond): // it tells nobody when it listens
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// shared is the server of all tests of the package; nil without one.
var (
	shared     *cluster
	whyMissing string
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if url := os.Getenv("GAVEL_TEST_POSTGRES"); url != "" {
		shared = &cluster{url: url, fast: url, stop: func() {}}
		return m.Run()
	}
	bin := findBinaries()
	if bin == "" {
		whyMissing = "there is no initdb here, and GAVEL_TEST_POSTGRES names no server"
		return m.Run()
	}
	c, err := startCluster(bin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "the PostgreSQL of the tests:", err)
		return 1
	}
	shared = c
	defer c.stop()
	if err := c.makeFast(); err != nil {
		fmt.Fprintln(os.Stderr, "the PostgreSQL of the tests:", err)
		return 1
	}
	return m.Run()
}

// makeFast makes the database of tests that need no durable commits.
func (c *cluster) makeFast() error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, query := range []string{`CREATE DATABASE fast`, `ALTER DATABASE fast SET synchronous_commit = off`} {
		if _, err := conn.Exec(ctx, query); err != nil {
			return err
		}
	}
	c.fast = strings.TrimSuffix(c.url, "postgres") + "fast"
	return nil
}
