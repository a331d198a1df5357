package engine_test

import (
	"context"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// TestAccess covers every operation, role and owner. A cell is the expected code, "" for allowed.
func TestAccess(t *testing.T) {
	t.Parallel()
	const (
		ok = engine.Code("")
		no = engine.CodeForbidden
		// An agent gets the same error as for a missing one.
		none   = engine.CodeUnknownInstance
		hidden = engine.CodeUnknownWorkflow
	)
	// The columns: agent on its own definition and instance; another agent on
	// them; the agent on an operator's definition (its own instance); operator,
	// reviewer and auditor on the agent's definition and instance.
	columns := []string{"owner", "other agent", "owner on operator's", "operator", "reviewer", "auditor"}
	type bundle struct {
		b            *bench
		p            engine.Principal
		workflow, id string
		cp           string
	}
	setup := func(t *testing.T, column string) bundle {
		t.Helper()
		b := newBench(t)
		definer, caller := agent, agent
		switch column {
		case "other agent":
			caller = other
		case "owner on operator's":
			definer = operator
		case "operator":
			caller = operator
		case "reviewer":
			caller = reviewer
		case "auditor":
			caller = auditor
		}
		b.define(definer, simple)
		id := b.start(agent, "simple", "").ID
		cp, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		return bundle{b: b, p: caller, workflow: "simple", id: id, cp: cp.CheckpointID}
	}
	rows := []struct {
		op   string
		call func(context.Context, bundle) error
		want [6]engine.Code
	}{
		{"redefine", func(ctx context.Context, x bundle) error {
			_, err := x.b.Define(ctx, x.p, engine.DefineRequest{Document: []byte(`{"name":"simple","initialState":"z","states":{"z":{"final":true}}}`)})
			return err
		}, [6]engine.Code{ok, no, no, ok, no, no}},
		{"define new", func(ctx context.Context, x bundle) error {
			_, err := x.b.Define(ctx, x.p, engine.DefineRequest{Document: []byte(named(simple, "new"))})
			return err
		}, [6]engine.Code{ok, ok, ok, ok, no, no}},
		{"list", func(ctx context.Context, x bundle) error { _, err := x.b.List(ctx, x.p); return err }, [6]engine.Code{}},
		{"describe", func(ctx context.Context, x bundle) error {
			_, err := x.b.Describe(ctx, x.p, "simple", 0)
			return err
		}, [6]engine.Code{ok, hidden, ok, ok, ok, ok}},
		{"start", func(ctx context.Context, x bundle) error {
			_, err := x.b.Start(ctx, x.p, engine.StartRequest{Type: "simple"})
			return err
		}, [6]engine.Code{ok, hidden, ok, ok, no, no}},
		{"advance", func(ctx context.Context, x bundle) error {
			_, err := x.b.Advance(ctx, x.p, engine.AdvanceRequest{ID: x.id, Action: "go"})
			return err
		}, [6]engine.Code{ok, none, ok, ok, ok, no}},
		{"validate", func(ctx context.Context, x bundle) error {
			_, err := x.b.Validate(ctx, x.p, engine.AdvanceRequest{ID: x.id, Action: "go"})
			return err
		}, [6]engine.Code{ok, none, ok, ok, ok, no}},
		{
			"status", func(ctx context.Context, x bundle) error { _, err := x.b.Status(ctx, x.p, x.id); return err },
			[6]engine.Code{ok, none, ok, ok, ok, ok},
		},
		{"history", func(ctx context.Context, x bundle) error {
			_, err := x.b.History(ctx, x.p, engine.HistoryRequest{ID: x.id})
			return err
		}, [6]engine.Code{ok, none, ok, ok, ok, ok}},
		{"listCheckpoints", func(ctx context.Context, x bundle) error {
			_, err := x.b.ListCheckpoints(ctx, x.p, x.id)
			return err
		}, [6]engine.Code{ok, none, ok, ok, ok, ok}},
		{"canExecute", func(ctx context.Context, x bundle) error {
			_, err := x.b.CanExecute(ctx, x.p, engine.CanExecuteRequest{ID: x.id, States: []string{"a"}})
			return err
		}, [6]engine.Code{ok, none, ok, ok, ok, ok}},
		{"diagram", func(ctx context.Context, x bundle) error {
			_, err := x.b.Diagram(ctx, x.p, engine.DiagramRequest{ID: x.id})
			return err
		}, [6]engine.Code{ok, none, ok, ok, ok, ok}},
		{"checkpoint", func(ctx context.Context, x bundle) error {
			_, err := x.b.Checkpoint(ctx, x.p, engine.CheckpointRequest{ID: x.id})
			return err
		}, [6]engine.Code{ok, none, ok, ok, no, no}},
		{"rollback", func(ctx context.Context, x bundle) error {
			_, err := x.b.Rollback(ctx, x.p, engine.RollbackRequest{ID: x.id, CheckpointID: x.cp})
			return err
		}, [6]engine.Code{ok, none, no, ok, no, no}},
		{"cancel", func(ctx context.Context, x bundle) error {
			_, err := x.b.Cancel(ctx, x.p, engine.CancelRequest{ID: x.id})
			return err
		}, [6]engine.Code{ok, none, ok, ok, no, no}},
		{"loosen the judge", func(ctx context.Context, x bundle) error {
			_, err := x.b.ConfigureJudge(ctx, x.p, engine.JudgeConfigRequest{Name: "simple", Settings: workflow.JudgeSettings{Enabled: new(false)}})
			return err
		}, [6]engine.Code{ok, hidden, no, ok, no, no}},
		{"tighten the judge", func(ctx context.Context, x bundle) error {
			_, err := x.b.ConfigureJudge(ctx, x.p, engine.JudgeConfigRequest{Name: "simple", Settings: workflow.JudgeSettings{StrictMode: new(true)}})
			return err
		}, [6]engine.Code{ok, hidden, ok, ok, no, no}},
		{"clear refusals", func(ctx context.Context, x bundle) error {
			_, err := x.b.ClearRefusals(ctx, x.p, engine.ClearRefusalsRequest{Principal: agent.ID})
			return err
		}, [6]engine.Code{no, no, no, ok, no, no}},
	}
	for _, row := range rows {
		for i, column := range columns {
			t.Run(row.op+"/"+column, func(t *testing.T) {
				t.Parallel()
				x := setup(t, column)
				err := row.call(t.Context(), x)
				if got := engine.CodeOf(err); got != row.want[i] {
					t.Errorf("got %q (%v), want %q", got, err, row.want[i])
				}
			})
		}
	}
}

func TestInvalidPrincipalsHaveNoRights(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, p := range []engine.Principal{{}, {ID: "x"}, {ID: "x", Role: "root"}, {Role: engine.RoleOperator}} {
		_, err := b.List(t.Context(), p)
		wantCode(t, err, engine.CodeForbidden)
	}
}

func TestAgentsListTheirOwnInstances(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, simple)
	for range 3 {
		b.start(agent, "simple", "")
	}
	b.start(other, "simple", "")
	for _, c := range []struct {
		p    engine.Principal
		want int
	}{{agent, 3}, {other, 1}, {operator, 4}, {auditor, 4}} {
		seen := map[string]bool{}
		req := engine.InstancesRequest{Limit: 2}
		for {
			r, err := b.Instances(t.Context(), c.p, req)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range r.Instances {
				seen[i.ID] = true
			}
			if req.Cursor = r.NextCursor; req.Cursor == "" {
				break
			}
		}
		if len(seen) != c.want {
			t.Errorf("%s sees %d instances, want %d", c.p.ID, len(seen), c.want)
		}
	}
}

