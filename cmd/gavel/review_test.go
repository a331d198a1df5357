package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
				case exit != nil && exit.ExitCode() == term.ExitBad && bytes.Contains(out, []byte("not open any more")):
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

// counting expires reviews and records when.
type counting struct {
	mu    sync.Mutex
	at    []time.Time
	fails bool
}

func (c *counting) ExpireReviews(context.Context) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Now())
	if c.fails {
		return 0, errors.New("the disk is full")
	}
	return 1, nil
}

// TestWatchReviews shows that reviews are expired at start and then every minute, despite failures, and not after
// the watch ends.
func TestWatchReviews(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			reviews, began := &counting{fails: fails}, time.Now()
			stop := watchReviews(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), reviews)
			time.Sleep(2*expireEvery + time.Second) //nolint:forbidigo // the synctest clock
			stop()
			time.Sleep(10 * expireEvery) //nolint:forbidigo // the synctest clock
			if len(reviews.at) != 3 || !reviews.at[0].Equal(began) || reviews.at[2].Sub(began) != 2*expireEvery {
				t.Errorf("looked at %v, began at %v", reviews.at, began)
			}
			if got := strings.Count(log.String(), "the disk is full"); got != map[bool]int{true: 3}[fails] {
				t.Errorf("%d complaints:\n%s", got, log.String())
			}
			ctx, cancel := context.WithCancel(t.Context())
			stop = watchReviews(ctx, slog.New(slog.DiscardHandler), reviews)
			cancel()
			synctest.Wait() // its goroutine must be gone, or synctest fails
			stop()
		})
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

// TestBlocksCannotPretend shows that each line of untrusted text starts with a bar.
func TestBlocksCannotPretend(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a\nto decide\nb", "a\r\nb", "a\rb", "a\u2028b\u0085c\vd", "\x1b[2Jx", "", "\n\n", "a\n\n\n"} {
		var b bytes.Buffer
		printBlock(term.New(&b), text)
		for line := range strings.Lines(b.String()) {
			if !strings.HasPrefix(line, "  | ") && line != "  |\n" || strings.ContainsAny(line, "\r\x1b\v\u0085\u2028") {
				t.Errorf("%q is printed with the line %q", text, line)
			}
		}
	}
	var b bytes.Buffer
	printContent(term.New(&b), json.RawMessage(`{"exitCode":1,"output":"a\nto decide\n"}`))
	if want := "  | {\n  |   \"exitCode\": 1\n  | }\noutput\n  | a\n  | to decide\n"; b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

// TestLongDocumentsAreCut shows that documents are cut by lines and by bytes, with a note of the missing size.
func TestLongDocumentsAreCut(t *testing.T) {
	t.Parallel()
	many, err := json.Marshal(make([]int, 1000))
	if err != nil {
		t.Fatal(err)
	}
	long, err := json.Marshal(strings.Repeat("é", shownBytes))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		doc   json.RawMessage
		lines int
		cut   bool
	}{
		"short": {json.RawMessage(`{"a":1}`), 3, false},
		"lines": {many, shownLines, true},
		"bytes": {long, 1, true},
	} {
		var b bytes.Buffer
		p := reviewPage{out: term.New(&b)}
		p.document("data", c.doc)
		bars := strings.Count(b.String(), "  | ")
		if bars != c.lines || strings.Contains(b.String(), "more bytes") != c.cut || b.Len() > 2*shownBytes {
			t.Errorf("%s: %d lines, %d bytes, ending %.80q", name, bars, b.Len(), b.String()[max(0, b.Len()-80):])
		}
	}
}
