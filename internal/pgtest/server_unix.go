//go:build unix

package pgtest

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
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// process is a dedicated server of the tests.
type process struct {
	data    string
	run     func(name string, args ...string) *exec.Cmd // a program of PostgreSQL, as its user
	command func() *exec.Cmd                            // the server itself
	end     func(with syscall.Signal)                   // also waits for the server
}

// Folder returns the folder with the server's files.
func (p *process) Folder() string { return p.data }

// findBinaries returns the folder of the newest initdb; "" if there is none.
func findBinaries() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // Debian's location; the pattern is valid
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

// User returns the user that runs servers; nil means the user of the tests. PostgreSQL refuses to run as root.
func User() (*syscall.Credential, error) {
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

// start creates a server in a temporary folder and starts it.
func start(bin string) (_ *Server, err error) {
	as, err := User()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gavel-pg")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			return nil, err
		}
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.Background(), filepath.Join(bin, name), args...) //nolint:gosec // the server that is installed here
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-U", "gavel", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	if err := askForPassword(data); err != nil {
		return nil, err
	}
	s, err := serve(data, command)
	if err != nil {
		return nil, err
	}
	if err := Execute(s.URL, `CREATE DATABASE fast`, `ALTER DATABASE fast SET synchronous_commit = off`); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// serve starts a server on a data folder.
func serve(data string, command func(name string, args ...string) *exec.Cmd) (*Server, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	at := fmt.Sprintf("postgres://gavel@127.0.0.1:%d/", port)
	s := &Server{URL: at + "postgres", Fast: at + "fast", process: &process{data: data, run: command, command: func() *exec.Cmd {
		return command("postgres", "-D", data, "-k", filepath.Dir(data), "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-c", "fsync=on", "-c", "max_connections=300")
	}}}
	return s, s.Start()
}

// Standby starts a synchronous standby of this server, which has each commit before it is acknowledged. It ends with
// the test.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	data := filepath.Join(filepath.Dir(s.data), "standby", "data")
	as, err := User()
	if err = errors.Join(err, os.Mkdir(filepath.Dir(data), 0o700)); err == nil && as != nil {
		err = os.Chown(filepath.Dir(data), int(as.Uid), int(as.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.run("pg_basebackup", "-D", data, "-d", s.URL, "--write-recovery-conf", "--checkpoint=fast", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	standby, err := serve(data, s.run)
	if err != nil {
		t.Fatal("a standby: ", err)
	}
	t.Cleanup(standby.Stop)
	if err := Execute(s.URL, `ALTER SYSTEM SET synchronous_standby_names = '*'`, `SELECT pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
	return standby
}

// Promote makes a standby take over, and waits until it has. It uses a signal, because a query for it could be
// cancelled by the log that the standby replays.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if out, err := s.run("pg_ctl", "promote", "-D", s.data, "-w", "-t", "300").CombinedOutput(); err != nil {
		t.Errorf("pg_ctl promote: %v: %s", err, out)
	}
}

// askForPassword makes the server ask for a password, but only for the user named locked.
func askForPassword(data string) error {
	file := filepath.Join(data, "pg_hba.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("host all locked 127.0.0.1/32 scram-sha-256\n"), text...), 0o600)
}

// Stop stops the server and removes its files.
func (s *Server) Stop() {
	s.end(syscall.SIGINT) // the fast shutdown
	_ = os.RemoveAll(filepath.Dir(s.data))
}

// Kill ends the server as kill -9 does.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// patience is how long a server may take to start: on a busy machine, replaying its log takes minutes.
const patience = 5 * time.Minute

// Start starts the server and waits until it accepts connections. After a kill this may take several attempts,
// because the remaining processes have to end first.
func (s *Server) Start() (err error) {
	for until := time.Now().Add(patience); time.Now().Before(until); {
		if err = s.startOnce(); err == nil {
			break
		}
	}
	return err
}

func (s *Server) startOnce() error {
	log, err := os.OpenFile(filepath.Join(filepath.Dir(s.data), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	server, ended := s.command(), make(chan struct{})
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		return err
	}
	go func() { _ = server.Wait(); close(ended) }()
	s.end = func(with syscall.Signal) {
		_ = server.Process.Signal(with)
		<-ended
	}
	return s.wait(ended)
}

// wait returns when the server accepts connections.
func (s *Server) wait(ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(filepath.Join(filepath.Dir(s.data), "log"))
			return fmt.Errorf("the server ended: %s", text)
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond): // the server does not signal when it is ready
		}
	}
}

// FreePort returns a port of this machine that is not in use.
func FreePort() (int, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
