package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/storetest"
)

// spinning is a workflow with two actions: the script of one takes a moment, the script of the other never ends.
const spinning = `{"name":"gate","initialState":"open","states":{
	"open":{"transitions":{
		"spin":{"target":"open","validator":"(data) => { let x = 0; for (let i = 0; i < 2000; i++) x += i; return x > 0; }"},
		"hang":{"target":"open","validator":"(data) => { while (data.on) {} return true; }"},
		"close":"shut"}},
	"shut":{"final":true}}}`

// soon is a second plus the slack that a shared machine under the race detector needs.
const soon = patience

func storeIn(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), gavel.StoreFile)
}

// begun returns a server with some instances of spinning.
func begun(t *testing.T, store string) (*server, []string) {
	t.Helper()
	s := launch(t, "--store", store, "--tool-names", "dotted")
	s.define(spinning)
	var ids []string
	for range 10 {
		ids = append(ids, s.must("workflow.start", object{"type": "gate"}).field("id"))
	}
	s.must("workflow.advance", object{"id": ids[0], "action": "spin"}) // so that the worker is running
	return s, ids
}

func TestServerEndsWithItsInput(t *testing.T) {
	t.Parallel()
	sampled := map[string]bool{"eof spin": true, "sigterm hang": true, "sigint idle": true}
	ends := map[string]func(*server) (time.Duration, error){
		"eof":     (*server).finish,
		"sigterm": func(s *server) (time.Duration, error) { return s.signal(syscall.SIGTERM) },
		"sigint":  func(s *server) (time.Duration, error) { return s.signal(syscall.SIGINT) },
	}
	for name, end := range ends {
		if storetest.Long() || sampled[name+" idle"] {
			t.Run(name+" idle", func(t *testing.T) {
				t.Parallel()
				s, _ := begun(t, storeIn(t))
				checkEnd(t, s, end)
			})
		}
		for _, action := range []string{"spin", "hang"} {
			if !storetest.Long() && !sampled[name+" "+action] {
				continue
			}
			t.Run(name+" with calls in flight that "+action, func(t *testing.T) {
				t.Parallel()
				store := storeIn(t)
				s, ids := begun(t, store)
				var pending []chan reply
				for i := range 4 * len(ids) {
					pending = append(pending, s.beginCall("workflow.advance", fmt.Sprintf(`{"id":%q,"action":%q,"data":{"on":true}}`, ids[i%len(ids)], action)))
				}
				first := s.await(pending[0]) // so that they have begun
				pending[0] <- first
				checkEnd(t, s, end)
				checkAccounted(t, store, ids, pending)
			})
		}
	}
}

func checkEnd(t *testing.T, s *server, end func(*server) (time.Duration, error)) {
	t.Helper()
	children := childrenOfProcess(s.cmd.Process.Pid)
	if runtime.GOOS == "linux" && len(children) == 0 {
		t.Error("no script worker is there to be reaped")
	}
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

// checkAccounted compares the acknowledged advances with those that another process finds in the store: each of them
// exactly once.
func checkAccounted(t *testing.T, store string, ids []string, pending []chan reply) {
	t.Helper()
	moved := map[string]int{ids[0]: 1} // from begun
	seen := map[string]bool{}
	answered := 0
	for _, ch := range pending {
		select {
		case r := <-ch:
			answered++
			result := decodeTool(t, r)
			if result.IsError {
				continue // refused, overtaken by another, or cancelled
			}
			id := result.field("id")
			moved[id]++
			if at := id + " " + result.field("revision"); seen[at] {
				t.Errorf("acknowledged twice: %s", at)
			} else {
				seen[at] = true
			}
		default: // a request that the end overtook
		}
	}
	after := launch(t, "--store", store, "--tool-names", "dotted")
	for _, id := range ids {
		var revision int
		if _, err := fmt.Sscan(after.must("workflow.status", object{"id": id}).field("revision"), &revision); err != nil {
			t.Fatal(err)
		}
		if revision < moved[id]+1 {
			t.Errorf("%s: revision %d after %d acknowledged moves", id, revision, moved[id])
		}
	}
	t.Logf("%d of %d answered, %d moved", answered, len(pending), len(seen))
}

// childrenOfProcess lists the children of all threads of a process; nil if the system does not show them.
func childrenOfProcess(pid int) (out []string) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		if raw, err := os.ReadFile(list); err == nil {
			out = append(out, strings.Fields(string(raw))...)
		}
	}
	return out
}

// waitGone polls, because only the parent of a process is notified of its end, and the parent has ended.
func waitGone(t *testing.T, pid string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Errorf("worker %s is still there", pid)
			return
		}
	}
}

func TestLogsNeverReachStdout(t *testing.T) {
	t.Parallel()
	// The harness fails on any line of stdout that is not JSON-RPC.
	s := launch(t, "--store", storeIn(t), "--tool-names", "dotted", "--log-level", "debug")
	s.define(spinning)
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
