package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed demo/document-review.json
var documentReview []byte

// moody is what the demo needs of what it moves beside the agent: the scripted
// model, or the project whose tests are run.
type moody interface{ become(to mood) error }

// caller is what the demo needs of an agent; tests give a liar.
type caller interface {
	call(ctx context.Context, tool string, arguments any) (answer, error)
}

// scene is one call of the demo: what a person is told, what the agent asks for,
// and what the answer must be.
type scene struct {
	say  string
	tool string
	args func(*memory) map[string]any
	// must checks the answer, and remembers what later scenes need.
	must func(*memory, answer) error
	// mood is what the model or the project becomes before the call; "" leaves it as
	// it is.
	mood mood
}

// act is a part of the demo with a title.
type act struct {
	title  string
	scenes []scene
}

// play is a demo: what it is about, and its acts in order.
type play struct {
	headline string
	acts     []act
}

// workflowPlay is the demo of the layers.
var workflowPlay = play{
	headline: "An agent drives a workflow, and gavel judges every move before it happens.",
	acts: []act{
		{"First act: fields, schema and scripts.", scenes},
		{"Second act: a model judges too. It is a script on this machine, no real model; the gate treats it like one.", judgedScenes},
	},
}

// memory is what the agent learnt.
type memory struct{ instance, checkpoint string }

// The data that the agent sends.
var (
	submission  = map[string]any{"documentId": "DOC-7", "reviewer": "ada@example.com"}
	shortReview = map[string]any{"comments": "LGTM"}
	goodReview  = map[string]any{"comments": "Checked sections 1 to 4; the figures match the source data."}
)

// scenes are the first act.
var scenes = []scene{
	{
		say: "The agent registers a workflow: draft -> reviewing -> approved.", tool: "workflow.define",
		args: func(*memory) map[string]any { return definitionArguments(documentReview) },
		must: func(_ *memory, a answer) error {
			return allOf(granted(a), equal("name", a.text("name"), "document-review"))
		},
	},
	{
		say: "It starts an instance: one document on its way through the review.", tool: "workflow.start",
		args: func(*memory) map[string]any { return map[string]any{"type": "document-review"} },
		must: func(m *memory, a answer) error {
			m.instance = a.text("id")
			return allOf(granted(a), prefix("id", m.instance, "wf-"), equal("state", a.text("state"), "draft"))
		},
	},
	{
		say: "It submits without saying which document and who reviews it.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("submit", map[string]any{}) },
		must: func(_ *memory, a answer) error {
			return allOf(refused(a, "draft", "state"), names(a, "documentId", "reviewer"))
		},
	},
	{
		say: "It submits with both.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("submit", submission) },
		must: func(_ *memory, a answer) error { return moved(a, "reviewing", false) },
	},
	{
		say: "It sets a checkpoint, to be able to come back.", tool: "workflow.checkpoint",
		args: func(m *memory) map[string]any {
			return map[string]any{"id": m.instance, "description": "before the verdict"}
		},
		must: func(m *memory, a answer) error {
			m.checkpoint = a.text("checkpointId")
			return allOf(granted(a), prefix("checkpointId", m.checkpoint, "cp-"), equal("state", a.text("state"), "reviewing"))
		},
	},
	{
		say: "It approves with a comment that says nothing.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("approve", shortReview) },
		must: func(_ *memory, a answer) error {
			return allOf(refused(a, "reviewing", "script"), names(a, "Detailed comments required"))
		},
	},
	{
		say: "It approves with comments that say what was checked.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("approve", goodReview) },
		must: func(_ *memory, a answer) error { return moved(a, "approved", true) },
	},
	{
		say: "On second thought it goes back to the checkpoint. Nothing is erased by that.", tool: "workflow.rollback",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance, "checkpointId": m.checkpoint} },
		must: func(_ *memory, a answer) error {
			return allOf(granted(a), equal("state", a.text("state"), "reviewing"), equal("context.documentId", a.text("context", "documentId"), "DOC-7"),
				equal("context.comments", fmt.Sprint(a.at("context", "comments")), "<nil>"))
		},
	},
	{
		say: "Every judgement is on record.", tool: "workflow.judge.history",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance} },
		must: recorded,
	},
}

func (m *memory) advance(action string, data map[string]any) map[string]any {
	return map[string]any{"id": m.instance, "action": action, "data": data}
}

func definitionArguments(definition []byte) map[string]any {
	var out map[string]any
	if err := json.Unmarshal(definition, &out); err != nil {
		panic("the embedded definition is not JSON: " + err.Error()) // a test parses it
	}
	return out
}

// run plays every scene and stops at the first answer that is not as it must be.
func (p play) run(ctx context.Context, agent caller, model moody, t *transcript) error {
	var m memory
	step := 0
	for _, part := range p.acts {
		t.act(part.title)
		for _, s := range part.scenes {
			step++
			if s.mood != "" {
				if err := model.become(s.mood); err != nil {
					return err
				}
			}
			t.ask(step, s)
			a, err := agent.call(ctx, s.tool, s.args(&m))
			if err != nil {
				return err
			}
			a.Say = s.say
			t.hear(a)
			if err := s.must(&m, a); err != nil {
				return fmt.Errorf("step %d, %s: %w", step, s.tool, err)
			}
		}
	}
	t.instance = m.instance
	return nil
}

// The checks. Each says what is wrong, or nothing.

func allOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func equal(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %q and should be %q", what, got, want)
	}
	return nil
}

func prefix(what, got, want string) error {
	if !strings.HasPrefix(got, want) {
		return fmt.Errorf("%s is %q and should begin with %q", what, got, want)
	}
	return nil
}

func granted(a answer) error {
	if a.IsError {
		return fmt.Errorf("refused, and should not be: %s", a.Text)
	}
	return nil
}

func refused(a answer, state, layer string) error {
	if !a.IsError {
		return fmt.Errorf("let through, and should be refused: %s", a.Text)
	}
	return allOf(prefix("text", a.Text, "REJECTED"), equal("outcome", a.text("decision", "outcome"), "reject"),
		equal("decidedBy", a.text("decision", "decidedBy"), layer), equal("state", a.text("state"), state))
}

func moved(a answer, state string, complete bool) error {
	return allOf(granted(a), equal("outcome", a.text("decision", "outcome"), "approve"), equal("state", a.text("state"), state),
		equal("complete", fmt.Sprint(a.at("complete")), fmt.Sprint(complete)))
}

// names checks that the violations name every word.
func names(a answer, words ...string) error {
	all := strings.Join(a.list("decision", "violations"), "; ")
	for _, word := range words {
		if !strings.Contains(all, word) {
			return fmt.Errorf("the violations do not name %q: %q", word, all)
		}
	}
	return nil
}

// recorded checks the history of the first act.
func recorded(_ *memory, a answer) error {
	return history(a, "start approve", "submit reject", "submit approve", "approve reject", "approve approve")
}

// history checks that these moves were made and no other, with these outcomes.
func history(a answer, want ...string) error {
	decisions, _ := a.at("decisions").([]any)
	var got []string
	for _, d := range decisions {
		entry, _ := d.(map[string]any)
		action, _ := entry["action"].(string)
		if action == "" {
			action = "start"
		}
		got = append(got, fmt.Sprint(action, " ", entry["outcome"]))
	}
	return allOf(granted(a), equal("the history", strings.Join(got, ", "), strings.Join(want, ", ")))
}
