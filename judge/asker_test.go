package judge_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
)

// TestAskWithinBudget: other questions use the same budget as judgements, unless no model was asked.
func TestAskWithinBudget(t *testing.T) {
	t.Parallel()
	var fails error
	layer, err := judge.NewModel(judge.ModelConfig{Budget: 2, Completer: llm.CompleterFunc(func(context.Context, llm.Request) (llm.Reply, error) {
		return llm.Reply{Text: "yes", Calls: 1}, fails
	})})
	if err != nil {
		t.Fatal(err)
	}
	asker, ok := layer.(judge.Asker)
	if !ok {
		t.Fatal("the layer is no Asker")
	}
	for _, row := range []struct {
		name, caller string
		fails        error
		busy         bool
	}{
		{"the first", "ann", nil, false},
		{"no model was asked", "ann", &llm.Error{Class: llm.ClassBreakerOpen}, false},
		{"one that fails", "ann", &llm.Error{Class: llm.ClassTimeout, Calls: 1}, false},
		{"the third", "ann", nil, true},
		{"of somebody else", "ben", nil, false},
	} {
		fails = row.fails
		_, err := asker.Ask(t.Context(), llm.Request{Caller: row.caller})
		if _, busy := errors.AsType[*judge.BusyError](err); busy != row.busy || !busy && !errors.Is(err, row.fails) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
