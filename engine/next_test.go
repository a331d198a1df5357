package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// nextOf summarises the next actions of a position and their requirements.
func nextOf(p engine.Position) string {
	var all []string
	for _, n := range p.Next {
		text := n.Action
		for _, r := range n.Requires {
			text += " " + r
		}
		for _, need := range n.Needs {
			text += " " + strings.ToUpper(string(need))
		}
		if n.Description != "" {
			text += ": " + n.Description
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// Every result lists the requirements of the next actions, so that no request has to be refused to find
// them out. Only a status has their descriptions.
func TestResultsListTheNextRequirements(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, strings.Replace(documentReview, `"draft": {"transitions": {"submit": "reviewing"}}`,
		`"draft": {"transitions": {"submit": {"target": "reviewing", "description": "Hand it in."}}}`, 1))
	start := b.start(agent, "document-review", `{"reviewer":"rob"}`)
	const before, after = "submit documentId", "approve; reject"
	expect := func(what string, pos engine.Position, want string) {
		t.Helper()
		if got := nextOf(pos); got != want {
			t.Errorf("%s: next is %q, want %q", what, got, want)
		}
	}
	expect("start", start.Position, before)
	expect("a refusal", b.refused(agent, start.ID, "submit", `{}`, "required_field").Position, before)
	question, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: start.ID, Action: "submit"})
	if err != nil {
		t.Fatal(err)
	}
	expect("a question", question.Position, before)
	status, err := b.Status(t.Context(), agent, start.ID)
	if err != nil {
		t.Fatal(err)
	}
	expect("status", status.Position, before+": Hand it in.")
	expect("a move", b.moved(agent, start.ID, "submit", `{"documentId":"D-1"}`, "reviewing").Position, after)
	expect("an undo", b.undo(agent, start.ID, "draft").Position, before)
	useLLM := true
	b.configure(agent, "document-review", workflow.JudgeSettings{UseLLM: &useLLM})
	can, err := b.CanExecute(t.Context(), agent, engine.CanExecuteRequest{ID: start.ID, Action: "submit"})
	if err != nil {
		t.Fatal(err)
	}
	expect("after the judge was configured", can.Position, "submit documentId MODEL")
}

// A list shows the requirements of a start before any start is refused, and a refusal names them.
func TestListsShowStartRequirements(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, `{"name":"w","initialState":"a","inputSchema":{"type":"object","required":["title","n"],"properties":{"n":{"type":"integer"}}},
		"states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},"stateValidators":{"a":{"requiredFields":["/by/whom","title"]},"b":{"requiredFields":["more"]}}}`)
	b.define(agent, simple)
	list, err := b.List(t.Context(), agent)
	if err != nil || len(list) != 2 || list[0].StartRequires != nil || fmt.Sprint(list[1].StartRequires) != "[title n /by/whom]" {
		t.Errorf("%+v, %v", list, err)
	}
	if d, err := b.Describe(t.Context(), agent, "w", 0); err != nil || fmt.Sprint(d.StartRequires) != "[title n /by/whom]" {
		t.Errorf("%+v, %v", d.StartRequires, err)
	}
	r, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "w"})
	if said := fmt.Sprint(r.Decision.Violations); err != nil || !strings.Contains(said, "/title") || !strings.Contains(said, "/n") {
		t.Errorf("%s, %v", said, err)
	}
}

// At most eight actions are described; the rest are counted.
func TestNextIsShort(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var actions []string
	for i := range 11 {
		actions = append(actions, fmt.Sprintf(`"a%d":"a"`, i))
	}
	b.define(agent, `{"name":"many","initialState":"a","states":{"a":{"transitions":{`+strings.Join(actions, ",")+`}}}}`)
	start := b.start(agent, "many", "")
	if len(start.Next) != 8 || start.MoreActions != 3 || len(start.NextActions) != 11 {
		t.Errorf("%d described, %d more of %d", len(start.Next), start.MoreActions, len(start.NextActions))
	}
	list, err := b.Instances(t.Context(), agent, engine.InstancesRequest{})
	if err != nil || slices.ContainsFunc(list.Instances, func(i engine.InstanceSummary) bool { return i.Next != nil || i.MoreActions != 0 }) {
		t.Errorf("a list describes no actions: %+v %v", list, err)
	}
}
