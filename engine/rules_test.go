package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/judge"
)

// The document-review example behaves as its documentation shows.
const documentReview = `{
	"name": "document-review", "description": "Document review with strict validation",
	"states": {
		"draft": {"transitions": {"submit": "reviewing"}},
		"reviewing": {"transitions": {"approve": "approved", "reject": "draft"}},
		"approved": {"final": true}
	},
	"initialState": "draft",
	"judgeConfig": {"enabled": true, "strictMode": true, "minConfidence": 0.8},
	"stateValidators": {"reviewing": {"requiredFields": ["documentId", "reviewer"]}},
	"transitionValidators": {
		"approve": "(data, context) => ({ valid: data.comments?.length >= 20, confidence: 1.0, reason: 'Detailed comments required' })"
	}
}`

func TestDocumentReview(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, documentReview)
	id := b.start(agent, "document-review", `{"title":"Q3"}`).ID
	r := b.refused(agent, id, "submit", `{"documentId":"D-1"}`, "required_field")
	if got := strings.Join(r.Decision.Violations, " "); !strings.Contains(got, "reviewer") || strings.Contains(got, "documentId") {
		t.Errorf("violations name the missing field only: %q", got)
	}
	if r.Decision.DecidedBy != judge.LayerState {
		t.Errorf("decidedBy %s, want state", r.Decision.DecidedBy)
	}
	r = b.moved(agent, id, "submit", `{"documentId":"D-1","reviewer":"rob"}`, "reviewing")
	if r.Decision.Confidence != 1 || r.Decision.Assurance != judge.AssuranceStructural {
		t.Errorf("submit: %+v", r.Decision)
	}
	cp, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id, Description: "before"})
	if err != nil {
		t.Fatal(err)
	}
	r = b.refused(agent, id, "approve", `{"comments":"ok"}`, "validator_rejected")
	if !strings.Contains(r.Decision.Reasoning, "Detailed comments required") || r.Decision.DecidedBy != judge.LayerScript {
		t.Errorf("approve with short comments: %+v", r.Decision)
	}
	r = b.moved(agent, id, "approve", `{"comments":"Checked sections 1 to 4 against the sources."}`, "approved")
	if r.Decision.Confidence != 1 || r.Decision.Assurance != judge.AssuranceValidators || r.Decision.DecidedBy != judge.LayerScript || !r.Complete {
		t.Errorf("approve: %+v", r.Decision)
	}
	back, err := b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: id, CheckpointID: cp.CheckpointID})
	if err != nil || back.State != "reviewing" || back.Complete || strings.Contains(string(back.Context), "comments") {
		t.Fatalf("rollback: %+v %v", back, err)
	}
	if back.Message == "" || len(back.NextActions) != 2 {
		t.Errorf("rollback answers a message and the actions: %+v", back)
	}
}

func TestRunTimeRules(t *testing.T) {
	t.Parallel()
	const doc = `{"name":"rules","initialState":"draft","mustPassThrough":{"done":["reviewed"]},"states":{
		"draft":{"transitions":{
			"submit":{"target":"review","writes":["id","text"],"freezes":["/id"]},
			"edit":"draft"}},
		"review":{"transitions":{
			"approve":{"target":"reviewed","notBy":"submit","roles":["reviewer"]},
			"back":"draft"}},
		"reviewed":{"transitions":{"finish":"done","undo":"draft"}},
		"done":{"final":true}}}`
	b := newBench(t)
	b.define(operator, doc)
	id := b.start(agent, "rules", "").ID

	b.refused(agent, id, "submit", `{"id":1,"extra":2}`, "write_not_allowed")
	b.moved(agent, id, "submit", `{"id":1,"text":"x"}`, "review")
	b.refused(agent, id, "approve", `{}`, "role_not_allowed")
	b.refused(agent, id, "back", `{"id":2}`, "frozen_field")
	b.refused(agent, id, "back", `{"id":null}`, "frozen_field")
	b.moved(agent, id, "back", `{"id":1}`, "draft")
	b.moved(agent, id, "submit", `{"text":"y"}`, "review")
	b.moved(reviewer, id, "approve", `{}`, "reviewed")
	b.moved(agent, id, "finish", `{}`, "done")

	// notBy: the principal that submitted may not approve, even as a reviewer.
	id = b.start(reviewerAsOperator, "rules", "").ID
	b.moved(reviewerAsOperator, id, "submit", `{}`, "review")
	b.refused(engine.Principal{ID: reviewerAsOperator.ID, Role: engine.RoleReviewer}, id, "approve", `{}`, "not_by")
}

var reviewerAsOperator = engine.Principal{ID: "both", Role: engine.RoleOperator}

