package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// judgedFlow asks a model and runs no script.
const judgedFlow = `{"name":"judged","initialState":"open","judgeConfig":{"strictMode":true},"states":{
	"open":{"transitions":{"close":{"target":"closed","requiredFields":["note"],"useLLM":true,"criteria":[{"text":"the note says what was done","proof":{"minWords":1}}]}}},
	"closed":{"final":true}}}`

var noteText = regexp.MustCompile(`"note":"[^"]*"`)

// oracle is a model with configurable answers that counts its calls.
type oracle struct {
	calls   atomic.Int32
	approve atomic.Bool
	fail    atomic.Bool
}

func (o *oracle) Complete(_ context.Context, req llm.Request) (llm.Reply, error) {
	o.calls.Add(1)
	if o.fail.Load() {
		return llm.Reply{}, &llm.Error{Class: llm.ClassNetwork, Message: "gone"}
	}
	a := llm.Answer{Approved: o.approve.Load(), Confidence: 0.97, Keyed: true, Criteria: []llm.Criterion{{ID: "c1", Evidence: noteText.FindString(req.User), Status: llm.StatusMet}}}
	if !a.Approved {
		a.Criteria[0].Status, a.Criteria[0].Evidence, a.Violations = llm.StatusNotMet, "", []string{"It says nothing."}
	}
	return llm.Reply{Answer: a, Model: "m", Calls: 1}, nil
}

// judged is an engine whose moves a model judges.
type judged struct {
	*engine.Engine
	t     *testing.T
	model *oracle
	clock time.Time
}

func newJudged(t *testing.T, db store.Store, models ...string) *judged {
	t.Helper()
	return newJudgedWith(t, db, func(*judge.ModelConfig, *engine.Config) {}, models...)
}

func newJudgedWith(t *testing.T, db store.Store, configure func(*judge.ModelConfig, *engine.Config), models ...string) *judged {
	t.Helper()
	j := &judged{t: t, model: &oracle{}, clock: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	model, cfg := judge.ModelConfig{Completer: j.model, Memory: engine.NewMemory(db)}, engine.Config{
		Store: db, Models: models,
		Digester: record.NewDigester([]byte("a key of thirty-two bytes length")), Now: func() time.Time { return j.clock },
	}
	configure(&model, &cfg)
	layer, err := judge.NewModel(model)
	if err != nil {
		t.Fatal(err)
	}
	compiler := validators.NewCompiler(pool(), validators.Options{})
	pipeline, err := judge.New(judge.Config{Compiler: compiler, Model: layer})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Judge, cfg.Compiler = pipeline, compiler
	if j.Engine, err = engine.New(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(judgedFlow)}); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *judged) start() string {
	j.t.Helper()
	started, err := j.Start(j.t.Context(), agent, engine.StartRequest{Type: "judged"})
	if err != nil {
		j.t.Fatal(err)
	}
	return started.ID
}

func closing(id, note string) engine.AdvanceRequest {
	data, err := json.Marshal(map[string]string{"note": note})
	if err != nil {
		panic(err)
	}
	return engine.AdvanceRequest{ID: id, Action: "close", Data: document.ReadTrusted(data)}
}

func (j *judged) advance(p engine.Principal, req engine.AdvanceRequest) engine.Decision {
	j.t.Helper()
	got, err := j.Advance(j.t.Context(), p, req)
	if err != nil {
		j.t.Fatal(err)
	}
	return got.Decision
}

// report is long enough that refusals of it count across instances (judge.IsQuestion).
const report = " and I compared every figure of the tables one to seven with the ledger of the year"

