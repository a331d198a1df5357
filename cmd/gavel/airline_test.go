package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
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

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/eval"
)

// airlineRecord is one recorded write of an agent. Only transition reaches the gate.
type airlineRecord struct {
	ID         string `json:"id"`
	Group      string `json:"group"`
	Transition struct {
		State   string                     `json:"state"`
		Action  string                     `json:"action"`
		Data    json.RawMessage            `json:"data"`
		Context map[string]json.RawMessage `json:"context"`
	} `json:"transition"`
	Gold struct {
		Verdict   string  `json:"verdict"`
		Why       string  `json:"why"`
		ToolError *string `json:"tool_error"`
	} `json:"gold"`
	// Validators are what the simple rules said, for the comparison only.
	Validators struct {
		Deterministic []string `json:"deterministic"`
	} `json:"validators"`
}

func (r airlineRecord) stratum() string {
	switch {
	case r.Transition.Action == "transfer_to_human_agents":
		return "transfers"
	case r.Gold.Verdict == "disputed":
		return "disputed"
	case r.Gold.ToolError != nil:
		return "environment errors"
	}
	return "executed writes"
}

type airlineRoute struct {
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
}

// airlineTimetable is where flights go, as the reservations of the records show it: what
// the booking system knows of every flight.
func airlineTimetable(t *testing.T, records []airlineRecord) map[string]airlineRoute {
	t.Helper()
	routes := map[string]airlineRoute{}
	for _, r := range records {
		var reservation struct {
			Flights []struct {
				airlineRoute
				Number string `json:"flight_number"`
			} `json:"flights"`
		}
		raw := r.Transition.Context["reservation"]
		if raw == nil {
			continue
		}
		if err := json.Unmarshal(raw, &reservation); err != nil {
			t.Fatal(err)
		}
		for _, f := range reservation.Flights {
			routes[f.Number] = f.airlineRoute
		}
	}
	return routes
}

