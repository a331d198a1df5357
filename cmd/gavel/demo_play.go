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
}

// memory is what the agent learnt.
type memory struct{ instance, checkpoint string }

// The data that the agent sends.
var (
	submission  = map[string]any{"documentId": "DOC-7", "reviewer": "ada@example.com"}
	shortReview = map[string]any{"comments": "LGTM"}
	goodReview  = map[string]any{"comments": "Checked sections 1 to 4; the figures match the source data."}
)

// scenes are the demo, in order.
var scenes = []scene{
	{
		"The agent registers a workflow: draft -> reviewing -> approved.", "workflow.define",
		func(*memory) map[string]any { return definitionArguments() },
		func(_ *memory, a answer) error {
			return allOf(granted(a), equal("name", a.text("name"), "document-review"))
		},
	},
	{
		"It starts an instance: one document on its way through the review.", "workflow.start",
		func(*memory) map[string]any { return map[string]any{"type": "document-review"} },
		func(m *memory, a answer) error {
			m.instance = a.text("id")
			return allOf(granted(a), prefix("id", m.instance, "wf-"), equal("state", a.text("state"), "draft"))
		},
	},
	{
		"It submits without saying which document and who reviews it.", "workflow.advance",
		func(m *memory) map[string]any { return m.advance("submit", map[string]any{}) },
		func(_ *memory, a answer) error {
			return allOf(refused(a, "draft", "state"), names(a, "documentId", "reviewer"))
		},
	},
	{
		"It submits with both.", "workflow.advance",
		func(m *memory) map[string]any { return m.advance("submit", submission) },
		func(_ *memory, a answer) error { return moved(a, "reviewing", false) },
	},
	{
		"It sets a checkpoint, to be able to come back.", "workflow.checkpoint",
		func(m *memory) map[string]any {
			return map[string]any{"id": m.instance, "description": "before the verdict"}
		},
		func(m *memory, a answer) error {
			m.checkpoint = a.text("checkpointId")
			return allOf(granted(a), prefix("checkpointId", m.checkpoint, "cp-"), equal("state", a.text("state"), "reviewing"))
		},
	},
	{
		"It approves with a comment that says nothing.", "workflow.advance",
		func(m *memory) map[string]any { return m.advance("approve", shortReview) },
		func(_ *memory, a answer) error {
			return allOf(refused(a, "reviewing", "script"), names(a, "Detailed comments required"))
		},
	},
	{
		"It approves with comments that say what was checked.", "workflow.advance",
		func(m *memory) map[string]any { return m.advance("approve", goodReview) },
		func(_ *memory, a answer) error { return moved(a, "approved", true) },
	},
	{
		"On second thought it goes back to the checkpoint. Nothing is erased by that.", "workflow.rollback",
		func(m *memory) map[string]any { return map[string]any{"id": m.instance, "checkpointId": m.checkpoint} },
		func(_ *memory, a answer) error {
			return allOf(granted(a), equal("state", a.text("state"), "reviewing"), equal("context.documentId", a.text("context", "documentId"), "DOC-7"),
				equal("context.comments", fmt.Sprint(a.at("context", "comments")), "<nil>"))
		},
	},
	{
		"Every judgement is on record.", "workflow.judge.history",
		func(m *memory) map[string]any { return map[string]any{"id": m.instance} },
		recorded,
	},
}

func (m *memory) advance(action string, data map[string]any) map[string]any {
	return map[string]any{"id": m.instance, "action": action, "data": data}
}

func definitionArguments() map[string]any {
	var out map[string]any
	if err := json.Unmarshal(documentReview, &out); err != nil {
		panic("the embedded definition is not JSON: " + err.Error()) // a test parses it
	}
	return out
}

// play runs every scene and stops at the first answer that is not as it must be.
func play(ctx context.Context, agent caller, t *transcript) error {
	var m memory
	for i, s := range scenes {
		t.ask(i+1, s)
		a, err := agent.call(ctx, s.tool, s.args(&m))
		if err != nil {
			return err
		}
		a.Say = s.say
		t.hear(a)
		if err := s.must(&m, a); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, s.tool, err)
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

// recorded checks the history: every move above and no other, with its outcome.
func recorded(_ *memory, a answer) error {
	want := []string{"start approve", "submit reject", "submit approve", "approve reject", "approve approve"}
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
