package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/modules/chain"
	"github.com/gavel-mcp/gavel/judge/llmtest"
)

// moving is a chain that moves a workflow once each second.
const moving = `{"name":"moving","schedule":{"type":"interval","seconds":1},"steps":[
	{"id":"open","type":"workflow","workflow":"ticket","action":"start"},
	{"id":"close","type":"workflow","action":"advance","instance":"{{open.output.id}}","perform":"close","save_output_to":"variables.output.ticket"}]}`

const ticket = `{"name":"ticket","initialState":"open","states":{"open":{"transitions":{"close":"closed"}},"closed":{"final":true,"outcome":"success"}}}`

// TestServerRunsSchedules: the runs of a schedule act for the principal in the configuration, as long as it names
// one.
func TestServerRunsSchedules(t *testing.T) {
	t.Parallel()
	config := writeChains(t, moving)
	definitions := filepath.Join(filepath.Dir(config), "flows")
	put(t, filepath.Join(definitions, "ticket.json"), ticket)
	const named = "chains: {definitions: chains, runAs: {principal: nightly, workflows: [%s]}}\n"
	put(t, config, fmt.Sprintf(named, "chain.moving, ticket"))
	s := serveGavel(t, "--config", config, "--definitions", definitions, "--rate", "0")
	operator, nightly := s.token("o", "--role", "operator"), s.token("n", "--role", "agent", "--principal", "nightly")
	runs := func(status string) (all []object) {
		t.Helper()
		list, _ := s.must(operator, http.MethodGet, "/v1/runs?limit=500&status="+status, "")["runs"].([]any)
		for _, one := range list {
			run, _ := one.(object)
			all = append(all, run)
		}
		return all
	}
	s.until("a run that is done", func() bool { return len(runs("done")) > 1 })
	for _, run := range runs("done") {
		if id, _ := run["run"].(string); run["principal"] != "nightly" || !chain.IsTickRun(id) {
			t.Errorf("%v", run)
		}
	}
	list, _ := s.must(nightly, http.MethodGet, "/v1/instances?workflow=ticket", "")["instances"].([]any)
	if len(list) == 0 {
		t.Fatal("nightly has no ticket of its own")
	}
	if one, _ := list[0].(object); one["owner"] != "nightly" || one["state"] != "closed" {
		t.Errorf("%v", one)
	}
	// Runs cannot use workflows that the principal may no longer use.
	put(t, config, fmt.Sprintf(named, "chain.moving"))
	s.until("a run that may not", func() bool { return len(runs("failed")) > 0 })
}

