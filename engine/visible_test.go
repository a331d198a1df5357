package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

const refundFlow = `{"name":"refund","initialState":"asked","states":{
	"asked":{"transitions":{"ask":{"target":"asked","requireAssurance":"human"},"approve":"approved"}},
	"approved":{"transitions":{"pay":"paid","back":"asked"}},"paid":{"final":true}}}`

// After an operator has taken a name over, an instance of an agent's version cannot move until an operator
// migrates it. Every result about it names the owner of its version.
func TestATakenNameStopsTheAgentsInstances(t *testing.T) {
	t.Parallel()
	b := newReviewBench(t)
	b.define(agent, refundFlow)
	own := b.start(agent, "refund", `{}`)
	id := own.ID
	if own.DefinitionOwner != engine.OwnedByCaller {
		t.Errorf("started as %q", own.DefinitionOwner)
	}
	b.moved(agent, id, "approve", `{}`, "approved")
	waits := b.start(agent, "refund", `{}`).ID
	review := b.parked(agent, waits, "ask", `{}`).ID
	done := b.start(agent, "refund", `{}`).ID
	b.moved(agent, done, "approve", `{}`, "approved")
	b.moved(agent, done, "pay", `{}`, "paid")
	cp, err := b.Checkpoint(t.Context(), agent, engine.CheckpointRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}

	b.define(operator, strings.Replace(refundFlow, `"approve":"approved"`, `"approve":{"target":"approved","requiredFields":["receipt"]}`, 1))
	seq := b.load(id).Seq
	for _, p := range []engine.Principal{agent, operator} {
		for name, try := range map[string]func() error{
			"advance": func() error {
				_, err := b.Advance(t.Context(), p, engine.AdvanceRequest{ID: id, Action: "pay"})
				return err
			},
			"validate": func() error {
				_, err := b.Validate(t.Context(), p, engine.AdvanceRequest{ID: id, Action: "pay"})
				return err
			},
			"an approval": func() error { _, err := b.resolve(rita, review, judge.Approve); return err },
		} {
			e := wantCode(t, try(), engine.CodeDefinitionTakenOver)
			if e.Current == nil || len(e.Current.NextActions) > 0 || !strings.Contains(e.Hint, "migrate") {
				t.Errorf("%s by %s: %+v, %+v", name, p.ID, e, e.Current)
			}
		}
	}
	_, err = b.Undo(t.Context(), operator, engine.UndoRequest{ID: id})
	wantCode(t, err, engine.CodeDefinitionTakenOver)
	_, err = b.Rollback(t.Context(), operator, engine.RollbackRequest{ID: id, CheckpointID: cp.CheckpointID})
	wantCode(t, err, engine.CodeDefinitionTakenOver)
	if b.load(id).Seq != seq {
		t.Error("something was recorded")
	}

	for p, owner := range map[engine.Principal]engine.DefinitionOwner{agent: engine.OwnedByCaller, operator: engine.OwnedByOther} {
		status, err1 := b.Status(t.Context(), p, id)
		can, err2 := b.CanExecute(t.Context(), p, engine.CanExecuteRequest{ID: id, States: []string{"approved"}})
		ended, err3 := b.CanExecute(t.Context(), p, engine.CanExecuteRequest{ID: done, States: []string{"paid"}})
		list, err4 := b.Instances(t.Context(), p, engine.InstancesRequest{})
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
			t.Fatal(err1, err2, err3, err4)
		}
		if status.DefinitionOwner != owner || len(status.NextActions) > 0 || !strings.HasPrefix(status.Progress, "Stopped") {
			t.Errorf("%s: status %+v", p.ID, status.Position)
		}
		if can.Allowed || ended.Allowed || can.DefinitionOwner != owner || can.Reason == "" {
			t.Errorf("%s: canExecute %+v, %+v", p.ID, can, ended)
		}
		for _, i := range list.Instances {
			if i.DefinitionOwner != owner {
				t.Errorf("%s: list %+v", p.ID, i)
			}
		}
	}

	if _, err := b.resolve(rita, review, judge.Reject); err != nil {
		t.Error(err)
	}
	if _, err := b.Cancel(t.Context(), agent, engine.CancelRequest{ID: waits}); err != nil {
		t.Error(err)
	}
	if _, err := b.Migrate(t.Context(), operator, engine.MigrateRequest{Workflow: "refund"}); err != nil {
		t.Fatal(err)
	}
	b.moved(agent, id, "pay", `{}`, "paid")
	if status, err := b.Status(t.Context(), agent, id); err != nil || status.DefinitionOwner != engine.OwnedByOperator {
		t.Errorf("migrated: %+v, %v", status.Position, err)
	}
}

