package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// gate is a workflow whose action runs a script that takes some milliseconds.
const gate = `{"name":"gate","initialState":"open","states":{
	"open":{"transitions":{"spin":{"target":"open","validator":"(data) => { let x = 0; for (let i = 0; i < 2000; i++) x += i; return x > 0; }"},"close":"shut"}},
	"shut":{"final":true}}}`

// soon is a second with the slack that a shared machine needs.
const soon = 5 * time.Second

func storeIn(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), storeFile)
}

// begun is a server with an instance of gate.
func begun(t *testing.T, store string) (*server, string) {
	t.Helper()
	s := launch(t, "--store", store, "--tool-names", "dotted")
	s.define(gate)
	return s, s.must("workflow.start", object{"type": "gate"}).field("id")
}

func TestServerEndsWithItsInput(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*server) (time.Duration, error){
		"eof":     (*server).finish,
		"sigterm": func(s *server) (time.Duration, error) { return s.signal(syscall.SIGTERM) },
		"sigint":  func(s *server) (time.Duration, error) { return s.signal(syscall.SIGINT) },
	}
	for name, end := range ends {
		t.Run(name+" idle", func(t *testing.T) {
			t.Parallel()
			s, _ := begun(t, storeIn(t))
			checkEnd(t, s, end)
		})
		t.Run(name+" with calls in flight", func(t *testing.T) {
			t.Parallel()
			store := storeIn(t)
			s, id := begun(t, store)
			s.must("workflow.advance", object{"id": id, "action": "spin"}) // the worker is up
			const calls = 40
			var pending []chan reply
			for range calls {
				pending = append(pending, s.beginCall("workflow.advance", fmt.Sprintf(`{"id":%q,"action":"spin"}`, id)))
			}
			first := s.await(pending[0]) // they have begun
			pending[0] <- first
			checkEnd(t, s, end)
			checkAccounted(t, store, id, pending)
		})
	}
}

func checkEnd(t *testing.T, s *server, end func(*server) (time.Duration, error)) {
	t.Helper()
	children := childrenOfProcess(s.cmd.Process.Pid)
	took, err := end(s)
	if err != nil {
		t.Errorf("exit: %v", err)
	}
	if took > soon {
		t.Errorf("took %v to end", took)
	}
	t.Logf("ended in %v with %d workers", took, len(children))
	for _, pid := range children {
		waitGone(t, pid)
	}
}

// checkAccounted compares what was acknowledged with what another process finds
// in the store: every acknowledged advance, each once.
func checkAccounted(t *testing.T, store, id string, pending []chan reply) {
	t.Helper()
	revisions := map[string]bool{}
	answered, moved := 0, 0
	for _, ch := range pending {
		select {
		case r := <-ch:
			answered++
			if result := decodeTool(t, r); !result.IsError {
				moved++
				revisions[result.field("revision")] = true
			}
		default: // a request that the signal overtook
		}
	}
	if len(revisions) != moved {
		t.Errorf("%d acknowledged moves have %d revisions", moved, len(revisions))
	}
	after := launch(t, "--store", store, "--tool-names", "dotted")
	status := after.must("workflow.status", object{"id": id})
	var revision int
	if _, err := fmt.Sscan(status.field("revision"), &revision); err != nil {
		t.Fatal(err)
	}
	if revision < moved+2 { // started, and the first spin
		t.Errorf("revision %d after %d acknowledged moves", revision, moved+1)
	}
	t.Logf("%d of %d answered, %d moved", answered, len(pending), moved)
}

func childrenOfProcess(pid int) []string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil // not on this system
	}
	return strings.Fields(string(raw))
}

func waitGone(t *testing.T, pid string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("worker %s is still there", pid)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestLogsNeverReachStdout(t *testing.T) {
	t.Parallel()
	// The harness fails on any line of stdout that is not JSON-RPC.
	s := launch(t, "--store", storeIn(t), "--tool-names", "dotted", "--log-level", "debug")
	s.define(gate)
	s.write(`this is not json`)
	s.write(`{"jsonrpc":"2.0","id":"odd","method":"no/such"}`)
	s.call("workflow.start", object{"type": "nope"})
	s.must("workflow.list", object{})
	if _, err := s.finish(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(s.stderr.String(), "serving MCP") {
		t.Errorf("debug messages are not on stderr: %q", s.stderr)
	}
}

func TestSilentSuccess(t *testing.T) {
	t.Parallel()
	s := launch(t, "--store", storeIn(t))
	if _, err := s.finish(); err != nil {
		t.Error(err)
	}
	if got := s.stderr.String(); got != "" {
		t.Errorf("stderr: %s", got)
	}
}
