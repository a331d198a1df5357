package workflow_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/script"
)

// guarded is a definition that uses every part of a case.
const guarded = `
name: guarded
initialState: draft
inputSchema: {type: object, required: [documentId]}
states:
  draft:
    transitions:
      submit: {target: reviewing, writes: [documentId, comments], freezes: [/documentId]}
      rush: reviewing
  reviewing:
    transitions:
      approve:
        target: approved
        requiredFields: [comments]
        schema: {type: object}
        validator: "(data) => true"
        roles: [agent, reviewer]
        notBy: [submit, rush]
      sort:
        target:
          - {condition: "context.n > 10", target: long}
          - {condition: "true", target: short}
      reject: draft
      withdraw: {target: draft, roles: [operator]}
  long: {transitions: {back: reviewing}}
  short: {transitions: {back: reviewing}}
  approved: {final: true, outcome: success}
stateValidators:
  reviewing: {requiredFields: [documentId], schema: {type: object}}
  draft: {requiredFields: [documentId]}
transitionValidators:
  approve: "(data) => data.comments?.length > 3"
  reviewing.approve: "(data, context) => true"
  back: "() => true"
sensitive: [/customer/ssn]
mustPassThrough:
  approved: [draft, reviewing]
  long: [short]
`

// ask returns a valid input for guarded, changed by change.
func ask(change func(*workflow.CaseInput)) workflow.CaseInput {
	in := workflow.CaseInput{
		Operation: judge.Advance, Version: 3, Owner: validators.Owner{ID: "o"}, Instance: "wf-1",
		State: "reviewing", Action: "approve", Principal: "ada", Role: "agent",
		Data: raw(`{"comments":"fine"}`), Context: raw(`{"documentId":"d1"}`),
		Facts:           workflow.Facts{Visited: []string{"draft", "reviewing"}, Performed: map[string][]string{"submit": {"bob"}}},
		JudgeConfigHash: "h", ReviewPath: true, Now: time.Unix(5, 0), Seed: 7,
	}
	if change != nil {
		change(&in)
	}
	return in
}

