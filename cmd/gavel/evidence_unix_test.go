//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fetching is a workflow whose moves need evidence from the source "slow" or "quick".
const fetching = `name: fetching
initialState: a
states:
  a:
    transitions:
      go: {target: b, evidence: [{name: slow, source: slow}]}
      look: {target: a, evidence: [{name: quick, source: quick}]}
  b: {final: true}
`

// TestServerEndsWithItsFetches shows that a server stops in time while a command runs for it. No process is left
// over, even if the server is killed.
func TestServerEndsWithItsFetches(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*server) (time.Duration, error){
		"eof": (*server).finish, "sigterm": func(s *server) (time.Duration, error) { return s.signal(syscall.SIGTERM) },
		"kill -9": func(s *server) (time.Duration, error) {
			err := s.cmd.Process.Kill()
			<-s.ended
			return 0, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			pipe, flow, config := filepath.Join(dir, "pipe"), filepath.Join(dir, "flow.yaml"), filepath.Join(dir, "gavel.yaml")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			source := fmt.Sprintf("evidence: {sources: {slow: {command: [sh, -c, 'sleep 600 & echo $$ $! >%s; wait'], timeout: 3s}, quick: {command: [echo, fine]}}}\n", pipe)
			if err := errors.Join(os.WriteFile(flow, []byte(fetching), 0o600), os.WriteFile(config, []byte(source), 0o600)); err != nil {
				t.Fatal(err)
			}
			s := launch(t, "--store", storeIn(t), "--tool-names", "dotted", "--definitions", flow, "--config", config)
			id := s.must("workflow.start", object{"type": "fetching"}).field("id")
			s.beginCall("workflow.advance", fmt.Sprintf(`{"id":%q,"action":"go"}`, id))
			pids, err := os.ReadFile(pipe) // opens once the command does
			if err != nil {
				t.Fatal(err)
			}
			other := s.must("workflow.start", object{"type": "fetching"}).field("id")
			s.must("workflow.advance", object{"id": other, "action": "look"}) // the server now serves other requests
			if took, err := end(s); err != nil || took > soon {
				t.Errorf("ended after %v: %v", took, err)
			}
			for _, text := range strings.Fields(string(pids)) {
				pid, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				if err := awaitGone(t, pid); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// awaitGone waits until a killed process is reaped, or is a zombie that its new parent has not reaped yet.
func awaitGone(t *testing.T, pid int) error {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 6000 { // a busy machine needs time to end them
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return nil
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && strings.Contains(string(stat), ") Z ") {
			return nil
		}
		<-tick.C
	}
	return fmt.Errorf("process %d of a command still runs", pid)
}