// airlineCase imports a record. The label goes where a report looks for it, and nowhere
// else.
func airlineCase(t *testing.T, r airlineRecord, routes map[string]airlineRoute) eval.Case {
	t.Helper()
	snapshot := map[string]any{"timetable": routes}
	for _, key := range []string{"user", "reservation", "flight_status", "last_user_message", "dialog_tail"} {
		snapshot[key] = r.Transition.Context[key]
	}
	raw, err := json.Marshal(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return eval.Case{
		ID: r.ID, Group: r.Group, Tags: []string{r.stratum()}, State: r.Transition.State, Action: r.Transition.Action,
		Workflow: json.RawMessage(`{"ref": "../../testdata/workflows/airline.yaml"}`), Context: raw, Data: r.Transition.Data,
		Expect: eval.Expect{Outcome: judge.Outcome(r.Gold.Verdict)}, Label: eval.Label{Source: "adjudicated"}, Split: eval.Dev,
	}
}

// airlineRecords reads the dev part, which is not part of the sources.
func airlineRecords(t *testing.T) []airlineRecord {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "data", "tau_airline", "transitions.dev.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the recorded transitions are not here")
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []airlineRecord
	in := bufio.NewScanner(bytes.NewReader(raw))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var r airlineRecord
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func airlineBuilder() *caseBuilder {
	return &caseBuilder{set: goldenSet{file: map[string]string{}}, definitions: newDefinitionCache()}
}

// Whatever the labels say, the gate is asked the same question.
func TestAirlineLabelsNeverReachTheGate(t *testing.T) {
	records := airlineRecords(t)
	routes, build := airlineTimetable(t, records), airlineBuilder()
	for _, r := range records {
		question, err := build.build(airlineCase(t, r, routes))
		if err != nil {
			t.Fatal(r.ID, err)
		}
		bare := airlineRecord{ID: r.ID, Group: r.Group, Transition: r.Transition}
		bare.Gold.Verdict = "another"
		again, err := build.build(airlineCase(t, bare, routes))
		if err != nil {
			t.Fatal(r.ID, err)
		}
		for _, q := range []*judge.Case{&question, &again} { // functions never compare equal
			q.Scrub, q.Mask, q.Scrubber, q.Digest = nil, nil, nil, nil
		}
		if !reflect.DeepEqual(question, again) {
			t.Errorf("%s: the question depends on the label", r.ID)
		}
		shown := fmt.Sprintf("%+v %s %s", question, airlineCase(t, r, routes).Context, r.Transition.Data)
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

// airlineCount is one stratum: rejects and right writes, and how many of them were
// refused by the gate and by the simple rules.
type airlineCount struct{ rejects, gateStopped, simpleStopped, right, gateRefused, simpleRefused, other, gateOther int }

func (c *airlineCount) add(verdict string, gate, simple bool) {
	one := map[bool]int{true: 1}
	switch verdict {
	case "reject":
		c.rejects, c.gateStopped, c.simpleStopped = c.rejects+1, c.gateStopped+one[gate], c.simpleStopped+one[simple]
	case "approve":
		c.right, c.gateRefused, c.simpleRefused = c.right+1, c.gateRefused+one[gate], c.simpleRefused+one[simple]
	default:
		c.other, c.gateOther = c.other+1, c.gateOther+one[gate]
	}
}

func airlineRate(k, n int) string {
	exact, score := eval.ClopperPearson(k, n, 0.95), eval.Wilson(k, n, 0.95)
	return fmt.Sprintf("%d of %d (exact %.3f to %.3f, Wilson %.3f to %.3f)", k, n, exact.Low, exact.High, score.Low, score.High)
}

var airlineRule = regexp.MustCompile(`\bR\d\d\b`)

func TestAirlineGate(t *testing.T) {
	records := airlineRecords(t)
	routes, build := airlineTimetable(t, records), airlineBuilder()
	decide := decideEval(plainSandbox(t), nil)
	strata, hits, unseen := map[string]*airlineCount{}, map[string]int{}, []string(nil)
	for _, r := range records {
		c := airlineCase(t, r, routes)
		question, err := build.build(c)
		if err != nil {
			t.Fatal(r.ID, err)
		}
		verdict, err := decide(t.Context(), c, question)
		if err != nil {
			t.Fatal(r.ID, err)
		}
		refused := verdict.Outcome != judge.Approve
		s := r.stratum()
		if strata[s] == nil {
			strata[s] = &airlineCount{}
		}
		strata[s].add(r.Gold.Verdict, refused, len(r.Validators.Deterministic) > 0)
		said := fmt.Sprint(verdict.Findings)
		rules := slices.Compact(slices.Sorted(slices.Values(airlineRule.FindAllString(said, -1))))
		for _, rule := range rules {
			hits[rule+" "+cmp.Or(r.Gold.Verdict, "unscored")]++
		}
		switch {
		case refused && len(rules) == 0:
			t.Errorf("%s: refused without a rule: %s", r.ID, said)
		case r.Gold.Verdict == "reject" && !refused:
			unseen = append(unseen, fmt.Sprintf("%s (%s, %s)", r.ID, r.Transition.Action, s))
		case r.Gold.Verdict == "approve" && refused:
			t.Logf("right, and refused: %s by %v", r.ID, rules)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(strata)) {
		c := strata[s]
		t.Logf("%s: rejects stopped: gate %s; simple rules %s", s, airlineRate(c.gateStopped, c.rejects), airlineRate(c.simpleStopped, c.rejects))
		t.Logf("%s: right writes refused: gate %s; simple rules %s; others refused %d of %d", s, airlineRate(c.gateRefused, c.right), airlineRate(c.simpleRefused, c.right), c.gateOther, c.other)
		if c.gateStopped < c.simpleStopped || c.gateRefused > c.simpleRefused {
			t.Errorf("%s: the gate is worse than the simple rules: %+v", s, *c)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(hits)) {
		t.Logf("hits of %s: %d", rule, hits[rule])
	}
	t.Logf("wrong, and no rule sees it: %d\n%s", len(unseen), strings.Join(unseen, "\n"))
	if c := strata["executed writes"]; c == nil || c.rejects == 0 || c.right == 0 {
		t.Error("no executed writes were judged")
	}
}
