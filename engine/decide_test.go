package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
)

// strictSteps has every kind of rule, including those that a decision without an instance cannot check.
const strictSteps = `{"name":"steps","initialState":"a","states":{
	"a":{"transitions":{"go":{"target":"b","requiredFields":["why"],"freezes":["/why"]}}},
	"b":{"transitions":{"end":{"target":"c","notBy":"go","validator":"(data, context) => ({valid: data.n > context.least, confidence: 0.9, reason: 'n is too small'})"}}},
	"c":{"final":true}},
	"stateValidators":{"c":{"requiredFields":["owner"]}},
	"mustPassThrough":{"c":["b"]}}`

func TestDecide(t *testing.T) {
	b := newBench(t)
	b.define(operator, strictSteps)
	for _, c := range []struct {
		name, state, action, data, context string
		outcome                            judge.Outcome
		by                                 judge.LayerName
		target                             string
		unchecked                          []string
	}{
		{"passes", "b", "end", `{"n":2,"owner":"x"}`, `{"least":1}`, judge.Approve, judge.LayerScript, "c", []string{"state", "mustPassThrough", "freezes", "notBy"}},
		{"the script sees the context", "b", "end", `{"n":2,"owner":"x"}`, `{"least":2}`, judge.Reject, judge.LayerScript, "", []string{"state", "freezes", "notBy"}},
		{"the state that is entered", "b", "end", `{"n":2}`, `{"least":1}`, judge.Reject, judge.LayerState, "", []string{"state", "freezes", "notBy"}},
		{"fields", "a", "go", `{}`, ``, judge.Reject, judge.LayerFields, "", []string{"state", "freezes"}},
		{"not an action of the state", "a", "end", `{}`, ``, judge.Reject, judge.LayerTransition, "", []string{"state", "freezes"}},
		{"a final state", "c", "go", `{}`, ``, judge.Reject, judge.LayerTransition, "", []string{"state", "freezes"}},
	} {
		for _, inline := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s inline=%v", c.name, inline), func(t *testing.T) {
				req := engine.DecideRequest{State: c.state, Action: c.action, Data: json.RawMessage(c.data), Context: json.RawMessage(c.context)}
				if req.Workflow = "steps"; inline {
					req.Workflow, req.Definition = "", []byte(named(strictSteps, "mine"))
				}
				r, err := b.Decide(t.Context(), agent, req)
				if err != nil {
					t.Fatal(err)
				}
				if r.Decision.Outcome != c.outcome || r.Decision.DecidedBy != c.by || r.Decision.Applied || r.Decision.ID != "" {
					t.Errorf("got %+v, want %s by %s, not applied and without an id", r.Decision, c.outcome, c.by)
				}
				if r.Approved != (c.outcome == judge.Approve) || (c.target != "" && r.Decision.Target != c.target) {
					t.Errorf("approved %v, target %q", r.Approved, r.Decision.Target)
				}
				var unchecked []string
				for _, u := range r.NotChecked {
					unchecked = append(unchecked, u.What)
				}
				if c.target == "" { // the states that the rejected move requires are not disclosed
					unchecked = slices.DeleteFunc(unchecked, func(s string) bool { return s == "mustPassThrough" })
				}
				if !slices.Equal(unchecked, c.unchecked) {
					t.Errorf("not checked: %v, want %v", unchecked, c.unchecked)
				}
				if (r.Version == 0) != inline {
					t.Errorf("version %d", r.Version)
				}
			})
		}
	}
	tail, err := b.Tail(t.Context(), operator, engine.TailRequest{})
	if err != nil || len(tail.Events) != 0 {
		t.Errorf("decisions without an instance left events: %+v, %v", tail.Events, err)
	}
}

// Roles that see all instances see which layer thought what, as in the history; agents do not.
func TestDecideShowsOpinions(t *testing.T) {
	b := newBench(t)
	b.define(operator, strictSteps)
	req := engine.DecideRequest{Workflow: "steps", State: "b", Action: "end", Data: json.RawMessage(`{"n":2,"owner":"x"}`), Context: json.RawMessage(`{"least":2}`)}
	for _, p := range []engine.Principal{agent, operator, reviewer} {
		r, err := b.Decide(t.Context(), p, req)
		if err != nil {
			t.Fatal(err)
		}
		var layers []judge.LayerName
		for _, o := range r.Decision.Opinions {
			layers = append(layers, o.Layer)
		}
		if shows := slices.Contains(layers, r.Decision.DecidedBy); shows != (p.Role != engine.RoleAgent) {
			t.Errorf("a %s gets the opinions of %v", p.Role, layers)
		}
	}
}

func TestDecideRefusesInvalidRequests(t *testing.T) {
	b := newBench(t)
	b.define(operator, simple)
	for name, c := range map[string]struct {
		p    engine.Principal
		req  engine.DecideRequest
		code engine.Code
		path string
	}{
		"nothing":           {agent, engine.DecideRequest{}, engine.CodeInvalidArgument, "/workflow"},
		"both":              {agent, engine.DecideRequest{Workflow: "simple", Definition: []byte(simple)}, engine.CodeInvalidArgument, "/workflow"},
		"no state":          {agent, engine.DecideRequest{Workflow: "simple", Action: "go"}, engine.CodeInvalidArgument, "/state"},
		"no action":         {agent, engine.DecideRequest{Workflow: "simple", State: "a"}, engine.CodeInvalidArgument, "/action"},
		"unknown state":     {agent, engine.DecideRequest{Workflow: "simple", State: "aa", Action: "go"}, engine.CodeInvalidArgument, "/state"},
		"unknown workflow":  {agent, engine.DecideRequest{Workflow: "simpel", State: "a", Action: "go"}, engine.CodeUnknownWorkflow, ""},
		"version of none":   {agent, engine.DecideRequest{Definition: []byte(simple), Version: 1, State: "a", Action: "go"}, engine.CodeInvalidArgument, "/version"},
		"bad definition":    {agent, engine.DecideRequest{Definition: []byte(`{}`), State: "a", Action: "go"}, engine.CodeInvalidDefinition, ""},
		"bad data":          {agent, engine.DecideRequest{Workflow: "simple", State: "a", Action: "go", Data: json.RawMessage(`{"a":1,"a":2}`)}, engine.CodeInvalidData, "/data"},
		"auditor":           {auditor, engine.DecideRequest{Workflow: "simple", State: "a", Action: "go"}, engine.CodeForbidden, ""},
		"reviewer's own":    {reviewer, engine.DecideRequest{Definition: []byte(simple), State: "a", Action: "go"}, engine.CodeForbidden, "/definition"},
		"nobody":            {engine.Principal{Role: engine.RoleAgent}, engine.DecideRequest{Workflow: "simple", State: "a", Action: "go"}, engine.CodeForbidden, ""},
		"out of scope, own": {engine.Principal{ID: "x", Role: engine.RoleAgent, Workflows: "y"}, engine.DecideRequest{Definition: []byte(simple), State: "a", Action: "go"}, engine.CodeForbidden, "/name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.Decide(t.Context(), c.p, c.req)
			if e := wantCode(t, err, c.code); c.path != "" && e.Path != c.path {
				t.Errorf("path %q, want %q", e.Path, c.path)
			}
		})
	}
}