// Refusals of a long text count across rewordings, instances, pre-checks and a restart. The third one goes
// to a person; after that the model is no longer asked.
func TestLoopGuard(t *testing.T) {
	t.Parallel()
	db := memory.New()
	j := newJudged(t, db, "m")
	if d := j.advance(agent, closing(j.start(), "I fixed everything, really"+report)); d.DecidedBy != judge.LayerModel || d.Outcome != judge.Reject {
		t.Fatalf("%+v", d)
	}
	// Another wording of the same text, on another instance, as a pre-check, after a restart.
	j = newJudged(t, db, "m")
	checked, err := j.Validate(t.Context(), agent, closing(j.start(), "i FIXED everything; really!"+report))
	if err != nil || checked.Approved || checked.Decision.Code == judge.CodeLoopGuard {
		t.Fatalf("%+v, %v", checked, err)
	}
	third := j.advance(agent, closing(j.start(), "I fixed... everything (really)"+report))
	if third.Code != judge.CodeLoopGuard || third.Outcome != judge.Reject || third.Applied {
		t.Errorf("the third: %+v", third)
	}
	asked := j.model.calls.Load()
	j.model.approve.Store(true) // it would approve now
	if d := j.advance(agent, closing(j.start(), "I fixed everything - really"+report)); d.Code != judge.CodeLoopGuard || j.model.calls.Load() != asked {
		t.Errorf("the fourth: %+v after %d calls", d, j.model.calls.Load()-asked)
	}
	// Another principal and other data are other questions.
	other := j.start()
	if d := j.advance(agent, closing(other, "Replaced the pump and measured 3.2 bar")); d.Outcome != judge.Approve {
		t.Errorf("other data: %+v", d)
	}
}

// Many instances receive the same short data, so a refusal on one does not count on another. Low
// confidence is not a refusal. In a decision without an instance, the context takes its place.
func TestLoopGuardCountsEachInstance(t *testing.T) {
	t.Parallel()
	j := newJudged(t, memory.New(), "m")
	held, free := j.start(), j.start()
	for _, note := range []string{"squash", "squash.", "SQUASH!"} {
		j.advance(agent, closing(held, note))
	}
	asked := j.model.calls.Load()
	d := j.advance(agent, closing(held, "squash?"))
	if d.Code != judge.CodeLoopGuard || j.model.calls.Load() != asked {
		t.Errorf("the same instance: %+v", d)
	}
	if hint := d.Findings[0].Hint; !strings.Contains(hint, "workflow.judge.clear") {
		t.Errorf("the refusal does not say how it is lifted: %q", hint)
	}
	j.model.approve.Store(true)
	if d := j.advance(agent, closing(free, "squash? ")); d.Outcome != judge.Approve {
		t.Errorf("another instance: %+v", d)
	}
	j.model.approve.Store(false)

	decide := func(note, context, key string) string {
		r, err := j.Decide(t.Context(), agent, engine.DecideRequest{
			Workflow: "judged", State: "open", Action: "close", Key: key,
			Data: json.RawMessage(fmt.Sprintf(`{"note":%q}`, note)), Context: json.RawMessage(context),
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.Decision.Code
	}
	for i := range 3 {
		decide("squash"+strings.Repeat("!", i), `{"pr":1}`, fmt.Sprint("key ", i)) // a different key is not a different question
	}
	if code := decide("squash...", `{"pr":1}`, ""); code != judge.CodeLoopGuard {
		t.Errorf("the same context: %s", code)
	}
	if code := decide("squash...", `{"pr":2}`, ""); code == judge.CodeLoopGuard {
		t.Error("another context is held up as well")
	}
}

// The judge configuration shows when the loop guard applies and who lifts it.
func TestJudgeConfigExplainsTheLoopGuard(t *testing.T) {
	t.Parallel()
	j := newJudged(t, memory.New(), "m")
	strict := true
	set, err := j.ConfigureJudge(t.Context(), operator, engine.JudgeConfigRequest{Name: "judged", Settings: workflow.JudgeSettings{StrictMode: &strict}})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := j.DescribeAt(t.Context(), agent, engine.DescribeRequest{Name: "judged"})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{set.Config.LoopGuard, seen.Judge.LoopGuard} {
		if !strings.Contains(text, "3 refusals") || !strings.Contains(text, "within 24h (") || !strings.Contains(text, "workflow.judge.clear") {
			t.Errorf("%q", text)
		}
	}
	if _, err := j.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(strings.NewReplacer(`"judged"`, `"plain"`, `"useLLM":true,`, ``).Replace(judgedFlow))}); err != nil {
		t.Fatal(err)
	}
	if plain, err := j.DescribeAt(t.Context(), agent, engine.DescribeRequest{Name: "plain"}); err != nil || plain.Judge.LoopGuard != "" {
		t.Errorf("%q, %v", plain.Judge.LoopGuard, err)
	}
}

