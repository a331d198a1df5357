package replay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/replay"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// walk is a definition in which everything can go wrong that a judge looks at. Its number
// tells versions apart.
const walk = `
name: walk
comment: version %d
initialState: a
sensitive: [/secret]
judgeConfig: {strictMode: %v, minConfidence: 0.7, onJudgeUnavailable: %s}
states:
  a:
    transitions:
      go: {target: b, requiredFields: [x], schema: {properties: {x: {type: integer}}}, freezes: [/k]}
      route:
      - {condition: "data.n > 1", target: b}
      - {condition: "data.n < 0 && Date.now() > 0", target: d}
      ask: {target: b, useLLM: true, criteria: [it is said]}
      stay: a
  b:
    transitions:
      go: {target: c, validator: "(data, context) => ({valid: data.x > 1, confidence: data.x / 4, reason: 'x is ' + data.x + ' at ' + Date.now() + ' ' + Math.random()})"}
      ci: {target: c, evidence: [{name: ci, source: ci, arguments: {sha: '{{context.k}}'}}, {name: big, source: big, required: false}], validator: "(d, c, e) => ({valid: e.ci.ok === true && d.x !== 3})"}
      shadow: {target: a, mode: shadow, requiredFields: [x]}
      back: {target: a, notBy: go}
      look: {target: b, risk: high, writes: [x]}
  c:
    final: true
  d:
    final: true
stateValidators: {c: {requiredFields: [x]}}
mustPassThrough: {c: [b]}
`

func walkVersion(n int, strict bool, policy string) string {
	doc := fmt.Sprintf(walk, n, strict, policy)
	return doc
}

// Whatever happened in whatever order: under the same definition and without asking
// anybody, every decision that can be judged again comes out exactly as it was, word for
// word, and what cannot be is told with one of the reasons that this history can have.
func TestSameAgain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, rapid.Bool().Draw(rt, "reviews"))
		b.define(walkVersion(1, rapid.Bool().Draw(rt, "strict"), rapid.SampledFrom([]string{"escalate", "structural", "reject"}).Draw(rt, "policy")))
		w := walker{b: b, rt: rt}
		w.start()
		rt.Repeat(map[string]func(*rapid.T){
			"advance": w.advance, "validate": w.validate, "start": func(*rapid.T) { w.start() },
			"resolve": w.resolve, "past": w.past, "configure": w.configure, "redefine": w.redefine, "world": w.outside,
		})
		w.check()
	})
}

// walker does what can be done.
type walker struct {
	b           *bench
	rt          *rapid.T
	ids         []string
	versions    int
	checkpoints []string // instance and id by turns
}

func (w *walker) start() {
	doc := rapid.SampledFrom([]string{`{}`, `{"k":"abc"}`, `{"k":"abc","secret":"hunter22"}`}).Draw(w.rt, "context")
	w.ids = append(w.ids, w.b.start(agent, "walk", doc))
}

func (w *walker) instance(rt *rapid.T) string { return rapid.SampledFrom(w.ids).Draw(rt, "instance") }

func (w *walker) request(rt *rapid.T) engine.AdvanceRequest {
	fields := map[string]any{}
	draw := func(key string, values ...any) {
		if v := rapid.SampledFrom(append(values, nil)).Draw(rt, key); v != nil {
			fields[key] = v
		}
	}
	draw("x", 1, 2, 3, 4, "no")
	draw("n", -1, 1, 2)
	draw("k", "abc", "xyz")
	if rapid.IntRange(0, 9).Draw(rt, "sensitive") == 0 {
		fields["secret"] = "hunter22"
	}
	action := rapid.SampledFrom([]string{"go", "go", "route", "ask", "ask", "stay", "ci", "ci", "shadow", "back", "look", "fly"}).Draw(rt, "action")
	if action == "ask" {
		draw("model", "approve", "reject", "unreadable", "unsure")
		draw("sure", 0.2, 0.6, 0.9, 0.99)
		draw("tries", 1, 2)
		fields["comment"] = "The counter of shelf 12 was read twice on Monday morning."
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		rt.Fatal(err)
	}
	return engine.AdvanceRequest{ID: w.instance(rt), Action: action, Data: raw}
}

