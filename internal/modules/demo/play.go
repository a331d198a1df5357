package demo

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

//go:embed document-review.json
var documentReview []byte

// judgedReview is the workflow whose approval a model judges.
//
//go:embed judged-review.json
var judgedReview []byte

// performer is the part that the demo changes while the agent acts: the scripted model, or the project whose tests
// are run.
type performer interface{ Become(to Mood) error }

// caller is the part of an agent that the demo needs. Tests replace it.
type caller interface {
	call(ctx context.Context, tool string, arguments map[string]any) (answer, error)
}

// scene is a call of the demo: the text for people, the agent's request, and the checks of the answer.
type scene struct {
	say  string
	tool string
	args func(*memory) map[string]any
	must []check
	// mood is set on the model or the project before the call; "" leaves it unchanged.
	mood Mood
	// await repeats the call until the answer is as expected, within awaitTimeout.
	await bool
}

const awaitTimeout = 10 * time.Second

// check returns an error if an answer is not as expected.
type check func(answer) error

type act struct {
	title  string
	scenes []scene
}

type play struct {
	headline string
	// before is the command that the operator runs before the server starts; "" for none.
	before string
	acts   []act
	// needs lists the modules that the play requires.
	needs []string
}

var plays = map[string]play{"workflow": workflowPlay, "evidence": evidencePlay, "gateway": gatewayPlay, "chain": chainPlay, "console": consolePart}

// consolePart is played by its module.
var consolePart = play{needs: []string{"console", "evidence"}}

var workflowPlay = play{
	headline: "An agent drives a workflow, and gavel judges every move before it happens.",
	acts: []act{
		{"First act: fields, schema and scripts.", scenes},
		{"Second act: a model judges too. It is a script on this machine, no real model; the gate treats it like one.", judgedScenes},
	},
}

// memory holds the ids that the agent received: the instance that it started last, its checkpoint, a chain's run, and
// the review for which the run waits.
type memory struct{ instance, checkpoint, run, review string }

// learn stores the ids that later calls need.
func (m *memory) learn(a answer) error {
	switch a.Tool {
	case "workflow.start":
		m.instance = a.text("id")
		return begins("id", "wf-")(a)
	case "workflow.checkpoint":
		m.checkpoint = a.text("checkpointId")
		return begins("checkpointId", "cp-")(a)
	case "chain.start":
		m.run = a.text("run")
		m.instance = "wf-" + m.run // the instance that records the run
		return begins("run", "run-")(a)
	case "chain.status":
		if q := a.question(); q != nil {
			m.review = q.text("reviewId")
		}
	}
	return nil
}

func define(say string, definition []byte, name string) scene {
	args := func(*memory) map[string]any { return definitionArguments(definition) }
	return scene{say: say, tool: "workflow.define", args: args, must: []check{passed, is("name", name)}}
}

func start(say, workflow, state string) scene {
	args := func(*memory) map[string]any { return map[string]any{"type": workflow} }
	return scene{say: say, tool: "workflow.start", args: args, must: []check{passed, is("state", state)}}
}

func advance(say, action string, data map[string]any, must ...check) scene {
	args := func(m *memory) map[string]any {
		return map[string]any{"id": m.instance, "action": action, "data": data}
	}
	return scene{say: say, tool: "workflow.advance", args: args, must: must}
}

// in returns the scene with another mood of the model or the project.
func (s scene) in(mood Mood) scene {
	s.mood = mood
	return s
}

func history(say string, must ...check) scene {
	args := func(m *memory) map[string]any { return map[string]any{"id": m.instance} }
	return scene{say: say, tool: "workflow.judge.history", args: args, must: must}
}

// The data that the agent sends. All comments except the first pass the script.
var (
	submission  = map[string]any{"documentId": "DOC-7", "reviewer": "ada@example.com"}
	shortReview = map[string]any{"comments": "LGTM"}
	goodReview  = map[string]any{"comments": "Checked sections 1 to 4; the figures match the source data."}
	praise      = map[string]any{"comments": "I have reviewed it very carefully and everything is in perfect order."}
	realReview  = map[string]any{"comments": "Read sections 1 to 4; every figure in table 2 was compared with the source data."}
)

