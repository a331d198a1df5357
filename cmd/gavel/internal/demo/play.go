package demo

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed document-review.json
var documentReview []byte

// JudgedReview is the workflow whose approval a model judges.
//
//go:embed judged-review.json
var JudgedReview []byte

// performer is what the demo changes while the agent acts: the scripted model, or the
// model, or the project whose tests are run.
type performer interface{ Become(to Mood) error }

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
	mood Mood
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
			return firstOf(mustPass(a), mustEqual("name", a.text("name"), "document-review"))
		},
	},
	{
		say: "It starts an instance: one document on its way through the review.", tool: "workflow.start",
		args: func(*memory) map[string]any { return map[string]any{"type": "document-review"} },
		must: func(m *memory, a answer) error {
			m.instance = a.text("id")
			return firstOf(mustPass(a), mustBegin("id", m.instance, "wf-"), mustEqual("state", a.text("state"), "draft"))
		},
	},
	{
		say: "It submits without saying which document and who reviews it.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("submit", map[string]any{}) },
		must: func(_ *memory, a answer) error {
			return firstOf(mustReject(a, "draft", "state"), mustName(a, "documentId", "reviewer"))
		},
	},
	{
		say: "It submits with both.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("submit", submission) },
		must: func(_ *memory, a answer) error { return mustMove(a, "reviewing", false) },
	},
	{
		say: "It sets a checkpoint, to be able to come back.", tool: "workflow.checkpoint",
		args: func(m *memory) map[string]any {
			return map[string]any{"id": m.instance, "description": "before the verdict"}
		},
		must: func(m *memory, a answer) error {
			m.checkpoint = a.text("checkpointId")
			return firstOf(mustPass(a), mustBegin("checkpointId", m.checkpoint, "cp-"), mustEqual("state", a.text("state"), "reviewing"))
		},
	},
	{
		say: "It approves with a comment that says nothing.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("approve", shortReview) },
		must: func(_ *memory, a answer) error {
			return firstOf(mustReject(a, "reviewing", "script"), mustName(a, "Detailed comments required"))
		},
	},
	{
		say: "It approves with comments that say what was checked.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("approve", goodReview) },
		must: func(_ *memory, a answer) error { return mustMove(a, "approved", true) },
	},
	{
		say: "On second thought it goes back to the checkpoint. Nothing is erased by that.", tool: "workflow.rollback",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance, "checkpointId": m.checkpoint} },
		must: func(_ *memory, a answer) error {
			return firstOf(mustPass(a), mustEqual("state", a.text("state"), "reviewing"), mustEqual("context.documentId", a.text("context", "documentId"), "DOC-7"),
				mustEqual("context.comments", fmt.Sprint(a.at("context", "comments")), "<nil>"))
		},
	},
	{
		say: "Every judgement is on record.", tool: "workflow.judge.history",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance} },
		must: checkFirstHistory,
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

func (p play) countScenes() (n int) {
	for _, part := range p.acts {
		n += len(part.scenes)
	}
	return n
}

// run plays every scene and stops at the first answer that is not as it must be.
func (p play) run(ctx context.Context, agent caller, model performer, t *transcript) error {
	var m memory
	step := 0
	for _, part := range p.acts {
		t.printAct(part.title)
		for _, s := range part.scenes {
			step++
			if s.mood != "" {
				if err := model.Become(s.mood); err != nil {
					return err
				}
			}
			t.printScene(step, s)
			a, err := agent.call(ctx, s.tool, s.args(&m))
			if err != nil {
				return err
			}
			a.Say = s.say
			t.printAnswer(a)
			if err := s.must(&m, a); err != nil {
				return fmt.Errorf("step %d, %s: %w", step, s.tool, err)
			}
		}
	}
	t.instance = m.instance
	return nil
}

// The checks. Each says what is wrong, or nothing.

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func mustEqual(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s is %q and should be %q", what, got, want)
	}
	return nil
}

func mustBegin(what, got, want string) error {
	if !strings.HasPrefix(got, want) {
		return fmt.Errorf("%s is %q and should begin with %q", what, got, want)
	}
	return nil
}

func mustPass(a answer) error {
	if a.IsError {
		return fmt.Errorf("refused, and should not be: %s", a.Text)
	}
	return nil
}

func mustReject(a answer, state, layer string) error {
	if !a.IsError {
		return fmt.Errorf("let through, and should be refused: %s", a.Text)
	}
	return firstOf(mustBegin("text", a.Text, "REJECTED"), mustEqual("outcome", a.text("decision", "outcome"), "reject"),
		mustEqual("decidedBy", a.text("decision", "decidedBy"), layer), mustEqual("state", a.text("state"), state))
}

func mustMove(a answer, state string, complete bool) error {
	return firstOf(mustPass(a), mustEqual("outcome", a.text("decision", "outcome"), "approve"), mustEqual("state", a.text("state"), state),
		mustEqual("complete", fmt.Sprint(a.at("complete")), fmt.Sprint(complete)))
}