// Visits that a rollback undid do not count for mustPassThrough, and fields that a rolled-back transition
// froze are free again.
func TestRollbackUndoesFacts(t *testing.T) {
	t.Parallel()
	// Lint rejects a definition in which some path breaks mustPassThrough, so the path around "seen" uses
	// a route that reads the context.
	b := newBench(t)
	b.define(agent, `{"name":"facts","initialState":"a","states":{
		"a":{"transitions":{"look":{"target":"seen","freezes":["/k"]},"set":"a"}},
		"seen":{"transitions":{"home":"a"}}}}`)
	id := b.start(agent, "facts", `{"k":1}`).ID
	cp, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	b.moved(agent, id, "look", `{}`, "seen")
	b.moved(agent, id, "home", `{}`, "a")
	b.refused(agent, id, "set", `{"k":2}`, "frozen_field")
	if got := b.load(id).Facts; len(got.Visited) != 2 || len(got.Frozen) != 1 || len(got.Performed["look"]) != 1 {
		t.Fatalf("facts: %+v", got)
	}
	if _, err := b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: id, CheckpointID: cp.CheckpointID}); err != nil {
		t.Fatal(err)
	}
	if got := b.load(id).Facts; len(got.Visited) != 1 || len(got.Frozen) != 0 || len(got.Performed) != 0 {
		t.Errorf("a rollback restores the facts: %+v", got)
	}
	b.moved(agent, id, "set", `{"k":2}`, "a")
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, `{"name":"routes","initialState":"a","states":{
		"a":{"transitions":{"route":[
			{"condition":"context.wordCount > 10000","target":"long"},
			{"condition":"data.kind === 'short'","target":"short"}]}},
		"long":{"final":true},"short":{"final":true}}}`)
	long := b.start(agent, "routes", `{"wordCount":20000}`).ID
	b.moved(agent, long, "route", `{"kind":"short"}`, "long")
	short := b.start(agent, "routes", `{"wordCount":1}`).ID
	b.refused(agent, short, "route", `{"kind":"odd"}`, "no_route")
	b.moved(agent, short, "route", `{"kind":"short"}`, "short")
}

func TestShadowModeMovesDespiteARejection(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, `{"name":"shadow","initialState":"a","judgeConfig":{"mode":"shadow"},"states":{
		"a":{"transitions":{"go":{"target":"b","requiredFields":["why"]}}},"b":{"transitions":{"end":"c"}},"c":{"final":true}}}`)
	id := b.start(agent, "shadow", "").ID
	r := b.advance(agent, id, "go", `{}`)
	if r.State != "b" || !r.Decision.Applied || r.Decision.Outcome != judge.Reject {
		t.Errorf("shadow: %+v", r)
	}
	b.refused(agent, id, "nope", `{}`, "illegal_action")
}

func TestInstancesArePinnedToTheirVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v1 := b.define(agent, simple)
	again := b.define(agent, simple)
	if v1.Version != 1 || !v1.Created || again.Version != 1 || again.Created {
		t.Fatalf("defining the same twice: %+v %+v", v1, again)
	}
	old := b.start(agent, "simple", "").ID
	v2 := b.define(agent, `{"name":"simple","initialState":"a","states":{"a":{"transitions":{"stop":"b"}},"b":{"final":true}}}`)
	if v2.Version != 2 {
		t.Fatalf("version %d", v2.Version)
	}
	b.moved(agent, old, "go", "", "b")
	fresh := b.start(agent, "simple", "").ID
	b.refused(agent, fresh, "go", "", "illegal_action")
	b.moved(agent, fresh, "stop", "", "b")
	if ev := b.events(old); ev[1].DefinitionHash != v1.Hash {
		t.Errorf("the event names the pinned definition: %s", ev[1].DefinitionHash)
	}
}

