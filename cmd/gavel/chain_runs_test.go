package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// The chains of the tests: one waits for a signal, the other fails without another server.
const (
	asksChain  = `{"name":"asks","description":"Waits for a word.","steps":[{"id":"nap","type":"wait","seconds":0},{"id":"word","type":"wait","signal":"go","save_output_to":"variables.output.word"}]}`
	failsChain = `{"name":"fails","steps":[{"id":"open","type":"workflow","workflow":"nope","action":"start"}]}`
)

// TestRunCommands checks the output of the commands on runs, with a server and with its store.
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
	// An agent sees only its own runs.
	if out := runGavel(t, "chain", "list", "--server", s.url, "--token-file", tokenFile(t, s.agent)); len(out) != 0 {
		t.Errorf("an agent sees others' runs:\n%s", out)
	}
	// Commands that need no definition need no configuration.
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

// checkRunCommands runs the commands as a principal, with the flags that select the server or the store.
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
	if !cli.IsWholeID(run, "run-") {
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
	// The id may be shortened, and may omit its prefix.
	fails(term.ExitUsage, "matches more than one run", "chain", "show", run[len("run-"):len(run)-2])
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
	if len(again) != 3 || !cli.IsWholeID(again[0], "run-") {
		t.Fatalf("a redrive prints %q", again)
	}
	fails(term.ExitBad, `the step "open" failed`, "chain", "show", again[0], "--watch")
	fails(term.ExitBad, "Only a failed run can be run again", "chain", "redrive", run)
	fails(term.ExitUsage, "There is no chain", "chain", "start", "other")
	fails(term.ExitUsage, "There is no run", "chain", "show", "other")
}

// TestScheduleCommands checks the output of the commands on schedules, with a server and with its store.
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

// TestRunEvents: the stream of events includes the events of a run, like those of any instance.
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