func (w *walker) who(rt *rapid.T) engine.Principal {
	return rapid.SampledFrom([]engine.Principal{agent, agent, operator}).Draw(rt, "who")
}

func (w *walker) advance(rt *rapid.T) {
	if _, err := w.b.Advance(context.Background(), w.who(rt), w.request(rt)); err != nil {
		rt.Fatal(err)
	}
}

func (w *walker) validate(rt *rapid.T) {
	if _, err := w.b.Validate(context.Background(), w.who(rt), w.request(rt)); err != nil {
		rt.Fatal(err)
	}
}

// resolve decides a review that waits.
func (w *walker) resolve(rt *rapid.T) {
	for row, err := range w.b.store.Reviews(context.Background(), store.ReviewQuery{Status: record.ReviewOpen}) {
		if err != nil {
			rt.Fatal(err)
		}
		if row.Principal == operator.ID {
			continue
		}
		word := rapid.SampledFrom([]judge.Outcome{judge.Approve, judge.Approve, judge.Reject}).Draw(rt, "word")
		_, err := w.b.Resolve(context.Background(), reviewer, engine.ResolveRequest{ID: row.ID, Decision: word, Reason: "I looked."})
		if err != nil && engine.CodeOf(err) != engine.CodeUnavailable {
			rt.Fatal(err)
		}
		return
	}
	rt.Skip("nothing waits")
}

// past marks, goes back, and takes moves back and makes them again.
func (w *walker) past(rt *rapid.T) {
	ctx, id := context.Background(), w.instance(rt)
	switch rapid.IntRange(0, 3).Draw(rt, "past") {
	case 0:
		c, err := w.b.Checkpoint(ctx, operator, engine.CheckpointRequest{ID: id})
		if err != nil {
			rt.Fatal(err)
		}
		w.checkpoints = append(w.checkpoints, id, c.CheckpointID)
	case 1:
		if len(w.checkpoints) == 0 {
			rt.Skip("no checkpoint")
		}
		at := 2 * rapid.IntRange(0, len(w.checkpoints)/2-1).Draw(rt, "checkpoint")
		_, err := w.b.Rollback(ctx, operator, engine.RollbackRequest{ID: w.checkpoints[at], CheckpointID: w.checkpoints[at+1]})
		w.allowed(rt, err)
	case 2:
		_, err := w.b.Undo(ctx, operator, engine.UndoRequest{ID: id})
		w.allowed(rt, err)
	case 3:
		_, err := w.b.Redo(ctx, operator, engine.UndoRequest{ID: id})
		w.allowed(rt, err)
	}
}

// allowed lets what cannot be done now pass.
func (w *walker) allowed(rt *rapid.T, err error) {
	if err != nil && engine.CodeOf(err) == engine.CodeInternal {
		rt.Fatal(err)
	}
}

func (w *walker) configure(rt *rapid.T) {
	least := rapid.SampledFrom([]float64{0.3, 0.5, 0.9}).Draw(rt, "minConfidence")
	strict := true
	who := rapid.SampledFrom([]engine.Principal{agent, other, operator}).Draw(rt, "configures")
	_, err := w.b.ConfigureJudge(context.Background(), who, engine.JudgeConfigRequest{Name: "walk", Settings: workflow.JudgeSettings{MinConfidence: &least, StrictMode: &strict}})
	w.allowed(rt, err)
}

func (w *walker) redefine(rt *rapid.T) {
	w.versions++
	w.b.define(walkVersion(w.versions+1, rapid.Bool().Draw(rt, "strict"), "escalate"))
	if rapid.Bool().Draw(rt, "migrate") {
		_, err := w.b.Migrate(context.Background(), operator, engine.MigrateRequest{Workflow: "walk", Instances: []string{w.instance(rt)}})
		w.allowed(rt, err)
	}
}

