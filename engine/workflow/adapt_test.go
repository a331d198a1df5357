package workflow_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Adapt removes with a warning what the Generic DFA server ignored. Anything that may be meant as a
// guard stays, for Parse and Lint to reject.
func TestAdapt(t *testing.T) {
	const ab = `"initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}`
	tests := map[string]struct {
		doc, want string // want is "" if nothing changes
		rules     []string
	}{
		"nothing to do":               {`{"name":"x",` + ab + `}`, "", nil},
		"not JSON":                    {`{"name"`, "", nil},
		"not an object":               {`[1]`, "", nil},
		"unknown keys":                {`{"createdAt":1,"name":"x","version":2,"metadata":{"a":[1]},` + ab + `}`, `{"name":"x",` + ab + `}`, []string{"unknown-key"}},
		"of a state":                  {`{"name":"x","initialState":"a","states":{"a":{"color":"red","transitions":{"go":"b"}},"b":{"final":true}}}`, `{"name":"x",` + ab + `}`, []string{"unknown-key"}},
		"of the judge":                {`{"name":"x","judgeConfig":{"enabled":true,"llmProvider":"o"},` + ab + `}`, `{"name":"x","judgeConfig":{"enabled":true},` + ab + `}`, []string{"unknown-key"}},
		"of a state's checks":         {`{"name":"x","stateValidators":{"b":{"requiredFields":["f"],"since":1}},` + ab + `}`, `{"name":"x","stateValidators":{"b":{"requiredFields":["f"]}},` + ab + `}`, []string{"unknown-key"}},
		"null and labels":             {`{"name":"x","description":null,"judgeConfig":null,"tags":["a"],"comment":{"a":1},` + ab + `}`, `{"name":"x",` + ab + `}`, []string{"type", "type", "type", "type"}},
		"labels of the right type":    {`{"name":"x","tags":{"a":"b"},"comment":"c",` + ab + `}`, "", nil},
		"a required null":             {`{"name":null,` + ab + `}`, "", nil},
		"a dead end":                  {`{"name":"x","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{}}}`, `{"name":"x",` + ab + `}`, []string{"dead-end"}},
		"that says so":                {`{"name":"x","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"transitions":{},"final":false}}}`, `{"name":"x","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"transitions":{},"final":true}}}`, []string{"dead-end"}},
		"a final state that goes on":  {`{"name":"x","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true,"transitions":{"back":"a"}}},"transitionValidators":{"back":"d => true"}}`, `{"name":"x",` + ab + `,"transitionValidators":{}}`, []string{"final-with-transitions", "unknown-validator"}},
		"checks of what is not there": {`{"name":"x",` + ab + `,"stateValidators":{"cancelled":{"requiredFields":["f"]}},"transitionValidators":{"a.go":"d => true","publish":"d => true"}}`, `{"name":"x",` + ab + `,"stateValidators":{},"transitionValidators":{"a.go":"d => true"}}`, []string{"unknown-validator", "unknown-validator"}},

		"a misspelt key":     {`{"name":"x","stateValidator":{"b":{"requiredFields":["f"]}},` + ab + `}`, "", nil},
		"a misspelt setting": {`{"name":"x","judgeConfig":{"minConfidance":0.9},` + ab + `}`, "", nil},
		"a misspelt check":   {`{"name":"x","stateValidators":{"b":{"requiredField":["f"]}},` + ab + `}`, "", nil},
		"a misspelt action":  {`{"name":"x","transitionValidators":{"goo":"d => true"},` + ab + `}`, "", nil},
		"an unknown target":  {`{"name":"x","initialState":"a","states":{"a":{"transitions":{"go":"c"}},"b":{"final":true}}}`, "", nil},
		"a known absence":    {`{"name":"x","judgeConfig":{"canary":"m"},` + ab + `}`, "", nil},

		"gavel's own key":        {`{"name":"x","createdAt":1,"sensitive":["/ssn"],` + ab + `}`, "", nil},
		"gavel's own setting":    {`{"name":"x","createdAt":1,"judgeConfig":{"criteria":["c"]},` + ab + `}`, "", nil},
		"gavel's own check":      {`{"name":"x","createdAt":1,"stateValidators":{"b":{"schema":{}}},` + ab + `}`, "", nil},
		"gavel's own transition": {`{"name":"x","createdAt":1,"initialState":"a","states":{"a":{"transitions":{"go":{"target":"b","guardOfTomorrow":1}}},"b":{"final":true}}}`, "", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, changes := workflow.Adapt("x.json", []byte(tt.doc))
			want := tt.want
			if want == "" {
				want = tt.doc
			}
			if string(got) != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			var rules []string
			for _, c := range changes {
				rules = append(rules, c.Rule)
				if c.Severity != workflow.SeverityWarning || c.Line != 1 {
					t.Errorf("%+v", c)
				}
			}
			if slices.Sort(rules); !slices.Equal(rules, tt.rules) {
				t.Errorf("changes: %v", changes)
			}
			if tt.want == "" {
				return
			}
			d, err := workflow.Parse("x.json", got)
			if err != nil {
				t.Fatal(err)
			}
			issues, err := d.Lint(t.Context(), workflow.LintOptions{Compiler: compiler()})
			if i := slices.IndexFunc(issues, func(i workflow.Issue) bool { return i.Severity == workflow.SeverityError }); err != nil || i >= 0 {
				t.Errorf("%v, %v", issues, err)
			}
		})
	}
}

