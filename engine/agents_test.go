package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// given returns an operator's workflow with the given agent rights; "" means none.
func given(agents, more string) string {
	if agents != "" {
		agents = `"agents":` + agents + `,`
	}
	return `{"name":"given",` + agents + more + `"initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"transitions":{"back":"a"}}}}`
}

func TestAgentsRollBackOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	for agents, may := range map[string]bool{"": false, `{}`: false, `{"rollback":false,"redefine":true,"configureJudge":"set"}`: false, `{"rollback":true}`: true} {
		t.Run(agents, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.define(operator, given(agents, ""))
			id := b.start(agent, "given", "").ID
			cp := b.checkpoint(agent, id)
			takeBack := func(p engine.Principal) []error {
				b.moved(agent, id, "go", `{}`, "b")
				_, err1 := b.Undo(t.Context(), p, engine.UndoRequest{ID: id})
				_, err2 := b.Redo(t.Context(), p, engine.UndoRequest{ID: id})
				_, err3 := b.Rollback(t.Context(), p, engine.RollbackRequest{ID: id, CheckpointID: cp})
				if b.load(id).State == "b" {
					b.moved(agent, id, "back", `{}`, "a")
				}
				return []error{err1, err2, err3}
			}
			for i, err := range takeBack(agent) {
				if may && err != nil || !may && engine.CodeOf(err) != engine.CodeForbidden {
					t.Errorf("%d: %v", i, err)
				}
			}
			if !may {
				return
			}
			// Agents have no rights on another's instance. Once the operator withdraws a right, it is also
			// withdrawn for instances of the version that granted it.
			for i, err := range takeBack(engine.Principal{ID: "rev:rob", Role: engine.RoleReviewer}) {
				if engine.CodeOf(err) != engine.CodeForbidden {
					t.Errorf("another: %d: %v", i, err)
				}
			}
			b.define(operator, given("", ""))
			for i, err := range takeBack(agent) {
				if engine.CodeOf(err) != engine.CodeForbidden {
					t.Errorf("taken back: %d: %v", i, err)
				}
			}
			b.verify(id)
		})
	}
}

// In a workflow that an operator shared, only its owner may roll back; the owner of an instance may undo.
func TestOwnerRollsBackSharedWorkflow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	b.share("simple")
	id := b.start(other, "simple", "").ID
	cp := b.checkpoint(other, id)
	b.moved(other, id, "go", `{}`, "b")
	_, err := b.Rollback(t.Context(), other, engine.RollbackRequest{ID: id, CheckpointID: cp})
	wantCode(t, err, engine.CodeForbidden)
	b.undo(other, id, "a")
}

// An agent's version of an operator's workflow is open to all agents and trusted no more than its author.
// The operator can replace it.
func TestAgentsRedefineOnlyIfAllowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	define := func(p engine.Principal, doc string) (engine.DefineResult, error) {
		return b.Define(t.Context(), p, engine.DefineRequest{Source: "test", Document: []byte(doc)})
	}
	mine := given("", `"comment":"mine",`)
	b.define(operator, given(`{"rollback":true,"configureJudge":"set"}`, ""))
	_, err := define(agent, mine)
	wantCode(t, err, engine.CodeForbidden)
	shared := given(`{"redefine":true,"rollback":true}`, "")
	b.define(operator, shared)
	first := b.start(agent, "given", "").ID
	if r, err := define(agent, mine); err != nil || !r.Created || r.Version != 3 || r.Owner != agent.ID {
		t.Fatalf("%+v, %v", r, err)
	}
	_, err = define(agent, strings.Replace(mine, `"go":"b"`, `"go":{"target":"b","evidence":[{"name":"e","source":"s"}]}`, 1))
	wantCode(t, err, engine.CodeInvalidDefinition) // evidence is for operators
	// Every agent can start it and move its instances; the rights come from the operator's document.
	started := b.start(other, "given", "")
	if started.Version != 3 {
		t.Errorf("%+v", started.Position)
	}
	b.moved(other, started.ID, "go", `{}`, "b")
	if _, err := b.Undo(t.Context(), other, engine.UndoRequest{ID: started.ID}); err != nil {
		t.Errorf("undo: %v", err)
	}
	if list, err := b.List(t.Context(), other); err != nil || len(list) != 1 || list[0].Version != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	if r, err := define(other, given("", `"comment":"theirs",`)); err != nil || r.Version != 4 {
		t.Errorf("another agent: %+v, %v", r, err)
	}
	// Returning to the operator's document creates a version like any other.
	if r, err := define(agent, shared); err != nil || !r.Created || r.Version != 5 || r.Owner != agent.ID {
		t.Errorf("the operator's document from an agent: %+v, %v", r, err)
	}
	if r, err := define(other, given("", `"comment":"theirs",`)); err != nil || r.Version != 6 {
		t.Errorf("%+v, %v", r, err)
	}
	// A restart defines the operator's document again, which changes nothing.
	if r, err := define(operator, shared); err != nil || r.Created || r.Version != 2 || b.start(agent, "given", "").Version != 6 {
		t.Errorf("the same again: %+v, %v", r, err)
	}
	b.moved(agent, first, "go", `{}`, "b")
	// Another operator document that lets agents redefine stops no instance; one that does not takes the
	// name back.
	b.define(operator, given(`{"redefine":true}`, `"comment":"newer",`))
	b.moved(other, started.ID, "go", `{}`, "b")
	b.define(operator, given("", ""))
	_, err = b.Advance(t.Context(), other, engine.AdvanceRequest{ID: started.ID, Action: "back"})
	wantCode(t, err, engine.CodeDefinitionTakenOver)
	_, err = define(agent, mine)
	wantCode(t, err, engine.CodeForbidden)
	b.verify(first)
}