func TestLoopGuardForgets(t *testing.T) {
	t.Parallel()
	refuse := func(j *judged, times int) {
		for i := range times {
			j.advance(agent, closing(j.start(), "nothing was done"+report+strings.Repeat(".", i)))
		}
	}
	last := func(j *judged) engine.Decision {
		return j.advance(agent, closing(j.start(), "nothing was done"+report+"?"))
	}

	t.Run("after its window", func(t *testing.T) {
		t.Parallel()
		j := newJudged(t, memory.New(), "m")
		refuse(j, 3)
		j.clock = j.clock.Add(24*time.Hour + time.Minute)
		if d := last(j); d.Code == judge.CodeLoopGuard || d.DecidedBy != judge.LayerModel {
			t.Errorf("%+v", d)
		}
	})
	t.Run("after an approval", func(t *testing.T) {
		t.Parallel()
		j := newJudged(t, memory.New(), "m")
		refuse(j, 2)
		j.model.approve.Store(true)
		if d := last(j); d.Outcome != judge.Approve {
			t.Fatalf("%+v", d)
		}
		j.model.approve.Store(false)
		refuse(j, 1)
		if d := last(j); d.Code == judge.CodeLoopGuard {
			t.Errorf("the refusals before the approval still count: %+v", d)
		}
	})
	t.Run("not after a pre-check that approves", func(t *testing.T) {
		t.Parallel()
		j := newJudged(t, memory.New(), "m")
		refuse(j, 2)
		j.model.approve.Store(true)
		if checked, err := j.Validate(t.Context(), agent, closing(j.start(), "nothing was done"+report+"!")); err != nil || !checked.Approved {
			t.Fatalf("%+v, %v", checked, err)
		}
		j.model.approve.Store(false)
		if d := last(j); d.Code != judge.CodeLoopGuard {
			t.Errorf("asking was enough to be forgiven: %+v", d)
		}
	})
	t.Run("when an operator says so", func(t *testing.T) {
		t.Parallel()
		j := newJudged(t, memory.New(), "m")
		refuse(j, 3)
		for _, p := range []engine.Principal{agent, reviewer, auditor} {
			if _, err := j.ClearRefusals(t.Context(), p, engine.ClearRefusalsRequest{Workflow: "judged"}); engine.CodeOf(err) != engine.CodeForbidden {
				t.Errorf("%s: %v", p.Role, err)
			}
		}
		if _, err := j.ClearRefusals(t.Context(), operator, engine.ClearRefusalsRequest{}); engine.CodeOf(err) != engine.CodeInvalidArgument {
			t.Errorf("everything of everybody: %v", err)
		}
		if n, err := j.ClearRefusals(t.Context(), operator, engine.ClearRefusalsRequest{Principal: agent.ID}); err != nil || n.Forgotten != 3 {
			t.Errorf("%+v, %v", n, err)
		}
		if d := last(j); d.Code == judge.CodeLoopGuard {
			t.Errorf("%+v", d)
		}
	})
	t.Run("an endpoint that fails counts for nothing", func(t *testing.T) {
		t.Parallel()
		j := newJudged(t, memory.New(), "m")
		j.model.fail.Store(true)
		refuse(j, 5)
		j.model.fail.Store(false)
		j.model.approve.Store(true)
		if d := last(j); d.Outcome != judge.Approve {
			t.Errorf("%+v", d)
		}
	})
}

