package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/chain"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

// The chains of the tests: one waits for a word, the other fails without another server.
const (
	asksChain  = `{"name":"asks","description":"Waits for a word.","steps":[{"id":"nap","type":"wait","seconds":0},{"id":"word","type":"wait","signal":"go","save_output_to":"variables.output.word"}]}`
	failsChain = `{"name":"fails","steps":[{"id":"open","type":"workflow","workflow":"nope","action":"start"}]}`
)

// TestRunCommands: what the commands on runs say, over a server and over its store.
func TestRunCommands(t *testing.T) {
	t.Parallel()
	config := writeChains(t, asksChain, failsChain)
	s := serveGavel(t, "--config", config)
	for who, there := range map[string][]string{
		"local:operator": {"--server", s.url, "--token-file", tokenFile(t, s.owner)},
		"local:cli":      {"--store", s.store, "--config", config},
	} {
		t.Run(who, func(t *testing.T) { checkRunCommands(t, s, who, there) })
	}
	// An agent sees its own.
	if out := runGavel(t, "chain", "list", "--server", s.url, "--token-file", tokenFile(t, s.agent)); len(out) != 0 {
		t.Errorf("an agent sees others' runs:\n%s", out)
	}
	// What needs no definition needs no configuration.
	if out := string(runGavel(t, "chain", "list", "--store", s.store, "--chain", "fails")); !strings.Contains(out, "local:operator-bad") {
		t.Errorf("without a configuration:\n%s", out)
	}
	empty := storeIn(t)
	runGavel(t, "start", "x", "--store", empty, "--definitions", putDefinition(t))
	if out, code := gavelFails(t, nil, "chain", "list", "--store", empty); code != term.ExitUsage || !strings.Contains(out, "no server has run chains over this store") {
		t.Errorf("without a server: %d %s", code, out)
	}
}

func putDefinition(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.json")
	writeFile(t, file, `{"name":"x","initialState":"a","states":{"a":{"final":true}}}`)
	return file
}

