package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/memstore"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/replay"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// flow is a definition whose transition do is the text.
func flow(do, more string) string {
	return "name: flow\ninitialState: a\ndescription: It is about shelves.\nsensitive: [/secret]\n" + more +
		"\nstates:\n  a:\n    transitions:\n      do: " + do + "\n  b: {final: true}\n  c: {final: true}\n"
}

const (
	asks  = `{target: b, useLLM: true, criteria: [it is said], strictMode: true, minConfidence: 0.5}`
	words = `"comment":"The counter of shelf 12 was read twice on Monday morning."`
)

// reasons are the reasons of a report with their counts.
func reasons(r replay.Report) map[string]int64 {
	out := map[string]int64{}
	for _, u := range r.NotReplayed {
		out[u.Reason] += u.Count
	}
	return out
}

// What another definition makes of one recorded action.
func TestOtherDefinition(t *testing.T) {
	ci := judge.FetchResult{Content: json.RawMessage(`{"ok":true}`)}
	big := judge.FetchResult{Content: json.RawMessage(`"` + strings.Repeat("9", 5000) + `"`)}
	for name, c := range map[string]struct {
		then, now, more string // the transition, and what else changes in the definition
		data            string
		fetched         judge.FetchResult
		reviews         bool
		says            string // before -> after and the reason, or why not
	}{
		"nothing":                 {then: `b`, now: `b`, data: `{}`, says: "same"},
		"a field is needed":       {then: `b`, now: `{target: b, requiredFields: [x]}`, data: `{}`, says: "approve -> reject fields: required_field"},
		"no field is needed":      {then: `{target: b, requiredFields: [x]}`, now: `b`, data: `{}`, says: "reject -> approve transition"},
		"another reason":          {then: `{target: b, requiredFields: [x]}`, now: `{target: b, validator: "(d) => ({valid: false, reason: 'no'})"}`, data: `{}`, says: "same, other reason"},
		"elsewhere":               {then: `b`, now: `c`, data: `{}`, says: "approve -> approve transition to c"},
		"no such action":          {then: `b`, now: "b\n      undo: b", data: `{}`, says: "same"},
		"no such state":           {then: `b`, now: ``, data: `{}`, says: "not: state_unknown"},
		"the model's answer":      {then: asks, now: strings.Replace(asks, "0.5", "0.95", 1), data: `{"model":"approve","sure":0.9,` + words + `}`, reviews: true, says: "approve -> escalate policy: low_confidence"},
		"from a person":           {then: strings.Replace(asks, "0.5", "0.95", 1), now: asks, data: `{"model":"approve","sure":0.9,` + words + `}`, reviews: true, says: "escalate -> approve model"},
		"without the model":       {then: asks, now: `b`, data: `{"model":"reject",` + words + `}`, says: "reject -> approve transition"},
		"a model all of a sudden": {then: `b`, now: asks, data: `{` + words + `}`, says: "not: model_not_asked"},
		"a model, after a rule":   {then: `b`, now: `{target: b, useLLM: true, criteria: [it is said], requiredFields: [y]}`, data: `{` + words + `}`, says: "approve -> reject fields: required_field"},
		"other criteria":          {then: asks, now: strings.Replace(asks, "it is said", "it is written", 1), data: `{"model":"approve","sure":0.9,` + words + `}`, says: "not: model_question_changed"},
		"other words":             {then: asks, now: asks, more: "comment: x", data: `{"model":"approve","sure":0.9,` + words + `}`, says: "same"},
		"another model":           {then: asks, now: strings.Replace(asks, "useLLM", "model: big, useLLM", 1), data: `{"model":"approve","sure":0.9,` + words + `}`, says: "not: model_question_changed"},
		"another rule before":     {then: asks, now: strings.Replace(asks, "useLLM", "requiredFields: [comment], useLLM", 1), data: `{"model":"approve","sure":0.9,` + words + `}`, says: "same"},
		"evidence":                {then: `{target: b, evidence: [{name: ci, source: ci}]}`, now: `{target: b, evidence: [{name: ci, source: ci}], validator: "(d, c, e) => ({valid: e.ci.ok === false, reason: 'red'})"}`, data: `{}`, fetched: ci, says: "approve -> reject script: validator_rejected"},
		"no evidence any more":    {then: `{target: b, evidence: [{name: ci, source: ci}]}`, now: `b`, data: `{}`, fetched: big, says: "same"},
		"evidence, for once":      {then: `b`, now: `{target: b, evidence: [{name: ci, source: ci}]}`, data: `{}`, says: "not: evidence_not_recorded"},
		"evidence of others":      {then: `{target: b, evidence: [{name: ci, source: ci}]}`, now: `{target: b, evidence: [{name: ci, source: big}]}`, data: `{}`, fetched: ci, says: "not: evidence_not_recorded"},
		"evidence asked otherwise": {
			then: `{target: b, evidence: [{name: ci, source: ci, arguments: {sha: '{{data.x}}'}}]}`, now: `{target: b, evidence: [{name: ci, source: ci, arguments: {sha: '{{data.y}}'}}]}`,
			data: `{"x":"1","y":"2"}`, fetched: ci, says: "not: evidence_not_recorded",
		},
		"large evidence":      {then: `{target: b, evidence: [{name: ci, source: ci}]}`, now: `{target: b, evidence: [{name: ci, source: ci}]}`, data: `{}`, fetched: big, says: "not: evidence_not_kept"},
		"secret evidence":     {then: `{target: b, evidence: [{name: ci, source: ci}]}`, now: `{target: b, evidence: [{name: ci, source: ci}]}`, data: `{"secret":"hunter22"}`, fetched: judge.FetchResult{Content: json.RawMessage(`"hunter22"`)}, says: "not: evidence_masked"},
		"secret and refused":  {then: `{target: b, requiredFields: [x]}`, now: `b`, data: `{"secret":"hunter22"}`, says: "not: sensitive_digests"},
		"secret and accepted": {then: `b`, now: `{target: b, validator: "(d) => ({valid: d.secret !== 'hunter22', reason: 'it is ' + d.secret})"}`, data: `{"secret":"hunter22"}`, says: "approve -> reject script: validator_rejected"},
		"secret and waiting":  {then: `{target: b, risk: high}`, now: `b`, data: `{"secret":"hunter22"}`, reviews: true, says: "escalate -> approve transition"},
		"large and waiting":   {then: `{target: b, risk: high, evidence: [{name: ci, source: ci}]}`, now: `{target: b, evidence: [{name: ci, source: ci}]}`, data: `{}`, reviews: true, fetched: big, says: "escalate -> approve transition"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.reviews)
			b.define(flow(c.then, ""))
			if c.fetched.Content != nil {
				b.world.evidence["ci"], b.world.evidence["big"] = c.fetched, c.fetched
			}
			b.advance(agent, b.start(agent, "flow", `{}`), "do", c.data)
			fetches := b.world.fetches
			b.world.evidence = nil
			other := flow(c.now, c.more)
			if c.now == "" {
				other = "name: flow\ninitialState: z\nstates: {z: {transitions: {do: b}}, b: {final: true}}"
			}
			r := b.run(func(cfg *replay.Config) { cfg.Change.Definitions = parsed(t, other) })
			if got := said(r); got != c.says {
				t.Errorf("got %q, want %q\n%+v", got, c.says, r)
			}
			if b.world.fetches != fetches {
				t.Error("evidence was fetched")
			}
			if text, err := json.Marshal(r); err != nil || bytes.Contains(text, []byte("hunter22")) {
				t.Errorf("the report tells a secret: %s %v", text, err)
			}
		})
	}
}