// Redefining a workflow gives an agent no right that the operator's document does not give.
func TestRedefiningGrantsNoRights(t *testing.T) {
	t.Parallel()
	const strict = `"judgeConfig":{"strictMode":true,"minConfidence":0.9},"transitionValidators":{"go":"(data) => ({valid: true, confidence: 0.5})"},`
	all := `{"rollback":true,"redefine":true,"configureJudge":"set"}`
	define := func(b *bench, p engine.Principal, doc string) engine.DefineResult {
		r, err := b.Define(t.Context(), p, engine.DefineRequest{Source: "test", Document: []byte(doc)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	configure := func(b *bench, p engine.Principal, s workflow.JudgeSettings) error {
		_, err := b.ConfigureJudge(t.Context(), p, engine.JudgeConfigRequest{Name: "given", Settings: s})
		return err
	}
	lax := workflow.JudgeSettings{Enabled: new(false)}
	t.Run("rollback", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		define(b, operator, given(`{"redefine":true}`, ""))
		old := b.start(agent, "given", "").ID
		define(b, agent, given(all, `"comment":"mine",`))
		for _, id := range []string{old, b.start(agent, "given", "").ID} {
			cp := b.checkpoint(agent, id)
			b.moved(agent, id, "go", `{}`, "b")
			_, err := b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: id, CheckpointID: cp})
			wantCode(t, err, engine.CodeForbidden)
			_, err = b.Undo(t.Context(), agent, engine.UndoRequest{ID: id})
			wantCode(t, err, engine.CodeForbidden)
		}
		// A later operator document grants the right for agents' versions, but not for instances of an
		// earlier operator version that did not grant it.
		define(b, operator, given(`{"redefine":true,"rollback":true}`, ""))
		_, err := b.Undo(t.Context(), agent, engine.UndoRequest{ID: old})
		wantCode(t, err, engine.CodeForbidden)
	})
	t.Run("configureJudge", func(t *testing.T) {
		t.Parallel()
		for right, tightens := range map[string]bool{"none": false, "tighten": true, "set": true} {
			b := newBench(t)
			define(b, operator, given(fmt.Sprintf(`{"redefine":true,"configureJudge":%q}`, right), strict))
			define(b, agent, given(all, `"comment":"mine",`+strict))
			id, theirs := b.start(agent, "given", "").ID, b.start(other, "given", "").ID
			wantCode(t, configure(b, agent, lax), engine.CodeForbidden)
			for p, instances := range map[engine.Principal][]string{agent: {id}, other: {theirs}} {
				if err := configure(b, p, workflow.JudgeSettings{MinConfidence: new(0.95)}); tightens != (err == nil) {
					t.Errorf("%s: %s tightens: %v", right, p.ID, err)
				}
				for _, i := range instances {
					b.refused(p, i, "go", `{}`, "low_confidence")
				}
			}
		}
	})
	// Settings made while they were allowed do not loosen a version that an agent made.
	t.Run("what was set before", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		define(b, operator, given(all, strict))
		if err := configure(b, agent, lax); err != nil {
			t.Fatal(err)
		}
		b.moved(agent, b.start(agent, "given", "").ID, "go", `{}`, "b")
		define(b, other, given(all, `"comment":"theirs",`+strict))
		b.refused(agent, b.start(agent, "given", "").ID, "go", `{}`, "low_confidence")
	})
	// Nor do settings that the former owner made for all before an operator took the name over.
	t.Run("what the former owner set", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		define(b, agent, given("", strict))
		if err := configure(b, agent, lax); err != nil {
			t.Fatal(err)
		}
		b.moved(agent, b.start(agent, "given", "").ID, "go", `{}`, "b")
		define(b, operator, given(`{"redefine":true}`, strict))
		define(b, other, given("", `"comment":"theirs",`+strict))
		b.refused(other, b.start(other, "given", "").ID, "go", `{}`, "low_confidence")
	})
	t.Run("the name", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		of := define(b, operator, given(`{"redefine":true}`, ""))
		// The identical document stays the operator's.
		if r := define(b, agent, given(`{"redefine":true}`, "")); r.Created || r.Owner != of.Owner || r.Version != 1 {
			t.Errorf("%+v", r)
		}
		define(b, agent, given("", `"comment":"mine",`))
		_, err := b.Define(t.Context(), other, engine.DefineRequest{Document: []byte(named(given("", ""), "Given"))})
		wantCode(t, err, engine.CodeForbidden)
		_, err = b.Decide(t.Context(), other, engine.DecideRequest{Definition: []byte(given("", "")), State: "a", Action: "go"})
		wantCode(t, err, engine.CodeForbidden)
		// An engine that only displays the store shows the owner.
		shown := newBenchWith(t, b.store, nil, func(c *engine.Config) { c.ShowUnsealed = true })
		if list, err := shown.List(t.Context(), auditor); err != nil || len(list) != 1 || !list[0].Shared || list[0].Operator {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestAgentsConfigureJudgeOnlyAsAllowed(t *testing.T) {
	t.Parallel()
	settings := map[string]workflow.JudgeSettings{
		"tighten": {MinConfidence: new(0.95)}, "loosen": {StrictMode: new(false)}, "disable": {Enabled: new(false)}, "model": {Model: new("m")},
	}
	for right, allowed := range map[string]string{"tighten": "tighten", "none": "", "set": "tighten loosen disable"} {
		for what, s := range settings {
			t.Run(right+" "+what, func(t *testing.T) {
				t.Parallel()
				b := newBenchWith(t, memory.New(), nil, func(c *engine.Config) { c.Models = []string{"m"} })
				b.define(operator, given(fmt.Sprintf(`{"configureJudge":%q}`, right), `"judgeConfig":{"strictMode":true,"minConfidence":0.9},"transitionValidators":{"go":"(data) => ({valid: true, confidence: data.c})"},`))
				id := b.start(agent, "given", "").ID
				_, err := b.ConfigureJudge(t.Context(), agent, engine.JudgeConfigRequest{Name: "given", Settings: s})
				if may := strings.Contains(allowed, what); may != (err == nil) || !may && engine.CodeOf(err) != engine.CodeForbidden {
					t.Fatalf("%v", err)
				}
				if err != nil {
					return
				}
				// It applies to the agent's own instances, and not to another's.
				sure := map[string]string{"tighten": `{"c":0.92}`, "loosen": `{"c":0.85}`, "disable": `{"c":0.85}`}[what]
				if d := b.advance(agent, id, "go", sure).Decision; d.Applied != (what != "tighten") {
					t.Errorf("the agent's: %+v", d)
				}
				if d := b.advance(other, b.start(other, "given", "").ID, "go", sure).Decision; d.Applied != (what == "tighten") {
					t.Errorf("another's: %+v", d)
				}
				b.verify(id)
			})
		}
	}
}