// checkRunCommands asks for runs as somebody, with the flags that say where.
func checkRunCommands(t *testing.T, s *served, who string, there []string) {
	gavel := func(args ...string) string { return string(runGavel(t, append(args, there...)...)) }
	fails := func(code int, says string, args ...string) {
		t.Helper()
		if out, got := gavelFails(t, nil, append(args, there...)...); got != code || !strings.Contains(out, says) {
			t.Errorf("gavel %s: %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, says, out)
		}
	}
	holds := func(out string, all ...string) {
		t.Helper()
		for _, part := range all {
			if !strings.Contains(out, part) {
				t.Errorf("%q is not in:\n%s", part, out)
			}
		}
	}
	mine, bad := who+"-mine", who+"-bad"
	holds(gavel("chain", "list", "--chains"), "asks", "Waits for a word.", "fails")
	run := strings.TrimSpace(gavel("chain", "start", "asks"))
	if !isWhole(run, runPrefix) {
		t.Fatalf("a start prints %q", run)
	}
	if again := strings.TrimSpace(gavel("chain", "start", "asks", "--run", mine)); again != mine {
		t.Errorf("a run with an id of its own is %q", again)
	}
	if again := strings.TrimSpace(gavel("chain", "start", "asks", "--run", run[:len(run)-1])); again != run[:len(run)-1] {
		t.Errorf("a new id that begins another's is completed: %q", again)
	}
	s.until("questions", func() bool {
		return strings.Contains(gavel("chain", "show", mine), "the signal go") && strings.Contains(gavel("chain", "show", run), "the signal go")
	})
	holds(gavel("chain", "show", run), run, who, "wf-"+run, "running")
	// The id may be cut, and be without its prefix, too.
	fails(term.ExitUsage, "is the beginning of more than one run", "chain", "show", run[len(runPrefix):len(run)-2])
	holds(gavel("chain", "pause", mine, "--reason", "Lunch."), mine+" is paused")
	holds(gavel("chain", "list", "--status", "paused"), mine, "by "+who+": Lunch.")
	if out := gavel("chain", "list", "--status", "paused", "--json"); strings.Count(out, `"run": `) != 1 {
		t.Errorf("more than one is paused:\n%s", out)
	}
	holds(gavel("chain", "resume", mine), mine+" is running")
	holds(gavel("chain", "signal", mine, "go", "--value", `{"n": 1.50}`), mine+" is ")
	if out := gavel("chain", "show", mine, "--watch"); !strings.HasPrefix(out, "{") || !strings.Contains(out, "1.50") {
		t.Errorf("what it gave: %s", out)
	}
	fails(term.ExitBad, "has ended", "chain", "signal", mine, "go")
	fails(term.ExitUsage, `The chain waits for "go".`, "chain", "signal", run, "g0")
	fails(term.ExitUsage, "not JSON", "chain", "signal", run, "go", "--value", "yes")
	holds(gavel("chain", "cancel", run, "--reason", "Late."), run+" is cancelled")
	fails(term.ExitBad, "by "+who+": Late.", "chain", "show", run, "--watch")
	fails(term.ExitBad, `the step "open" failed`, "chain", "start", "fails", "--run", bad, "--watch")
	holds(gavel("chain", "list", "--chain", "fails"), bad, "failed", "open: ")
	again := strings.Fields(gavel("chain", "redrive", bad, "--reason", "Again."))
	if len(again) != 3 || !isWhole(again[0], runPrefix) {
		t.Fatalf("a redrive prints %q", again)
	}
	fails(term.ExitBad, `the step "open" failed`, "chain", "show", again[0], "--watch")
	fails(term.ExitBad, "Only a failed run can be run again", "chain", "redrive", run)
	fails(term.ExitUsage, "There is no chain", "chain", "start", "other")
	fails(term.ExitUsage, "There is no run", "chain", "show", "other")
}

// TestScheduleCommands: what the commands on schedules say, over a server and over its store.
func TestScheduleCommands(t *testing.T) {
	t.Parallel()
	config := writeChains(t, matrixChain)
	s := serveGavel(t, "--config", config)
	for _, there := range [][]string{{"--server", s.url, "--token-file", tokenFile(t, s.owner)}, {"--store", s.store, "--config", config}} {
		gavel := func(args ...string) string { return string(runGavel(t, append(args, there...)...)) }
		if out := gavel("schedule", "list"); !strings.Contains(out, "once at 2999-01-01T00:00:00Z") || !strings.Contains(out, "night") {
			t.Errorf("%s: %s", there[0], out)
		}
		if out := gavel("schedule", "pause", "w-chain", "--reason", "Lunch."); out != "w-chain is paused\n" {
			t.Errorf("%s: %s", there[0], out)
		}
		if out, code := gavelFails(t, nil, append([]string{"schedule", "pause", "w-chain"}, there...)...); code != term.ExitBad {
			t.Errorf("%s: paused twice: %d %s", there[0], code, out)
		}
		if out := gavel("schedule", "list"); !strings.Contains(out, "paused") || !strings.Contains(out, "Lunch.") {
			t.Errorf("%s: %s", there[0], out)
		}
		if out := gavel("schedule", "resume", "w-chain"); out != "w-chain runs next at 2999-01-01T00:00:00Z\n" {
			t.Errorf("%s: %s", there[0], out)
		}
	}
	run := strings.TrimSpace(string(runGavel(t, "schedule", "trigger", "w-chain", "--store", s.store, "--config", config)))
	s.until("the run of the tick", func() bool {
		status, v := s.ask(s.owner, http.MethodGet, "/v1/runs/"+run, "")
		return status == http.StatusOK && v["principal"] == "night"
	})
}

// TestRunEvents: what becomes of a run is on the stream of events, as of any instance.
func TestRunEvents(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--config", writeChains(t, asksChain))
	started := s.must(s.agent, http.MethodPost, "/v1/runs", `{"chain":"asks"}`)
	run, _ := started["run"].(string)
	id, _ := started["id"].(string)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/instances/"+id+"/events?after=0", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.agent)
	r.Header.Set("Accept", "text/event-stream")
	stream, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	s.until("a question", func() bool {
		_, v := s.ask(s.agent, http.MethodGet, "/v1/runs/"+run, "")
		return v["waiting"] != nil
	})
	s.must(s.agent, http.MethodPost, "/v1/runs/"+run+"/signal", `{"name":"go","value":"yes"}`)
	var actions []string
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var event struct{ Instance, Action, Status string }
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			t.Fatal(err)
		}
		actions = append(actions, event.Action)
		if event.Status == "complete" {
			break
		}
	}
	if got := strings.Join(actions, " "); got != " wait note continue finish" {
		t.Errorf("the stream tells of %q", got)
	}
}

// runAnswers answers what a run is, one after the other: an chain.RunView or an error.
type runAnswers struct {
	left  []any
	asked []any
}

func (r *runAnswers) Ask(_ context.Context, _ *operation.Operation, req any) (any, error) {
	next := r.left[0]
	r.asked = append(r.asked, req)
	r.left = r.left[1:]
	if err, failed := next.(error); failed {
		return nil, err
	}
	return next, nil
}

// TestWatchRun: each step and question is told once, and a server that starts anew is waited for.
func TestWatchRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &engine.Error{Code: engine.CodeUnavailable, Message: "The server is away."}
		view := func(status chain.RunStatus, steps ...string) chain.RunView {
			v := chain.RunView{Run: "r", Status: status, NextCursor: fmt.Sprint(len(steps)), Waiting: []chain.RunQuestion{{Kind: "signal", Key: "go", Step: "word"}}}
			for _, key := range steps {
				v.Steps = append(v.Steps, chain.RunStep{Key: key, Op: "call", Status: chain.StatusDone})
			}
			return v
		}
		ended := view(chain.StatusDone, "a", "b")
		ended.Output = json.RawMessage(`{"n":1.50}`)
		var out, told bytes.Buffer
		con := &console{out: term.New(&out), err: term.New(&told)}
		answers := &runAnswers{left: []any{view(chain.StatusRunning, "a"), away, away, view(chain.StatusRunning, "a"), ended}}
		if err := watchRun(t.Context(), con, answers, "r", false, ""); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]any{&chain.RunRequest{Run: "r"}, &chain.RunRequest{Run: "r", Cursor: "1"}}, answers.asked[:2]); diff != "" {
			t.Errorf("only what is new is asked for: %s", diff)
		}
		const want = "done      a\nwaiting   word: the signal go\nunknown   r: cannot look now, trying again: The server is away.\ndone      b\n"
		if got := told.String(); got != want || !strings.Contains(out.String(), "1.50") {
			t.Errorf("it says\n%s\nand prints %s", got, out.String())
		}
		// What was never seen is not waited for.
		if err := watchRun(t.Context(), con, &runAnswers{left: []any{away}}, "r", false, ""); err == nil {
			t.Error("a server that cannot be reached is waited for")
		}
	})
}

