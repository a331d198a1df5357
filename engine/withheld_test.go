package engine_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// toldFlow has every setting that only those who govern it may see, next to other fields with the same
// names.
const toldFlow = `{"name":"NAME","initialState":"a","judgeConfig":{"strictMode":true,"minConfidence":0.8123,"samples":7},
	"states":{"a":{"transitions":{"go":{"target":"b","useLLM":true,"criteria":["it is said why"],"minConfidence":0.8456,"samples":9,
		"reference":"because of the golden answer","exemplars":[{"data":{"why":"golden exemplar"},"outcome":"approve"}],
		"schema":{"properties":{"samples":{"type":"integer","description":"a field"},"exemplars":{"type":"array"}}}}}},"b":{"final":true}}}`

// The settings of a judge are shown to those who may change them and to roles that see all instances, but
// never to principals judged by another principal's definition.
func TestJudgesAreNotDescribedToTheJudged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, owner := range map[string]engine.Principal{"operators": operator, "agents": agent} {
		b.define(owner, strings.Replace(toldFlow, "NAME", name, 1))
	}
	for _, c := range []struct {
		who      engine.Principal
		workflow string
		told     bool
	}{
		{operator, "operators", true},
		{reviewer, "operators", true},
		{auditor, "operators", true},
		{agent, "operators", false},
		{agent, "agents", true},
		{operator, "agents", true},
		{other, "agents", false},
	} {
		t.Run(c.who.ID+" "+c.workflow, func(t *testing.T) {
			if c.who == other {
				b.share(c.workflow)
			}
			requests := []engine.DescribeRequest{{Name: c.workflow}, {Name: c.workflow, Version: 1}}
			if c.who.Role == engine.RoleAgent {
				requests = append(requests, engine.DescribeRequest{ID: b.start(c.who, c.workflow, `{}`).ID})
			}
			for _, req := range requests {
				view, err := b.DescribeAt(t.Context(), c.who, req)
				if err != nil {
					t.Fatal(err)
				}
				wantTold(t, view, c.told)
				if c.told != (view.Judge.MinConfidence != nil) || c.told != (len(view.Withheld) == 0) {
					t.Errorf("cut-off %v, withheld %q", view.Judge.MinConfidence, view.Withheld)
				}
				if !c.told && !slices.Equal(view.Withheld, []string{"minConfidence", "samples", "reference", "exemplars"}) {
					t.Errorf("withheld %q", view.Withheld)
				}
				text := string(view.Definition)
				for _, kept := range []string{`"criteria":["it is said why"]`, `"description":"a field"`, `"exemplars":{"type":"array"}`, `"strictMode":true`} {
					if !strings.Contains(text, kept) {
						t.Errorf("without %s: %s", kept, text)
					}
				}
			}
		})
	}
	r, err := b.ConfigureJudge(t.Context(), agent, engine.JudgeConfigRequest{Name: "operators", Settings: workflow.JudgeSettings{StrictMode: new(true)}})
	if err != nil {
		t.Fatal(err)
	}
	wantTold(t, r, false)
}

// wantTold checks everything in a result.
func wantTold(t *testing.T, answer any, told bool) {
	t.Helper()
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"0.8123", "0.8456", `"samples":7`, `"samples":9`, "golden answer", "golden exemplar"} {
		if !told && strings.Contains(string(text), secret) {
			t.Errorf("%s is told: %s", secret, text)
		}
		if _, whole := answer.(engine.DefinitionView); told && whole && !strings.Contains(string(text), secret) {
			t.Errorf("%s is not told: %s", secret, text)
		}
	}
}

// A former owner cannot see the settings of the operator who took the name over.
func TestFormerOwnersSeeNoOperatorSettings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`)
	id := b.start(agent, "w", `{}`).ID
	b.define(operator, `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":{"target":"b","minConfidence":0.8456}}},"b":{"final":true}}}`)
	if _, err := b.ConfigureJudge(t.Context(), operator, engine.JudgeConfigRequest{Name: "w", Settings: workflow.JudgeSettings{MinConfidence: new(0.8123)}}); err != nil {
		t.Fatal(err)
	}
	for _, req := range []engine.DescribeRequest{{Name: "w"}, {Name: "w", Version: 1}, {Name: "w", Version: 2}, {ID: id}} {
		view, err := b.DescribeAt(t.Context(), agent, req)
		if err != nil || len(view.Withheld) == 0 {
			t.Errorf("%+v: %q, %v", req, view.Withheld, err)
		}
		wantTold(t, view, false)
	}
}

// The cut-off of a definition that sets none is withheld like any other.
func TestDefaultCutOffIsWithheldToo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, `{"name":"plain","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`)
	view, err := b.Describe(t.Context(), agent, "plain", 0)
	if err != nil || view.Judge.MinConfidence != nil || !slices.Equal(view.Withheld, []string{"minConfidence"}) {
		t.Errorf("%+v, %v", view, err)
	}
	whole, err := b.Describe(t.Context(), operator, "plain", 0)
	if err != nil || string(whole.Definition) != string(view.Definition) {
		t.Errorf("%s, %s, %v", whole.Definition, view.Definition, err)
	}
}