func caseOf(t testing.TB, d *workflow.Definition, in workflow.CaseInput) judge.Case {
	t.Helper()
	c, err := d.Case(in)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCaseOfAnAction(t *testing.T) {
	d := parse(t, guarded)
	got := caseOf(t, d, ask(nil))
	got.Scrub, got.Mask, got.Scrubber = nil, nil, nil
	want := judge.Case{
		Operation: judge.Advance, Workflow: "guarded", Version: 3, DefinitionHash: d.Hash, JudgeConfigHash: "h",
		Instance: "wf-1", State: "reviewing", Action: "approve", Principal: "ada", Role: "agent", Owner: validators.Owner{ID: "o"},
		Checks: validators.Checks{
			RequiredFields: []string{"comments"}, Schema: raw(`{"type":"object"}`),
			Validators: []script.Script{
				{Name: "states.reviewing.transitions.approve.validator", Kind: script.Validator, Source: "(data) => true"},
				{Name: "transitionValidators.approve", Kind: script.Validator, Source: "(data) => data.comments?.length > 3"},
				{Name: "transitionValidators.reviewing.approve", Kind: script.Validator, Source: "(data, context) => true"},
			},
		},
		Candidates: []judge.Candidate{{Target: "approved"}},
		Data:       readPattern(`{"comments":"fine"}`), Context: readPattern(`{"documentId":"d1"}`), Merged: readPattern(`{"documentId":"d1","comments":"fine"}`),
		MaskedData: readPattern(`{"comments":"fine"}`), MaskedContext: readPattern(`{"documentId":"d1"}`), MaskedMerged: readPattern(`{"documentId":"d1","comments":"fine"}`),
		Rubric: judge.DefaultRubric(), ReviewPath: true, Now: time.Unix(5, 0), Seed: 7,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(judge.Case{})); diff != "" {
		t.Errorf("case (-want +got):\n%s", diff)
	}
}

// TestContextIsMergedOnlyForAMove checks that data without a required field, which will be rejected,
// causes no copy of the context, unless the mode is shadow: then the move happens anyway.
func TestContextIsMergedOnlyForAMove(t *testing.T) {
	for _, tt := range []struct{ name, mode, data, want string }{
		{"whole", "enforce", `{"comments":"fine"}`, `{"documentId":"d1","comments":"fine"}`},
		{"absent", "enforce", `{"n":1}`, `{"documentId":"d1"}`},
		{"null", "enforce", `{"comments":null,"n":1}`, `{"documentId":"d1"}`},
		{"absent in shadow", "shadow", `{"n":1}`, `{"documentId":"d1","n":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := parse(t, "judgeConfig: {mode: "+tt.mode+"}\n"+guarded)
			c := caseOf(t, d, ask(func(in *workflow.CaseInput) { in.Data = raw(tt.data) }))
			if got := string(c.Merged.Raw()); got != tt.want || string(c.MaskedMerged.Raw()) != tt.want {
				t.Errorf("merged %s, masked %s, want %s", got, c.MaskedMerged.Raw(), tt.want)
			}
		})
	}
}

func TestCaseOfARoutedAction(t *testing.T) {
	d := parse(t, guarded)
	c := caseOf(t, d, ask(func(in *workflow.CaseInput) { in.Action = "sort" }))
	want := []script.Script{
		{Name: "states.reviewing.transitions.sort[0].condition", Kind: script.Condition, Source: "context.n > 10"},
		{Name: "states.reviewing.transitions.sort[1].condition", Kind: script.Condition, Source: "true"},
	}
	if diff := cmp.Diff(want, c.Checks.Routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if len(c.Candidates) != 2 || c.Candidates[0].Target != "long" || c.Candidates[1].Target != "short" {
		t.Fatalf("candidates: %+v", c.Candidates)
	}
	if u := c.Candidates[0].Unmet; len(u) != 1 || u[0].Code != workflow.CodeMustPassThrough || !strings.Contains(u[0].Message, `"short"`) {
		t.Errorf("unmet of long: %+v", u)
	}
	if len(c.Candidates[1].Unmet) > 0 {
		t.Errorf("unmet of short: %+v", c.Candidates[1].Unmet)
	}
}

func TestCaseOfAStart(t *testing.T) {
	d := parse(t, guarded)
	c := caseOf(t, d, workflow.CaseInput{Operation: judge.Start, Data: raw(`{"documentId":"d1","gone":null,"customer":{"ssn":"123-45"}}`), Context: raw(`{"ignored":1}`), State: "x", Action: "y"})
	if string(c.Checks.Schema) != `{"type":"object","required":["documentId"]}` || len(c.Illegal) > 0 || c.State != "" || c.Action != "" {
		t.Errorf("case: %+v", c)
	}
	want := []judge.Candidate{{Target: "draft", Entry: validators.Checks{RequiredFields: []string{"documentId"}}}}
	if diff := cmp.Diff(want, c.Candidates); diff != "" {
		t.Errorf("candidates (-want +got):\n%s", diff)
	}
	if string(c.Merged.Raw()) != `{"documentId":"d1","customer":{"ssn":"123-45"}}` || string(c.MaskedMerged.Raw()) != `{"documentId":"d1","customer":{"ssn":"[masked]"}}` || string(c.Context.Raw()) != "{}" {
		t.Errorf("merged %s, masked %s, context %s", c.Merged.Raw(), c.MaskedMerged.Raw(), c.Context.Raw())
	}
	if got := c.Scrub("it was 123-45"); got != "it was [masked]" {
		t.Errorf("scrubbed: %q", got)
	}
	c = caseOf(t, d, workflow.CaseInput{Operation: judge.Start, Data: raw(`{"evidence":{},"review":null,"gavel":1}`)})
	if len(c.Forbidden) != 0 {
		t.Errorf("forbidden: %s", codes(c.Forbidden))
	}
}

func TestStartEntersTheInitialState(t *testing.T) {
	d := parse(t, `{"name":"w","initialState":"b","states":{"a":{"final":true},"b":{"transitions":{"go":"a"}}}}`)
	if c := caseOf(t, d, workflow.CaseInput{Operation: judge.Start}); c.Candidates[0].Target != "b" {
		t.Errorf("candidates: %+v", c.Candidates)
	}
}

// Text that leaves the process is scrubbed of the sensitive values of both documents.
func TestScrubOfACase(t *testing.T) {
	c := caseOf(t, parse(t, guarded), ask(func(in *workflow.CaseInput) {
		in.Context, in.Data = raw(`{"customer":{"ssn":"old-secret"}}`), raw(`{"customer":{"ssn":"new-secret"}}`)
	}))
	if got := c.Scrub("from old-secret to new-secret"); got != "from [masked] to [masked]" {
		t.Errorf("scrubbed: %q", got)
	}
}

func codes(list []validators.Finding) string {
	out := make([]string, len(list))
	for i, f := range list {
		out[i] = f.Code
	}
	return strings.Join(out, " ")
}

func TestLegality(t *testing.T) {
	d := parse(t, guarded)
	for _, c := range []struct {
		name   string
		change func(*workflow.CaseInput)
		codes  string
		says   []string // in messages or hints
	}{
		{"legal", nil, "", nil},
		{"ended", func(in *workflow.CaseInput) { in.State, in.Ended = "approved", "final" }, "instance_ended", []string{`final state "approved"`}},
		{"ended by its state alone", func(in *workflow.CaseInput) { in.State = "approved" }, "instance_ended", []string{`final state "approved"`}},
		{"cancelled", func(in *workflow.CaseInput) { in.Ended = "cancelled" }, "instance_ended", []string{"cancelled", "new instance"}},
		{"unknown action", func(in *workflow.CaseInput) { in.Action = "aprove" }, "illegal_action", []string{`"aprove"`, `possible: "approve", "sort", "reject"`, `Did you mean "approve"?`}},
		{"action of another state", func(in *workflow.CaseInput) { in.Action = "submit" }, "illegal_action", []string{`It is possible in state "draft".`}},
		{"nearly an action of another state", func(in *workflow.CaseInput) { in.Action = "submti" }, "illegal_action", []string{`Did you mean "submit"? It is possible in state "draft".`}},
		{"actions of other roles are not offered", func(in *workflow.CaseInput) { in.Action, in.Role = "x", "reviewer" }, "illegal_action", []string{`possible: "approve".`}},
		{"nothing to offer", func(in *workflow.CaseInput) { in.Action, in.Role = "x", "auditor" }, "illegal_action", []string{`possible: nothing.`}},
		{"hostile action", func(in *workflow.CaseInput) { in.Action = strings.Repeat("\x1b[2Jx\u202e", 500) }, "illegal_action", []string{`"[2Jx[2Jx`, "…"}},
		{"reviewer where named", func(in *workflow.CaseInput) { in.Role = "reviewer" }, "", nil},
		{"operator where others are named", func(in *workflow.CaseInput) { in.Role = "operator" }, "role_not_allowed", []string{`"agent", "reviewer"`}},
		{"operator where nobody is named", func(in *workflow.CaseInput) { in.Role, in.Action = "operator", "reject" }, "", nil},
		{"reviewer where nobody is named", func(in *workflow.CaseInput) { in.Role, in.Action = "reviewer", "reject" }, "role_not_allowed", []string{`"agent", "operator"`}},
		{"auditor", func(in *workflow.CaseInput) { in.Role, in.Action = "auditor", "reject" }, "role_not_allowed", nil},
		{"no role", func(in *workflow.CaseInput) { in.Role, in.Action = "", "reject" }, "role_not_allowed", nil},
		{"agent where operators are named", func(in *workflow.CaseInput) { in.Action = "withdraw" }, "role_not_allowed", []string{`"operator"`}},
		{"submitted by the same", func(in *workflow.CaseInput) { in.Principal = "bob" }, "not_by", []string{`"submit"`, `"approve"`, `"bob"`}},
		{"both by the same", func(in *workflow.CaseInput) {
			in.Principal = "bob"
			in.Facts.Performed = map[string][]string{"submit": {"x", "bob"}, "rush": {"bob"}}
		}, "not_by not_by", []string{`"rush"`}},
		{"role and notBy together", func(in *workflow.CaseInput) { in.Principal, in.Role = "bob", "operator" }, "role_not_allowed not_by", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := caseOf(t, d, ask(c.change))
			if codes(got.Illegal) != c.codes {
				t.Fatalf("illegal: %+v, want %q", got.Illegal, c.codes)
			}
			if c.codes != "" && (len(got.Candidates) > 0 || got.Checks.RequiredFields != nil) {
				t.Errorf("an illegal action has candidates %v and checks %v", got.Candidates, got.Checks)
			}
			text, err := json.Marshal(got.Illegal)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range c.says {
				if q, _ := json.Marshal(s); !bytes.Contains(text, bytes.Trim(q, `"`)) {
					t.Errorf("%s does not say %s", text, s)
				}
			}
			if len(text) > 4096 || bytes.Contains(text, []byte("\\u001b")) || bytes.Contains(text, []byte("\u202e")) {
				t.Errorf("findings of %d bytes or with control characters: %s", len(text), text)
			}
		})
	}
}

func TestMustPassThroughAtRunTime(t *testing.T) {
	d := parse(t, guarded)
	for _, c := range []struct {
		name    string
		visited []string
		unmet   string
	}{
		{"all visited", []string{"draft", "reviewing"}, ""},
		{"the present state counts", []string{"draft"}, ""},
		{"one missing", []string{"reviewing"}, "must_pass_through"},
		{"the target's own entry is no visit", []string{"approved", "reviewing"}, "must_pass_through"},
		{"no facts", nil, "must_pass_through"},
	} {
		got := caseOf(t, d, ask(func(in *workflow.CaseInput) {
			in.Facts.Visited = c.visited
			// Only facts count, whatever the documents claim.
			in.Data = raw(`{"comments":"x","visited":["draft"],"facts":{"visited":["draft"]}}`)
			in.Context = raw(`{"visited":["draft","reviewing"]}`)
		}))
		if u := codes(got.Candidates[0].Unmet); u != c.unmet {
			t.Errorf("%s: unmet %q, want %q", c.name, u, c.unmet)
		}
	}
}

func TestForbidden(t *testing.T) {
	d := parse(t, guarded)
	for _, c := range []struct {
		name, data, context, want string
		frozen                    []string
		action, state             string
	}{
		{name: "nothing", data: `{"a":1}`},
		{name: "allowed writes", action: "submit", state: "draft", data: `{"documentId":"x","comments":"y"}`},
		{name: "a write that is not listed", action: "submit", state: "draft", data: `{"documentId":"x","owner":"y","a/b":null}`, want: "write_not_allowed /owner, write_not_allowed /a~1b"},
		{name: "no key is reserved", data: `{"review":1,"evidence":{},"gavel":null}`},
		{name: "not listed, like any other key", action: "submit", state: "draft", data: `{"review":1}`, want: "write_not_allowed /review"},
		{name: "frozen and changed", frozen: []string{"/a"}, context: `{"a":1}`, data: `{"a":2}`, want: "frozen_field /a"},
		{name: "frozen and sent again", frozen: []string{"/a"}, context: `{"a":{"x":1,"y":[1.0]}}`, data: `{"a":{"y":[1],"x":1}}`},
		{name: "frozen and removed", frozen: []string{"/a"}, context: `{"a":1}`, data: `{"a":null}`, want: "frozen_field /a"},
		{name: "frozen while absent, and added", frozen: []string{"/a"}, context: `{}`, data: `{"a":1}`, want: "frozen_field /a"},
		{name: "frozen while absent, and absent", frozen: []string{"/a"}, context: `{}`, data: `{"a":null,"b":1}`},
		{name: "frozen below a key that is replaced", frozen: []string{"/a/x"}, context: `{"a":{"x":1,"y":1}}`, data: `{"a":{"y":2}}`, want: "frozen_field /a/x"},
		{name: "not frozen beside it", frozen: []string{"/a/x"}, context: `{"a":{"x":1,"y":1}}`, data: `{"a":{"x":1,"y":2}}`},
		{name: "frozen in a list", frozen: []string{"/a/0"}, context: `{"a":[1,2]}`, data: `{"a":[2,1]}`, want: "frozen_field /a/0"},
	} {
		got := caseOf(t, d, ask(func(in *workflow.CaseInput) {
			in.Action, in.State = "reject", "reviewing"
			if c.action != "" {
				in.Action, in.State = c.action, c.state
			}
			in.Data, in.Context, in.Facts.Frozen = raw(c.data), raw(c.context), c.frozen
		}))
		var list []string
		for _, f := range got.Forbidden {
			list = append(list, f.Code+" "+f.Path)
		}
		if s := strings.Join(list, ", "); s != c.want {
			t.Errorf("%s: %s, want %s", c.name, s, c.want)
		}
	}
}

func TestCaseRefusesInvalidInput(t *testing.T) {
	d := parse(t, guarded)
	for name, change := range map[string]func(*workflow.CaseInput){
		"unknown state":     func(in *workflow.CaseInput) { in.State = "nowhere" },
		"unknown operation": func(in *workflow.CaseInput) { in.Operation = "jump" },
		"data is a list":    func(in *workflow.CaseInput) { in.Data = raw(`[]`) },
		"context is broken": func(in *workflow.CaseInput) { in.Context = raw(`{"a":`) },
		"frozen is broken":  func(in *workflow.CaseInput) { in.Action, in.Facts.Frozen = "reject", []string{"a"} },
	} {
		if c, err := d.Case(ask(change)); err == nil {
			t.Errorf("%s: no error, %+v", name, c)
		}
	}
}

// For any input, Case never panics, gives the same result twice, and returns candidates that match
// the routes.
func TestCaseIsTotalAndDeterministic(t *testing.T) {
	d := parse(t, guarded)
	word := func(more ...string) *rapid.Generator[string] {
		return rapid.OneOf(rapid.SampledFrom(append(more, "", "draft", "reviewing", "approve", "submit", "agent")), rapid.StringN(0, 6, 12))
	}
	rapid.Check(t, func(rt *rapid.T) {
		in := workflow.CaseInput{
			Operation: rapid.SampledFrom([]judge.Operation{judge.Start, judge.Advance, judge.Advance, "x"}).Draw(rt, "operation"),
			State:     word("long", "short", "approved").Draw(rt, "state"), Action: word("sort", "reject", "back").Draw(rt, "action"),
			Ended: word("final", "cancelled").Draw(rt, "ended"), Role: word("reviewer", "operator").Draw(rt, "role"), Principal: word().Draw(rt, "principal"),
			Data: text(objectGrammar(someKeys, true).Draw(rt, "data")), Context: text(objectGrammar(someKeys, false).Draw(rt, "context")),
			Facts: workflow.Facts{
				Visited: rapid.SliceOfN(word(), 0, 3).Draw(rt, "visited"), Frozen: rapid.SliceOfN(rapid.SampledFrom([]string{"/a", "/b/0", "/c/k", "x"}), 0, 2).Draw(rt, "frozen"),
				Performed: map[string][]string{"submit": rapid.SliceOfN(word(), 0, 2).Draw(rt, "performed")},
			},
		}
		one, err := d.Case(in)
		two, err2 := d.Case(in)
		if (err == nil) != (err2 == nil) {
			rt.Fatalf("%v, then %v", err, err2)
		}
		if err != nil {
			return
		}
		if one.Scrub == nil || one.Scrub("x") != "x" {
			rt.Fatal("no Scrub")
		}
		one.Scrub, two.Scrub, one.Mask, two.Mask, one.Scrubber, two.Scrubber = nil, nil, nil, nil, nil, nil
		if diff := cmp.Diff(one, two, cmpopts.IgnoreUnexported(judge.Case{})); diff != "" {
			rt.Fatalf("the same question twice:\n%s", diff)
		}
		switch n := len(one.Candidates); {
		case len(one.Illegal) > 0 && n != 0, len(one.Illegal) == 0 && len(one.Checks.Routes) == 0 && n != 1,
			len(one.Checks.Routes) > 0 && n != len(one.Checks.Routes):
			rt.Fatalf("%d candidates for %d routes, illegal: %v", n, len(one.Checks.Routes), one.Illegal)
		}
		for _, c := range one.Candidates {
			if d.States[c.Target] == nil {
				rt.Fatalf("candidate %q is no state", c.Target)
			}
		}
	})
}

func TestNextActions(t *testing.T) {
	d := parse(t, guarded)
	for _, c := range []struct{ state, role, want string }{
		{"reviewing", "agent", "approve sort reject"},
		{"reviewing", "reviewer", "approve"},
		{"reviewing", "operator", "sort reject withdraw"},
		{"reviewing", "auditor", ""},
		{"reviewing", "", "approve sort reject withdraw"},
		{"approved", "agent", ""},
		{"nowhere", "agent", ""},
	} {
		got := d.NextActions(c.state, c.role)
		if got == nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s for %q: %v, want %q", c.state, c.role, got, c.want)
		}
	}
}