// TestPrintRun: one line says what a run waits for or does, since when, and what there is to do; a pipe gets
// the whole of an error.
func TestPrintRun(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 10, 9, 30, 0, 0, time.UTC)
	long := strings.Repeat("much went wrong, ", 20) + "at last"
	r := chain.RunView{
		Run: "r 1", Chain: "c", Status: chain.StatusRunning, Principal: "ann", Started: began,
		Waiting: []chain.RunQuestion{
			{Kind: "signal", Key: "go", Step: "word", Since: began, Until: began.Add(time.Hour)},
			{Kind: "step", Key: "pay!", Step: "pay", Server: "bank", Name: "pay", Since: began, Review: "rev-1"},
			{Kind: "review", Key: "ask", Step: "ask", Since: began, Review: "rev-2"},
			{Kind: "state", Key: "w", Step: "w", Since: began, Instance: "wf-1", State: "done"},
			{Kind: "sleep", Key: "nap", Step: "nap", Since: began, Until: began.Add(time.Hour)},
		},
		UnderWay: []chain.RunQuestion{{Kind: "call", Key: "look", Step: "look", Server: "s", Name: "look", Since: began.Add(time.Minute)}, {Kind: "complete", Key: "p>", Step: "p", Name: "small", Since: began}},
		Steps:    []chain.RunStep{{Key: "x", Op: "call", Status: chain.StatusFailed, Started: began, Ended: began, Error: &chain.RunError{Code: "tool_error", Message: long}}},
	}
	var b bytes.Buffer
	printRun(term.New(&b), r, began.Add(3*time.Minute), " --config g.yaml")
	for _, want := range []string{
		"waits for  the signal go (step word, since 2026-03-10T09:30:00Z, for 3m), until 2026-03-10T10:30:00Z; gavel chain signal 'r 1' go --config g.yaml\n",
		"waits for  a person's word on bank/pay (step pay, since 2026-03-10T09:30:00Z, for 3m); gavel review show rev-1 --config g.yaml\n",
		"waits for  a person's decision (step ask, since 2026-03-10T09:30:00Z, for 3m); gavel review show rev-2 --config g.yaml\n",
		"waits for  wf-1 to be in state done (step w, since 2026-03-10T09:30:00Z, for 3m); gavel status wf-1 --config g.yaml\n",
		"waits for  its time, 2026-03-10T10:30:00Z (step nap, since 2026-03-10T09:30:00Z, for 3m)\n",
		"under way  a call of s/look (step look, since 2026-03-10T09:31:00Z, for 2m)\n", "under way  an answer of the model small (step p,", long,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	for want, r := range map[string]chain.RunView{
		"waits for the signal go, for 3m, and 4 more":             r,
		"a call of s/look, for 2m":                                {Status: chain.StatusRunning, UnderWay: r.UnderWay[:1]},
		"waits for its turn, or for a server that runs its chain": {Status: chain.StatusQueued},
		"run_error":  {Status: chain.StatusFailed, Error: &chain.RunError{Code: "run_error"}},
		"x: " + long: {Status: chain.StatusFailed, Error: &chain.RunError{Code: "tool_error", Step: "x", Message: long}},
	} {
		rows := runRows(term.New(&b), []chain.RunView{r})
		if got := noteOnRun(r, began.Add(3*time.Minute)); got != want || rows[1][len(rows[1])-1] == "" || len(want) > 80 && rows[1][len(rows[1])-1] != want {
			t.Errorf("the note is %q, want %q, in the row %q", got, want, rows[1])
		}
	}
	for status, want := range map[chain.RunStatus]string{chain.StatusQueued: "waits for  its turn", chain.StatusPaused: "to go on  gavel chain resume r\n"} {
		b.Reset()
		if printRun(term.New(&b), chain.RunView{Run: "r", Status: status}, began, ""); !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	b.Reset()
	printRun(term.New(&b), chain.RunView{Run: "r", Status: chain.StatusFailed, Error: &chain.RunError{Message: "it could not be read"}}, began, "")
	if !strings.Contains(b.String(), "failed    it could not be read\n") {
		t.Errorf("a failure without a step:\n%s", b.String())
	}
}