var scenes = []scene{
	define("The agent registers a workflow: draft -> reviewing -> approved.", documentReview, "document-review"),
	start("It starts an instance: one document on its way through the review.", "document-review", "draft"),
	advance("It submits without naming the document and the reviewer.", "submit", map[string]any{}, rejected("draft", "state", "documentId", "reviewer")),
	advance("It submits with both.", "submit", submission, moved("reviewing", false)),
	{
		say: "It sets a checkpoint, so that it can come back.", tool: "workflow.checkpoint",
		args: func(m *memory) map[string]any {
			return map[string]any{"id": m.instance, "description": "before the verdict"}
		},
		must: []check{passed, is("state", "reviewing")},
	},
	advance("It approves with an empty phrase as comment.", "approve", shortReview, rejected("reviewing", "script", "Detailed comments required")),
	advance("It approves with comments that name the checks.", "approve", goodReview, moved("approved", true)),
	{
		say: "On second thought, it rolls back to the checkpoint. This erases nothing.", tool: "workflow.rollback",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance, "checkpointId": m.checkpoint} },
		must: []check{passed, is("state", "reviewing"), is("context.documentId", "DOC-7"), is("context.comments", "<nil>")},
	},
	history("Every judgement is on record.", recorded("start approve", "submit reject", "submit approve", "approve reject", "approve approve")),
}