// Agents cannot loosen the judge that judges them: their settings apply only to their own instances, and
// only the operator lifts them.
func TestJudgeConfiguration(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, `{"name":"op","initialState":"a","judgeConfig":{"minConfidence":0.5},
		"transitionValidators":{"go":"() => ({valid: true, confidence: 0.6})"},
		"states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`)
	configure := func(p engine.Principal, s workflow.JudgeSettings) (engine.JudgeConfigResult, error) {
		return b.ConfigureJudge(t.Context(), p, engine.JudgeConfigRequest{Name: "op", Settings: s})
	}
	running := b.start(agent, "op", "").ID
	r, err := configure(agent, workflow.JudgeSettings{StrictMode: new(true), MinConfidence: new(0.9)})
	if err != nil || !r.Success || !r.Config.StrictMode || r.Config.MinConfidence != nil {
		t.Fatalf("tighten: %+v %v", r, err)
	}
	b.refused(agent, running, "go", "", "low_confidence") // also for running instances
	b.moved(other, b.start(other, "op", "").ID, "go", "", "b")
	for _, s := range []workflow.JudgeSettings{
		{Enabled: new(false)}, {StrictMode: new(false)}, {MinConfidence: new(0.1)}, {UseLLM: new(false)}, {UseLLM: new(true)},
	} {
		_, err := configure(agent, s)
		wantCode(t, err, engine.CodeForbidden)
	}
	for _, s := range []workflow.JudgeSettings{{}, {MinConfidence: new(1.5)}, {MinConfidence: new(-0.1)}, {Model: new("x")}} {
		_, err := configure(operator, s)
		wantCode(t, err, engine.CodeInvalidArgument)
	}
	if _, err := configure(operator, workflow.JudgeSettings{MinConfidence: new(0.55)}); err != nil {
		t.Fatal(err)
	}
	b.moved(agent, running, "go", "", "b") // the operator's later revision lifts the key
	ev := b.events(running)
	if last := ev[len(ev)-1]; last.JudgeConfigHash == "" || last.JudgeConfigHash == ev[0].JudgeConfigHash {
		t.Errorf("the decision names the judge configuration: %q", last.JudgeConfigHash)
	}
	_, err = b.ConfigureJudge(t.Context(), operator, engine.JudgeConfigRequest{Name: "oops", Settings: workflow.JudgeSettings{Enabled: new(true)}})
	wantCode(t, err, engine.CodeUnknownWorkflow)
}