func TestSensitiveValues(t *testing.T) {
	t.Parallel()
	const doc = `{"name":"secret","initialState":"a","sensitive":["/customer/ssn"],
		"transitionValidators":{"leak":"(data, context) => ({valid: false, reason: 'ssn is ' + context.customer.ssn + data.customer.ssn})"},
		"states":{"a":{"transitions":{"leak":"b","go":"b"}},"b":{"final":true}}}`
	const ssn = "078-05-1120"
	b := newBench(t)
	b.define(agent, doc)
	b.define(operator, named(doc, "trusted"))
	for _, name := range []string{"secret", "trusted"} {
		id := b.start(agent, name, `{"customer":{"ssn":"`+ssn+`"}}`).ID
		r := b.refused(agent, id, "leak", `{"customer":{"ssn":"`+ssn+`","x":1}}`, "validator_rejected")
		all, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(all), ssn) {
			t.Errorf("%s: the answer leaks the value: %s", name, all)
		}
		refusal := b.events(id)[1]
		if text, _ := json.Marshal(refusal); strings.Contains(string(text), ssn) {
			t.Errorf("%s: a refusal keeps the plain value: %s", name, text)
		}
		if !strings.Contains(string(refusal.Decision.Data), "hmac-sha256-v2:") {
			t.Errorf("%s: no keyed digest in %s", name, refusal.Decision.Data)
		}
		h, err := b.History(t.Context(), agent, engine.HistoryRequest{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := json.Marshal(h); strings.Contains(string(text), ssn) {
			t.Errorf("%s: the history leaks the value", name)
		}
		mine, err := b.Status(t.Context(), agent, id)
		if err != nil || !strings.Contains(string(mine.Context), ssn) {
			t.Errorf("%s: the owner sees its own context: %s %v", name, mine.Context, err)
		}
		theirs, err := b.Status(t.Context(), auditor, id)
		if err != nil || strings.Contains(string(theirs.Context), ssn) {
			t.Errorf("%s: an auditor sees digests: %s %v", name, theirs.Context, err)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	r, err := b.Cancel(t.Context(), agent, engine.CancelRequest{ID: id, Reason: "not needed"})
	if err != nil || r.Status != record.Cancelled || r.Complete || len(r.NextActions) != 0 {
		t.Fatalf("cancel: %+v %v", r, err)
	}
	_, err = b.Cancel(t.Context(), agent, engine.CancelRequest{ID: id})
	wantCode(t, err, engine.CodeInstanceEnded)
	b.refused(agent, id, "go", "", "instance_ended")
	_, err = b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id})
	wantCode(t, err, engine.CodeInstanceEnded)
}

func TestCheckpointsNewestFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	var ids []string
	for _, d := range []string{"one", "two"} {
		c, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id, Description: d, Metadata: json.RawMessage(`{"by": "x"}`)})
		if err != nil || c.State != "a" || c.Instance != id || c.Description != d || string(c.Metadata) != `{"by":"x"}` {
			t.Fatalf("checkpoint: %+v %v", c, err)
		}
		ids = append(ids, c.CheckpointID)
	}
	l, err := b.ListCheckpoints(t.Context(), agent, id)
	if err != nil || l.Count != 2 || l.Checkpoints[0].CheckpointID != ids[1] {
		t.Errorf("list: %+v %v", l, err)
	}
	_, err = b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: id, CheckpointID: ids[0][:len(ids[0])-1] + "_"})
	if e := wantCode(t, err, engine.CodeUnknownCheckpoint); !strings.Contains(e.Message, "did you mean") {
		t.Errorf("no suggestion: %v", e)
	}
}

func TestCanExecute(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	for _, c := range []struct {
		states []string
		action string
		want   bool
		reason string
		needs  string
	}{
		{[]string{"a"}, "", true, `The instance is in "a".`, "a"},
		{[]string{"b", "a"}, "", true, `The instance is in "a".`, "b a"},
		{[]string{"b", "c"}, "", false, `The instance is in "a"; this needs b or c.`, "b c"},
		{nil, "go", true, `The instance is in "a" and allows "go".`, "a b"},
		{[]string{"a"}, "go", true, `The instance is in "a" and allows "go".`, "a"},
		{[]string{"b"}, "go", false, `The instance is in "a"; this needs b.`, "b"},
		{[]string{"a"}, "back", false, `The action "back" is not possible in state "a"; possible: "go". It is possible in state "b".`, "a"},
		{nil, "back", false, `The action "back" is not possible in state "a"; possible: "go". It is possible in state "b".`, "b"},
		{nil, "bakc", false, `The action "bakc" is not possible in state "a"; possible: "go". Did you mean "back"? It is possible in state "b".`, ""},
		{nil, "fly", false, `The action "fly" is not possible in state "a"; possible: "go".`, ""},
	} {
		r, err := b.CanExecute(t.Context(), agent, engine.CanExecuteRequest{ID: id, States: c.states, Action: c.action})
		if err != nil || r.Allowed != c.want || r.Reason != c.reason || r.Required == nil || strings.Join(r.Required, " ") != c.needs {
			t.Errorf("%v: %+v %v", c.states, r, err)
		}
	}
	_, err := b.CanExecute(t.Context(), agent, engine.CanExecuteRequest{ID: id, States: []string{"aa"}})
	wantCode(t, err, engine.CodeInvalidArgument)
	_, err = b.CanExecute(t.Context(), agent, engine.CanExecuteRequest{ID: id})
	wantCode(t, err, engine.CodeInvalidArgument)
}