// said is what became of the one action, in a line.
func said(r replay.Report) string {
	for _, u := range r.NotReplayed {
		return "not: " + u.Reason
	}
	switch {
	case r.Flips == 0 && r.OtherReason == 1:
		return "same, other reason"
	case r.Flips == 0:
		return "same"
	}
	f := r.Listed[0]
	text := fmt.Sprintf("%s -> %s %s", f.Before.Outcome, f.After.Outcome, r.Changes[0].AfterReason)
	if r.Rerouted == 1 {
		text += " to " + f.After.Target
	}
	return text
}

// A model that is asked now is asked, with what was fetched then; where it cannot be had,
// nothing is said of the decision.
func TestModelAskedNow(t *testing.T) {
	b := newBench(t, true)
	b.define(flow(asks, ""))
	for _, data := range []string{
		`{"model":"approve","sure":0.9,` + words + `}`, `{"model":"reject","sure":0.2,` + words + `}`, `{"model":"reject","sure":0.3,"n":1,` + words + `}`,
	} {
		b.advance(agent, b.start(agent, "flow", `{}`), "do", data)
	}
	r := b.run(func(cfg *replay.Config) { cfg.Model = contrary{} })
	if r.Failed != 1 || !r.Evaluated || r.NewApprovals != 1 || r.NewRefusals != 1 || r.Answers.Asked != 2 || reasons(r)[replay.ReasonModel] != 1 {
		t.Fatalf("got %+v", r)
	}
	many := int64(9)
	if limited := b.run(func(cfg *replay.Config) { cfg.Model, cfg.Gates.MaxFlips = contrary{}, &many }); limited.Evaluated || limited.Regression {
		t.Errorf("a model that is away passes for one that agrees: %+v", limited)
	}
	if r.Listed[0].Before.Outcome != judge.Reject || r.Listed[0].After.Outcome != judge.Approve {
		t.Errorf("a new approval does not stand first: %+v", r.Listed)
	}
	if again := b.run(func(cfg *replay.Config) { cfg.Change.PromptDigest = "sha256:now" }); reasons(again)[replay.ReasonOtherPrompt] != 3 {
		t.Errorf("answers to another prompt counted: %+v", again)
	}
	if again := b.run(func(cfg *replay.Config) { cfg.Change.PromptDigest = "sha256:then" }); again.Answers.Recorded != 3 || again.Flips != 0 {
		t.Errorf("answers to the same prompt did not count: %+v", again)
	}
}