// The report is bounded for a document of only unknown keys and dead ends.
func TestAdaptReportsAreBounded(t *testing.T) {
	states := map[string]any{}
	for i := range 1000 {
		states[strings.Repeat("s", i%50+1)+string(rune('a'+i%26))] = map[string]any{"x": strings.Repeat("y", 50)}
	}
	doc, err := json.Marshal(map[string]any{"name": "x", "initialState": "s", "states": states})
	if err != nil {
		t.Fatal(err)
	}
	if _, changes := workflow.Adapt("x.json", doc); len(changes) != 51 || !strings.HasPrefix(changes[50].Message, "and ") {
		t.Errorf("%d changes", len(changes))
	}
}

func TestSuggestNames(t *testing.T) {
	for text, want := range map[string][]string{
		"Document Review":       {"Document-Review", "Document-Review-522500f7"},
		"  Überprüfung/Stufe 2": {"Uberprufung-Stufe-2", "Uberprufung-Stufe-2-bc995b9b"},
		"审批流程":                  {"workflow-02e1bbea"},
		"Проверка v2":           {"v2-d59ba96b"},
		"...":                   {"workflow-ab5df625"},
	} {
		if got := workflow.SuggestNames(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		a, b := rapid.String().Draw(rt, "a"), rapid.StringN(0, 3000, -1).Draw(rt, "b")
		for _, text := range []string{a, b} {
			for _, name := range workflow.SuggestNames(text) {
				if !workflow.IsName(name) {
					rt.Errorf("%q becomes %q", text, name)
				}
			}
		}
		as, bs := workflow.SuggestNames(a), workflow.SuggestNames(b)
		if a != b && as[len(as)-1] == bs[len(bs)-1] {
			rt.Errorf("%q and %q become %q", a, b, as)
		}
	})
}

// SetAside returns nil for a definition that it would make too long, so that nothing is lost silently.
func TestSetAsideIsBounded(t *testing.T) {
	t.Parallel()
	var actions []string
	for i := range 2000 {
		actions = append(actions, fmt.Sprintf(`"a%d":"b"`, i))
	}
	doc := []byte(`{"name":"w","initialState":"a","statez":{},"states":{"a":{"transitions":{` + strings.Join(actions, ",") + `}},"b":{"final":true}}}`)
	invalid := []workflow.Issue{{Rule: "unknown-key", Severity: workflow.SeverityError, Path: "/statez", Message: strings.Repeat("x", 1000)}}
	for _, whole := range []bool{false, true} {
		if got := workflow.SetAside("w.json", doc, invalid, whole); got != nil {
			t.Errorf("whole %v: %d bytes", whole, len(got))
		}
	}
	masked := []byte(`{"name":"w","initialState":"a","sensitve":["/x"],"states":{"a":{"final":true}}}`)
	if got := workflow.SetAside("w.json", masked, invalid, true); got != nil {
		t.Errorf("what may be masked is shown: %s", got)
	}
}