// outside changes what is fetched, so that only what was recorded can give the same.
func (w *walker) outside(rt *rapid.T) {
	w.b.world.mu.Lock()
	defer w.b.world.mu.Unlock()
	ci := rapid.SampledFrom([]string{`{"ok": true}`, `{"ok":false}`, `{"ok":true,"who":"hunter22"}`, ``}).Draw(rt, "ci")
	delete(w.b.world.evidence, "ci")
	if ci != "" {
		w.b.world.evidence["ci"] = judge.FetchResult{Content: json.RawMessage(ci)}
	}
	w.b.world.evidence["big"] = judge.FetchResult{Content: json.RawMessage(`"` + string(make9(rapid.SampledFrom([]int{3, 5000}).Draw(rt, "big"))) + `"`)}
}

func make9(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = '9'
	}
	return out
}

// check judges everything again, twice: the report, and each verdict against its record.
func (w *walker) check() {
	// The world is another one now. Nothing may come from it.
	w.b.world.mu.Lock()
	w.b.world.evidence = map[string]judge.FetchResult{}
	fetched := w.b.world.fetches
	w.b.world.mu.Unlock()
	before := w.events()

	r := w.b.run(func(cfg *replay.Config) { cfg.Workers = 2 })
	if r.Flips != 0 || r.OtherReason != 0 || r.Same != r.Replayed || r.Decisions == 0 {
		w.rt.Fatalf("not the same again: %+v", r)
	}
	possible := map[string]bool{
		string(replay.MissingSensitive): true, string(replay.MissingPerson): true,
		string(replay.MissingEvidence): true, string(replay.MissingEvidenceMasked): true,
	}
	var left int64
	for _, u := range r.NotReplayed {
		left += u.Count
		if !possible[u.Reason] || u.Says == "" {
			w.rt.Fatalf("not judged again for a reason that cannot be: %+v", u)
		}
	}
	if left != r.Decisions-r.Replayed {
		w.rt.Fatalf("%d have a reason, %d were left out", left, r.Decisions-r.Replayed)
	}
	cfg := replay.Config{From: w.b.store, Compiler: w.b.compiler, Query: replay.QuestionQuery{Values: w.b.Values()}}
	if err := replay.Each(context.Background(), cfg, w.exactly); err != nil {
		w.rt.Fatal(err)
	}
	if after := w.events(); after != before {
		w.rt.Fatalf("judging again wrote: %d events, then %d", before, after)
	}
	if w.b.world.fetches != fetched {
		w.rt.Fatal("evidence was fetched")
	}
}

func (w *walker) events() (n int) {
	for _, id := range w.ids {
		for _, err := range w.b.store.Events(context.Background(), store.EventQuery{Instance: id}) {
			if err != nil {
				w.rt.Fatal(err)
			}
			n++
		}
	}
	return n
}

func (w *walker) exactly(q replay.Question, got judge.Verdict, reason string) {
	if reason != "" {
		return
	}
	want := q.Event.Decision.Verdict
	if want.Code == judge.CodeReviewLimit {
		return // the engine's own refusal
	}
	got.Applied = want.Applied // of a pre-check it is always false
	if diff := cmp.Diff(want, got,
		cmpopts.IgnoreFields(judge.Opinion{}, "Took", "Evidence"), cmpopts.IgnoreFields(judge.Verdict{}, "Evidence", "Sandbox"),
		cmpopts.IgnoreFields(judge.Opinion{}, "Sandbox"), cmpopts.EquateEmpty()); diff != "" {
		w.rt.Fatalf("%s event %d (%s, %s) comes out otherwise (- then, + now):\n%s", q.Event.Instance, q.Event.Seq, q.Event.Kind, q.Event.Action, diff)
	}
}