// contrary is a model that says the opposite, and is away where data.n is 1.
type contrary struct{}

func (contrary) Name() judge.LayerName { return judge.LayerModel }

func (contrary) Weigh(ctx context.Context, c judge.Case) (judge.Opinion, error) {
	if strings.Contains(string(c.Data.Raw()), `"n":1`) {
		return judge.Opinion{Layer: judge.LayerModel, Outcome: judge.Escalate, Trouble: judge.TroubleUnavailable, Reasoning: "It is away."}, nil
	}
	data := strings.NewReplacer(`"approve"`, `"reject"`, `"reject"`, `"approve"`, "0.2", "0.9").Replace(string(c.Data.Raw()))
	c.Data = document.Known([]byte(data))
	return tool{}.Weigh(ctx, c)
}

// A threshold alone needs no model: what it answered is held against another one.
func TestThresholds(t *testing.T) {
	b := newBench(t, true)
	b.define(flow(strings.Replace(asks, "strictMode: true, ", "", 1), ""))
	for _, sure := range []string{"0.55", "0.7", "0.9"} {
		b.advance(agent, b.start(agent, "flow", `{}`), "do", `{"model":"approve","sure":`+sure+`,`+words+`}`)
	}
	least, strict := 0.8, true
	warns := b.run(func(cfg *replay.Config) { cfg.Change.MinConfidence = &least })
	if warns.Flips != 0 || !strings.Contains(strings.Join(warns.Notes, " "), "without strictMode") {
		t.Errorf("without strictMode a threshold only warns: %+v", warns)
	}
	r := b.run(func(cfg *replay.Config) { cfg.Change.MinConfidence, cfg.Change.StrictMode = &least, &strict })
	want := []replay.ChangeCount{{
		Workflow: "flow", Action: "do", Before: judge.Approve, BeforeReason: "model", After: judge.Escalate, AfterReason: "policy: low_confidence", Count: 2,
	}}
	if diff := cmp.Diff(want, r.Changes); diff != "" || r.NewRefusals != 2 || r.Answers.Recorded != 3 {
		t.Errorf("%+v\n%s", r, diff)
	}
}