// The guard can be lifted for one instance alone. Reviews that are open only because of it are closed, and
// the identical question goes to the model again, even if another principal was refused.
func TestLoopGuardIsLiftedForOneInstance(t *testing.T) {
	t.Parallel()
	j := newJudgedWith(t, memory.New(), func(m *judge.ModelConfig, c *engine.Config) {
		ask, kept := m.Completer, map[string]llm.Reply{} // as the model's client does
		m.Completer = llm.CompleterFunc(func(ctx context.Context, req llm.Request) (llm.Reply, error) {
			if r, ok := kept[req.Key]; ok {
				return r, nil
			}
			r, err := ask.Complete(ctx, req)
			if err == nil && req.Keep(r.Answer) {
				kept[req.Key] = r
			}
			return r, err
		})
		c.ReviewPath = true
	}, "m")
	held, also := j.start(), j.start()
	refuse := func(id string) engine.AdvanceResult {
		var last engine.AdvanceResult
		for _, note := range []string{"squash", "squash.", "squash!"} {
			var err error
			if last, err = j.Advance(t.Context(), agent, closing(id, note)); err != nil {
				t.Fatal(err)
			}
		}
		return last
	}
	waits, other := refuse(held), refuse(also)
	if waits.Decision.Code != judge.CodeLoopGuard || waits.Review == nil || other.Review == nil {
		t.Fatalf("%+v\n%+v", waits, other)
	}
	_, err := j.ClearRefusals(t.Context(), engine.Principal{ID: "op:x", Role: engine.RoleOperator, Workflows: "none"}, engine.ClearRefusalsRequest{ID: held})
	wantCode(t, err, engine.CodeUnknownInstance)
	if n, err := j.ClearRefusals(t.Context(), operator, engine.ClearRefusalsRequest{ID: held, Action: "another"}); err != nil || n.Forgotten != 0 || n.Released != 0 {
		t.Errorf("another action: %+v, %v", n, err)
	}
	n, err := j.ClearRefusals(t.Context(), operator, engine.ClearRefusalsRequest{ID: held})
	if err != nil || n.Forgotten != 3 || n.Released != 1 {
		t.Fatalf("%+v, %v", n, err)
	}
	for id, want := range map[string]record.ReviewStatus{waits.Review.ID: record.ReviewStale, other.Review.ID: record.ReviewOpen} {
		if r, err := j.Review(t.Context(), operator, id); err != nil || r.Status != want {
			t.Errorf("%+v, %v; want %s", r, err, want)
		}
	}
	asked := j.model.calls.Load()
	if again, err := j.Advance(t.Context(), agent, closing(held, "squash!")); err != nil || j.model.calls.Load() != asked+1 || again.Decision.Code == judge.CodeLoopGuard || again.Review != nil {
		t.Errorf("the lifted: %d calls, %+v, %v", j.model.calls.Load()-asked, again, err)
	}
	if same, err := j.Advance(t.Context(), agent, closing(also, "squash!")); err != nil || same.Review == nil || same.Review.ID != other.Review.ID {
		t.Errorf("the other: %+v, %v", same, err)
	}
	// Reviews that are open for another reason stay open.
	j.model.fail.Store(true)
	third, err := j.Advance(t.Context(), agent, closing(j.start(), "rebase"))
	if err != nil || third.Review == nil || third.Decision.Code != judge.CodeJudgeUnavailable {
		t.Fatalf("%+v, %v", third, err)
	}
	if n, err := j.ClearRefusals(t.Context(), operator, engine.ClearRefusalsRequest{Workflow: "judged"}); err != nil || n.Released != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	if r, err := j.Review(t.Context(), operator, third.Review.ID); err != nil || r.Status != record.ReviewOpen {
		t.Errorf("%+v, %v", r.ReviewSummary, err)
	}
}

// The same case gets the recorded refusal without a model call, also for another principal.
func TestSameCaseIsAskedOnce(t *testing.T) {
	t.Parallel()
	j := newJudged(t, memory.New(), "m")
	first := j.advance(agent, closing(j.start(), "did it"))
	again := j.advance(agent, closing(j.start(), "did it"))
	if j.model.calls.Load() != 1 || again.Outcome != first.Outcome || again.Confidence != first.Confidence || !slices.Equal(again.Violations, first.Violations) {
		t.Errorf("%d calls, %+v then %+v", j.model.calls.Load(), first, again)
	}
	j.advance(agent, closing(j.start(), "did it!")) // similar, but not the same
	if j.model.calls.Load() != 2 {
		t.Errorf("%d calls", j.model.calls.Load())
	}
	// An approval is never reused, not even for the same principal.
	j.model.approve.Store(true)
	j.advance(agent, closing(j.start(), "Replaced the pump"))
	before := j.model.calls.Load()
	j.advance(agent, closing(j.start(), "Replaced the pump"))
	if j.model.calls.Load() == before {
		t.Error("an approval of another instance was reused")
	}
}

