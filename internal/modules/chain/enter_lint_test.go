package chain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// enteringWorkflow returns a workflow whose state "error" starts a chain; more is appended to its onEnter.
func enteringWorkflow(t *testing.T, name, chain, more string) *workflow.Definition {
	t.Helper()
	d, err := workflow.Parse("w.json", fmt.Appendf(nil, `{"name":%q,"initialState":"error","states":{"work":{"transitions":{"fail":"error","stay":"work"}},
		"error":{"onEnter":{"chain":%q%s},"transitions":{"again":"work"}}}}`, name, chain, more))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCheckEntries(t *testing.T) {
	t.Parallel()
	chains := map[string]*Definition{}
	for _, text := range []string{
		`{"name":"clean","variables":{"input":{"job":"x"}},"steps":[{"id":"a","type":"wait","seconds":1}]}`,
		`{"name":"again","steps":[{"id":"s","type":"workflow","action":"start","workflow":"job"}]}`,
		`{"name":"moves","steps":[{"id":"m","type":"workflow","action":"advance","instance":"wf-1","perform":"fail"}]}`,
		`{"name":"stays","steps":[{"id":"m","type":"workflow","action":"advance","instance":"wf-1","perform":"stay"}]}`,
		`{"name":"other","steps":[{"id":"s","type":"workflow","action":"start","workflow":"second"}]}`,
	} {
		d, err := Parse("chain.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		chains[d.Name] = d
	}
	for _, row := range []struct {
		name      string
		workflows []*workflow.Definition
		want      string // for the workflow job; "" for no issue
	}{
		{"fits", []*workflow.Definition{enteringWorkflow(t, "job", "clean", `,"input":{"job":"{{instance.id}} {{context.deep.x}}"}`)}, ""},
		{"no such chain", []*workflow.Definition{enteringWorkflow(t, "job", "claen", "")}, `2 error unknown-chain unknown chain "claen"; did you mean "clean"?; declare it in the section chains of the configuration file, or remove onEnter`},
		{"no such input", []*workflow.Definition{enteringWorkflow(t, "job", "clean", `,"input":{"jub":1}`)}, `2 error chain-input the chain "clean" has no input "jub"; did you mean "job"?`},
		{"no such reference", []*workflow.Definition{enteringWorkflow(t, "job", "clean", `,"input":{"job":"{{instance.name}}"}`)}, `2 error chain-input unknown reference {{instance.name}}: use {{context.KEY}}, or {{instance.id}}, workflow, state, revision, owner or subject`},
		{"a reference of chains", []*workflow.Definition{enteringWorkflow(t, "job", "clean", `,"input":{"job":"{{saved.x}}"}`)}, `2 error chain-input unknown reference {{saved.x}}: use {{context.KEY}}, or {{instance.id}}, workflow, state, revision, owner or subject`},
		{"starts the workflow", []*workflow.Definition{enteringWorkflow(t, "job", "again", "")}, `2 error chain-reenters the chain "again" enters a state that starts it: the step "s" of "again" enters "error" of "job"`},
		{"may move into it", []*workflow.Definition{enteringWorkflow(t, "job", "moves", "")}, `2 warning chain-reenters the chain "moves" may enter a state that starts it: the step "m" of "moves" enters "error" of "job"`},
		{"stays in a state", []*workflow.Definition{enteringWorkflow(t, "job", "stays", "")}, ""},
		{"through another workflow", []*workflow.Definition{enteringWorkflow(t, "job", "other", ""), enteringWorkflow(t, "second", "again", "")}, `2 error chain-reenters the chain "other" enters a state that starts it: the step "s" of "other" enters "error" of "second", the step "s" of "again" enters "error" of "job"`},
	} {
		var got []string
		for _, issue := range CheckEntries(row.workflows, chains)["job"] {
			got = append(got, fmt.Sprintf("%d %s %s %s", issue.Line, issue.Severity, issue.Rule, issue.Message))
		}
		if strings.Join(got, "\n") != row.want {
			t.Errorf("%s: got\n%s\nand not\n%s", row.name, strings.Join(got, "\n"), row.want)
		}
	}
}

func TestFillEntry(t *testing.T) {
	t.Parallel()
	e := Entry{
		Instance: "wf-1", Workflow: "job", State: "error", Owner: "ann", Revision: 7, Context: json.RawMessage(`{"n":12345678901234567890,"deep":{"list":[1,"two"]},"text":"{{instance.id}}"}`),
		OnEnter: &OnEnter{Chain: "clean"},
	}
	for input, want := range map[string]string{
		``:                               `{}`,
		`{"a":1,"b":["x",null]}`:         `{"a":1,"b":["x",null]}`,
		`{"a":"{{context.n}}"}`:          `{"a":12345678901234567890}`,
		`{"a":"{{context.deep.list}}"}`:  `{"a":[1,"two"]}`,
		`{"a":"n={{context.deep}}."}`:    `{"a":"n={\"list\":[1,\"two\"]}."}`,
		`{"a":"{{context.text}}"}`:       `{"a":"{{instance.id}}"}`, // text that was filled in is not a reference
		`{"a":"{{context.gone}}","b":1}`: `{"b":1}`,
		`{"a":"x{{context.gone}}"}`:      `the input "a" of the chain "clean": {{context.gone}} is missing: context has "deep", "n", "text"`,
		`{"a":["{{context.gone}}"]}`:     `the input "a" of the chain "clean": {{context.gone}} is missing: context has "deep", "n", "text"`,
		`{"a":"{{'b': 1}}"}`:             `{"a":"{{'b': 1}}"}`,
		`{"a":"{{instance.id}}-{{instance.revision}} {{instance.workflow}} {{instance.state}} {{instance.owner}}"}`: `{"a":"wf-1-7 job error ann"}`,
		`{"a":"{{context.__proto__}}"}`: `a path may not contain "__proto__"`,
	} {
		e.OnEnter.Input = json.RawMessage(input)
		got, err := fillEntry(e, &Definition{})
		if err != nil {
			got = json.RawMessage(err.Error())
		}
		if string(got) != want {
			t.Errorf("%s: got %s and not %s", input, got, want)
		}
	}
}

func TestEntryRun(t *testing.T) {
	t.Parallel()
	ids := []string{EntryRun("wf-1", 2), EntryRun("wf-1", 3), EntryRun("wf-1-2", 3), EntryRun(strings.Repeat("x", 200), 1), EntryRun(strings.Repeat("x", 200), 2), EntryRun("a b", 1)}
	if ids[0] != "enter-wf-1-2" {
		t.Error(ids[0])
	}
	for _, id := range ids {
		if !runID.MatchString(id) || IsTickRun(id) {
			t.Errorf("%s is no id of a run", id)
		}
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 6 {
		t.Errorf("%q", ids)
	}
}

// TestSensitiveContext: sensitive values of a workflow may only reach inputs that the chain declares
// sensitive.
func TestSensitiveContext(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ sensitive, reference, chain, want string }{
		{`/ssn`, `{{context.ssn}}`, ``, "/ssn"},
		{`/ssn`, `the {{context.ssn}}.`, ``, "/ssn"},
		{`/ssn`, `{{context.ssn.last}}`, ``, "/ssn"},
		{`/ssn`, `{{context}}`, ``, "/ssn"},
		{`/person/ssn`, `{{context.person}}`, ``, "/person/ssn"},
		{`/people/*/ssn`, `{{context.people[1].ssn}}`, ``, "/people/*/ssn"},
		{`/people/1`, `{{context.people[01]}}`, ``, "/people/1"},
		{`/ssn`, `{{context.ssn}}`, `/input/other`, "/ssn"},
		{`/ssn`, `{{context.ssn}}`, `/input/job/deep`, "/ssn"}, // masks a part of the text, not the text itself
		{`/ssn`, `{{context.ssn}}`, `/input/job`, ""},
		{`/ssn`, `{{context.ssn}}`, `/input/*`, ""},
		{`/ssn`, `{{context.name}} {{instance.id}}`, ``, ""},
		{`/people/*/ssn`, `{{context.people[1].name}}`, ``, ""},
		{`/id`, `{{instance.id}}`, ``, ""},
	} {
		name := fmt.Sprint(row)
		d, err := Parse("chain.json", fmt.Appendf(nil, `{"name":"clean","variables":{"input":{"job":"x","other":"y"}},"sensitive":%s,"steps":[{"id":"a","type":"wait","seconds":1}]}`, marshalList(row.chain)))
		if err != nil {
			t.Fatal(err)
		}
		w := enteringWorkflow(t, "job", "clean", fmt.Sprintf(`,"input":{"job":%q}`, row.reference))
		w.Sensitive = []string{row.sensitive}
		want := ""
		if row.want != "" {
			r := row.reference[strings.Index(row.reference, "{{") : strings.Index(row.reference, "}}")+2]
			want = fmt.Sprintf(`%s passes the chain "clean" a sensitive value, %s of the workflow; list /input/job in the chain's sensitive`, r, row.want)
		}
		got := ""
		for _, issue := range CheckEntries([]*workflow.Definition{w}, map[string]*Definition{"clean": d})["job"] {
			got += issue.Message
		}
		if got != want {
			t.Errorf("%s: lint says %q and not %q", name, got, want)
		}
		_, err = fillEntry(Entry{
			Sensitive: w.Sensitive, OnEnter: findOnEnter(w.States["error"]),
			Context: json.RawMessage(`{"ssn":"123","name":"n","person":{"ssn":"1"},"people":[{"name":"a"},{"ssn":"1","name":"b"}]}`),
		}, d)
		if got := fmt.Sprint(err); err != nil && got != want || err == nil && want != "" {
			t.Errorf("%s: the start says %q and not %q", name, got, want)
		}
	}
}

// marshalList returns a JSON list with the text, or an empty one.
func marshalList(text string) string {
	if text == "" {
		return "[]"
	}
	return fmt.Sprintf("[%q]", text)
}