// A person's word stays a person's: an approval is asked of the rules again, a rejection
// is not judged.
func TestPersons(t *testing.T) {
	b := newBench(t, true)
	b.define(flow(`{target: b, risk: high}`, ""))
	for _, word := range []judge.Outcome{judge.Approve, judge.Reject} {
		instance := b.start(agent, "flow", `{}`)
		id := b.advance(agent, instance, "do", `{}`).Review.ID
		if _, err := b.Resolve(t.Context(), reviewer, engine.ResolveRequest{ID: id, Decision: word, Reason: "I looked."}); err != nil {
			t.Fatal(err)
		}
		if word == judge.Reject { // the rejection is repeated
			b.advance(agent, instance, "do", `{}`)
		}
	}
	r := b.run(func(*replay.Config) {})
	if r.Flips != 0 || r.Replayed != 5 || reasons(r)[string(replay.MissingPerson)] != 2 {
		t.Errorf("%+v", r)
	}
	r = b.run(func(cfg *replay.Config) {
		cfg.Change.Definitions = parsed(t, flow(`{target: b, risk: high, requiredFields: [x]}`, ""))
	})
	if r.NewRefusals != 1 || r.OtherRefusals != 2 || r.Listed[0].Before.DecidedBy != judge.ByReviewer {
		t.Errorf("a rule that came later does not bind the person: %+v", r)
	}
}

// That too many reviews waited was not the judge's word.
func TestReviewLimit(t *testing.T) {
	b := newBench(t, true)
	b.define(flow(`{target: b, risk: high}`, ""))
	var last engine.AdvanceResult
	for range engine.DefaultLimits().OpenReviews + 1 {
		last = b.advance(agent, b.start(agent, "flow", `{}`), "do", `{}`)
	}
	if last.Decision.Code != judge.CodeReviewLimit {
		t.Fatalf("got %+v", last.Decision)
	}
	if r := b.run(func(*replay.Config) {}); r.Flips != 0 || r.OtherReason != 0 || r.Replayed != r.Decisions {
		t.Errorf("%+v", r)
	}
}

// altered is an archive in which something is not as it was.
type altered struct {
	*memstore.Store
	definition func(store.Definition, error) (store.Definition, error)
	configs    func([]store.JudgeConfig) []store.JudgeConfig
	broken     error
}

func (a altered) Definition(ctx context.Context, name string, version int) (store.Definition, error) {
	d, err := a.Store.Definition(ctx, name, version)
	if a.definition != nil {
		return a.definition(d, err)
	}
	return d, err
}

func (a altered) JudgeConfigs(ctx context.Context, name string) ([]store.JudgeConfig, error) {
	all, err := a.Store.JudgeConfigs(ctx, name)
	if a.configs != nil {
		all = a.configs(all)
	}
	return all, errors.Join(err, a.broken)
}