// A workflow of another agent looks missing in every operation that takes a name, until an operator shares
// it.
func TestAgentsSeeTheirOwnDefinitions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const hidden, absent = "payments-a", "payments-q"
	b.define(agent, named(refundFlow, hidden))
	b.define(operator, simple)
	b.define(other, named(refundFlow, "payments-own"))

	ask := func(p engine.Principal, name string) map[string]string {
		answers := map[string]string{}
		tell := func(what string, answer any, err error) {
			text, _ := json.Marshal(answer)
			if err != nil {
				text = []byte(string(engine.CodeOf(err)) + " " + err.Error())
			}
			answers[what] = strings.ReplaceAll(string(text), name, "NAME")
		}
		d, err := b.Describe(t.Context(), p, name, 0)
		tell("describe", d, err)
		d, err = b.Describe(t.Context(), p, name, 1)
		tell("describe a version", d, err)
		d, err = b.DescribeAt(t.Context(), p, engine.DescribeRequest{Name: name, When: engine.When{At: b.now.Add(-10)}})
		tell("describe as of a time", d, err)
		s, err := b.Start(t.Context(), p, engine.StartRequest{Type: name})
		if err == nil {
			s = engine.StartResult{}
		}
		tell("start", s, err)
		g, err := b.Diagram(t.Context(), p, engine.DiagramRequest{Name: name})
		tell("diagram", g, err)
		c, err := b.Decide(t.Context(), p, engine.DecideRequest{Workflow: name, State: "asked", Action: "approve"})
		c.Decision = engine.Decision{}
		tell("decide", c, err)
		strict := true
		j, err := b.ConfigureJudge(t.Context(), p, engine.JudgeConfigRequest{Name: name, Settings: workflow.JudgeSettings{StrictMode: &strict}})
		tell("configure", j, err)
		return answers
	}
	listed := func(p engine.Principal) string {
		all, err := b.List(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range all {
			names = append(names, d.Name)
		}
		return strings.Join(names, " ")
	}
	same := func() {
		t.Helper()
		no := ask(other, absent)
		for what, got := range ask(other, hidden) {
			if got != no[what] || !strings.HasPrefix(got, "unknown_workflow ") {
				t.Errorf("%s: %s\nof a name that does not exist: %s", what, got, no[what])
			}
		}
		if got := listed(other); got != "payments-own simple" {
			t.Errorf("listed: %s", got)
		}
	}
	same()
	if _, err := b.Describe(t.Context(), other, "payments-b", 0); strings.Contains(err.Error(), hidden) {
		t.Errorf("suggested: %v", err)
	}
	for _, p := range []engine.Principal{agent, operator, reviewer, auditor} {
		if _, err := b.Describe(t.Context(), p, hidden, 0); err != nil {
			t.Errorf("%s: %v", p.ID, err)
		}
	}
	_, err := b.Define(t.Context(), other, engine.DefineRequest{Source: "test", Document: []byte(named(simple, hidden))})
	if e := wantCode(t, err, engine.CodeForbidden); strings.Contains(e.Error(), agent.ID) || strings.Contains(e.Error(), "asked") {
		t.Errorf("a taken name tells %v", e)
	}

	yes, no := true, false
	share := func(p engine.Principal, name string, shared *bool) error {
		_, err := b.ConfigureJudge(t.Context(), p, engine.JudgeConfigRequest{Name: name, Settings: workflow.JudgeSettings{Shared: shared}})
		return err
	}
	wantCode(t, share(agent, hidden, &yes), engine.CodeForbidden)
	wantCode(t, share(operator, "simple", &yes), engine.CodeInvalidArgument)
	b.share(hidden)
	for what, got := range ask(other, hidden) {
		if what != "configure" && (strings.HasPrefix(got, "unknown_workflow") || strings.HasPrefix(got, "forbidden")) {
			t.Errorf("shared, %s: %s", what, got)
		}
	}
	if got := listed(other); got != hidden+" payments-own simple" {
		t.Errorf("shared, listed: %s", got)
	}
	id := b.start(other, hidden, `{}`).ID
	if status, err := b.Status(t.Context(), other, id); err != nil || status.DefinitionOwner != engine.OwnedByOther {
		t.Errorf("an instance of a shared workflow: %+v, %v", status.Position, err)
	}
	if err := share(operator, hidden, &no); err != nil {
		t.Fatal(err)
	}
	same()
	b.moved(other, id, "approve", `{}`, "approved") // a started instance continues
}

// definitionsStore counts the definitions that are read.
type definitionsStore struct {
	*memory.Store
	read atomic.Int64
}

func (s *definitionsStore) Definition(ctx context.Context, name string, version int) (store.Definition, error) {
	s.read.Add(1)
	return s.Store.Definition(ctx, name, version) //nolint:wrapcheck // what it counts
}

// A move along an agent's newest version reads no definition to check for a takeover by an operator, and
// still detects one by any process.
func TestAMoveReadsNoDefinitionToSeeATakeover(t *testing.T) {
	t.Parallel()
	s := &definitionsStore{Store: memory.New()}
	b := newBenchOn(t, s)
	b.define(agent, simple)
	id := b.start(agent, "simple", `{}`).ID
	s.read.Store(0)
	b.moved(agent, id, "go", `{}`, "b")
	if n := s.read.Load(); n != 0 {
		t.Errorf("%d definitions were read", n)
	}
	newBenchOn(t, s).define(operator, simple)
	_, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "back"})
	wantCode(t, err, engine.CodeDefinitionTakenOver)
}
