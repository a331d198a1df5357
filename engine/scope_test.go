package engine_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
)

// A caller with a scope can use only workflows in it; all others look missing.
func TestScope(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"deploy", "refund-small", "refund-large", "hr"} {
		b.define(operator, named(simple, name))
	}
	whole := b.start(agent, "hr", "")
	b.moved(agent, whole.ID, "go", "", "b")
	inside := b.start(agent, "refund-small", "")
	narrow := agent
	narrow.Workflows = "deploy refund-*"
	ctx := t.Context()

	for op, call := range map[string]func() error{
		"status": func() error { _, err := b.Status(ctx, narrow, whole.ID); return err },
		"advance": func() error {
			_, err := b.Advance(ctx, narrow, engine.AdvanceRequest{ID: whole.ID, Action: "go"})
			return err
		},
		"validate": func() error {
			_, err := b.Validate(ctx, narrow, engine.AdvanceRequest{ID: whole.ID, Action: "go"})
			return err
		},
		"cancel":     func() error { _, err := b.Cancel(ctx, narrow, engine.CancelRequest{ID: whole.ID}); return err },
		"undo":       func() error { _, err := b.Undo(ctx, narrow, engine.UndoRequest{ID: whole.ID}); return err },
		"checkpoint": func() error { _, err := b.Checkpoint(ctx, narrow, engine.CheckpointRequest{ID: whole.ID}); return err },
		"history":    func() error { _, err := b.History(ctx, narrow, engine.HistoryRequest{ID: whole.ID}); return err },
		"tail":       func() error { _, err := b.Tail(ctx, narrow, engine.TailRequest{Instance: whole.ID}); return err },
		"diagram":    func() error { _, err := b.Diagram(ctx, narrow, engine.DiagramRequest{ID: whole.ID}); return err },
	} {
		if got, want := engine.CodeOf(call()), engine.CodeUnknownInstance; got != want {
			t.Errorf("%s of an instance out of scope: got %q, want %q", op, got, want)
		}
	}
	for op, call := range map[string]func() error{
		"describe": func() error { _, err := b.Describe(ctx, narrow, "hr", 0); return err },
		"start":    func() error { _, err := b.Start(ctx, narrow, engine.StartRequest{Type: "hr"}); return err },
		"diagram":  func() error { _, err := b.Diagram(ctx, narrow, engine.DiagramRequest{Name: "hr"}); return err },
		"configure": func() error {
			_, err := b.ConfigureJudge(ctx, narrow, engine.JudgeConfigRequest{Name: "hr"})
			return err
		},
		"decide": func() error {
			_, err := b.Decide(ctx, narrow, engine.DecideRequest{Workflow: "hr", State: "a", Action: "go"})
			return err
		},
		"a near name": func() error { _, err := b.Describe(ctx, narrow, "hrr", 0); return err },
	} {
		err := call()
		if engine.CodeOf(err) != engine.CodeUnknownWorkflow && op != "configure" {
			t.Errorf("%s of a workflow out of scope: %v", op, err)
		}
		if err == nil || strings.Contains(err.Error(), `"hr"?`) {
			t.Errorf("%s tells of what is out of scope: %v", op, err)
		}
	}
	all, err := b.List(ctx, narrow)
	if err != nil || len(all) != 3 {
		t.Errorf("the list has %d workflows (%v), want the 3 in scope", len(all), err)
	}
	page, err := b.Instances(ctx, narrow, engine.InstancesRequest{})
	if err != nil || page.Count != 1 || page.Instances[0].ID != inside.ID {
		t.Errorf("the list has %+v (%v), want the instance in scope", page, err)
	}
	found, err := b.Decisions(ctx, narrow, engine.DecisionsRequest{})
	if err != nil || found.Count != 1 || found.Decisions[0].Workflow != "refund-small" {
		t.Errorf("found %+v (%v), want the decision in scope", found, err)
	}
	tail, err := b.Tail(ctx, narrow, engine.TailRequest{})
	if err != nil || len(tail.Events) != 1 || tail.Next != 3 {
		t.Errorf("the tail is %+v (%v), want one event, and to go on behind all 3", tail, err)
	}
}

// Pages of a caller with a scope are as full as those of others.
func TestScopePages(t *testing.T) {
	b := newBench(t)
	b.define(operator, named(simple, "in"))
	b.define(operator, named(simple, "out"))
	for range 7 {
		b.start(agent, "in", "")
		b.start(agent, "out", "")
	}
	narrow := agent
	narrow.Workflows = "in"
	seen, cursor := 0, ""
	for {
		page, err := b.Instances(t.Context(), narrow, engine.InstancesRequest{Limit: 2, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		seen += page.Count
		if cursor = page.NextCursor; cursor == "" {
			break
		}
		if page.Count != 2 {
			t.Fatalf("a page of %d before the last", page.Count)
		}
	}
	if seen != 7 {
		t.Errorf("saw %d instances, want 7", seen)
	}
}

// The result of a key is not returned to a credential that can no longer use the workflow.
func TestScopeOfReplays(t *testing.T) {
	b := newBench(t)
	b.define(operator, named(simple, "hr"))
	first, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "hr", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	narrow := agent
	narrow.Workflows = "deploy"
	again, err := b.Start(t.Context(), narrow, engine.StartRequest{Type: "hr", Key: "k"})
	if err == nil || again.ID == first.ID {
		t.Errorf("told of %q (%v)", again.ID, err)
	}
}

func TestScopeOfTheWholeStore(t *testing.T) {
	b := newBench(t)
	narrow := operator
	narrow.Workflows = "*-team"
	_, err := b.Verify(t.Context(), narrow, audit.VerifyRequest{})
	wantCode(t, err, engine.CodeForbidden)
	_, err = b.Define(t.Context(), narrow, engine.DefineRequest{Document: []byte(named(simple, "hr"))})
	wantCode(t, err, engine.CodeForbidden)
	if _, err = b.Define(t.Context(), narrow, engine.DefineRequest{Document: []byte(named(simple, "hr-team"))}); err != nil {
		t.Errorf("a name in scope: %v", err)
	}
}

// A pattern matches the same names as the corresponding regular expression.
func TestScopePatterns(t *testing.T) {
	b := newBench(t)
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{1,5}`).Draw(t, "pattern")
		name := rapid.StringMatching(`[ab]{1,6}`).Draw(t, "name")
		p := engine.Principal{ID: "x", Role: engine.RoleAgent, Workflows: pattern}
		_, err := b.Define(t.Context(), p, engine.DefineRequest{Document: []byte(named(simple, name))})
		if got, want := engine.CodeOf(err) != engine.CodeForbidden, wild(pattern, name); got != want {
			t.Fatalf("%q of %q: allowed %v, want %v (%v)", name, pattern, got, want, err)
		}
	})
}

// wild matches by trying every possibility.
func wild(pattern, name string) bool {
	switch {
	case pattern == "":
		return name == ""
	case pattern[0] == '*':
		return wild(pattern[1:], name) || name != "" && wild(pattern, name[1:])
	default:
		return name != "" && name[0] == pattern[0] && wild(pattern[1:], name[1:])
	}
}
