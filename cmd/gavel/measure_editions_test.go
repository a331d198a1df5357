package main

import (
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure"
	"github.com/gavel-mcp/gavel/judge"
)

// The newest edition of the prompt asks the golden set's questions with a third fewer characters than the one before,
// as an endpoint that enforces the schema gets them.
func TestNewestPromptIsShorter(t *testing.T) {
	t.Parallel()
	set, err := measure.ReadGolden(t.Context(), []string{goldenFolder}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	builder := &measure.CaseBuilder{Set: set, Definitions: measure.NewDefinitionCache()}
	size := map[string]int{}
	for _, c := range goldenCases(t) {
		question, err := builder.Build(c)
		if err != nil {
			t.Fatal(c.ID, err)
		}
		for _, edition := range []string{"v3", "v4"} {
			question.Rubric.Prompt = edition
			prompt, err := judge.Show(question)
			if err != nil {
				t.Fatal(c.ID, err)
			}
			size[edition] += len(prompt.System) + len(prompt.User)
		}
	}
	t.Logf("v4 asks with %.1f %% of v3's characters", 100*float64(size["v4"])/float64(size["v3"]))
	if 3*size["v4"] > 2*size["v3"] {
		t.Errorf("v3 %d, v4 %d characters", size["v3"], size["v4"])
	}
}