// A replay does not count as a second attempt.
func TestReplayCountsOnce(t *testing.T) {
	t.Parallel()
	j := newJudged(t, memory.New(), "m")
	req := closing(j.start(), "did it")
	req.Key = "k"
	for range 5 {
		got, err := j.Advance(t.Context(), agent, req)
		if err != nil || got.Decision.Code == judge.CodeLoopGuard {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if j.model.calls.Load() != 1 {
		t.Errorf("%d calls", j.model.calls.Load())
	}
}

// Parallel callers cannot all pass before the first refusal is counted.
func TestParallelAttemptsCount(t *testing.T) {
	t.Parallel()
	j := newJudged(t, memory.New(), "m")
	const attempts = 12
	ids := make([]string, attempts)
	for i := range ids {
		ids[i] = j.start()
	}
	var guarded atomic.Int32
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			got, err := j.Advance(context.Background(), agent, closing(id, "did it"+report+strings.Repeat("!", i)))
			if err != nil {
				t.Errorf("%v", err)
			} else if got.Decision.Code == judge.CodeLoopGuard {
				guarded.Add(1)
			}
		})
	}
	wg.Wait()
	if calls := j.model.calls.Load(); calls != 3 || guarded.Load() != attempts-2 {
		t.Errorf("%d calls and %d times the loop guard for %d attempts", calls, guarded.Load(), attempts)
	}
}

