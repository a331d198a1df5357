package main

import "fmt"

// The comments of the second act. All of them pass the script.
var (
	praise     = map[string]any{"comments": "I have reviewed it very carefully and everything is in perfect order."}
	realReview = map[string]any{"comments": "Read sections 1 to 4; every figure in table 2 was compared with the source data."}
)

// judgedScenes are the second act.
var judgedScenes = []scene{
	{
		say: "The agent registers a workflow whose approval a model judges against two criteria.", tool: "workflow.define",
		args: func(*memory) map[string]any { return definitionArguments(judgedReview) },
		must: func(_ *memory, a answer) error {
			return allOf(granted(a), equal("name", a.text("name"), "judged-review"))
		},
	},
	startJudged("It starts an instance."),
	submitJudged(),
	{
		say: "It approves with praise. The script lets that pass, and the model finds nothing in it.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("approve", praise) },
		must: func(_ *memory, a answer) error {
			return allOf(refused(a, "reviewing", "model"), names(a, "parts of the document"))
		},
	},
	{
		say: "It approves with comments that say what was done. The model's own 0.97 is shrunk: nobody has calibrated it.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("approve", realReview) },
		must: func(_ *memory, a answer) error {
			return allOf(moved(a, "approved", true), equal("decidedBy", a.text("decision", "decidedBy"), "model"),
				equal("assurance", a.text("decision", "assurance"), "llm"))
		},
	},
	startJudged("A second document, and from here on the model has bad days."),
	submitJudged(),
	{
		say: "The model is slow. The gate waits a second, no longer, and does not guess: nothing is decided.", tool: "workflow.advance", mood: slow,
		args: func(m *memory) map[string]any { return m.advance("approve", realReview) },
		must: func(_ *memory, a answer) error {
			return allOf(equal("isError", fmt.Sprint(a.IsError), "true"), equal("error", a.text("error", "code"), "busy"))
		},
	},
	kept("The model answers, and it is no judgement. What the case may have caused is never let pass.", garbled, "judge_unreadable", "model"),
	kept("The model is dead.", dead, "judge_unavailable", "policy"),
	{
		say: "The owner decides that moves may happen without the model. The answer says what they rest on then.", tool: "workflow.judge.config",
		args: func(*memory) map[string]any {
			return map[string]any{"name": "judged-review", "strictMode": false}
		},
		must: func(_ *memory, a answer) error {
			return allOf(granted(a), equal("success", fmt.Sprint(a.at("success")), "true"))
		},
	},
	{
		say: "The same review, with the model still dead.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("approve", realReview) },
		must: func(_ *memory, a answer) error {
			return allOf(moved(a, "approved", true), equal("decidedBy", a.text("decision", "decidedBy"), "fallback"),
				equal("degraded", fmt.Sprint(a.at("decision", "degraded")), "true"))
		},
	},
	{
		say: "All of it is on record.", tool: "workflow.judge.history",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance} },
		must: func(_ *memory, a answer) error {
			return history(a, "start approve", "submit approve", "approve reject", "approve reject", "approve approve")
		},
	},
}

func startJudged(say string) scene {
	return scene{
		say: say, tool: "workflow.start",
		args: func(*memory) map[string]any { return map[string]any{"type": "judged-review"} },
		must: func(m *memory, a answer) error {
			m.instance = a.text("id")
			return allOf(granted(a), equal("state", a.text("state"), "draft"))
		},
	}
}

func submitJudged() scene {
	return scene{
		say: "It submits.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("submit", submission) },
		must: func(_ *memory, a answer) error { return moved(a, "reviewing", false) },
	}
}

// kept is a good review that cannot be judged: the state stays as it is.
func kept(say string, model mood, code, decider string) scene {
	return scene{
		say: say, tool: "workflow.advance", mood: model,
		args: func(m *memory) map[string]any { return m.advance("approve", realReview) },
		must: func(_ *memory, a answer) error {
			return allOf(refused(a, "reviewing", decider), equal("code", a.text("decision", "code"), code), names(a, "model"))
		},
	}
}