var judgedScenes = []scene{
	define("The agent registers a workflow whose approval a model judges against two criteria.", judgedReview, "judged-review"),
	start("It starts an instance.", "judged-review", "draft"),
	advance("It submits.", "submit", submission, moved("reviewing", false)),
	advance("It approves with praise. The script accepts it, but the model finds no substance in it.", "approve", praise,
		rejected("reviewing", "model", "parts of the document")),
	advance("It approves with comments that name the work done. The model's own 0.97 is shrunk, because the model is not calibrated.", "approve", realReview,
		moved("approved", true), is("decision.decidedBy", "model"), is("decision.assurance", "llm")),
	start("A second document. From now on, the model fails in different ways.", "judged-review", "draft"),
	advance("It submits.", "submit", submission, moved("reviewing", false)),
	advance("The model is slow. The gate waits one second and does not guess: nothing is decided.", "approve", realReview,
		failed("busy")).in(Slow),
	advance("The model's answer is not a judgement. A failure that the case may have caused never passes.", "approve", realReview,
		rejected("reviewing", "model", "model"), is("decision.code", "judge_unreadable")).in(Garbled),
	advance("The model is down.", "approve", realReview,
		rejected("reviewing", "policy", "model"), is("decision.code", "judge_unavailable")).in(Dead),
	{
		say: "The owner allows moves without the model. The answer then names their basis.", tool: "workflow.judge.config",
		args: func(*memory) map[string]any { return map[string]any{"name": "judged-review", "strictMode": false} },
		must: []check{passed, is("success", "true")},
	},
	advance("The same review, with the model still down.", "approve", realReview,
		moved("approved", true), is("decision.decidedBy", "fallback"), is("decision.degraded", "true")),
	history("Everything is on record.", recorded("start approve", "submit approve", "approve reject", "approve reject", "approve approve")),
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

// run plays every scene and stops at the first answer that is not as expected.
func (p play) run(ctx context.Context, agent caller, model performer, t *transcript) error {
	var m memory
	step := 0
	for _, part := range p.acts {
		t.show.Printf("\n%s\n", t.show.Bold(part.title))
		for _, s := range part.scenes {
			step++
			if s.mood != "" {
				if err := model.Become(s.mood); err != nil {
					return err
				}
			}
			t.show.Printf("\n%2d. %s\n", step, t.show.Bold(s.say))
			a, err := s.ask(ctx, agent, s.args(&m))
			if err != nil {
				return err
			}
			a.Say = s.say
			t.printAnswer(a)
			if err := cmp.Or(m.learn(a), all(s.must...)(a)); err != nil {
				return fmt.Errorf("step %d, %s: %w", step, s.tool, err)
			}
		}
	}
	t.instance = m.instance
	return nil
}

// callWhole calls a tool. For a history it reads every page, because a busy server may end a page early.
func callWhole(ctx context.Context, agent caller, tool string, args map[string]any) (answer, error) {
	a, err := agent.call(ctx, tool, args)
	for err == nil && a.at("nextAfter") != nil {
		args["afterSeq"] = a.at("nextAfter")
		earlier, _ := a.at("decisions").([]any)
		if a, err = agent.call(ctx, tool, args); err == nil {
			decisions, _ := a.at("decisions").([]any)
			a.fields["decisions"] = append(earlier, decisions...)
			a.Answer, err = json.Marshal(a.fields)
		}
	}
	return a, err
}

// ask returns the scene's answer; if it is awaited, the last one.
func (s scene) ask(ctx context.Context, agent caller, args map[string]any) (answer, error) {
	for begun := time.Now(); ; {
		a, err := callWhole(ctx, agent, s.tool, args)
		if err != nil || !s.await || all(s.must...)(a) == nil || time.Since(begun) > awaitTimeout {
			return a, err
		}
		select {
		case <-ctx.Done():
			return a, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// all returns a check that returns the error of the first failing check.
func all(checks ...check) check {
	return func(a answer) error {
		for _, c := range checks {
			if err := c(a); err != nil {
				return err
			}
		}
		return nil
	}
}

// is checks the value at a path of keys; "<nil>" means none.
func is(path, want string) check {
	return func(a answer) error {
		if got := fmt.Sprint(a.at(strings.Split(path, ".")...)); got != want {
			return fmt.Errorf("%s is %q, want %q", path, got, want)
		}
		return nil
	}
}

func begins(path, want string) check {
	return func(a answer) error {
		if got := a.text(path); !strings.HasPrefix(got, want) {
			return fmt.Errorf("%s is %q, want the prefix %q", path, got, want)
		}
		return nil
	}
}

func passed(a answer) error {
	if a.IsError {
		return fmt.Errorf("refused unexpectedly: %s", a.Text)
	}
	return nil
}

func failed(code string) check {
	return func(a answer) error {
		if !a.IsError {
			return fmt.Errorf("allowed unexpectedly: %s", a.Text)
		}
		return is("error.code", code)(a)
	}
}

// rejected checks that a layer rejected a move, and that the findings contain every word.
func rejected(state, layer string, words ...string) check {
	return func(a answer) error {
		if !a.IsError {
			return fmt.Errorf("not rejected as expected: %s", a.Text)
		}
		said := strings.Join(a.objections(), "; ")
		for _, word := range words {
			if !strings.Contains(said, word) {
				return fmt.Errorf("the findings do not name %q: %q", word, said)
			}
		}
		return all(is("decision.outcome", "reject"), is("decision.decidedBy", layer), is("state", state))(a)
	}
}

func moved(state string, complete bool) check {
	return all(passed, is("decision.outcome", "approve"), is("state", state), is("complete", fmt.Sprint(complete)))
}

// recorded checks that exactly these moves are on record, with these outcomes.
func recorded(want ...string) check {
	return func(a answer) error {
		decisions, _ := a.at("decisions").([]any)
		var got []string
		for _, d := range decisions {
			entry, _ := d.(map[string]any)
			action, _ := entry["action"].(string)
			got = append(got, fmt.Sprint(cmp.Or(action, "start"), " ", entry["outcome"]))
		}
		if is, should := strings.Join(got, ", "), strings.Join(want, ", "); is != should {
			return fmt.Errorf("the history is %q, want %q", is, should)
		}
		return passed(a)
	}
}
