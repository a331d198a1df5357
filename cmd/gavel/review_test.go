package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/term"
)

// stakes is a workflow with one move that always needs a person.
const stakes = `{"name":"stakes","initialState":"a","states":{
	"a":{"transitions":{"leap":{"target":"b","requireAssurance":"human"},"walk":"c"}},
	"b":{"final":true},"c":{"transitions":{"back":"a"}}}}`

// parked parks an agent's move for review and returns the instance and the review.
func parked(t *testing.T, s *server, store string, data object) (instance, review string) {
	t.Helper()
	instance = s.must("workflow.start", object{"type": "stakes"}).field("id")
	r := s.call("workflow.advance", object{"id": instance, "action": "leap", "data": data})
	if decision, _ := r.Body["decision"].(object); decision["outcome"] != "escalate" {
		t.Fatalf("not escalated: %s", r.Raw)
	}
	reviews := listed(t, store, "--instance", instance)
	if len(reviews) != 1 {
		t.Fatalf("%d reviews wait", len(reviews))
	}
	return instance, reviews[0].ID
}

// listed returns the output of gavel review list.
func listed(t *testing.T, store string, args ...string) []engine.ReviewSummary {
	t.Helper()
	var out engine.ReviewsResult
	raw := runGavel(t, append([]string{"review", "list", "--json", "--store", store}, args...)...)
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out.Reviews
}

// TestReviewSurvivesKill kills the server between parking and resolving. After each kill, the parked move is still
// there, can be decided, and is decided once.
func TestReviewSurvivesKill(t *testing.T) {
	t.Parallel()
	store := storeIn(t)
	s := launch(t, "--store", store, "--tool-names", "dotted")
	s.define(stakes)
	one, approved := parked(t, s, store, object{"n": 1})
	two, rejected := parked(t, s, store, object{"n": 2})
	three, waiting := parked(t, s, store, object{"n": 3})
	s.kill()

	runGavel(t, "review", "approve", approved, "--reason", "looked", "--store", store)
	runGavel(t, "review", "reject", rejected, "--reason", "looked", "--store", store)
	after := launch(t, "--store", store, "--tool-names", "dotted")
	for id, state := range map[string]string{one: "b", two: "a", three: "a"} {
		if got := after.must("workflow.status", object{"id": id}).field("state"); got != state {
			t.Errorf("%s is in %s, not in %s", id, got, state)
		}
	}
	again := after.call("workflow.advance", object{"id": three, "action": "leap", "data": object{"n": 3}})
	if open := listed(t, store); len(open) != 1 || open[0].ID != waiting {
		t.Errorf("the same data got another review: %v, %s", open, again.Raw)
	}
	// A later version of the definition does not change the parked move.
	after.define(strings.Replace(stakes, `"target":"b"`, `"target":"c"`, 1))
	after.kill()
	runGavel(t, "review", "approve", waiting, "--reason", "looked", "--store", store)
	if got := runGavel(t, "instances", "show", three, "--store", store); !bytes.Contains(got, []byte("visited       a -> b")) {
		t.Errorf("not where it was asked to go:\n%s", got)
	}
}

// TestTwoReviewersAtOnce lets several processes decide one review concurrently, for and against. One decision is
// carried out; the others are reported as too late.
func TestTwoReviewersAtOnce(t *testing.T) {
	t.Parallel()
	store := storeIn(t)
	s := launch(t, "--store", store, "--tool-names", "dotted")
	s.define(stakes)
	for round := range 3 {
		instance, review := parked(t, s, store, object{"n": round})
		var carried, told atomic.Int32
		var winner atomic.Value
		var all sync.WaitGroup
		for i := range 4 {
			decision := []string{"approve", "reject"}[i%2]
			all.Go(func() {
				cmd := exec.CommandContext(t.Context(), "gavel", "review", decision, review, "--reason", "mine",
					"--principal", fmt.Sprintf("reviewer-%d", i), "--store", store)
				out, err := cmd.CombinedOutput()
				exit, _ := errors.AsType[*exec.ExitError](err)
				switch {
				case err == nil:
					carried.Add(1)
					winner.Store(decision)
				case exit != nil && exit.ExitCode() == term.ExitBad && bytes.Contains(out, []byte("no longer open")):
					told.Add(1)
				default:
					t.Errorf("%s: %v: %s", decision, err, out)
				}
			})
		}
		all.Wait()
		if carried.Load() != 1 || told.Load() != 3 {
			t.Fatalf("%d decisions were carried out, %d reviewers told", carried.Load(), told.Load())
		}
		want := map[any]string{"approve": "b", "reject": "a"}[winner.Load()]
		if got := s.must("workflow.status", object{"id": instance}).field("state"); got != want {
			t.Errorf("%s won, and the instance is in %s", winner.Load(), got)
		}
	}
}

func TestWordsForTheShell(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a/b-c_1.db": "a/b-c_1.db", "": "''", "my store.db": "'my store.db'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "~/x": "'~/x'", "*": "'*'",
	} {
		if got := term.ShellWord(in); got != want {
			t.Errorf("%q became %s, want %s", in, got, want)
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+term.ShellWord(in)).Output(); err != nil || string(out) != in {
			t.Errorf("a shell reads %q as %q (%v)", in, out, err)
		}
	}
}