func TestOwnerMayNotLoosenTheOperatorsConfig(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	set := func(p engine.Principal, s workflow.JudgeSettings) error {
		_, err := b.ConfigureJudge(t.Context(), p, engine.JudgeConfigRequest{Name: "simple", Settings: s})
		return err
	}
	for i, err := range []error{
		set(agent, workflow.JudgeSettings{StrictMode: new(true)}),
		set(agent, workflow.JudgeSettings{StrictMode: new(false)}),
		set(operator, workflow.JudgeSettings{StrictMode: new(true), MinConfidence: new(0.7)}),
		set(agent, workflow.JudgeSettings{MinConfidence: new(0.8)}),
	} {
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	wantCode(t, set(agent, workflow.JudgeSettings{StrictMode: new(false)}), engine.CodeForbidden)
	wantCode(t, set(agent, workflow.JudgeSettings{MinConfidence: new(0.2)}), engine.CodeForbidden)
}

func TestOperatorTakesANameOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(agent, simple)
	id := b.start(agent, "simple", "").ID
	cp, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	r := b.define(operator, simple)
	if r.Version != 2 || r.Owner != operator.ID {
		t.Fatalf("taken over: %+v", r)
	}
	_, err = b.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(simple)})
	wantCode(t, err, engine.CodeForbidden)
	_, err = b.Rollback(t.Context(), agent, engine.RollbackRequest{ID: id, CheckpointID: cp.CheckpointID})
	wantCode(t, err, engine.CodeForbidden)
}