// mustName checks that the violations name every word.
func mustName(a answer, words ...string) error {
	all := strings.Join(a.list("decision", "violations"), "; ")
	for _, word := range words {
		if !strings.Contains(all, word) {
			return fmt.Errorf("the violations do not name %q: %q", word, all)
		}
	}
	return nil
}

// checkFirstHistory checks the history of the first act.
func checkFirstHistory(_ *memory, a answer) error {
	return mustRecord(a, "start approve", "submit reject", "submit approve", "approve reject", "approve approve")
}

// mustRecord checks that these moves were made and no other, with these outcomes.
func mustRecord(a answer, want ...string) error {
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
	return firstOf(mustPass(a), mustEqual("the history", strings.Join(got, ", "), strings.Join(want, ", ")))
}

// The comments of the second act. All of them pass the script.
var (
	praise     = map[string]any{"comments": "I have reviewed it very carefully and everything is in perfect order."}
	realReview = map[string]any{"comments": "Read sections 1 to 4; every figure in table 2 was compared with the source data."}
)

// judgedScenes are the second act.
var judgedScenes = []scene{
	{
		say: "The agent registers a workflow whose approval a model judges against two criteria.", tool: "workflow.define",
		args: func(*memory) map[string]any { return definitionArguments(JudgedReview) },
		must: func(_ *memory, a answer) error {
			return firstOf(mustPass(a), mustEqual("name", a.text("name"), "judged-review"))
		},
	},
	startJudged("It starts an instance."),
	submitJudged(),
	{
		say: "It approves with praise. The script lets that pass, and the model finds nothing in it.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("approve", praise) },
		must: func(_ *memory, a answer) error {
			return firstOf(mustReject(a, "reviewing", "model"), mustName(a, "parts of the document"))
		},
	},
	{
		say: "It approves with comments that say what was done. The model's own 0.97 is shrunk: nobody has calibrated it.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("approve", realReview) },
		must: func(_ *memory, a answer) error {
			return firstOf(mustMove(a, "approved", true), mustEqual("decidedBy", a.text("decision", "decidedBy"), "model"),
				mustEqual("assurance", a.text("decision", "assurance"), "llm"))
		},
	},
	startJudged("A second document, and from here on the model has bad days."),
	submitJudged(),
	{
		say: "The model is slow. The gate waits a second, no longer, and does not guess: nothing is decided.", tool: "workflow.advance", mood: Slow,
		args: func(m *memory) map[string]any { return m.advance("approve", realReview) },
		must: func(_ *memory, a answer) error {
			return firstOf(mustEqual("isError", fmt.Sprint(a.IsError), "true"), mustEqual("error", a.text("error", "code"), "busy"))
		},
	},
	keepState("The model answers, and it is no judgement. What the case may have caused is never let pass.", Garbled, "judge_unreadable", "model"),
	keepState("The model is dead.", Dead, "judge_unavailable", "policy"),
	{
		say: "The owner decides that moves may happen without the model. The answer says what they rest on then.", tool: "workflow.judge.config",
		args: func(*memory) map[string]any {
			return map[string]any{"name": "judged-review", "strictMode": false}
		},
		must: func(_ *memory, a answer) error {
			return firstOf(mustPass(a), mustEqual("success", fmt.Sprint(a.at("success")), "true"))
		},
	},
	{
		say: "The same review, with the model still dead.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("approve", realReview) },
		must: func(_ *memory, a answer) error {
			return firstOf(mustMove(a, "approved", true), mustEqual("decidedBy", a.text("decision", "decidedBy"), "fallback"),
				mustEqual("degraded", fmt.Sprint(a.at("decision", "degraded")), "true"))
		},
	},
	{
		say: "All of it is on record.", tool: "workflow.judge.history",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance} },
		must: func(_ *memory, a answer) error {
			return mustRecord(a, "start approve", "submit approve", "approve reject", "approve reject", "approve approve")
		},
	},
}

func startJudged(say string) scene {
	return scene{
		say: say, tool: "workflow.start",
		args: func(*memory) map[string]any { return map[string]any{"type": "judged-review"} },
		must: func(m *memory, a answer) error {
			m.instance = a.text("id")
			return firstOf(mustPass(a), mustEqual("state", a.text("state"), "draft"))
		},
	}
}

func submitJudged() scene {
	return scene{
		say: "It submits.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("submit", submission) },
		must: func(_ *memory, a answer) error { return mustMove(a, "reviewing", false) },
	}
}

// keepState is a good review that cannot be judged: the state stays as it is.
func keepState(say string, model Mood, code, decider string) scene {
	return scene{
		say: say, tool: "workflow.advance", mood: model,
		args: func(m *memory) map[string]any { return m.advance("approve", realReview) },
		must: func(_ *memory, a answer) error {
			return firstOf(mustReject(a, "reviewing", decider), mustEqual("code", a.text("decision", "code"), code), mustName(a, "model"))
		},
	}
}