func TestWhatIsNotThere(t *testing.T) {
	b := newBench(t, true)
	b.define(flow(`b`, ""))
	least := 0.9
	for range 2 {
		if _, err := b.ConfigureJudge(t.Context(), operator, engine.JudgeConfigRequest{Name: "flow", Settings: settings(least)}); err != nil {
			t.Fatal(err)
		}
	}
	b.advance(agent, b.start(agent, "flow", `{"k":1}`), "do", `{}`)
	for name, c := range map[string]struct {
		archive  altered
		digester engine.Digester
		want     map[string]int64
	}{
		"all is there": {digester: enginetest.Digester, want: map[string]int64{}},
		"no definition": {archive: altered{definition: func(store.Definition, error) (store.Definition, error) {
			return store.Definition{}, store.ErrNotFound
		}}, want: map[string]int64{"definition_unknown": 2}},
		"another definition": {archive: altered{definition: func(d store.Definition, err error) (store.Definition, error) {
			d.Document = []byte(flow("c", ""))
			return d, err
		}}, want: map[string]int64{"definition_unknown": 2}},
		"no definition any more": {archive: altered{definition: func(d store.Definition, err error) (store.Definition, error) {
			d.Document = []byte(`{`)
			return d, err
		}}, want: map[string]int64{"definition_unknown": 2}},
		"a revision is gone": {archive: altered{configs: func(all []store.JudgeConfig) []store.JudgeConfig { return all[1:] }}, want: map[string]int64{"judge_config_unknown": 2}},
		"another key":        {digester: record.NewDigester([]byte("another key of thirty-two bytes.")), want: map[string]int64{"context_differs": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			c.archive.Store = b.store
			r := b.run(func(cfg *replay.Config) { cfg.From, cfg.Query.Digester = c.archive, c.digester })
			if diff := cmp.Diff(c.want, reasons(r)); diff != "" || r.Decisions != 2 || r.Flips != 0 {
				t.Errorf("%+v\n%s", r, diff)
			}
		})
	}
	_, err := replay.Run(t.Context(), replay.Config{From: altered{Store: b.store, broken: errors.New("the disk is gone")}, Compiler: b.compiler})
	if engine.CodeOf(err) != engine.CodeUnavailable {
		t.Errorf("an archive that cannot be read gives %v", err)
	}
}

// Where the beginning of a history was removed, the rest is judged again, and what is
// gone is said.
func TestShortened(t *testing.T) {
	b := newBench(t, true)
	b.define(flow("{target: b, freezes: [/k]}\n      stay: a", "retention: {events: 168h}\n"))
	id := b.start(agent, "flow", `{"k":1}`)
	b.advance(agent, id, "stay", `{"x":1}`)
	b.advance(agent, id, "do", `{"y":2}`)
	b.world.mu.Lock()
	b.world.now = b.world.now.Add(1000 * time.Hour)
	b.world.mu.Unlock()
	b.advance(agent, b.start(agent, "flow", `{}`), "do", `{}`) // ends later, and stays
	auditor, err := audit.New(audit.Config{Engine: b.Engine, Store: b.store})
	if err != nil {
		t.Fatal(err)
	}
	gone, err := auditor.Retain(t.Context(), operator, audit.RetainRequest{})
	if err != nil || gone.Events == 0 {
		t.Fatalf("%+v, %v", gone, err)
	}
	r := b.run(func(*replay.Config) {})
	if r.RemovedEvents != gone.Events || reasons(r)["history_shortened"] != gone.Events || r.Flips != 0 || r.Replayed != r.Decisions || r.Decisions != 5-gone.Events {
		t.Errorf("%d are gone: %+v", gone.Events, r)
	}
	if r = b.run(func(cfg *replay.Config) { cfg.Query.Since = b.world.clock().Add(-time.Hour) }); r.RemovedEvents != 0 || r.Decisions != 2 {
		t.Errorf("what is older than what is asked for counts: %+v", r)
	}
}