func BenchmarkCase(b *testing.B) {
	for name, doc := range map[string]string{"sensitive": guarded, "plain": strings.Replace(guarded, "sensitive: [/customer/ssn]", "", 1)} {
		d := parse(b, doc)
		in := ask(func(in *workflow.CaseInput) {
			in.Context = raw(`{"documentId":"d1","customer":{"ssn":"123-45-6789"},"body":"` + strings.Repeat("text ", 150) + `"}`)
		})
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Case(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The case includes the parts of the definition that the model is shown.
func TestCaseCarriesTheModelsInput(t *testing.T) {
	t.Parallel()
	d, err := workflow.Parse("w", []byte(`{"name":"w","description":"about w","initialState":"a","states":{
		"a":{"description":"about a","transitions":{"go":{"target":"b","description":"about go","useLLM":true,"reference":"like this",
			"exemplars":[{"data":{"x":1.50},"outcome":"reject","why":"because"}],"samples":3}}},
		"b":{"description":"about b","final":true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Case(workflow.CaseInput{Operation: judge.Advance, State: "a", Action: "go", Role: "agent", Data: json.RawMessage(`{}`), Context: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	if c.About != (judge.About{Workflow: "about w", State: "about a", Action: "about go"}) || c.Candidates[0].About != "about b" {
		t.Errorf("%+v, %+v", c.About, c.Candidates)
	}
	r := c.Rubric
	if r.Reference != "like this" || r.Samples != 3 || len(r.Exemplars) != 1 || string(r.Exemplars[0].Data) != `{"x":1.50}` ||
		r.Exemplars[0].Outcome != judge.Reject || r.Exemplars[0].Why != "because" {
		t.Errorf("%+v", r)
	}
	in := workflow.CaseInput{
		Operation: judge.Advance, State: "a", Action: "go", Principal: "ada", Role: "agent",
		Facts: workflow.Facts{Visited: []string{"b", "a"}, Performed: map[string][]string{"x": {"bob", "eve"}, "y": {"ada"}, "z": {"bob", "ada"}}},
	}
	want := judge.Path{States: []string{"b", "a"}, Actions: map[string]string{"x": "somebody else", "y": "who asks now", "z": "who asks now, and somebody else"}}
	if diff := cmp.Diff(want, caseOf(t, d, in).Path); diff != "" {
		t.Errorf("path (-want +got):\n%s", diff)
	}
	in.CallersContext = true
	if got := caseOf(t, d, in).Path; got.States != nil || got.Actions != nil {
		t.Errorf("what only the caller says is shown as the gate's: %+v", got)
	}
	start, err := d.Case(workflow.CaseInput{Operation: judge.Start, Data: json.RawMessage(`{}`)})
	if err != nil || start.Rubric.Samples != 0 || start.Rubric.Reference != "" {
		t.Errorf("a start asks no model: %+v, %v", start.Rubric, err)
	}
}

const gated = `{"name":"gated","initialState":"draft","states":{
	"draft":{"transitions":{"submit":"legal","note":"draft"}},
	"legal":{"transitions":{"pass":"signing"}},
	"signing":{"transitions":{"sign":"signed","drop":"dropped"}},
	"signed":{"final":true},"dropped":{"final":true}},
	"mustPassThrough":{"signed":["legal"],"dropped":["draft"]},
	"stateValidators":{"signing":{"requiredFields":["by"]}}}`

func TestEntryAndBlocked(t *testing.T) {
	d, err := workflow.Parse("gated", []byte(gated))
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Candidate("signing", workflow.Facts{}, ""); !slices.Equal(got.Entry.RequiredFields, []string{"by"}) || len(got.Unmet) != 0 {
		t.Errorf("entry of signing: %+v", got)
	}
	if got := d.Candidate("signed", workflow.Facts{Visited: []string{"signing"}}, ""); len(got.Unmet) != 1 {
		t.Errorf("entry of signed without legal: %+v", got)
	}
	for _, tt := range []struct {
		state   string
		visited []string
		want    []string
	}{
		{"draft", nil, nil},                 // legal is ahead, draft is the current state
		{"legal", nil, []string{"dropped"}}, // draft was never visited
		{"signing", []string{"draft"}, []string{"signed"}},
		{"signing", []string{"draft", "legal"}, nil},
		{"signed", nil, nil}, // nothing is ahead
	} {
		if got := d.BlockedStates(tt.state, workflow.Facts{Visited: tt.visited}); !slices.Equal(got, tt.want) {
			t.Errorf("%s after %v: %v, want %v", tt.state, tt.visited, got, tt.want)
		}
	}
}