// The model's configuration and the criteria of another principal's definition are hidden from the agents
// that are judged.
func TestHistoryHidesTheModelFromTheJudged(t *testing.T) {
	t.Parallel()
	j := newJudged(t, memory.New(), "m")
	id := j.start()
	j.advance(agent, closing(id, "did it"))
	asked := func(p engine.Principal) *judge.ModelRecord {
		t.Helper()
		h, err := j.History(t.Context(), p, engine.HistoryRequest{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range h.Decisions[len(h.Decisions)-1].Opinions {
			if op.Model != nil {
				return op.Model
			}
		}
		t.Fatalf("%s sees no model in %+v", p.Role, h)
		return nil
	}
	if a := asked(agent); a.Model != "m" || a.Criteria != nil || a.RefusalLimit != 0 || a.Endpoint != "" || a.Stated != 0 {
		t.Errorf("the agent sees %+v", a)
	}
	for _, p := range []engine.Principal{operator, reviewer, auditor} {
		if a := asked(p); len(a.Criteria) != 1 || a.RefusalLimit == 0 || a.Stated == 0 {
			t.Errorf("%s sees %+v", p.Role, a)
		}
	}
}

// A new field of judge.ModelRecord stays hidden from the agents that are judged until it is listed.
func TestJudgedAgentsSeeOnlyListedFields(t *testing.T) {
	t.Parallel()
	db := memory.New()
	j := newJudged(t, db, "m")
	id := j.start()
	j.advance(agent, closing(id, "did it"))
	h, err := j.History(t.Context(), agent, engine.HistoryRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []string{`"endpoint"`, `"breaker"`, `"detail"`, `"refusalLimit"`, `"costUSD"`, `"rung"`, `"promptTokens"`, `"criteria"`, `onfidence":0.97`} {
		if strings.Contains(string(raw), hidden) {
			t.Errorf("the judged sees %s: %s", hidden, raw)
		}
	}
}

// The model must be one that an operator configured.
func TestConfigureModel(t *testing.T) {
	t.Parallel()
	j := newJudged(t, memory.New(), "small", "large")
	set := func(p engine.Principal, workflowName, model string) (engine.JudgeConfigResult, error) {
		return j.ConfigureJudge(t.Context(), p, engine.JudgeConfigRequest{Name: workflowName, Settings: workflow.JudgeSettings{Model: &model}})
	}
	_, err := set(operator, "judged", "larg")
	if e := wantCode(t, err, engine.CodeInvalidArgument); e.Path != "/model" || !strings.Contains(e.Error(), `"large"`) || !strings.Contains(e.Error(), "small, large") {
		t.Errorf("%+v", e)
	}
	_, err = set(agent, "judged", "large")
	wantCode(t, err, engine.CodeForbidden)
	if r, err := set(operator, "judged", "large"); err != nil || r.Config.Model != "large" {
		t.Errorf("%+v, %v", r, err)
	}

	if _, err := j.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(named(judgedFlow, "own"))}); err != nil {
		t.Fatal(err)
	}
	if r, err := set(agent, "own", "small"); err != nil || r.Config.Model != "small" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := set(operator, "own", "large"); err != nil {
		t.Fatal(err)
	}
	_, err = set(agent, "own", "small") // the operator has chosen
	wantCode(t, err, engine.CodeForbidden)

	none := newJudged(t, memory.New())
	_, err = none.ConfigureJudge(t.Context(), operator, engine.JudgeConfigRequest{Name: "judged", Settings: workflow.JudgeSettings{Model: new("m")}})
	if e := wantCode(t, err, engine.CodeInvalidArgument); !strings.Contains(e.Hint, "configured at all") {
		t.Errorf("%+v", e)
	}
}

// A refusal that has to be sealed again after another event counts once.
func TestResealedRefusalCountsOnce(t *testing.T) {
	t.Parallel()
	db := &interrupting{Store: memory.New()}
	j := newJudged(t, db, "m")
	id := j.start()
	db.before = func() { // between the judgement and its commit
		db.before = nil
		if _, err := j.Checkpoint(context.Background(), agent, engine.CheckpointRequest{ID: id}); err != nil {
			t.Error(err)
		}
	}
	j.advance(agent, closing(id, "did it"))
	if db.lessons != 2 || db.kept != 1 {
		t.Fatalf("%d commits with a lesson, %d went through; want 2 and 1", db.lessons, db.kept)
	}
	h, err := j.History(t.Context(), operator, engine.HistoryRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	j.advance(agent, closing(j.start(), "did it!"))
	h2, err := j.History(t.Context(), operator, engine.HistoryRequest{ID: id})
	if err != nil || len(h2.Decisions) != len(h.Decisions) {
		t.Fatalf("%+v, %v", h2, err)
	}
	if n, err := j.ClearRefusals(t.Context(), operator, engine.ClearRefusalsRequest{Workflow: "judged"}); err != nil || n.Forgotten != 2 {
		t.Errorf("%+v refusals are kept, %v; want one for each of two decisions", n, err)
	}
}

// interrupting is a store that runs a function once, before a commit.
type interrupting struct {
	store.Store
	before        func()
	lessons, kept int
}

func (s *interrupting) Commit(ctx context.Context, c store.Commit) error {
	if c.Lesson == nil {
		return s.Store.Commit(ctx, c)
	}
	if s.before != nil {
		s.before()
	}
	s.lessons++
	err := s.Store.Commit(ctx, c)
	if err == nil {
		s.kept++
	}
	return err
}

func TestStatusWarnsOfAMissingModel(t *testing.T) {
	t.Parallel()
	picky := strings.Replace(named(judgedFlow, "picky"), `"useLLM":true`, `"useLLM":true,"model":"large"`, 1)
	for _, c := range []struct {
		models       []string
		plain, picks string // the expected warning of each workflow, "" for none
	}{
		{nil, "none is configured", "none is configured"},
		{[]string{"m"}, "", `the model "large", which is not configured`},
		{[]string{"m", "large"}, "", ""},
	} {
		j := newJudged(t, memory.New(), c.models...)
		if _, err := j.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(picky)}); err != nil {
			t.Fatal(err)
		}
		for workflowName, want := range map[string]string{"judged": c.plain, "picky": c.picks} {
			started, err := j.Start(t.Context(), agent, engine.StartRequest{Type: workflowName})
			if err != nil {
				t.Fatal(err)
			}
			status, err := j.Status(t.Context(), agent, started.ID)
			if err != nil || (len(status.Warnings) == 1) != (want != "") || want != "" && !strings.Contains(status.Warnings[0], want) {
				t.Errorf("%s with %v: %q, %v; want %q", workflowName, c.models, status.Warnings, err, want)
			}
		}
	}
}

