package main

import (
	"fmt"
	"sync"
	"testing"
)

// notebook is the workflow of the notebook on state management: keys are set, without end.
const notebook = `{"name":"notebook","initialState":"open","states":{"open":{"transitions":{"set":"open"}}}}`

const (
	threads = 3
	updates = 5
)

// setCounter returns the arguments of one update by a thread.
func setCounter(id string, thread, value int) string {
	return fmt.Sprintf(`{"id":%q,"action":"set","data":{"counter_thread_%d":%d}}`, id, thread, value)
}

// TestConcurrentAdvancesAreServed repeats the notebook's three threads, each of which sets its counter five times.
// The updates are concurrent or sequential, over one process or three, over stdio and HTTP. No update names a
// revision, so each is made exactly once.
func TestConcurrentAdvancesAreServed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		processes int
		inTurn    bool // each thread waits for its responses, as in the notebook
	}{
		{"one process", 1, true},
		{"one process, all at once", 1, false},
		{"three processes", 3, true},
		{"three processes, all at once", 3, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := storeIn(t)
			var servers []*server
			for range tt.processes {
				servers = append(servers, launch(t, "--store", store, "--tool-names", "dotted"))
			}
			servers[0].define(notebook)
			id := servers[0].must("workflow.start", object{"type": "notebook"}).field("id")
			runThreads(tt.inTurn, func(thread, value int) {
				s := servers[thread%len(servers)]
				if r := s.callRaw("workflow.advance", setCounter(id, thread, value)); r.IsError {
					t.Errorf("thread %d, value %d: %s", thread, value, r.Raw)
				}
			})
			checkNotebook(t, servers[0], id, tt.inTurn)
		})
	}
	t.Run("HTTP, all at once", func(t *testing.T) {
		t.Parallel()
		store := storeIn(t)
		s := serveStore(t, store)
		s.must(s.agent, "POST", "/v1/definitions", notebook)
		id := s.begin(s.agent, "notebook")
		runThreads(false, func(thread, value int) {
			if isError, text := s.call(s.agent, "workflow.advance", setCounter(id, thread, value)); isError {
				t.Errorf("thread %d, value %d: %s", thread, value, text)
			}
		})
		s.stop()
		checkNotebook(t, launch(t, "--store", store, "--tool-names", "dotted", "--role", "operator"), id, false)
	})
}

// runThreads runs the threads' updates concurrently.
func runThreads(inTurn bool, update func(thread, value int)) {
	var all sync.WaitGroup
	for thread := range threads {
		all.Go(func() {
			for value := range updates {
				if inTurn {
					update(thread, value)
				} else {
					all.Go(func() { update(thread, value) })
				}
			}
		})
	}
	all.Wait()
}

// checkNotebook checks that the history has every update once and nothing else.
func checkNotebook(t *testing.T, s *server, id string, inTurn bool) {
	t.Helper()
	status := s.must("workflow.status", object{"id": id})
	if got, want := status.field("revision"), fmt.Sprint(1+threads*updates); got != want || status.field("seq") != want {
		t.Errorf("revision %s, seq %s; want %s", got, status.field("seq"), want)
	}
	seen := map[string]int{}
	for _, d := range s.must("workflow.judge.history", object{"id": id}).Body["decisions"].([]any) {
		data, _ := d.(object)["data"].(object)
		for key, value := range data {
			seen[fmt.Sprint(key, "=", value)]++
		}
	}
	for thread := range threads {
		for value := range updates {
			if n := seen[fmt.Sprintf("counter_thread_%d=%d", thread, value)]; n != 1 {
				t.Errorf("thread %d set %d %d times", thread, value, n)
			}
		}
		key := fmt.Sprintf("counter_thread_%d", thread)
		if got := status.Body["context"].(object)[key]; inTurn && fmt.Sprint(got) != fmt.Sprint(updates-1) {
			t.Errorf("%s = %v", key, got)
		}
	}
}