// TestChainActsForOwner: the operator lets a chain act for another principal. So an agent can run it although it may
// not perform its steps itself. That gives the agent no other access.
func TestChainActsForOwner(t *testing.T) {
	t.Parallel()
	step := `,"steps":[{"id":"open","type":"workflow","workflow":"ticket","action":"start"}]}`
	config := writeChains(t, `{"name":"machine"`+step, `{"name":"other"`+step)
	put(t, filepath.Join(filepath.Dir(config), "flows", "ticket.json"), ticket)
	put(t, config, "chains: {definitions: chains, runAs: {principal: house, workflows: ticket, chains: machine}}\n")
	s := serveGavel(t, "--config", config, "--definitions", filepath.Join(filepath.Dir(config), "flows"), "--rate", "0")
	agent, operator := s.token("a", "--role", "agent", "--principal", "ann", "--workflows", "chain.machine chain.other"), s.token("o", "--role", "operator", "--principal", "olga")
	narrow := s.token("b", "--role", "agent", "--principal", "ben", "--workflows", "chain.other")
	ended := func(chain string) map[string]any {
		t.Helper()
		run, _ := s.must(agent, http.MethodPost, "/v1/runs", `{"chain":"`+chain+`"}`)["run"].(string)
		return s.must(agent, http.MethodGet, "/v1/runs/"+run+"/result", "")
	}
	done := ended("machine")
	if done["status"] != "done" || done["principal"] != "ann" || done["actsFor"] != "house" {
		t.Errorf("the chain that acts for its owner: %v", done)
	}
	record := s.must(operator, http.MethodGet, fmt.Sprintf("/v1/instances/%v", done["id"]), "")
	if text := fmt.Sprint(record["context"]); record["owner"] != "ann" || !strings.Contains(text, "actsFor:house") {
		t.Errorf("its record: %v", record)
	}
	list, _ := s.must(operator, http.MethodGet, "/v1/instances?workflow=ticket", "")["instances"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["owner"] != "house" {
		t.Errorf("the tickets: %v", list)
	}
	if failed := ended("other"); failed["status"] != "failed" || failed["actsFor"] != nil {
		t.Errorf("the chain that acts for who starts it: %v", failed)
	}
	if status, answer := s.ask(narrow, http.MethodPost, "/v1/runs", `{"chain":"machine"}`); status/100 == 2 {
		t.Errorf("who may not run the chain: %v", answer)
	}
	if status, answer := s.ask(agent, http.MethodPost, "/v1/workflows/ticket/instances", `{}`); status/100 == 2 {
		t.Errorf("the agent itself: %v", answer)
	}
}

// TestPromptsAreCompleted: a configured model answers the messages of a prompt, within the budget of the principal
// that the run acts for.
func TestPromptsAreCompleted(t *testing.T) {
	t.Parallel()
	needsProgram(t)
	endpoint := httptest.NewServer(llmtest.New(llmtest.OpenAI(), llmtest.Says("Begin with the list.")))
	t.Cleanup(endpoint.Close)
	config := writeChains(t, `{"name":"advice","steps":[{"id":"ask","type":"prompt","server":"self","prompt_name":"follow-workflow","complete":{"model":"small"},"save_output_to":"variables.output.advice"}]}`)
	put(t, config, "chains: {definitions: chains}\nupstreams: {self: {command: [gavel, mcp, --store, memory], allow: [{prompts: [follow-workflow]}]}}\n")
	runGavel(t, "upstream", "pin", "--all", "--config", config)
	file := filepath.Join(filepath.Dir(config), "chains", "0.json")
	model := []string{"--config", config, "--llm-base-url", endpoint.URL, "--llm-model", "small"}
	if out := runGavel(t, append([]string{"chain", "run", file}, model...)...); !strings.Contains(string(out), `"advice": "Begin with the list."`) {
		t.Errorf("chain run prints %s", out)
	}
	s := serveGavel(t, append([]string{"--llm-budget", "1"}, model...)...)
	agent := s.token("a", "--role", "agent")
	var results []string
	for range 2 {
		run, _ := s.must(agent, http.MethodPost, "/v1/runs", `{"chain":"advice"}`)["run"].(string)
		s.until("the end of "+run, func() bool { return s.must(agent, http.MethodGet, "/v1/runs/"+run, "")["endedAt"] != nil })
		v := s.must(agent, http.MethodGet, "/v1/runs/"+run, "")
		results = append(results, fmt.Sprint(v["output"], v["error"]))
	}
	if !strings.Contains(results[0], "advice:Begin with the list.") || !strings.Contains(results[1], "used up its quota of questions to the model") {
		t.Errorf("%q", results)
	}
}

// TestUnknownChainOfStateIsRefused: a definition is rejected on loading if one of its states starts a chain that the
// configuration does not have.
func TestUnknownChainOfStateIsRefused(t *testing.T) {
	t.Parallel()
	flow := filepath.Join(t.TempDir(), "job.json")
	put(t, flow, `{"name":"job","initialState":"work","states":{"work":{"transitions":{"fail":"error"}},"error":{"onEnter":{"chain":"clean","wait":true},"transitions":{"skip":"over"}},"over":{"final":true}}}`)
	none, other := filepath.Join(t.TempDir(), "gavel.yaml"), writeChains(t, `{"name":"cleaner","steps":[{"id":"nap","type":"wait","seconds":0.01}]}`)
	put(t, none, "{}\n")
	for config, want := range map[string]string{"": `unknown chain "clean"`, none: `unknown chain "clean"`, other: `unknown chain "clean"; known are "cleaner"`} {
		args := []string{"serve", "--auth", "none", "--listen", "127.0.0.1:0", "--store", gavel.Memory, "--definitions", flow}
		if config != "" {
			args = append(args, "--config", config)
		}
		if out, code := gavelFails(t, nil, args...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("serve ends with %d: %s", code, out)
		}
	}
}

// TestServerStartsChainsOfStates: when an instance enters a state, the state's chain runs for the instance's owner,
// and the end of the run moves the instance.
func TestServerStartsChainsOfStates(t *testing.T) {
	t.Parallel()
	config := writeChains(t, `{"name":"clean","variables":{"input":{"job":"none"}},"steps":[{"id":"nap","type":"wait","seconds":0.01},{"id":"open","type":"workflow","workflow":"ticket","action":"start"}]}`)
	definitions := filepath.Join(filepath.Dir(config), "flows")
	put(t, filepath.Join(definitions, "ticket.json"), ticket)
	put(t, filepath.Join(definitions, "job.json"), `{"name":"job","initialState":"work","states":{"work":{"transitions":{"fail":"error"}},
		"error":{"onEnter":{"chain":"clean","input":{"job":"{{instance.id}}"},"wait":true,"onSuccess":"cleaned"},"transitions":{"cleaned":"over","skip":"over"}},"over":{"final":true,"outcome":"failure"}}}`)
	s := serveGavel(t, "--config", config, "--definitions", definitions, "--rate", "0")
	agent := s.token("a", "--role", "agent", "--principal", "ann")
	id := s.begin(agent, "job")
	s.must(agent, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"fail"}`)
	if status, answer := s.ask(agent, http.MethodPost, "/v1/instances/"+id+"/advance", `{"action":"skip"}`); status/100 == 2 {
		if now := s.must(agent, http.MethodGet, "/v1/instances/"+id, ""); now["state"] != "over" { // the chain has already ended
			t.Errorf("%v, %v", answer, now)
		}
	} else if answer["code"] != "call_open" && answer["code"] != "instance_ended" {
		t.Errorf("%v", answer)
	}
	s.until("the end", func() bool { return s.must(agent, http.MethodGet, "/v1/instances/"+id, "")["state"] == "over" })
	var run map[string]any
	s.until("the end of the run", func() bool { // it is recorded after the end of its entry
		run = s.must(agent, http.MethodGet, "/v1/runs/enter-"+id+"-2", "")
		return run["status"] != "running"
	})
	if run["status"] != "done" || run["principal"] != "ann" || run["chain"] != "clean" {
		t.Errorf("%v", run)
	}
	list, _ := s.must(agent, http.MethodGet, "/v1/instances?workflow=ticket", "")["instances"].([]any)
	if len(list) != 1 {
		t.Errorf("%d tickets", len(list))
	}
}
