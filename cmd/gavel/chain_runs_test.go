package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
)

// The chains of the tests: one waits for a word, the other fails without another server.
const (
	asksChain  = `{"name":"asks","description":"Waits for a word.","steps":[{"id":"nap","type":"wait","seconds":0},{"id":"word","type":"wait","signal":"go","save_output_to":"variables.output.word"}]}`
	failsChain = `{"name":"fails","steps":[{"id":"open","type":"workflow","workflow":"nope","action":"start"}]}`
)

// TestRunCommands: what the commands on runs say, over a server.
func TestRunCommands(t *testing.T) {
	t.Parallel()
	s := serveGavel(t, "--config", writeChains(t, asksChain, failsChain))
	there := []string{"--server", s.url, "--token-file", tokenFile(t, s.owner)}
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
	holds(gavel("chain", "list", "--chains"), "asks", "Waits for a word.", "fails")
	run := strings.TrimSpace(gavel("chain", "start", "asks"))
	if !isWhole(run, runPrefix) {
		t.Fatalf("a start prints %q", run)
	}
	if again := strings.TrimSpace(gavel("chain", "start", "asks", "--run", "mine")); again != "mine" {
		t.Errorf("a run with an id of its own is %q", again)
	}
	if again := strings.TrimSpace(gavel("chain", "start", "asks", "--run", run[:len(run)-1])); again != run[:len(run)-1] {
		t.Errorf("a new id that begins another's is completed: %q", again)
	}
	// The id may be cut, and behind its prefix, too.
	s.until("a question", func() bool { return strings.Contains(gavel("chain", "show", "mine"), "the signal go") })
	holds(gavel("chain", "show", run), run, "local:operator", "wf-"+run, "running")
	fails(term.ExitUsage, "is the beginning of more than one run", "chain", "show", run[len(runPrefix):len(run)-2])
	holds(gavel("chain", "pause", "mine", "--reason", "Lunch."), "mine is paused")
	holds(gavel("chain", "list", "--status", "paused"), "mine", "by local:operator: Lunch.")
	if out := gavel("chain", "list", "--status", "paused", "--json"); strings.Count(out, `"run": `) != 1 {
		t.Errorf("more than one is paused:\n%s", out)
	}
	holds(gavel("chain", "resume", "mine"), "mine is running")
	holds(gavel("chain", "signal", "mine", "go", "--value", `{"n": 1.50}`), "mine is ")
	if out := gavel("chain", "show", "mine", "--watch"); !strings.HasPrefix(out, "{") || !strings.Contains(out, "1.50") {
		t.Errorf("what it gave: %s", out)
	}
	fails(term.ExitBad, "has ended", "chain", "signal", "mine", "go")
	fails(term.ExitUsage, "not JSON", "chain", "signal", run, "go", "--value", "yes")
	holds(gavel("chain", "cancel", run, "--reason", "Late."), run+" is cancelled")
	fails(term.ExitBad, "by local:operator: Late.", "chain", "show", run, "--watch")
	fails(term.ExitBad, `the step "open" failed`, "chain", "start", "fails", "--run", "bad", "--watch")
	holds(gavel("chain", "list", "--chain", "fails"), "bad", "failed", "open: ")
	redriven := strings.Fields(gavel("chain", "redrive", "bad", "--reason", "Again."))
	if len(redriven) != 3 || !isWhole(redriven[0], runPrefix) {
		t.Errorf("a redrive prints %q", redriven)
	}
	fails(term.ExitBad, "Only a failed run can be run again", "chain", "redrive", run)
	fails(term.ExitUsage, "There is no chain", "chain", "start", "other")
	fails(term.ExitUsage, "There is no run", "chain", "show", "other")
	// An agent sees its own.
	if out := runGavel(t, "chain", "list", "--server", s.url, "--token-file", tokenFile(t, s.agent)); len(out) != 0 {
		t.Errorf("an agent sees others' runs:\n%s", out)
	}
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
