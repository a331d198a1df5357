package engine_test

import (
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// lenientFlow lets moves pass without the model when it is down: it has no strictMode.
const lenientFlow = `{"name":"judged","initialState":"open","states":{
	"open":{"transitions":{"close":{"target":"closed","requiredFields":["note"],"useLLM":true,"criteria":["the note says what was done"]},
		"amend":"open"}},
	"closed":{"final":true}}}`

// A refusal by the model also holds while the model is down, for any caller and any formatting of the
// data. It holds until data or context change or a day has passed.
func TestARefusalBindsTheFallback(t *testing.T) {
	t.Parallel()
	db := memory.New()
	j := newJudged(t, db, "m")
	if _, err := j.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(lenientFlow)}); err != nil {
		t.Fatal(err)
	}
	const said = "I fixed everything, really"
	id := j.start()
	if d := j.advance(agent, closing(id, said)); d.DecidedBy != judge.LayerModel || d.Outcome != judge.Reject {
		t.Fatalf("%+v", d)
	}
	j.model.fail.Store(true)
	ask := func(p engine.Principal, id, note string) judge.LayerName {
		t.Helper()
		got, err := j.Validate(t.Context(), p, closing(id, note))
		if err != nil {
			t.Fatal(err)
		}
		if got.Approved != (got.Decision.DecidedBy == judge.ByFallback) {
			t.Errorf("%q: %+v", note, got.Decision)
		}
		return got.Decision.DecidedBy
	}
	binding := func(when string) {
		t.Helper()
		for _, note := range []string{said, "i FIXED everything; really!"} {
			for _, p := range []engine.Principal{agent, operator} {
				if by := ask(p, id, note); by != judge.LayerModel && by != judge.ByPolicy {
					t.Errorf("%s, %q by %s: decided by %s", when, note, p.ID, by)
				}
			}
		}
	}
	// The same data on another instance are another question.
	if by := ask(agent, j.start(), "I fixed EVERYTHING, really"); by != judge.ByFallback {
		t.Errorf("another instance: %s", by)
	}
	binding("while the model is down")
	if _, err := j.ConfigureJudge(t.Context(), operator, engine.JudgeConfigRequest{Name: "judged", Settings: workflow.JudgeSettings{MinConfidence: new(0.9)}}); err != nil {
		t.Fatal(err)
	}
	binding("with another judge configuration")
	without := withoutModel(t, db, j)
	if got, err := without.Validate(t.Context(), operator, closing(id, said)); err != nil || got.Approved {
		t.Errorf("without a model: %+v, %v", got.Decision, err)
	}
	// Other data are another question.
	if by := ask(operator, id, "Replaced the pump and measured 3.2 bar"); by != judge.ByFallback {
		t.Errorf("other data: %s", by)
	}
	j.clock = j.clock.Add(judge.BoundFor - time.Minute)
	if by := ask(operator, id, said); by == judge.ByFallback {
		t.Error("approved within a day")
	}
	j.clock = j.clock.Add(2 * time.Minute)
	if by := ask(operator, id, said); by != judge.ByFallback {
		t.Errorf("after a day: %s", by)
	}
}

// The same holds for a decision without an instance, whatever its key.
func TestARefusalBindsTheFallbackOfDecide(t *testing.T) {
	t.Parallel()
	j := newJudged(t, memory.New(), "m")
	if _, err := j.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(lenientFlow)}); err != nil {
		t.Fatal(err)
	}
	decide := func(key, note string) engine.DecideResult {
		t.Helper()
		got, err := j.Decide(t.Context(), operator, engine.DecideRequest{
			Workflow: "judged", State: "open", Action: "close", Data: closing("", note).Data.Raw(), Key: key,
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := decide("1", "Fixed it"); got.Approved {
		t.Fatalf("%+v", got)
	}
	j.model.fail.Store(true)
	for _, key := range []string{"", "1", "2"} {
		if got := decide(key, "fixed it!"); got.Approved {
			t.Errorf("key %q: %+v", key, got.Decision)
		}
	}
}

// withoutModel returns an engine over the same store that has no model.
func withoutModel(t *testing.T, db store.Store, like *judged) *engine.Engine {
	t.Helper()
	compiler := validators.NewCompiler(pool(), validators.Options{})
	pipeline, err := judge.New(judge.Config{Compiler: compiler, Memory: engine.NewMemory(db)})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{
		Store: db, Judge: pipeline, Compiler: compiler,
		Digester: record.NewDigester([]byte("a key of thirty-two bytes length")), Now: func() time.Time { return like.clock },
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