// The report does not depend on how many are judged at once, nor on how much is listed.
func TestReport(t *testing.T) {
	b := newBench(t, true)
	b.define(flow(`{target: b, requiredFields: [x]}`, ""))
	id := b.start(agent, "flow", `{}`)
	for range 30 {
		b.advance(agent, id, "do", `{"z":1}`)
	}
	loose := func(cfg *replay.Config) { cfg.Change.Definitions = parsed(t, flow(`b`, "")) }
	var told []int64
	one := b.run(func(cfg *replay.Config) {
		loose(cfg)
		cfg.Workers, cfg.Progress = 1, func(n int64) { told = append(told, n) }
	})
	many := b.run(func(cfg *replay.Config) { loose(cfg); cfg.Workers = 7 })
	if diff := cmp.Diff(one, many); diff != "" {
		t.Error(diff)
	}
	if len(told) != 31 || told[30] != 31 {
		t.Errorf("progress: %v", told)
	}
	if one.NewApprovals != 30 || len(one.Listed) != 30 || one.Listed[0].Seq != 2 {
		t.Errorf("%+v", one)
	}
	few := b.run(func(cfg *replay.Config) { loose(cfg); cfg.Listed = 4 })
	if len(few.Listed) != 4 || few.ListedLeftOut != 26 || few.NewApprovals != 30 {
		t.Errorf("%+v", few)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := replay.Run(ctx, replay.Config{From: b.store, Compiler: b.compiler}); err == nil {
		t.Error("a run that was stopped has a report")
	}
}

func TestGates(t *testing.T) {
	b := newBench(t, true)
	b.define(flow(`{target: b, requiredFields: [x]}`, ""))
	id := b.start(agent, "flow", `{}`)
	b.advance(agent, id, "do", `{}`)
	b.advance(agent, id, "do", `{"secret":"hunter22"}`)
	number := func(n int64) *int64 { return &n }
	share := func(s float64) *float64 { return &s }
	for name, c := range map[string]struct {
		gates             replay.Gates
		same              bool
		until             time.Time
		worse, evaluated  bool
		broken, wantGates int
	}{
		"none":                 {evaluated: true},
		"kept":                 {gates: replay.Gates{MaxFlips: number(1), MaxNewApprovals: number(1)}, evaluated: true, wantGates: 2},
		"flips":                {gates: replay.Gates{MaxFlips: number(0)}, worse: true, evaluated: true, broken: 1, wantGates: 1},
		"approvals":            {gates: replay.Gates{MaxNewApprovals: number(0)}, worse: true, evaluated: true, broken: 1, wantGates: 1},
		"nothing is otherwise": {gates: replay.Gates{MaxFlips: number(0), MaxNewApprovals: number(0)}, same: true, evaluated: true, wantGates: 2},
		"too much is left":     {gates: replay.Gates{MaxNotReplayed: share(0.3)}, broken: 1, wantGates: 1},
		"enough is judged":     {gates: replay.Gates{MaxNotReplayed: share(0.34)}, evaluated: true, wantGates: 1},
		"nothing is judged":    {gates: replay.Gates{MaxFlips: number(9)}, until: time.Unix(0, 0), wantGates: 1},
		"nothing, no limit":    {until: time.Unix(0, 0), evaluated: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := b.run(func(cfg *replay.Config) {
				cfg.Gates, cfg.Query.Until = c.gates, c.until
				if !c.same {
					cfg.Change.Definitions = parsed(t, flow(`b`, ""))
				}
			})
			broken := 0
			for _, g := range r.Gates {
				if !g.Passed {
					broken++
				}
			}
			if r.Regression != c.worse || r.Evaluated != c.evaluated || broken != c.broken || len(r.Gates) != c.wantGates || (r.NotEvaluated == "") != c.evaluated {
				t.Errorf("%+v", r)
			}
		})
	}
	for _, g := range []replay.Gates{{MaxFlips: number(-1)}, {MaxNewApprovals: number(-1)}, {MaxNotReplayed: share(1.1)}} {
		if _, err := replay.Run(t.Context(), replay.Config{From: b.store, Compiler: b.compiler, Gates: g}); err == nil {
			t.Errorf("%+v was taken", g)
		}
	}
	if _, err := replay.Run(t.Context(), replay.Config{}); err == nil {
		t.Error("a run without an archive")
	}
}

