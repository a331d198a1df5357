package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/pgtest"
)

// smallDisk mounts a file system of a few megabytes with a folder owned by the database server's user.
func smallDisk(t *testing.T) (disk, folder string) {
	t.Helper()
	disk, err := os.MkdirTemp("", "gavel-disk") //nolint:usetesting // T.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=32m,mode=0755"); err != nil {
		_ = os.Remove(disk)
		t.Skip("no small disk can be mounted here, which takes root: ", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Unmount(disk, 0), os.Remove(disk)); err != nil {
			t.Error(err)
		}
	})
	folder = filepath.Join(disk, "tables")
	as, err := pgtest.User()
	if err = errors.Join(err, os.Mkdir(folder, 0o700)); err == nil && as != nil {
		err = os.Chown(folder, int(as.Uid), int(as.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
	return disk, folder
}

// A server reports when its database's disk is full. It loses no acknowledged data, and it continues without a
// restart once there is space.
func TestDatabaseThatIsFull(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	disk, folder := smallDisk(t)
	database := pgtest.New(t)
	for _, query := range []string{`CREATE TABLESPACE small LOCATION '` + folder + `'`, `CREATE DATABASE small TABLESPACE small`} {
		database.Exec(t, query)
	}
	at, err := url.Parse(database.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.Path = "/small"
	dir := t.TempDir()
	key, flow := filepath.Join(dir, "store.key"), filepath.Join(dir, "flow.json")
	put(t, flow, pingPong)
	runGavel(t, "store", "init", "--store", at.String(), "--store-key", key)
	s := serveStore(t, at.String(), "--store-key", key, "--auth", "none", "--definitions", flow, "--quota-bytes", "0")
	id := s.begin("", "ping-pong")
	acknowledged := 0
	move := func() (int, object) {
		status, answer := s.ask("", http.MethodPost, "/v1/instances/"+id+"/advance", fmt.Sprintf(`{"action":%q,"data":{"n":%q}}`,
			[]string{"go", "back"}[acknowledged%2], strings.Repeat(rand.Text(), 300)))
		if status == http.StatusOK {
			acknowledged++
		}
		return status, answer
	}
	must := func() {
		t.Helper()
		if status, answer := move(); status != http.StatusOK {
			t.Fatal(status, answer)
		}
	}
	for range 5 {
		must()
	}
	ballast := filepath.Join(disk, "ballast")
	if err := fillDisk(ballast); err != nil {
		t.Fatal(err)
	}
	status, answer := move()
	for tries := 1; status == http.StatusOK && tries < 300; tries++ { // the tables' pages still have space
		status, answer = move()
	}
	if status != http.StatusServiceUnavailable || answer["code"] != "unavailable" {
		t.Fatalf("a move while the disk is full, after %d: %d %v", acknowledged, status, answer)
	}
	status, ready := s.ask("", http.MethodGet, "/readyz", "")
	parts, _ := ready["parts"].([]any)
	if part, _ := parts[0].(object); status != http.StatusServiceUnavailable || part["name"] != "store" || part["ok"] != false {
		t.Errorf("readiness does not say that the store is why: %d %v", status, ready)
	}
	s.must("", http.MethodGet, "/v1/instances/"+id, "") // reading works
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(patience); ; <-time.After(50 * time.Millisecond) { // polled, as by load balancers
		if status, ready = s.ask("", http.MethodGet, "/readyz", ""); status == http.StatusOK {
			break
		} else if time.Now().After(until) {
			t.Fatalf("it does not become ready again: %v", ready)
		}
	}
	for range 5 {
		must()
	}
	if now := s.must("", http.MethodGet, "/v1/instances/"+id, ""); now["revision"] != float64(acknowledged+1) {
		t.Errorf("%d moves were acknowledged, and it is at %v", acknowledged, now["revision"])
	}
	s.stop()
	runGavel(t, "verify", "--store", at.String(), "--store-key", key)
}

// fillDisk writes a file until the disk is full.
func fillDisk(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return nil
}
