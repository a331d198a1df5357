package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/internal/modules/measure/compare"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/judge"
)

var (
	tauTable = flag.String("tau.flights", "", "the file flights.json of tau-bench, for TestAirlineGate")
	tauOut   = flag.String("tau.cases", "", "where TestWriteAirlineCases writes the golden cases of the records in -tau.records")
	tauGate  = flag.String("tau.workflow", airlineWorkflow, "the definition that these cases name, as seen from where they lie")
	tauTalk  = flag.String("tau.dialogues", "", "recorded dialogues of that agent, one a line: what the user said and which flights were found is evidence then")
	tauPass  = flag.Bool("tau.passing", false, "write only cases that the gate approves without a model")
	tauIn    = flag.String("tau.records", "", "recorded writes of an airline's agent (tau-bench), one a line")
)

const airlineWorkflow = "../../testdata/workflows/airline.yaml"

// airlineCases converts records to cases.
func airlineCases(t *testing.T, records []tauRecord, flights tauFlights) []eval.Case {
	t.Helper()
	in, file := openAirline(t, "trajectories.dev.jsonl")
	dialogues, err := readTauDialogues(file, in)
	if err != nil {
		t.Fatal(err)
	}
	cases, err := tauCases(records, tauOptions{Workflow: airlineWorkflow, All: true, Flights: flights, Dialogues: dialogues})
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// airlineRecords reads the dev part, which is not in the source tree.
func airlineRecords(t *testing.T) []tauRecord {
	t.Helper()
	in, file := openAirline(t, "transitions.dev.jsonl")
	out, err := readTau(file, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// openAirline opens a file of the dev part, which is not in the source tree.
func openAirline(t *testing.T, name string) (in *os.File, file string) {
	t.Helper()
	file = filepath.Join("..", "..", "..", "shared", "data", "tau_airline", name)
	in, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the recorded transitions are not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return in, file
}

func airlineBuilder() *measure.CaseBuilder {
	return &measure.CaseBuilder{Set: measure.GoldenSet{File: map[string]string{}}, Definitions: measure.NewDefinitionCache()}
}

// The gate gets the same question regardless of the labels.
func TestAirlineLabelsNeverReachTheGate(t *testing.T) {
	t.Parallel()
	records := airlineRecords(t)
	in, file := openAirline(t, "trajectories.dev.jsonl")
	flights, err := readTauFlights(file, in)
	if err != nil {
		t.Fatal(err)
	}
	cases, build := airlineCases(t, records, flights), airlineBuilder()
	blind := slices.Clone(records)
	for i := range blind {
		blind[i] = tauRecord{ID: records[i].ID, Group: records[i].Group, Transition: records[i].Transition}
		blind[i].Gold.Verdict = "another"
	}
	unlabelled := airlineCases(t, blind, flights)
	for i, r := range records {
		question, err := build.Build(cases[i])
		if err != nil {
			t.Fatal(r.ID, err)
		}
		again, err := build.Build(unlabelled[i])
		if err != nil {
			t.Fatal(r.ID, err)
		}
		for _, q := range []*judge.Case{&question, &again} { // reflect.DeepEqual never equates functions
			q.Scrub, q.Mask, q.Scrubber, q.Digest = nil, nil, nil, nil
		}
		if !reflect.DeepEqual(question, again) || !reflect.DeepEqual(cases[i].Evidence, unlabelled[i].Evidence) {
			t.Errorf("%s: the question depends on the label", r.ID)
		}
		shown := fmt.Sprintf("%+v %s %s %s", question, cases[i].Context, r.Transition.Data, cases[i].Evidence)
		secrets := append([]string{r.Gold.Why, "in_gold", "trajectory_reward", "tool_error"}, r.Validators.Deterministic...)
		if r.Gold.ToolError != nil {
			secrets = append(secrets, *r.Gold.ToolError)
		}
		for _, s := range secrets {
			if strings.Contains(shown, s) {
				t.Errorf("%s: the question holds %q", r.ID, s)
			}
		}
	}
}

var airlineRule = regexp.MustCompile(`\bR\d\d\b`)

// airlineGate holds a gate's result for each write, and counts the rules that refusals name.
type airlineGate struct {
	refused map[string]bool
	hits    map[string]int
	unseen  []string
}

func decideAirline(t *testing.T, records []tauRecord, flights tauFlights, evidence bool) airlineGate {
	t.Helper()
	cases, build, decide := airlineCases(t, records, flights), airlineBuilder(), measure.NewDecider(plainSandbox(t), nil, measure.Cell{})
	gate := airlineGate{refused: map[string]bool{}, hits: map[string]int{}}
	for i, r := range records {
		c := cases[i]
		if !evidence {
			c.Evidence = map[string]json.RawMessage{"said": c.Evidence["said"]}
		}
		question, err := build.Build(c)
		if err != nil {
			t.Fatal(r.ID, err)
		}
		verdict, err := decide(t.Context(), c, question)
		if err != nil {
			t.Fatal(r.ID, err)
		}
		refused := verdict.Outcome != judge.Approve
		gate.refused[r.ID] = refused
		said := fmt.Sprint(verdict.Findings)
		rules := slices.Compact(slices.Sorted(slices.Values(airlineRule.FindAllString(said, -1))))
		for _, rule := range rules {
			gate.hits[rule+" "+cmp.Or(r.Gold.Verdict, "unscored")]++
		}
		switch {
		case refused && len(rules) == 0:
			t.Errorf("%s: refused without a rule: %s", r.ID, said)
		case r.Gold.Verdict == "reject" && !refused:
			gate.unseen = append(gate.unseen, fmt.Sprintf("%s (%s, %s)", r.ID, r.Transition.Action, r.Stratum()))
		case r.Gold.Verdict == "approve" && refused:
			t.Logf("right, and refused: %s by %v", r.ID, rules)
		}
	}
	return gate
}

// airlineReport scores the writes of a stratum that have an expected outcome.
func airlineReport(t *testing.T, records []tauRecord, stratum string, refused map[string]bool) ([]eval.Case, []eval.Result, eval.Report) {
	t.Helper()
	var cases []eval.Case
	var results []eval.Result
	for _, r := range records {
		right := judge.Outcome(r.Gold.Verdict)
		if r.Stratum() != stratum || right != judge.Approve && right != judge.Reject {
			continue
		}
		got := map[bool]judge.Outcome{true: judge.Reject, false: judge.Approve}[refused[r.ID]]
		cases = append(cases, eval.Case{ID: r.ID, Group: r.Group, Split: eval.Dev, Expect: eval.Expect{Outcome: right}})
		results = append(results, eval.Result{Case: r.ID, Outcome: got})
	}
	return cases, results, eval.Evaluate(cases, results, eval.Options{})
}

// airlineRate formats a rate with its exact interval and its interval when each group counts as one draw.
func airlineRate(k int, r eval.Rate) string {
	if r.N == 0 {
		return "none"
	}
	exact := eval.NewRate(k, r.N, float64(r.N), 0.95)
	low, high := r.Low, r.High
	if k != r.K { // k counts the misses
		low, high = 1-r.High, 1-r.Low
	}
	return fmt.Sprintf("%d of %d (%.3f to %.3f; by group %.3f to %.3f)", k, r.N, exact.Low, exact.High, low, high)
}

// TestAirlineGate compares the gate with the simple rules recorded with the writes. The gate runs on the snapshot
// alone; with the results of the agents' own searches as evidence; and with a source of all flights, if
// -tau.flights names tau-bench's flights.json.
func TestAirlineGate(t *testing.T) {
	t.Parallel()
	records := airlineRecords(t)
	in, file := openAirline(t, "trajectories.dev.jsonl")
	answers, err := readTauFlights(file, in)
	if err != nil {
		t.Fatal(err)
	}
	simple := airlineGate{refused: map[string]bool{}}
	others := map[string][]string{}
	for _, r := range records {
		simple.refused[r.ID] = len(r.Validators.Deterministic) > 0
		if r.Gold.Verdict != "reject" && r.Gold.Verdict != "approve" {
			others[r.Stratum()] = append(others[r.Stratum()], r.ID)
		}
	}
	gates := map[string]airlineGate{
		"1 simple rules":      simple,
		"2 snapshot":          decideAirline(t, records, nil, false),
		"3 recorded searches": decideAirline(t, records, answers, true),
	}
	if *tauTable != "" {
		table, err := os.Open(*tauTable)
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		all, err := readTauFlights(*tauTable, table)
		if err != nil {
			t.Fatal(err)
		}
		gates["4 all flights"] = decideAirline(t, records, all, true)
	}
	for _, stratum := range []string{stratumExecuted, stratumEnvironment} {
		before, simply, _ := airlineReport(t, records, stratum, simple.refused)
		for _, name := range slices.Sorted(maps.Keys(gates)) {
			_, results, report := airlineReport(t, records, stratum, gates[name].refused)
			missed, wrong := report.FalseApprove, report.FalseRefuse
			t.Logf("%s, %s: rejects stopped %s; right writes refused %s", stratum, name, airlineRate(missed.N-missed.K, missed), airlineRate(wrong.K, wrong))
			if beside := compare.Compare(before, simply, results, eval.Options{}).FalseApprove; name != "1 simple rules" {
				t.Logf("    beside the simple rules: %d newly missed, %d newly stopped, p = %.3f by group", beside.B, beside.C, beside.P)
				if beside.C < beside.B || wrong.K > 1 || wrong.N == 0 && stratum == stratumExecuted {
					t.Errorf("%s, %s: worse than the simple rules: %+v, %+v", stratum, name, beside, wrong)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		for _, stratum := range slices.Sorted(maps.Keys(others)) {
			refused := 0
			for _, id := range others[stratum] {
				if gates[name].refused[id] {
					refused++
				}
			}
			t.Logf("%s, %s: not scored, refused %d of %d", stratum, name, refused, len(others[stratum]))
		}
		for _, rule := range slices.Sorted(maps.Keys(gates[name].hits)) {
			t.Logf("%s: hits of %s: %d", name, rule, gates[name].hits[rule])
		}
		t.Logf("%s: wrong, and no rule sees it: %d\n%s", name, len(gates[name].unseen), strings.Join(gates[name].unseen, "\n"))
	}
}

// airlineMoves maps a dialogue's calls to moves. Calls that are missing here are writes and use their own names.
var airlineMoves = map[string]string{
	"get_user_details": "identify", "get_reservation_details": "load_snapshot", "search_direct_flight": "look_up",
	"search_onestop_flight": "look_up", "list_all_airports": "look_up", "calculate": "look_up", "think": "look_up",
}

// The definition covers every state of the recorded dialogues: each word and each call is a legal move. Words that
// accompany a call, which the policy forbids, do not count as words to the user here.
func TestAirlineDialoguesAreWalks(t *testing.T) {
	t.Parallel()
	def, err := measure.ReadWorkflow("airline.jsonl", json.RawMessage(fmt.Sprintf(`{"ref": %q}`, airlineWorkflow)))
	if err != nil {
		t.Fatal(err)
	}
	in, _ := openAirline(t, "trajectories.dev.jsonl")
	visited, moves, talking := map[string]int{}, 0, 0
	for lines := json.NewDecoder(in); lines.More(); {
		var dialogue tauDialogue
		if err := lines.Decode(&dialogue); err != nil {
			t.Fatal(err)
		}
		state := def.InitialState
		step := func(action string) bool {
			s := def.States[state]
			if s == nil || s.Transitions[action] == nil {
				return false
			}
			state = s.Transitions[action].Routes[0].Target
			visited[state]++
			moves++
			return true
		}
		must := func(action string) {
			if before := state; !step(action) {
				t.Errorf("%s: the state %q has no %q", dialogue.ID, before, action)
			}
		}
		for _, m := range dialogue.Messages {
			if m.Role == "user" {
				must("hear")
				continue
			}
			if m.Role != "assistant" {
				continue
			}
			if m.Call == nil {
				must("talk")
				continue
			}
			if m.Content != "" {
				talking++
			}
			action := cmp.Or(airlineMoves[m.Call.Name], m.Call.Name)
			if !step(action) { // the booking system loads a new snapshot before a write
				must("load_snapshot")
				must(action)
			}
		}
		if s := def.States[state]; !s.Final {
			must("close")
		}
	}
	t.Logf("%d moves, %d calls with words; visited %v", moves, talking, visited)
	for name := range def.States {
		if visited[name] == 0 && name != def.InitialState {
			t.Errorf("no dialogue is ever in %q", name)
		}
	}
}

// TestWriteAirlineCases converts recorded writes to golden cases if flags name both files.
func TestWriteAirlineCases(t *testing.T) {
	if *tauIn == "" || *tauOut == "" {
		t.Skip("-tau.records and -tau.cases name no files")
	}
	in, err := os.Open(*tauIn)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	records, err := readTau(*tauIn, in)
	if err != nil {
		t.Fatal(err)
	}
	options := tauOptions{Workflow: *tauGate}
	if *tauTalk != "" {
		text, err := os.ReadFile(*tauTalk)
		if err != nil {
			t.Fatal(err)
		}
		var errs [2]error
		options.Dialogues, errs[0] = readTauDialogues(*tauTalk, bytes.NewReader(text))
		options.Flights, errs[1] = readTauFlights(*tauTalk, bytes.NewReader(text))
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
	}
	cases, err := tauCases(records, options)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	build, decide := airlineBuilder(), measure.NewDecider(plainSandbox(t), nil, measure.Cell{})
	for _, c := range cases {
		if *tauPass {
			asked := c
			asked.Workflow = json.RawMessage(fmt.Sprintf(`{"ref": %q}`, airlineWorkflow))
			question, err := build.Build(asked)
			if err != nil {
				t.Fatal(c.ID, err)
			}
			if verdict, err := decide(t.Context(), asked, question); err != nil {
				t.Fatal(c.ID, err)
			} else if verdict.Outcome != judge.Approve {
				continue
			}
		}
		if err := json.NewEncoder(&out).Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(*tauOut, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Facts known only after a write, and records without an expected outcome, are not in the cases. The sources'
// responses are evidence, except truncated ones and the leg after midnight, which the tool prices wrongly.
func TestAirlineCases(t *testing.T) {
	t.Parallel()
	const flight = `{\"flight_number\": \"F1\", \"origin\": \"A\", \"destination\": \"B\", \"prices\": {\"economy\": 90}, \"date\": \"2024-05-20\"}`
	flights, err := readTauFlights("d", strings.NewReader(`{"id":"d1","messages":[{"role":"assistant","call":{"name":"search","arguments":{"date":"2024-05-20"}}},`+
		`{"role":"tool","name":"search_direct_flight","content":"[`+flight+`, {\"flight_number\": \"F2\", \"prices\": {\"economy\": 1}, \"date\": \"2024-05-21\"}, {\"flight_number\": \"F3\", \"orig"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	records, err := readTau("r", strings.NewReader(`
{"id":"r1-m3","group":"g1","transition":{"state":"open","action":"book_reservation","data":{"flights":[{"flight_number":"F1","date":"2024-05-20"},{"flight_number":"F2","date":"2024-05-21"}]},"context":{"user":{"payment_methods":{"c":1}}}},"gold":{"verdict":"reject","why":"because I say so","tool_error":"the tool said no"}}
{"id":"r2","group":"g2","transition":{"state":"open","action":"cancel","data":{},"context":{}},"gold":{"verdict":"disputed"}}`))
	if err != nil {
		t.Fatal(err)
	}
	dialogues, err := readTauDialogues("d", strings.NewReader(`{"id":"r1","messages":[{"role":"user","content":"Book it."},{"role":"assistant","content":"I booked it."},`+
		`{"role":"assistant","call":{"name":"book_reservation"}},{"role":"tool","content":"booked"},{"role":"user","content":"Thank you."}]}`))
	if err != nil {
		t.Fatal(err)
	}
	cases, err := tauCases(records, tauOptions{Workflow: "gate.yaml", Flights: flights, Dialogues: dialogues})
	if err != nil || len(cases) != 1 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	raw, err := json.Marshal(cases[0])
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"because I say so": false, "the tool said no": false, `"tags":["environment_errors"]`: true, `"outcome":"reject"`: true,
		`"payment_methods":{"c":1}`: true, `"economy":90`: true, `"economy":1`: false,
		`"said":{"messages":["Book it."],"omitted":0}`: true,
	} {
		if strings.Contains(string(raw), text) != want {
			t.Errorf("%s: is %s in it? want %v", raw, text, want)
		}
	}
}