// What was decided in shadow mode is summed up, alone and in the report.
func TestShadow(t *testing.T) {
	b := newBench(t, true)
	b.define(flow(`{target: b, requiredFields: [x], mode: shadow}`, ""))
	for _, data := range []string{`{}`, `{}`, `{"x":1}`} {
		b.advance(agent, b.start(agent, "flow", `{}`), "do", data)
	}
	if _, err := b.Validate(t.Context(), agent, engine.AdvanceRequest{ID: b.start(agent, "flow", `{}`), Action: "do"}); err != nil {
		t.Fatal(err)
	}
	want := replay.Shadow{
		Decisions: 4, WouldApprove: 1, WouldReject: 3, AppliedAnyway: 2,
		Rows: []replay.ShadowCount{
			{Workflow: "flow", Action: "do", Outcome: judge.Reject, Reason: "fields: required_field", Count: 3, Applied: 2},
			{Workflow: "flow", Action: "do", Outcome: judge.Approve, Reason: "fields", Count: 1, Applied: 1},
		},
	}
	alone := b.run(func(cfg *replay.Config) { cfg.ShadowOnly, cfg.Compiler = true, nil })
	whole := b.run(func(*replay.Config) {})
	for _, r := range []replay.Report{alone, whole} {
		if diff := cmp.Diff(want, r.Shadow); diff != "" {
			t.Error(diff)
		}
	}
	if alone.Decisions != 4 || alone.Replayed != 0 || whole.Replayed != 8 || whole.Flips != 0 {
		t.Errorf("%+v\n%+v", alone, whole)
	}
	r := b.run(func(cfg *replay.Config) { cfg.Change.Definitions = parsed(t, flow(`{target: b, mode: shadow}`, "")) })
	if r.NewApprovals != 3 || !r.Listed[0].Precheck || !r.Listed[1].Applied {
		t.Errorf("%+v", r)
	}
}

// What records hold can neither draw lines of its own nor be HTML.
func TestRenderers(t *testing.T) {
	b := newBench(t, true)
	b.define(flow(`{target: b, validator: "(d) => ({valid: false, reason: d.say})"}`, ""))
	b.advance(agent, b.start(agent, "flow", `{}`), "do", `{"say":"# no\n\nNew approvals\n<b>![x](http://x)"}`)
	r := b.run(func(cfg *replay.Config) { cfg.Change.Definitions = parsed(t, flow(`b`, "")) })
	about := replay.About{Store: "s.db", Changed: []string{"definition flow"}}
	align := func(rows [][]string) (lines string) {
		for _, row := range rows {
			lines += strings.Join(row, " | ") + "\n"
		}
		return lines
	}
	var text, shadow, html bytes.Buffer
	if err := errors.Join(r.Page(about).HTML(&html), r.Page(about).Text(&text, align), r.Shadow.Page(about).Text(&shadow, align)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count("\n"+text.String(), "\nNew approvals\n"); n != 1 {
		t.Errorf("%d headings:\n%s", n, text.String())
	}
	if page := html.String(); strings.Contains(page, "<b>") || !strings.Contains(page, "&lt;b&gt;![x]") || strings.Count(page, `<details class="case `) != 1 || !strings.Contains(page, ">New approvals (1)</label>") {
		t.Error(page)
	}
	at := strings.Index(text.String(), "New approvals\n")
	if by := strings.Index(text.String(), "Other outcomes by reason"); at < 0 || by < at {
		t.Errorf("new approvals do not stand first:\n%s", text.String())
	}
	for _, reason := range []string{
		replay.ReasonState, replay.ReasonEvidence, replay.ReasonNotAsked, replay.ReasonOtherQuestion, replay.ReasonOtherPrompt,
		replay.ReasonModel, replay.ReasonUndecided, string(replay.MissingData), string(replay.MissingContext),
	} {
		if replay.Says(reason) == "" {
			t.Errorf("%s is not explained", reason)
		}
	}
}