// The keys disclose nothing about the data, and differ if the questions differ.
func TestIdentityAndGuard(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var seen []judge.Case
	b.judge.before = func(_ context.Context, c judge.Case) error { seen = append(seen, c); return nil }
	if _, err := b.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(judgedFlow)}); err != nil {
		t.Fatal(err)
	}
	ask := func(p engine.Principal, note string) judge.Case {
		t.Helper()
		started, err := b.Start(t.Context(), p, engine.StartRequest{Type: "judged"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Advance(t.Context(), p, closing(started.ID, note)); err != nil {
			t.Fatal(err)
		}
		return seen[len(seen)-1]
	}
	one, same, reworded, else1 := ask(agent, "Did it"+report), ask(agent, "Did it"+report), ask(agent, "did IT!"+report), ask(other, "Did it"+report)
	inRole := ask(operator, "Did it"+report)
	switch {
	case one.Identity == "" || one.Guard == "" || one.Identity != same.Identity || one.Guard != same.Guard:
		t.Errorf("the same question on two instances: %q %q, %q %q", one.Identity, one.Guard, same.Identity, same.Guard)
	case reworded.Identity == one.Identity || reworded.Guard != one.Guard:
		t.Error("a rewording is another case and the same guard")
	case else1.Guard == one.Guard || else1.Identity != one.Identity:
		t.Error("somebody else is counted for himself")
	case inRole.Identity == one.Identity:
		t.Error("the model is shown the role, and another one is the same question")
	case strings.Contains(fmt.Sprint(one.Identity, one.Guard), "Did"):
		t.Error("the keys show the data")
	}
}

// A review that is open only because no model answered is judged when the request is repeated and a model
// answers. Until then the request joins the same review.
func TestRecoveredModelIsAsked(t *testing.T) {
	t.Parallel()
	j := newJudgedWith(t, memory.New(), func(_ *judge.ModelConfig, c *engine.Config) { c.ReviewPath = true }, "m")
	id := j.start()
	j.model.fail.Store(true)
	j.model.approve.Store(true)
	first := j.advanced(t, id, "did all of it today")
	if first.Decision.Code != judge.CodeJudgeUnavailable || first.Review == nil {
		t.Fatalf("%+v", first)
	}
	if again := j.advanced(t, id, "did all of it today"); again.Review == nil || again.Review.ID != first.Review.ID {
		t.Errorf("without a model: %+v, want the review %s", again, first.Review.ID)
	}
	j.model.fail.Store(false)
	if back := j.advanced(t, id, "did all of it today"); !back.Decision.Applied || back.Review != nil {
		t.Errorf("with a model: %+v", back)
	}
	if r, err := j.Review(t.Context(), operator, first.Review.ID); err != nil || r.Status != record.ReviewStale {
		t.Errorf("%+v, %v", r.ReviewSummary, err)
	}
}

// Another judge configuration is another question: an open request is judged again, once.
func TestChangedConfigurationIsJudgedAgain(t *testing.T) {
	t.Parallel()
	j := newJudgedWith(t, memory.New(), func(_ *judge.ModelConfig, c *engine.Config) { c.ReviewPath = true }, "m")
	id := j.start()
	j.model.fail.Store(true)
	first := j.advanced(t, id, "did all of it today")
	strictest := 0.95
	if _, err := j.ConfigureJudge(t.Context(), operator, engine.JudgeConfigRequest{Name: "judged", Settings: workflow.JudgeSettings{MinConfidence: &strictest}}); err != nil {
		t.Fatal(err)
	}
	second := j.advanced(t, id, "did all of it today")
	if second.Review == nil || second.Review.ID == first.Review.ID {
		t.Fatalf("%+v, want another review than %s", second, first.Review.ID)
	}
	if third := j.advanced(t, id, "did all of it today"); third.Review == nil || third.Review.ID != second.Review.ID {
		t.Errorf("%+v, want the review %s", third, second.Review.ID)
	}
}

func (j *judged) advanced(t *testing.T, id, note string) engine.AdvanceResult {
	t.Helper()
	r, err := j.Advance(t.Context(), agent, closing(id, note))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
